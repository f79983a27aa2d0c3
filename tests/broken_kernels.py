"""Kernels with one mistake each, for tests that mistakes are found; the sound one is the naive rung."""

from __future__ import annotations

from rungemm.compat import async_copy_commit, async_copy_load, constexpr, gl, jit
from rungemm.kernels import Launch, LaunchPlan
from rungemm.kernels.common import cdiv, gemm_arguments, gemm_constants, load_tile, store_tile, tile_of_program
from rungemm.kernels.cuda_core.naive import Naive
from rungemm.kernels.cuda_core.simt import SimtConfig


@jit
def forgets_last_k(
    a, b, c, d, a_row, a_col, b_row, b_col, c_row, c_col, d_row, d_col, M, N, K, alpha, beta,
    TILE_M: constexpr, TILE_N: constexpr, TILE_K: constexpr, READ_C: constexpr,
    MASK_M: constexpr, MASK_N: constexpr, MASK_K: constexpr, NUM_WARPS: constexpr,
):  # fmt: skip
    C_LAYOUT: constexpr = gl.BlockedLayout([1, 1], [1, 32], [NUM_WARPS, 1], [1, 0])
    tile_m, tile_n = tile_of_program(M, N, TILE_M, TILE_N, 1)
    rows = (tile_m * TILE_M + gl.arange(0, TILE_M, gl.SliceLayout(1, C_LAYOUT)))[:, None]
    cols = (tile_n * TILE_N + gl.arange(0, TILE_N, gl.SliceLayout(0, C_LAYOUT)))[None, :]
    acc = gl.zeros([TILE_M, TILE_N], gl.float32, C_LAYOUT)
    for k in range(K - 1):
        a_column = load_tile(a, rows, k, a_row, a_col, M, K, MASK_M, False)
        acc = gl.fma(a_column, load_tile(b, k, cols, b_row, b_col, K, N, False, MASK_N), acc)
    store_tile(acc, rows, cols, c, c_row, c_col, d, d_row, d_col, M, N, alpha, beta, READ_C, MASK_M, MASK_N)


@jit
def masks_nothing(
    a, b, c, d, a_row, a_col, b_row, b_col, c_row, c_col, d_row, d_col, M, N, K, alpha, beta,
    TILE_M: constexpr, TILE_N: constexpr, TILE_K: constexpr, READ_C: constexpr,
    MASK_M: constexpr, MASK_N: constexpr, MASK_K: constexpr, NUM_WARPS: constexpr,
):  # fmt: skip
    C_LAYOUT: constexpr = gl.BlockedLayout([1, 1], [1, 32], [NUM_WARPS, 1], [1, 0])
    tile_m, tile_n = tile_of_program(M, N, TILE_M, TILE_N, 1)
    rows = (tile_m * TILE_M + gl.arange(0, TILE_M, gl.SliceLayout(1, C_LAYOUT)))[:, None]
    cols = (tile_n * TILE_N + gl.arange(0, TILE_N, gl.SliceLayout(0, C_LAYOUT)))[None, :]
    acc = gl.zeros([TILE_M, TILE_N], gl.float32, C_LAYOUT)
    for k in range(K):
        a_column = load_tile(a, rows, k, a_row, a_col, M, K, False, False)
        acc = gl.fma(a_column, load_tile(b, k, cols, b_row, b_col, K, N, False, False), acc)
    store_tile(acc, rows, cols, c, c_row, c_col, d, d_row, d_col, M, N, alpha, beta, READ_C, MASK_M, MASK_N)


class _Broken(Naive):
    """The naive rung with another function, which takes the arguments and constants that every rung takes."""

    default = SimtConfig(num_warps=32, tile_m=32, tile_n=32, tile_k=1)

    def build(self, problem, config, gpu):
        tiles = cdiv(problem.m, 32) * cdiv(problem.n, 32)
        constants = (*gemm_constants(problem, 32, 32, 1), ("NUM_WARPS", config.num_warps))
        launch = Launch(self.function, (tiles, 1, 1), tuple(gemm_arguments(problem)), constants, config.num_warps)
        return LaunchPlan(self.name, (launch,))


class ForgetsLastK(_Broken):
    name = "forgets_last_k"
    function = forgets_last_k


class MasksNothing(_Broken):
    name = "masks_nothing"
    function = masks_nothing


@jit
def waits_for_nothing(
    a, b, c, d, a_row, a_col, b_row, b_col, c_row, c_col, d_row, d_col, M, N, K, alpha, beta,
    TILE_M: constexpr, TILE_N: constexpr, TILE_K: constexpr, READ_C: constexpr,
    MASK_M: constexpr, MASK_N: constexpr, MASK_K: constexpr, NUM_WARPS: constexpr,
):  # fmt: skip
    """The naive product of what a cp.async that nobody waits for has left in shared memory."""
    C_LAYOUT: constexpr = gl.BlockedLayout([1, 1], [1, 32], [NUM_WARPS, 1], [1, 0])
    tile_m, tile_n = tile_of_program(M, N, TILE_M, TILE_N, 1)
    rows = (tile_m * TILE_M + gl.arange(0, TILE_M, gl.SliceLayout(1, C_LAYOUT)))[:, None]
    cols = (tile_n * TILE_N + gl.arange(0, TILE_N, gl.SliceLayout(0, C_LAYOUT)))[None, :]
    acc = gl.zeros([TILE_M, TILE_N], gl.float32, C_LAYOUT)
    b_tile = gl.allocate_shared_memory(gl.float32, [TILE_M, TILE_N], gl.SwizzledSharedLayout(1, 1, 1, [1, 0]))
    for k in range(K):
        # Row k of B in every row of the tile.
        async_copy_load(b_tile, b + k * b_row + cols * b_col + rows * 0, mask=(rows < M) & (cols < N))
        async_copy_commit()
        a_column = load_tile(a, rows, k, a_row, a_col, M, K, MASK_M, False)
        acc = gl.fma(a_column, b_tile.load(C_LAYOUT), acc)
    store_tile(acc, rows, cols, c, c_row, c_col, d, d_row, d_col, M, N, alpha, beta, READ_C, MASK_M, MASK_N)


class WaitsForNothing(_Broken):
    name = "waits_for_nothing"
    function = waits_for_nothing
