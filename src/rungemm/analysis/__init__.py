"""Performance on paper: occupancy, roofline, traffic for one element of C, wave quantisation, where time goes.

No triton, no torch.
"""

from .budget import Part, time_budget
from .occupancy import Occupancy, occupancy
from .roofline import Roofline, peak_kind, roofline, roofline_of
from .traffic import Accesses, accesses_per_element
from .waves import Waves, tile_efficiency, waves

__all__ = [
    "Accesses",
    "Occupancy",
    "Part",
    "Roofline",
    "Waves",
    "accesses_per_element",
    "occupancy",
    "peak_kind",
    "roofline",
    "roofline_of",
    "tile_efficiency",
    "time_budget",
    "waves",
]
