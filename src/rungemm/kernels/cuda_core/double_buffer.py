"""Rung 8, double buffer: while tile k is multiplied, tile k+1 is already on its way.

Global memory answers after hundreds of clocks. So the loads of the next tile are issued first, into registers; then the
current tile is multiplied; then the registers are stored to the OTHER buffer in shared memory, which nobody reads. One
barrier a tile is left of two. The loop takes two tiles a turn, so that each buffer has a name of its own: the compiler
can then see that writing one does not disturb readers of the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ...compat import constexpr, gl, jit, pinned_fma
from ...hardware import Gpu
from ...problem import Problem
from ..common import load_tile, store_tile, tile_of_program
from .simt import BufferedConfig, BufferedKernel, SimtConfig

__all__ = [
    "DoubleBuffer", "DoubleBufferConfig", "DoubleBufferKernel", "double_buffer_kernel", "double_buffered", "multiply",
]  # fmt: skip


@dataclass(frozen=True)
class DoubleBufferConfig(BufferedConfig):
    """How the threads lie over C's tile, and the order of a thread's multiply-adds.

    Attributes:
        lanes_m: lanes of a warp down the tile; 0 for as many across as there are.
        down: a thread's tile is walked column by column; otherwise by groups of ``together`` x ``together``, row by
            row. It decides which multiply-adds share a register with the one before (see :func:`multiply`).
    """

    lanes_m: int = 0
    down: bool = False


def c_layout(config: DoubleBufferConfig) -> Any:
    """C's tile: a thread's elements in the order they are multiplied, the lanes of a warp, the warps."""
    lanes_n = 32 // config.lanes_m if config.lanes_m else min(32, config.tile_n // config.thread_n)
    lanes_m = 32 // lanes_n
    warps_n = config.tile_n // (config.thread_n * lanes_n)
    warps_m = config.num_warps // warps_n
    group_m, group_n = min(config.thread_m, config.together), min(config.thread_n, config.together)

    def steps(first: int, count: int, down: bool) -> list[list[int]]:
        return [[first << i, 0] if down else [0, first << i] for i in range(count.bit_length() - 1)]

    near_m, far_m = steps(1, group_m, True), steps(group_m * lanes_m * warps_m, config.thread_m // group_m, True)
    near_n, far_n = steps(1, group_n, False), steps(group_n * lanes_n * warps_n, config.thread_n // group_n, False)
    return gl.DistributedLinearLayout(
        near_m + far_m + near_n + far_n if config.down else near_n + near_m + far_n + far_m,
        steps(group_n, lanes_n, False) + steps(group_m, lanes_m, True),
        steps(group_n * lanes_n, warps_n, False) + steps(group_m * lanes_m, warps_m, True),
        [],
        [config.tile_m, config.tile_n],
    )


@jit
def multiply(a_tile, b_tile, acc, TILE_K: constexpr, C_LAYOUT: constexpr, PINNED: constexpr):
    """``acc + a_tile @ b_tile``, one column of A and one row of B at a time."""
    for k in gl.static_range(TILE_K):
        a_column = a_tile.slice(k, 1, 1).load(C_LAYOUT)
        b_row_k = b_tile.slice(k, 1, 0).load(C_LAYOUT)
        # Left to itself, LLVM sorts the multiply-adds, here so that hardly any shares a source with the one before.
        # Whether the order written is any better depends on what else a kernel does: a matter of measuring.
        if PINNED:
            acc = pinned_fma(a_column, b_row_k, acc)
        else:
            acc = gl.fma(a_column, b_row_k, acc)
    return acc


@jit
def double_buffered(
    a, b, a_row, a_col, b_row, b_col, tile_m, tile_n, M, N, k_begin, k_end,
    TILE_M: constexpr, TILE_N: constexpr, TILE_K: constexpr, MASK_M: constexpr, MASK_N: constexpr, MASK_K: constexpr,
    NUM_WARPS: constexpr, A_SHARED: constexpr, C_LAYOUT: constexpr, PINNED: constexpr,
):  # fmt: skip
    """``A[tile_m's rows, k_begin:k_end] @ B[k_begin:k_end, tile_n's columns]`` in C_LAYOUT."""
    A_LAYOUT: constexpr = gl.BlockedLayout([1, 4], [128 // TILE_K, TILE_K // 4], [NUM_WARPS, 1], [1, 0])
    B_LAYOUT: constexpr = gl.BlockedLayout([1, 4], [1, 32], [NUM_WARPS, 1], [1, 0])
    B_SHARED: constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    a_rows = (tile_m * TILE_M + gl.arange(0, TILE_M, gl.SliceLayout(1, A_LAYOUT)))[:, None]
    a_cols = gl.arange(0, TILE_K, gl.SliceLayout(0, A_LAYOUT))[None, :]
    b_rows = gl.arange(0, TILE_K, gl.SliceLayout(1, B_LAYOUT))[:, None]
    b_cols = (tile_n * TILE_N + gl.arange(0, TILE_N, gl.SliceLayout(0, B_LAYOUT)))[None, :]

    a0 = gl.allocate_shared_memory(gl.float32, [TILE_K, TILE_M], A_SHARED).permute([1, 0])
    a1 = gl.allocate_shared_memory(gl.float32, [TILE_K, TILE_M], A_SHARED).permute([1, 0])
    b0 = gl.allocate_shared_memory(gl.float32, [TILE_K, TILE_N], B_SHARED)
    b1 = gl.allocate_shared_memory(gl.float32, [TILE_K, TILE_N], B_SHARED)
    acc = gl.zeros([TILE_M, TILE_N], gl.float32, C_LAYOUT)
    if k_begin < k_end:
        a0.store(load_tile(a, a_rows, k_begin + a_cols, a_row, a_col, M, k_end, MASK_M, MASK_K))
        b0.store(load_tile(b, k_begin + b_rows, b_cols, b_row, b_col, k_end, N, MASK_K, MASK_N))
    for k0 in range(k_begin, k_end, 2 * TILE_K):
        k1 = k0 + TILE_K
        a_next = load_tile(a, a_rows, k1 + a_cols, a_row, a_col, M, k_end, MASK_M, MASK_K)
        b_next = load_tile(b, k1 + b_rows, b_cols, b_row, b_col, k_end, N, MASK_K, MASK_N)
        acc = multiply(a0, b0, acc, TILE_K, C_LAYOUT, PINNED)
        a1.store(a_next)
        b1.store(b_next)
        # After the last tile there is none to load: the first one again, which nobody reads.
        k2 = gl.where(k1 + TILE_K < k_end, k1 + TILE_K, k_begin)
        a_next = load_tile(a, a_rows, k2 + a_cols, a_row, a_col, M, k_end, MASK_M, MASK_K)
        b_next = load_tile(b, k2 + b_rows, b_cols, b_row, b_col, k_end, N, MASK_K, MASK_N)
        acc = multiply(a1, b1, acc, TILE_K, C_LAYOUT, PINNED)
        a0.store(a_next)
        b0.store(b_next)
    return acc


@jit
def double_buffer_kernel(
    a, b, c, d, a_row, a_col, b_row, b_col, c_row, c_col, d_row, d_col, M, N, K, alpha, beta,
    TILE_M: constexpr, TILE_N: constexpr, TILE_K: constexpr, READ_C: constexpr,
    MASK_M: constexpr, MASK_N: constexpr, MASK_K: constexpr, NUM_WARPS: constexpr,
    THREAD_M: constexpr, THREAD_N: constexpr, GROUP_M: constexpr, TOGETHER: constexpr, A_SHARED: constexpr,
    PINNED: constexpr, C_LAYOUT: constexpr,
):  # fmt: skip
    tile_m, tile_n = tile_of_program(M, N, TILE_M, TILE_N, GROUP_M)
    acc = double_buffered(
        a, b, a_row, a_col, b_row, b_col, tile_m, tile_n, M, N, 0, K,
        TILE_M, TILE_N, TILE_K, MASK_M, MASK_N, MASK_K, NUM_WARPS, A_SHARED, C_LAYOUT, PINNED,
    )  # fmt: skip
    rows = (tile_m * TILE_M + gl.arange(0, TILE_M, gl.SliceLayout(1, C_LAYOUT)))[:, None]
    cols = (tile_n * TILE_N + gl.arange(0, TILE_N, gl.SliceLayout(0, C_LAYOUT)))[None, :]
    store_tile(acc, rows, cols, c, c_row, c_col, d, d_row, d_col, M, N, alpha, beta, READ_C, MASK_M, MASK_N)


class DoubleBufferKernel(BufferedKernel):
    """The rungs that run :func:`double_buffer_kernel`."""

    function = double_buffer_kernel
    config_type = DoubleBufferConfig

    def constants(self, config: SimtConfig) -> Iterable[tuple[str, Any]]:
        assert isinstance(config, DoubleBufferConfig)
        yield from super().constants(config)
        yield "C_LAYOUT", c_layout(config)

    def rejects_layout(self, config: SimtConfig) -> str | None:
        assert isinstance(config, DoubleBufferConfig)
        reason, lanes = super().rejects_layout(config), config.lanes_m
        if reason is not None or lanes == 0:
            return reason
        if lanes not in (1, 2, 4, 8, 16, 32):
            return f"lanes_m is {lanes}: a power of two up to 32, or 0"
        if config.tile_m % (config.thread_m * lanes) or config.tile_n % (config.thread_n * (32 // lanes)):
            return (
                f"lanes_m is {lanes}: a warp of {lanes}x{32 // lanes} lanes with {config.thread_m}x{config.thread_n} "
                f"elements each does not divide the tile {config.tile_m}x{config.tile_n}"
            )
        return None


class DoubleBuffer(DoubleBufferKernel):
    name = "double_buffer"
    idea = "the next tile is loaded while this one is multiplied, and stored to the other of two buffers"
    expects = "stalls on global loads (long scoreboard) and barriers fall; more registers, twice the shared memory"
    below = "bank_conflict_free"
    default = DoubleBufferConfig(
        num_warps=8, tile_m=128, tile_n=128, tile_k=8, thread_m=8, thread_n=8, group_m=1, pad=4, pinned=True, down=True
    )

    def configs(self, problem: Problem, gpu: Gpu) -> Iterator[SimtConfig]:
        yield self.default
        yield replace(self.default, pad=0)
        yield replace(self.default, down=False)
        yield replace(self.default, pinned=False)
        yield replace(self.default, group_m=8)
