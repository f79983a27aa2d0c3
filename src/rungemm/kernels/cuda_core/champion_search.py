"""The fp32 champion's search space: settings by what was measured, and where the model promises clearly less time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from ...hardware import Gpu
from ...problem import Problem
from ..common import cdiv
from ..copies import copy_seconds
from .champion_choice import as_exact, few_settings, longest_allowed, microseconds
from .champion_config import ChampionConfig, realigned, unaligned

__all__ = ["model_us", "search_space"]


def search_space(problem: Problem, gpu: Gpu) -> Iterator[ChampionConfig]:
    """Settings for a problem on a card, the likeliest first; the order follows what was measured on an H200.

    Two blocks of 128x128 on an SM win wherever C has tiles enough for all of them: 128 registers a thread, no more,
    which addresses at the matrix's edges would otherwise exceed. With fewer tiles, K is split until every SM is full,
    and the smaller the product, the smaller the tile, since a block's way through memory takes its time.
    """
    tiles = cdiv(max(problem.m, 1), LARGE.tile_m) * cdiv(max(problem.n, 1), LARGE.tile_n)
    odd = unaligned(problem)
    allowed = longest_allowed(problem, odd, gpu)
    large = [as_exact(problem, config, allowed) for config in _large_settings(odd)]
    split = [as_exact(problem, config, allowed) for config in _small_settings(problem, gpu)]
    few = [as_exact(problem, config, allowed) for config in _few_settings(odd)]
    usual = large[0] if tiles >= 2 * gpu.sms else few[0] if _suits_few(problem, few[0], gpu) else split[0]
    # What goes first as measured stays first unless the model promises clearly less time for another. It knows too
    # little of large unaligned products, and of small tiles less than of the large one in parts.
    if not ((usual is large[0] and odd) or usual is few[0]):
        parted = [as_exact(problem, config, allowed) for config in _parted(problem, gpu)]
        bar = model_us(problem, usual, gpu)
        for found, share in ((parted, PARTS_BETTER), ([*split, *few], CLEARLY_BETTER)):
            best = min(found, key=lambda config: model_us(problem, config, gpu), default=usual)
            if model_us(problem, best, gpu) < share * bar:
                yield best
                break
    if usual is not split[0]:
        yield from large if usual is large[0] else few
    yield from split
    yield from few
    yield from large


def model_us(problem: Problem, config: ChampionConfig, gpu: Gpu) -> float:
    """Microseconds that a setting should take (:mod:`.champion_choice`)."""
    copies = copy_seconds(tuple(realigned(problem, config).values()), gpu)
    return microseconds(problem, config, gpu, unaligned(problem), 1e6 * copies)


CLEARLY_BETTER, PARTS_BETTER = 0.9, 0.96
LARGE = ChampionConfig(max_registers=128)
HALF, QUARTER = replace(LARGE, tile_m=64, num_warps=4), replace(LARGE, tile_m=64, tile_n=64, num_warps=2)
SMALL = ChampionConfig(4, 64, 64, 16, 8, 4)
DEEP, SHALLOW, TINY = replace(SMALL, tile_k=32), replace(SMALL, tile_k=8), replace(SMALL, tile_m=32, thread_m=4)
SMALL_CHOICES = (
    (LARGE, (2,)), (HALF, (4, 2)), (QUARTER, (8, 4)), (replace(QUARTER, tile_k=16), (8, 4)),
    (SHALLOW, (4,)), (SMALL, (4, 3)), (DEEP, (4,)), (replace(SMALL, num_warps=8, thread_m=4), (4, 2)),
    (TINY, (4, 2)), (replace(TINY, tile_k=32), (4, 2)),
)  # fmt: skip
"""Smaller tiles, each with the numbers of blocks for which K is split."""


@cache
def _large_settings(odd: bool) -> tuple[ChampionConfig, ...]:
    """The large tile: lanes, walks and tile orders; unaligned operands laid out anew first."""
    variants = [replace(LARGE, lanes_m=8), LARGE, *(replace(LARGE, group_m=group) for group in (4, 16))]
    variants += [replace(LARGE, interleaved=True), replace(LARGE, across=True)]
    variants += [
        replace(LARGE, tile_m=64, tile_n=256, thread_n=16, num_warps=4, max_registers=0),
        replace(LARGE, tile_m=256, num_warps=16),
    ]
    if not odd:
        return tuple(variants)
    # The walk by rows measured 1.052x cuBLAS at 4097x4095x4093, where the others came to 0.97 with the same sums.
    anew = [replace(config, realign=True) for config in (replace(LARGE, across=True), *variants)]
    return (*anew, replace(LARGE, interleaved=True), LARGE, replace(LARGE, splits=3))


@cache
def _few_settings(odd: bool) -> tuple[ChampionConfig, ...]:
    return tuple(few_settings(ChampionConfig(), odd))


def _suits_few(problem: Problem, few: ChampionConfig, gpu: Gpu) -> bool:
    """Whether such tiles, K split between a block's warps, make about a wave: measured first from 384^3 to 640^3."""
    if problem.m * problem.n * problem.effective_k >= 2**29 or few.splits > 1:
        return False
    waves = cdiv(problem.m, few.tile_m) * cdiv(problem.n, few.tile_n) * problem.batch / gpu.sms
    return 0.5 <= waves <= 1.6


def _parted(problem: Problem, gpu: Gpu) -> Iterator[ChampionConfig]:
    """K in two to five parts, which can fill the last of a few waves of tiles: 1.10x at 3072^3, 1.20x at 1536^3."""
    if problem.effective_k < 1024:
        return
    large = cdiv(max(problem.m, 1), LARGE.tile_m) * cdiv(max(problem.n, 1), LARGE.tile_n) * problem.batch
    if gpu.sms <= large <= 8 * gpu.sms:
        for config in (LARGE,) if large >= 2 * gpu.sms else (HALF, LARGE):
            yield from (config.with_(splits=splits) for splits in (5, 4, 3, 2))


def _small_settings(problem: Problem, gpu: Gpu) -> Iterator[ChampionConfig]:
    """Every tile with the splits that put so many blocks on every SM, fitting tiles first."""
    choices = list(SMALL_CHOICES)
    # What goes first, as measured. Below 1024 x 1024 x 512 latency decides, above it the rate of the inner loop.
    if max(problem.m, problem.n) <= SMALL.tile_m:
        choices.insert(0, (DEEP, (4,)))
    elif problem.m * problem.n * problem.effective_k < 2**29:
        # Addresses of unaligned operands take registers, which the smaller tile has left.
        choices.insert(0, (SHALLOW, (4,)) if unaligned(problem) else (HALF, (2,)))
    for config, blocks in choices:
        count = cdiv(max(problem.m, 1), config.tile_m) * cdiv(max(problem.n, 1), config.tile_n)
        longest = max(1, problem.effective_k // (2 * config.tile_k))
        for on_an_sm in blocks:
            splits = min(longest, max(1, on_an_sm * gpu.sms // count))
            # Two warps a block with all of K to walk reach half the rate that their number promises (1536^3).
            if splits > 1 or config.num_warps > 2 or count <= gpu.sms:
                yield config.with_(splits=splits)
