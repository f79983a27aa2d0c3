"""The rungs in the order they are climbed. Adding a rung is adding its file and one line here."""

from __future__ import annotations

from typing import Any

from .base import Kernel
from .cuda_core.coalesced import Coalesced
from .cuda_core.naive import Naive
from .cuda_core.shared_tile import SharedTile
from .cuda_core.thread_tile_1d import ThreadTile1D
from .cuda_core.thread_tile_2d import ThreadTile2D
from .cuda_core.vectorised import Vectorised

__all__ = ["LADDER", "find_kernel"]

LADDER: tuple[Kernel[Any], ...] = (
    Naive(),
    Coalesced(),
    SharedTile(),
    ThreadTile1D(),
    ThreadTile2D(),
    Vectorised(),
)


def find_kernel(name: str) -> Kernel[Any]:
    """The rung of that name; "2d-thread-tile" style variations in case and dashes are forgiven.

    Raises:
        ValueError: unknown rung; the message lists the known ones.
    """
    key = name.strip().lower().replace("-", "_")
    for kernel in LADDER:
        if kernel.name == key:
            return kernel
    raise ValueError(f"rung {name!r} is unknown: use one of {', '.join(k.name for k in LADDER)}")
