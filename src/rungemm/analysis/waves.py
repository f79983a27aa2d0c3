"""Wave quantisation: the last, partly filled round of blocks takes as long as a full one.

A card runs ``SMs * blocks an SM`` blocks at once, a wave; a grid of one block more takes two. Source: NVIDIA, "Matrix
Multiplication Background User's Guide", section on tile and wave quantisation.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Waves", "tile_efficiency", "waves"]


@dataclass(frozen=True)
class Waves:
    """How a grid falls into waves.

    Attributes:
        programs: blocks of the grid.
        slots: blocks that run at once.
    """

    programs: int
    slots: int

    @property
    def exact(self) -> float:
        """Waves if blocks could be cut: programs over slots."""
        return self.programs / self.slots

    @property
    def rounds(self) -> int:
        """Waves that really run."""
        return -(-self.programs // self.slots)

    @property
    def efficiency(self) -> float:
        """The share of the block slots, over all waves, that do work; 1 for an empty grid."""
        return self.exact / self.rounds if self.rounds else 1.0


def waves(programs: int, *, sms: int, blocks_per_sm: int) -> Waves:
    """The waves of a grid of ``programs`` blocks.

    Raises:
        ValueError: a negative grid, or a card that runs no block at all.
    """
    if programs < 0:
        raise ValueError(f"programs is {programs}: it must be 0 or more")
    if sms * blocks_per_sm < 1:
        raise ValueError(f"{sms} SMs with {blocks_per_sm} blocks each run nothing: a block must fit on an SM")
    return Waves(programs, sms * blocks_per_sm)


def tile_efficiency(m: int, n: int, tile_m: int, tile_n: int) -> float:
    """The share of the tiles' area that lies inside an m x n matrix: what ragged edges waste; 1 when it is empty.

    Raises:
        ValueError: a tile without rows or columns.
    """
    if tile_m < 1 or tile_n < 1:
        raise ValueError(f"tile is {tile_m}x{tile_n}: both must be 1 or more")
    covered = -(-m // tile_m) * tile_m * (-(-n // tile_n) * tile_n)
    return m * n / covered if covered else 1.0
