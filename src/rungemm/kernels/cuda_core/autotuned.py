"""Rung 11, autotuned: the double buffer's kernel with the numbers that measure best on THIS card.

Tile, thread tile and depth pull against each other: reuse wants them large, occupancy and registers want them small, a
small product wants many blocks. No formula settles it, so every setting is tried. About four hundred survive the
predicate; for the others it says why not. ``rungemm tune 4096x4096x4096 --rung autotuned`` searches; the default is the
first to try.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from ...hardware import Gpu
from ...problem import Problem
from .double_buffer import DoubleBufferConfig, DoubleBufferKernel
from .simt import SimtConfig

__all__ = ["Autotuned", "search_space"]

TILES = (32, 64, 128, 256)
DEPTHS = (8, 16)
THREADS = (4, 8, 16)
PADS = (0, 4)


def search_space() -> Iterator[DoubleBufferConfig]:
    """Every combination, valid or not: the predicate sorts them. The number of warps follows from the tiles."""
    for tile_m, tile_n, tile_k, thread_m, thread_n, pad in product(TILES, TILES, DEPTHS, THREADS, THREADS, PADS):
        warps = tile_m * tile_n // (thread_m * thread_n * 32)
        yield DoubleBufferConfig(warps, tile_m, tile_n, tile_k, thread_m, thread_n, group_m=8, pad=pad)


class Autotuned(DoubleBufferKernel):
    name = "autotuned"
    idea = "about 400 valid settings of the double buffer, searched on the card at hand"
    expects = "the best setting differs from card to card and from shape to shape; none is best everywhere"
    below = "cp_async"
    default = DoubleBufferConfig(
        num_warps=8, tile_m=128, tile_n=256, tile_k=8, thread_m=8, thread_n=16, group_m=8, pad=4
    )

    def configs(self, problem: Problem, gpu: Gpu) -> Iterator[SimtConfig]:
        yield self.default
        yield from (config for config in search_space() if config != self.default)

    def rejects_layout(self, config: SimtConfig) -> str | None:
        if config.num_warps < 2:
            return f"{config.num_warps * 32} threads: fewer than 64 cannot hide one another's latency"
        if config.num_warps > 16:
            return f"{config.num_warps * 32} threads: more than 512 leave a thread fewer than 128 registers"
        return super().rejects_layout(config)
