"""Rung 4, 1D thread tile: a thread computes a COLUMN of eight elements of C.

One value of B, read from shared memory once, meets eight of A: 9 shared reads for 8 multiply-adds instead of 16.
The arithmetic no longer waits so much on shared memory, and the block's tile grows to 64x64.
"""

from __future__ import annotations

from ...compat import constexpr, gl, jit
from ..common import load_tile, store_tile, tile_of_program
from .simt import SimtConfig, ThreadTileKernel


@jit
def thread_tile_1d_kernel(
    a, b, c, d, a_row, a_col, b_row, b_col, c_row, c_col, d_row, d_col, M, N, K, alpha, beta,
    TILE_M: constexpr, TILE_N: constexpr, TILE_K: constexpr, READ_C: constexpr,
    MASK_M: constexpr, MASK_N: constexpr, MASK_K: constexpr, NUM_WARPS: constexpr,
    THREAD_M: constexpr, THREAD_N: constexpr, GROUP_M: constexpr,
):  # fmt: skip
    # The change: THREAD_M rows a thread. Lanes still run along N; two warps side by side cover the 64 columns.
    WARPS_N: constexpr = TILE_N // 32
    C_LAYOUT: constexpr = gl.BlockedLayout([THREAD_M, 1], [1, 32], [NUM_WARPS // WARPS_N, WARPS_N], [1, 0])
    # A's tile is TILE_K wide, so a warp copies 32 / TILE_K rows of it at a time.
    A_LAYOUT: constexpr = gl.BlockedLayout([1, 1], [32 // TILE_K, TILE_K], [NUM_WARPS, 1], [1, 0])
    B_LAYOUT: constexpr = gl.BlockedLayout([1, 1], [1, 32], [NUM_WARPS // WARPS_N, WARPS_N], [1, 0])
    SHARED: constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    tile_m, tile_n = tile_of_program(M, N, TILE_M, TILE_N, GROUP_M)
    a_rows = (tile_m * TILE_M + gl.arange(0, TILE_M, gl.SliceLayout(1, A_LAYOUT)))[:, None]
    a_cols = gl.arange(0, TILE_K, gl.SliceLayout(0, A_LAYOUT))[None, :]
    b_rows = gl.arange(0, TILE_K, gl.SliceLayout(1, B_LAYOUT))[:, None]
    b_cols = (tile_n * TILE_N + gl.arange(0, TILE_N, gl.SliceLayout(0, B_LAYOUT)))[None, :]

    a_tile = gl.allocate_shared_memory(gl.float32, [TILE_M, TILE_K], SHARED)
    b_tile = gl.allocate_shared_memory(gl.float32, [TILE_K, TILE_N], SHARED)
    acc = gl.zeros([TILE_M, TILE_N], gl.float32, C_LAYOUT)
    for k0 in range(0, K, TILE_K):
        a_next = load_tile(a + k0 * a_col, a_rows, a_cols, a_row, a_col, M, K - k0, MASK_M, MASK_K)
        b_next = load_tile(b + k0 * b_row, b_rows, b_cols, b_row, b_col, K - k0, N, MASK_K, MASK_N)
        a_tile.store(a_next)
        b_tile.store(b_next)
        for k in gl.static_range(TILE_K):
            a_column = a_tile.slice(k, 1, 1).load(C_LAYOUT)
            b_row_k = b_tile.slice(k, 1, 0).load(C_LAYOUT)
            acc = gl.fma(a_column, b_row_k, acc)

    rows = (tile_m * TILE_M + gl.arange(0, TILE_M, gl.SliceLayout(1, C_LAYOUT)))[:, None]
    cols = (tile_n * TILE_N + gl.arange(0, TILE_N, gl.SliceLayout(0, C_LAYOUT)))[None, :]
    store_tile(acc, rows, cols, c, c_row, c_col, d, d_row, d_col, M, N, alpha, beta, READ_C, MASK_M, MASK_N)


class ThreadTile1D(ThreadTileKernel):
    name = "thread_tile_1d"
    idea = "a thread computes a column of 8 elements of C"
    expects = "shared reads for an element of C fall from 2K to 9K/8, global loads from K/16 to K/32"
    below = "shared_tile"
    function = thread_tile_1d_kernel
    default = SimtConfig(num_warps=16, tile_m=64, tile_n=64, tile_k=8, thread_m=8, thread_n=1, group_m=8)

    def rejects_layout(self, config: SimtConfig) -> str | None:
        if config.thread_n != 1:
            return f"thread_n is {config.thread_n}: a 1D thread tile is one column wide, thread_n=1"
        warps_n = config.tile_n // 32
        if config.tile_n % 32 or config.num_warps % warps_n:
            return f"tile_n is {config.tile_n}: it must be a multiple of 32 with tile_n / 32 dividing the warps"
        if config.tile_k > 32:
            return f"tile_k is {config.tile_k}: a warp copies whole rows of A's tile, tile_k of at most 32"
        return None
