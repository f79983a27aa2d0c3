"""Rung 9, K16 double buffer: sixteen steps along K to a tile, and larger tiles for a thread.

The kernel is the double buffer's; its numbers change. Twice as many multiply-adds lie between two barriers, and a
thread's 8x16 makes 128 of them from 24 values read (5.3 a value), where 8x8 makes 64 from 16 (4 a value): fewer shared
reads in the way of the arithmetic. The price is registers: 128 accumulators leave room for one block on an SM.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...hardware import Gpu
from ...problem import Problem
from .double_buffer import DoubleBufferConfig, DoubleBufferKernel
from .simt import SimtConfig

__all__ = ["DoubleBufferK16"]


class DoubleBufferK16(DoubleBufferKernel):
    name = "double_buffer_k16"
    idea = "16 steps along K to a tile, and thread tiles of 8x4, 8x8 and 8x16"
    expects = "half the barriers; shared reads for a multiply-add fall from 16/64 to 24/128; fewer blocks on an SM"
    below = "double_buffer"
    default = DoubleBufferConfig(num_warps=8, tile_m=128, tile_n=256, tile_k=16, thread_m=8, thread_n=16, pad=4)

    def configs(self, problem: Problem, gpu: Gpu) -> Iterator[SimtConfig]:
        yield self.default
        yield replace(self.default, tile_n=128, thread_n=8)
        yield replace(self.default, tile_n=64, thread_n=4)
