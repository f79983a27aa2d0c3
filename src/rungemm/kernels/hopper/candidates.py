"""The Hopper champion's tiles that are worth a try: one grid for every problem; :mod:`.estimate` ranks it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Shape", "shapes"]


@dataclass(frozen=True)
class Shape:
    """A tile and who multiplies it; the rest of a setting follows from it.

    Attributes:
        tile_m, tile_n: rows and columns of a tile.
        schedule: as in :class:`.champion.HopperConfig`.
        num_warps: of one multiplying partition.
        k_bytes: of a K step's row.
    """

    tile_m: int
    tile_n: int
    schedule: str
    num_warps: int
    k_bytes: int = 128


def shapes() -> Iterator[Shape]:
    """For large products first; narrow ones, for few rows or columns of D, take deeper K steps as well."""
    yield Shape(128, 128, "turns", 4)
    yield Shape(128, 256, "halves", 4)
    yield Shape(128, 256, "together", 8)
    yield Shape(256, 128, "halves", 4)
    yield Shape(64, 256, "turns", 4)
    yield Shape(128, 128, "halves", 4)
    yield Shape(128, 128, "together", 8)
    yield Shape(256, 64, "halves", 4)
    yield Shape(64, 128, "turns", 4)
    for tile_n in (256, 128, 64, 32, 16):
        for tile_m in (64, 128):
            if tile_m * tile_n <= 128 * 64 or (tile_m == 64 and tile_n == 128):
                for k_bytes in (128, 256):
                    yield Shape(tile_m, tile_n, "together", tile_m // 16, k_bytes)
    yield Shape(64, 256, "together", 4)
