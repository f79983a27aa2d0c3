"""Performance on paper: occupancy, roofline, traffic for one element of C, wave quantisation. No triton, no torch."""

from .occupancy import Occupancy, occupancy
from .roofline import Roofline, peak_kind, roofline, roofline_of
from .traffic import Accesses, accesses_per_element
from .waves import Waves, tile_efficiency, waves

__all__ = [
    "Accesses",
    "Occupancy",
    "Roofline",
    "Waves",
    "accesses_per_element",
    "occupancy",
    "peak_kind",
    "roofline",
    "roofline_of",
    "tile_efficiency",
    "waves",
]
