"""How long a setting of the champion should take: a model, in microseconds, to rank settings before any is timed.

The busiest SM decides: its blocks' multiply-adds, at the share of its peak that a thread's tile reaches. Beyond that a
launch takes its time, operands that are laid out anew are moved twice, and K split over blocks takes a second launch,
which reads the parts. Fitted to 54 problems and 281 settings timed on an H200 (results/h200: fp32 of raw/ and tuning/),
its times are 5.6% off in the root mean square, and what it ranks first takes 1.009 times the best in the geometric
mean. They are too short by an eighth where K is many times M and N.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...hardware import Gpu
from ...problem import Problem
from ..common import cdiv

if TYPE_CHECKING:
    from .champion import ChampionConfig

__all__ = ["few_settings", "microseconds"]

LAUNCH = 2.4
"""A launch, the first tiles from DRAM, and D."""
SECOND_LAUNCH = 3.2
"""The launch that adds up partial sums, besides what is moved,"""
SUM_BYTES = 6.4e12
"""bytes a second, mostly in L2: each partial sum is written and read."""
DRAM_SHARE = 0.86
ALONE = 4.5
"""Of w warps on an SM, fewer than the eight that keep it busy, the rate is w / (w + ALONE) of what w would let hope."""


@dataclass(frozen=True)
class Rates:
    """The share of an SM's multiply-adds that a kernel reaches with eight warps or more on it.

    Attributes:
        whole, half, quarter: by a thread's tile: 64 elements and more, 32, 16.
        few: K split between the warps of a block, 8x8 a thread; small: the same with 4x4.
        edge: what is left where tiles reach beyond the matrices, unless the operands are laid out anew.
        unaligned: what is left of ``few`` where operands come four bytes at a time (from 333x777x555).
    """

    whole: float = 0.795
    half: float = 0.683
    quarter: float = 0.534
    few: float = 0.506
    small: float = 0.435
    edge: float = 0.858
    unaligned: float = 0.58


RATES = Rates()


def microseconds(problem: Problem, config: ChampionConfig, gpu: Gpu, unaligned: bool, copies: float = 0.0) -> float:
    """The model's time of a setting on a card; ``unaligned``: an operand cannot be copied 16 bytes at a time.

    ``copies``: microseconds of the launches before, that lay operands out anew.
    """
    m, n, k = max(problem.m, 1), max(problem.n, 1), max(problem.effective_k, 1)
    tiles = cdiv(m, config.tile_m) * cdiv(n, config.tile_n) * max(problem.batch, 1)
    steps = cdiv(k, config.tile_k)
    splits = min(config.splits, steps)
    blocks = cdiv(tiles * splits, gpu.sms)
    elements = config.thread_m * config.thread_n
    if config.k_groups > 1:
        rate = RATES.few if elements >= 64 else RATES.small
        rate *= RATES.unaligned if unaligned else 1.0
    else:
        rate = RATES.whole if elements >= 64 else RATES.half if elements >= 32 else RATES.quarter
        if not copies and (m % config.tile_m or n % config.tile_n):
            rate *= RATES.edge
    warps = config.num_warps * blocks
    if warps < 8:
        rate *= warps / (warps + ALONE) * (8 + ALONE) / 8
    flops = 2.0 * blocks * config.tile_m * config.tile_n * cdiv(steps, splits) * config.tile_k
    busy = flops * gpu.sms / (rate * gpu.peaks["fp32"]) * 1e-6
    if splits > 1:
        busy += SECOND_LAUNCH + 8e6 * splits * problem.batch * m * n / SUM_BYTES
    return LAUNCH + copies + max(busy, problem.minimum_bytes / (DRAM_SHARE * gpu.dram_gbs * 1e3))


def few_settings(base: ChampionConfig) -> list[ChampionConfig]:
    """Tiles whose K is split between the warps of a block, the one measured first; ``base`` has all the defaults."""
    few = replace(
        base, num_warps=8, tile_m=32, tile_n=64, tile_k=64, thread_m=8, thread_n=8, group_m=1, k_groups=8, stages=4
    )
    small = replace(few, tile_m=16, tile_n=32, thread_m=4, thread_n=4)
    return [few, small, replace(few, interleaved=True), replace(few, tile_k=32), replace(small, tile_k=32)]
