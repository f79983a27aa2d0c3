"""Rung 12, warp tile: a level between block and thread, for what a warp reads from shared memory.

So far a block's threads lay row by row over the tile: a warp of 2 x 16 threads spans much of the tile's width, so it
reads long rows of B for few rows of A. Here each warp owns a compact WARP_M x WARP_N part of the tile and walks it in
WARP_N_STEPS steps across (and as many down as its threads need). All warps together read fewer distinct values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ...compat import constexpr, gl, jit
from ...hardware import Gpu
from ...problem import Problem
from ..common import store_tile, tile_of_program
from .double_buffer import double_buffered
from .simt import BufferedConfig, BufferedKernel, SimtConfig

__all__ = ["WarpTile", "WarpTileConfig"]


@dataclass(frozen=True)
class WarpTileConfig(BufferedConfig):
    """``warp_m`` x ``warp_n``: a warp's part of the tile. ``warp_n_steps``: steps in which it walks the width.

    ``thread_m`` x ``thread_n`` is what a thread computes in ONE step.
    """

    warp_m: int = 64
    warp_n: int = 64
    warp_n_steps: int = 2

    @property
    def warp_m_steps(self) -> int:
        return self.warp_m * self.warp_n // (32 * self.thread_m * self.thread_n * self.warp_n_steps)

    @property
    def lanes_n(self) -> int:
        return self.warp_n // (self.warp_n_steps * self.thread_n)


def warp_tile_layout(config: WarpTileConfig) -> Any:
    """The C tile's layout: a thread's elements, then its lanes, then the warp's steps, then the warps of the block."""

    def steps(first: int, count: int, down: bool) -> list[list[int]]:
        return [[first << i, 0] if down else [0, first << i] for i in range(count.bit_length() - 1)]

    lanes_m = 32 // config.lanes_n
    step_m, step_n = lanes_m * config.thread_m, config.lanes_n * config.thread_n
    return gl.DistributedLinearLayout(
        steps(1, config.thread_n, False) + steps(1, config.thread_m, True)
        + steps(step_n, config.warp_n_steps, False) + steps(step_m, config.warp_m_steps, True),
        steps(config.thread_n, config.lanes_n, False) + steps(config.thread_m, lanes_m, True),
        steps(config.warp_n, config.tile_n // config.warp_n, False)
        + steps(config.warp_m, config.tile_m // config.warp_m, True),
        [],
        [config.tile_m, config.tile_n],
    )  # fmt: skip


@jit
def warp_tile_kernel(
    a, b, c, d, a_row, a_col, b_row, b_col, c_row, c_col, d_row, d_col, M, N, K, alpha, beta,
    TILE_M: constexpr, TILE_N: constexpr, TILE_K: constexpr, READ_C: constexpr,
    MASK_M: constexpr, MASK_N: constexpr, MASK_K: constexpr, NUM_WARPS: constexpr,
    GROUP_M: constexpr, A_SHARED: constexpr, PINNED: constexpr, C_LAYOUT: constexpr,
):  # fmt: skip
    # The change is C_LAYOUT alone: see warp_tile_layout.
    tile_m, tile_n = tile_of_program(M, N, TILE_M, TILE_N, GROUP_M)
    acc = double_buffered(
        a, b, a_row, a_col, b_row, b_col, tile_m, tile_n, M, N, 0, K,
        TILE_M, TILE_N, TILE_K, MASK_M, MASK_N, MASK_K, NUM_WARPS, A_SHARED, C_LAYOUT, PINNED,
    )  # fmt: skip
    rows = (tile_m * TILE_M + gl.arange(0, TILE_M, gl.SliceLayout(1, C_LAYOUT)))[:, None]
    cols = (tile_n * TILE_N + gl.arange(0, TILE_N, gl.SliceLayout(0, C_LAYOUT)))[None, :]
    store_tile(acc, rows, cols, c, c_row, c_col, d, d_row, d_col, M, N, alpha, beta, READ_C, MASK_M, MASK_N)


class WarpTile(BufferedKernel):
    name = "warp_tile"
    idea = "each warp owns a compact part of the tile"
    expects = "a warp reads fewer distinct values for its multiply-adds: shared wavefronts fall"
    below = "double_buffer_k16"
    function = warp_tile_kernel
    config_type = WarpTileConfig
    default = WarpTileConfig(
        num_warps=8, tile_m=128, tile_n=256, tile_k=16, thread_m=4, thread_n=4, group_m=8, pad=4,
        warp_m=64, warp_n=64, warp_n_steps=2,
    )  # fmt: skip

    def configs(self, problem: Problem, gpu: Gpu) -> Iterator[SimtConfig]:
        yield self.default
        yield replace(self.default, warp_m=32, warp_n=128, warp_n_steps=4)
        yield replace(self.default, tile_n=128, warp_m=32, warp_n=64)
        yield replace(self.default, tile_n=128, warp_m=64, warp_n=32, warp_n_steps=1)
        yield replace(self.default, tile_n=128, num_warps=4)

    def covered(self, config: SimtConfig) -> int:
        assert isinstance(config, WarpTileConfig)
        return config.num_warps * config.warp_m * config.warp_n

    def constants(self, config: SimtConfig) -> Iterable[tuple[str, Any]]:
        assert isinstance(config, WarpTileConfig)
        kept = [item for item in super().constants(config) if item[0] in ("GROUP_M", "A_SHARED", "PINNED")]
        return [*kept, ("C_LAYOUT", warp_tile_layout(config))]

    def rejects_layout(self, config: SimtConfig) -> str | None:
        assert isinstance(config, WarpTileConfig)
        if config.tile_m % config.warp_m or config.tile_n % config.warp_n:
            return (
                f"the warp tile {config.warp_m}x{config.warp_n} does not divide the tile "
                f"{config.tile_m}x{config.tile_n}: warp_m and warp_n must be factors of tile_m and tile_n"
            )
        if not 1 <= config.lanes_n <= 32 or config.warp_m_steps < 1:
            return (
                f"a step of {config.warp_n_steps} across is {config.lanes_n} lanes of {config.thread_n} columns wide: "
                "a warp's 32 lanes must fill each step"
            )
        if config.warp_m_steps * (32 // config.lanes_n) * config.thread_m != config.warp_m:
            return f"{32 // config.lanes_n} lanes of {config.thread_m} rows do not divide warp_m, {config.warp_m}"
        return super().rejects_layout(config)

    def rejects_thread_grid(self, config: SimtConfig) -> str | None:
        return None
