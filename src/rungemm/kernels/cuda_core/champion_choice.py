"""Which of the champion's settings goes first for a product of few tiles: a model of its time, in microseconds.

The busiest SM decides: its blocks' multiply-adds, at the share of its peak that a kernel reaches. Beyond that a launch
takes its time, and K split over blocks takes a second one. The figures were fitted to an H200 (``fp32-small`` and
``fp32-retry`` of results/h200, see docs/log.md): 512x512x512 and 256x256x16384 in few tiles, and 512^3 and 1024^3 split
over blocks, which they give back within 7%. They only rank settings; ``rungemm tune`` measures.
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

LAUNCH = 3.2
"""A launch, the first tiles from DRAM, and D: what 512^3 and 256x256x16384 take beyond their multiply-adds."""
SECOND_LAUNCH = 3.5
"""The launch that adds up partial sums, with what it reads and writes."""


@dataclass(frozen=True)
class Rates:
    """The share of an SM's multiply-adds that a kernel reaches with eight warps or more on it.

    Attributes:
        split: K split over blocks (from 512^3 and 1024^3).
        few: K split between the warps of a block, 8x8 a thread (from 512^3 and 256x256x16384).
        small: the same with 4x4 a thread, which reads twice as much for a multiply-add: a guess, not measured.
        unaligned: what is left of ``few`` where operands come four bytes at a time (from 333x777x555).
    """

    split: float = 0.716
    few: float = 0.544
    small: float = 0.30
    unaligned: float = 0.58


RATES = Rates()


def microseconds(problem: Problem, config: ChampionConfig, gpu: Gpu, unaligned: bool) -> float:
    """The model's time of a setting on a card; ``unaligned``: an operand cannot be copied 16 bytes at a time."""
    tiles = cdiv(max(problem.m, 1), config.tile_m) * cdiv(max(problem.n, 1), config.tile_n)
    steps = cdiv(max(problem.effective_k, 1), config.tile_k)
    splits = min(config.splits, steps)
    blocks = cdiv(tiles * splits, gpu.sms)
    if config.k_groups > 1:
        rate = RATES.few if config.thread_m * config.thread_n >= 64 else RATES.small
        rate *= RATES.unaligned if unaligned else 1.0
    else:
        rate = RATES.split
    rate *= min(1.0, config.num_warps * blocks / 8)
    flops = 2.0 * blocks * config.tile_m * config.tile_n * cdiv(steps, splits) * config.tile_k
    busy = flops * gpu.sms / (rate * gpu.peaks["fp32"]) * 1e-6
    return LAUNCH + (SECOND_LAUNCH if splits > 1 else 0.0) + busy


def few_settings(base: ChampionConfig) -> list[ChampionConfig]:
    """Tiles whose K is split between the warps of a block, the one measured first; ``base`` has all the defaults."""
    few = replace(
        base, num_warps=8, tile_m=32, tile_n=64, tile_k=64, thread_m=8, thread_n=8, group_m=1, k_groups=8, stages=4
    )
    small = replace(few, tile_m=16, tile_n=32, thread_m=4, thread_n=4)
    return [few, small, replace(few, interleaved=True), replace(few, tile_k=32), replace(small, tile_k=32)]
