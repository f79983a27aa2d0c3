"""Rung 5, 2D thread tile: a thread computes an 8x8 square of C.

Eight values of A and eight of B, read once, make 64 multiply-adds: K/4 shared reads for an element of C instead of
9K/8. The accumulators take 64 registers, so fewer threads fit on an SM; that is the bargain of every rung from here.
"""

from __future__ import annotations

from ...compat import constexpr, gl, jit
from ..common import load_tile, store_tile, tile_of_program
from .simt import SimtConfig, ThreadTileKernel


@jit
def thread_tile_2d_kernel(
    a, b, c, d, a_row, a_col, b_row, b_col, c_row, c_col, d_row, d_col, M, N, K, alpha, beta,
    TILE_M: constexpr, TILE_N: constexpr, TILE_K: constexpr, READ_C: constexpr,
    MASK_M: constexpr, MASK_N: constexpr, MASK_K: constexpr, NUM_WARPS: constexpr,
    THREAD_M: constexpr, THREAD_N: constexpr, GROUP_M: constexpr,
):  # fmt: skip
    # The change: a square of THREAD_M x THREAD_N a thread; threads lie row by row over the tile, as in CUDA.
    LANES_N: constexpr = min(TILE_N // THREAD_N, 32)
    LANES_M: constexpr = 32 // LANES_N
    WARPS_N: constexpr = TILE_N // (THREAD_N * LANES_N)
    C_LAYOUT: constexpr = gl.BlockedLayout(
        [THREAD_M, THREAD_N], [LANES_M, LANES_N], [NUM_WARPS // WARPS_N, WARPS_N], [1, 0]
    )
    A_LAYOUT: constexpr = gl.BlockedLayout([1, 1], [32 // TILE_K, TILE_K], [NUM_WARPS, 1], [1, 0])
    B_WARPS_N: constexpr = min(TILE_N // 32, NUM_WARPS)
    B_LAYOUT: constexpr = gl.BlockedLayout([1, 1], [1, 32], [NUM_WARPS // B_WARPS_N, B_WARPS_N], [1, 0])
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
        a_tile.store(load_tile(a, a_rows, k0 + a_cols, a_row, a_col, M, K, MASK_M, MASK_K))
        b_tile.store(load_tile(b, k0 + b_rows, b_cols, b_row, b_col, K, N, MASK_K, MASK_N))
        for k in gl.static_range(TILE_K):
            a_column = a_tile.slice(k, 1, 1).load(C_LAYOUT)
            b_row_k = b_tile.slice(k, 1, 0).load(C_LAYOUT)
            acc = gl.fma(a_column, b_row_k, acc)

    rows = (tile_m * TILE_M + gl.arange(0, TILE_M, gl.SliceLayout(1, C_LAYOUT)))[:, None]
    cols = (tile_n * TILE_N + gl.arange(0, TILE_N, gl.SliceLayout(0, C_LAYOUT)))[None, :]
    store_tile(acc, rows, cols, c, c_row, c_col, d, d_row, d_col, M, N, alpha, beta, READ_C, MASK_M, MASK_N)


class ThreadTile2D(ThreadTileKernel):
    name = "thread_tile_2d"
    idea = "a thread computes an 8x8 square of C"
    expects = "shared reads for an element of C fall from 9K/8 to K/4, global loads from K/32 to K/64"
    below = "thread_tile_1d"
    function = thread_tile_2d_kernel
    default = SimtConfig(
        num_warps=8, tile_m=128, tile_n=128, tile_k=8, thread_m=8, thread_n=8, group_m=8, max_registers=128
    )

    def rejects_layout(self, config: SimtConfig) -> str | None:
        if config.tile_k > 32:
            return f"tile_k is {config.tile_k}: a warp copies whole rows of A's tile, tile_k of at most 32"
        return self.rejects_thread_grid(config)
