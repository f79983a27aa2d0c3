"""How long a setting of the champion should take: a model, in microseconds, to rank settings before any is timed.

The busiest SM decides: its blocks' multiply-adds, at the share of its peak that a thread's tile reaches. Beyond that a
launch takes its time, operands that are laid out anew are moved twice, and K split over blocks takes a second launch,
which reads the parts. Fitted to 54 problems and 281 settings timed on an H200 (results/h200: fp32 of raw/ and tuning/),
its times are 5.6% off in the root mean square, and what it ranks first takes 1.009 times the best in the geometric
mean. They are too short by an eighth where K is many times M and N.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ...hardware import Gpu
from ...problem import Problem
from ..common import cdiv
from .champion_config import ChampionConfig

__all__ = ["as_exact", "few_settings", "longest_allowed", "longest_sum", "microseconds"]

SHARE_OF_K, SHORTEST_BOUND, LONGEST_BOUND = 4, 512, 1344
"""A running sum is a quarter of K at most; it need not be shorter than the second and may not exceed the third:
where cuBLAS parts K too, which is where its tiles leave a fifth of the last wave empty, or rows are not aligned."""
WHOLE_SUM, FULL_BOUND = 4096, 1792
"""Where tiles fill their waves, a sum may run so long; to twice that it is cut at the second, beyond at twice that.

The error of a sum of k products of normal data is 1.79e-8 sqrt(k) of the result (cuBLAS and champion, 2048 to 16384).
Read backwards, cuBLAS sums 512 at 1536^3, 768 at 3072^3, 1370 and 1260 of K = 4093 and 5003 (rows not aligned), 4096
at 12288^3, 1640 at 8192x4096x8192, 2730 at 16384x8192x8192, all of K = 2048 and 4096 in the 27 shapes, and 385 to 512
of K = 3584 and 4096 where M = 256. What its parts are for is not known; a cut costs the champion 0.4% of its time.
"""
FEW_BOUND, FEW_ROWS = 384, 256
"""The same where M or N is no more than the second, or the tiles are not enough for two blocks on every SM."""
WELL_FILLED = 0.8
FLUSHES = (384, 512, 768, 1024, 1344, 1792, 3584)
"""Where totals cut the sum: few lengths, as each is a kernel of its own; multiples of two tiles whatever TILE_K."""
SMALL_PRODUCT, SMALL_SHARE_OF_K, SMALL_BOUND = 2**29, 6, 128
"""Products below so many multiply-adds: cuBLAS sums 120 at 333x777x555, 128 at 511^3, 512^3 and 768^3."""

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
        few: K split between the warps of a block, 8x8 a thread; paired: the same interleaved; spread: and copies
            between the multiply-adds; small: 4x4.
        edge: what is left where tiles reach beyond the matrices, unless the operands are laid out anew.
        unaligned: what is left of ``few`` where operands come four bytes at a time (from 333x777x555).
    """

    whole: float = 0.795
    half: float = 0.683
    quarter: float = 0.534
    few: float = 0.506
    paired: float = 0.528
    spread: float = 0.57
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
        large = RATES.spread if config.parts > 1 else RATES.paired if config.interleaved else RATES.few
        rate = large if elements >= 64 else RATES.small
        rate *= RATES.unaligned if unaligned and not config.strips else 1.0
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


def longest_allowed(problem: Problem, unaligned: bool, gpu: Gpu) -> int:
    """How many products one running sum may add up, so that the error is no more than cuBLAS's.

    For products of normal data the error of a sum of k of them in fp32 is 1.79e-8 sqrt(k) of the result; partial sums
    that are added up at the end make it the error of the longest.
    """
    k = problem.effective_k
    if problem.m * problem.n * k < SMALL_PRODUCT:
        return max(SMALL_BOUND, k // SMALL_SHARE_OF_K)
    waves = cdiv(problem.m, 128) * cdiv(problem.n, 128) * problem.batch / (2 * gpu.sms)
    if waves < WELL_FILLED or min(problem.m, problem.n) <= FEW_ROWS:
        return FEW_BOUND
    if unaligned or waves / math.ceil(waves) < WELL_FILLED:
        return min(max(SHORTEST_BOUND, k // SHARE_OF_K), LONGEST_BOUND)
    if k <= WHOLE_SUM:
        return k
    return FULL_BOUND if k <= 2 * WHOLE_SUM else 2 * FULL_BOUND


def longest_sum(problem: Problem, config: ChampionConfig) -> int:
    """How many products the longest running sum of a setting adds up, short of what a last, odd tile adds."""
    steps = cdiv(max(problem.effective_k, 1), config.tile_k)
    if config.k_groups > 1:
        return cdiv(steps, config.splits) * config.tile_k // config.k_groups
    part = min(steps, 2 * cdiv(cdiv(steps, 2), config.splits)) * config.tile_k
    return min(part, config.flush_k or part)


def as_exact(problem: Problem, config: ChampionConfig, allowed: int) -> ChampionConfig:
    """The setting with sums of the length allowed: K in more parts where latency decides, else cut by totals."""
    k = max(problem.effective_k, 1)
    if longest_sum(problem, config) <= allowed:
        return config
    if config.k_groups > 1:
        share = allowed * config.k_groups // config.tile_k * config.tile_k
        return config.with_(splits=cdiv(k, max(config.tile_k, share)))
    if problem.m * problem.n * k < SMALL_PRODUCT:
        step = 2 * config.tile_k
        return config.with_(splits=max(config.splits, cdiv(k, max(step, allowed // step * step))))
    flush = max((flush for flush in FLUSHES if flush <= allowed), default=0)
    if flush == 0:
        return config  # all of a K that short may be one sum; it is too long by what a last, odd tile adds
    # Totals go through memory by lanes: with 8 rows of lanes in half sectors, up to 2.3% slower.
    return config.with_(flush_k=flush, lanes_m=min(config.lanes_m, 4))


def few_settings(base: ChampionConfig, unaligned: bool) -> list[ChampionConfig]:
    """Tiles whose K is split between the warps of a block, the one measured first; ``base`` has all the defaults."""
    few = replace(
        base, num_warps=8, tile_m=32, tile_n=64, tile_k=64, thread_m=8, thread_n=8, group_m=1, k_groups=8, stages=4
    )
    paired = replace(few, interleaved=True)
    # Copies between multiply-adds; unless told that it may, ptxas stops at 128 registers here.
    spread = replace(paired, lanes_m=8, parts=4, max_registers=224)
    small = replace(few, tile_m=16, tile_n=32, thread_m=4, thread_n=4, interleaved=True)
    if unaligned:
        return [replace(spread, stages=3, strips=True), small, paired, few, replace(small, interleaved=False)]
    return [spread, small, paired, few, replace(paired, tile_k=32), replace(small, tile_k=32)]
