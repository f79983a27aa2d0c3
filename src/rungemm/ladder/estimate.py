"""How long the simulator will take, before it is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..kernels import Kernel

__all__ = ["simulated_seconds"]

SECONDS_A_STEP = 250e-6
"""Of one step of a program along K, with counting, measured on one core of the machine this was written on."""

ELEMENTS_A_SECOND = 2.0e8
"""Multiply-adds a second inside large tiles, likewise."""


def simulated_seconds(kernels: Sequence[Kernel[Any]], shape: tuple[int, int, int]) -> float:
    """Seconds to simulate the rungs one after the other, within a factor of two or three.

    A program costs a fixed time for each step along K, whatever its tile, and its multiply-adds on top.
    """
    m, n, k = shape
    total = 0.0
    for kernel in kernels:
        default = getattr(kernel, "default", None)
        tile_m, tile_n, tile_k = (getattr(default, name, 64) for name in ("tile_m", "tile_n", "tile_k"))
        programs = -(-m // tile_m) * -(-n // tile_n)
        steps = -(-k // max(tile_k, 1)) * max(min(tile_k, 32), 1)
        total += programs * steps * (SECONDS_A_STEP + tile_m * tile_n / ELEMENTS_A_SECOND)
    return total
