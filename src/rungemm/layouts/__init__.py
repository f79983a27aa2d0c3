"""Layout maths in NumPy: register maps and shared maps of Gluon's layouts. Knows nothing of the simulator."""

from __future__ import annotations

from .linear import LinearLayout
from .maps import RegisterMap, SharedMap, register_map, shared_map

__all__ = ["LinearLayout", "RegisterMap", "SharedMap", "register_map", "shared_map"]
