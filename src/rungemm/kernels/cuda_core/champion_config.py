"""A setting of the fp32 champion, and which operands it lays out anew."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ...problem import Matrix, Problem
from ..copies import Copy
from .simt import SimtConfig

__all__ = ["ChampionConfig", "realigned", "unaligned", "vector_of"]


@dataclass(frozen=True)
class ChampionConfig(SimtConfig):
    """One setting of the champion.

    Attributes:
        thread_m, thread_n: a thread's tile: groups of 4x4 neighbours, the groups equally far apart. 4, 8 or 16.
        lanes_m: lanes of a warp down the tile; 32 / lanes_m lie across.
        interleaved: lanes alternate between the two directions, so that both fragments' loads are merged in pairs.
        splits: parts of K that different programs compute.
        pinned: multiply-adds stay in the order written; otherwise LLVM sorts them.
        across: a thread's tile is walked row by row; otherwise column by column.
        flush_k: after so many steps along K the sums are added to totals in a workspace and start anew, which makes
            long sums more exact; a multiple of 2 tile_k, or 0 for one sum.
        realign: operands that cannot be copied 16 bytes at a time are first laid out anew by a launch of their own.
        k_groups: over 1, so many groups of warps split K within a block (:mod:`.champion_few_kernel`), and then
        stages: buffers of each operand's tile,
        strips: what is left at the edges of D gets long, thin tiles of its own, and
        parts: a buffer's copies go out in so many parts, between multiply-adds; 1: all of them before.
    """

    num_warps: int = 8
    tile_m: int = 128
    tile_n: int = 128
    tile_k: int = 8
    thread_m: int = 8
    thread_n: int = 8
    group_m: int = 8
    lanes_m: int = 4
    interleaved: bool = False
    splits: int = 1
    pinned: bool = True
    flush_k: int = 0
    across: bool = False
    realign: bool = False
    k_groups: int = 1
    stages: int = 2
    strips: bool = False
    parts: int = 1

    @property
    def warps_m(self) -> int:
        return self.tile_m // (self.thread_m * self.lanes_m)

    @property
    def warps_n(self) -> int:
        return self.num_warps // self.warps_m


def vector_of(matrix: Matrix, k_stride: int, other_stride: int) -> int:
    """Neighbours that one load moves: 4 where every line of them starts and ends at a multiple of 16 bytes, else 1."""
    turned = k_stride == 1 and other_stride != 1
    pitch, extent = other_stride if turned else k_stride, matrix.cols if matrix.col_stride == 1 else matrix.rows
    whole = matrix.alignment % 16 == 0 and pitch % 4 == 0 and extent % 4 == 0
    return 4 if whole and (turned or other_stride == 1) else 1


def realigned(problem: Problem, config: ChampionConfig) -> dict[str, Copy]:
    """The operands that are laid out anew, by role: neighbours along a tile's rows, padded to whole lines."""
    a, b, copies = problem.a, problem.b, {}
    if config.realign and min(problem.m, problem.n, problem.effective_k) > 0:
        if vector_of(a, a.col_stride, a.row_stride) == 1:
            copies["A"] = Copy("A", a, columns=True)
        if vector_of(b, b.row_stride, b.col_stride) == 1:
            copies["B"] = Copy("B", b, columns=False)
    return copies


@lru_cache(maxsize=64)  # asked once for every setting of a problem
def unaligned(problem: Problem) -> bool:
    """An operand cannot be copied 16 bytes at a time as it lies."""
    return bool(realigned(problem, ChampionConfig(realign=True)))
