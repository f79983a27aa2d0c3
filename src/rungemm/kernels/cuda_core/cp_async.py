"""Rung 10, cp.async: tiles go from global to shared memory without passing through registers.

The double buffer holds the next tile in registers for as long as this one is multiplied. cp.async needs none: the copy
runs by itself, and is waited for. Its smallest piece is 4 bytes and it moves whole pieces, so A, which is transposed on
its way, goes element by element (four times the instructions of before), while B goes 16 bytes at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ...compat import async_copy_commit, async_copy_load, async_copy_wait, barrier, constexpr, gl, jit
from ...hardware import Gpu
from ...problem import Problem
from ..common import store_tile, tile_of_program
from .double_buffer import multiply
from .simt import BufferedConfig, BufferedKernel, SimtConfig

__all__ = ["CpAsync"]


@jit
def copy_tile(tile, matrix, rows, cols, row_stride, col_stride, row_end, col_end, MASK: constexpr):
    """Start copying ``matrix[rows, cols]`` to shared memory; zeros outside."""
    pointers = matrix + rows * row_stride + cols * col_stride
    if MASK:
        async_copy_load(tile, pointers, mask=(rows < row_end) & (cols < col_end))
    else:
        async_copy_load(tile, pointers)


@jit
def cp_async_kernel(
    a, b, c, d, a_row, a_col, b_row, b_col, c_row, c_col, d_row, d_col, M, N, K, alpha, beta,
    TILE_M: constexpr, TILE_N: constexpr, TILE_K: constexpr, READ_C: constexpr,
    MASK_M: constexpr, MASK_N: constexpr, MASK_K: constexpr, NUM_WARPS: constexpr, B_VECTOR: constexpr,
    THREAD_M: constexpr, THREAD_N: constexpr, GROUP_M: constexpr, TOGETHER: constexpr, A_SHARED: constexpr,
    PINNED: constexpr,
):  # fmt: skip
    LANES_N: constexpr = min(TILE_N // THREAD_N, 32)
    LANES_M: constexpr = 32 // LANES_N
    WARPS_N: constexpr = TILE_N // (THREAD_N * LANES_N)
    C_LAYOUT: constexpr = gl.BlockedLayout(
        [min(THREAD_M, TOGETHER), min(THREAD_N, TOGETHER)],
        [LANES_M, LANES_N], [NUM_WARPS // WARPS_N, WARPS_N], [1, 0],
    )  # fmt: skip
    # The change: 4 bytes a lane for A, down a column, so that the transposed tile's banks are all different; 16 for B.
    A_LAYOUT: constexpr = gl.BlockedLayout([1, 1], [32, 1], [1, NUM_WARPS], [0, 1])
    B_LAYOUT: constexpr = gl.BlockedLayout([1, B_VECTOR], [1, 32], [NUM_WARPS, 1], [1, 0])
    B_SHARED: constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    tile_m, tile_n = tile_of_program(M, N, TILE_M, TILE_N, GROUP_M)
    a_rows = (tile_m * TILE_M + gl.arange(0, TILE_M, gl.SliceLayout(1, A_LAYOUT)))[:, None]
    a_cols = gl.arange(0, TILE_K, gl.SliceLayout(0, A_LAYOUT))[None, :]
    b_rows = gl.arange(0, TILE_K, gl.SliceLayout(1, B_LAYOUT))[:, None]
    b_cols = (tile_n * TILE_N + gl.arange(0, TILE_N, gl.SliceLayout(0, B_LAYOUT)))[None, :]

    a0 = gl.allocate_shared_memory(gl.float32, [TILE_K, TILE_M], A_SHARED).permute([1, 0])
    a1 = gl.allocate_shared_memory(gl.float32, [TILE_K, TILE_M], A_SHARED).permute([1, 0])
    b0 = gl.allocate_shared_memory(gl.float32, [TILE_K, TILE_N], B_SHARED)
    b1 = gl.allocate_shared_memory(gl.float32, [TILE_K, TILE_N], B_SHARED)
    acc = gl.zeros([TILE_M, TILE_N], gl.float32, C_LAYOUT)
    if K > 0:
        copy_tile(a0, a, a_rows, a_cols, a_row, a_col, M, K, MASK_M or MASK_K)
        copy_tile(b0, b, b_rows, b_cols, b_row, b_col, K, N, MASK_N or MASK_K)
        async_copy_commit()
        async_copy_wait(0)
        barrier()
    for k0 in range(0, K, 2 * TILE_K):
        k1 = k0 + TILE_K
        copy_tile(a1, a, a_rows, k1 + a_cols, a_row, a_col, M, K, MASK_M or MASK_K)
        copy_tile(b1, b, k1 + b_rows, b_cols, b_row, b_col, K, N, MASK_N or MASK_K)
        async_copy_commit()
        acc = multiply(a0, b0, acc, TILE_K, C_LAYOUT, PINNED)
        async_copy_wait(0)
        barrier()
        # After the last tile there is none to copy: the first one again, which nobody reads.
        k2 = gl.where(k1 + TILE_K < K, k1 + TILE_K, 0)
        copy_tile(a0, a, a_rows, k2 + a_cols, a_row, a_col, M, K, MASK_M or MASK_K)
        copy_tile(b0, b, k2 + b_rows, b_cols, b_row, b_col, K, N, MASK_N or MASK_K)
        async_copy_commit()
        acc = multiply(a1, b1, acc, TILE_K, C_LAYOUT, PINNED)
        async_copy_wait(0)
        barrier()

    rows = (tile_m * TILE_M + gl.arange(0, TILE_M, gl.SliceLayout(1, C_LAYOUT)))[:, None]
    cols = (tile_n * TILE_N + gl.arange(0, TILE_N, gl.SliceLayout(0, C_LAYOUT)))[None, :]
    store_tile(acc, rows, cols, c, c_row, c_col, d, d_row, d_col, M, N, alpha, beta, READ_C, MASK_M, MASK_N)


class CpAsync(BufferedKernel):
    name = "cp_async"
    idea = "tiles go from global to shared memory by cp.async, without passing through registers"
    expects = "registers fall; but A's copy takes 4 bytes an instruction, four times as many as B's 16"
    below = "double_buffer_k16"
    function = cp_async_kernel
    default = BufferedConfig(num_warps=8, tile_m=128, tile_n=256, tile_k=16, thread_m=8, thread_n=16)

    def configs(self, problem: Problem, gpu: Gpu) -> Iterator[SimtConfig]:
        yield self.default
        yield replace(self.default, tile_n=128, thread_n=8)
        yield replace(self.default, tile_n=64, thread_n=4)

    def common_constants(self, problem: Problem, config: SimtConfig) -> Iterator[tuple[str, Any]]:
        yield from super().common_constants(problem, config)
        b = problem.b
        aligned = b.alignment % 16 == 0 and b.row_stride % 4 == 0 and b.cols % 4 == 0
        yield "B_VECTOR", 4 if b.is_row_major and aligned else 1

    def rejects_layout(self, config: SimtConfig) -> str | None:
        assert isinstance(config, BufferedConfig)
        if config.pad:
            return f"pad is {config.pad}: cp.async does not compile into padded rows, pad=0"
        return super().rejects_layout(config)
