"""Rung 3, shared tile: a block copies a 32x32 tile of A and of B into shared memory and works from there.

Each element that the block loads from global memory is now used 32 times: K/16 global loads for an element of C
instead of 2K. The 2K reads per element of C remain, but they go to shared memory.
"""

from __future__ import annotations

from ...compat import constexpr, gl, jit
from ..common import load_tile, store_tile, tile_of_program
from .simt import SimtConfig, SimtKernel


@jit
def shared_tile_kernel(
    a, b, c, d, a_row, a_col, b_row, b_col, c_row, c_col, d_row, d_col, M, N, K, alpha, beta,
    TILE_M: constexpr, TILE_N: constexpr, TILE_K: constexpr, READ_C: constexpr,
    MASK_M: constexpr, MASK_N: constexpr, MASK_K: constexpr, NUM_WARPS: constexpr, GROUP_M: constexpr,
):  # fmt: skip
    # One element a thread, lanes along the fast dimension: for C and for both copies.
    LAYOUT: constexpr = gl.BlockedLayout([1, 1], [1, 32], [NUM_WARPS, 1], [1, 0])
    # Rows one after the other, as in memory.
    SHARED: constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    tile_m, tile_n = tile_of_program(M, N, TILE_M, TILE_N, GROUP_M)
    rows = (tile_m * TILE_M + gl.arange(0, TILE_M, gl.SliceLayout(1, LAYOUT)))[:, None]
    cols = (tile_n * TILE_N + gl.arange(0, TILE_N, gl.SliceLayout(0, LAYOUT)))[None, :]
    a_cols = gl.arange(0, TILE_K, gl.SliceLayout(0, LAYOUT))[None, :]
    b_rows = gl.arange(0, TILE_K, gl.SliceLayout(1, LAYOUT))[:, None]

    a_tile = gl.allocate_shared_memory(gl.float32, [TILE_M, TILE_K], SHARED)
    b_tile = gl.allocate_shared_memory(gl.float32, [TILE_K, TILE_N], SHARED)
    acc = gl.zeros([TILE_M, TILE_N], gl.float32, LAYOUT)
    for k0 in range(0, K, TILE_K):
        # Both loads are in flight before the first store waits. Moving the base pointers keeps the offsets unchanged.
        a_next = load_tile(a + k0 * a_col, rows, a_cols, a_row, a_col, M, K - k0, MASK_M, MASK_K)
        b_next = load_tile(b + k0 * b_row, b_rows, cols, b_row, b_col, K - k0, N, MASK_K, MASK_N)
        a_tile.store(a_next)
        b_tile.store(b_next)
        for k in gl.static_range(TILE_K):
            a_column = a_tile.slice(k, 1, 1).load(LAYOUT)
            b_row_k = b_tile.slice(k, 1, 0).load(LAYOUT)
            acc = gl.fma(a_column, b_row_k, acc)

    store_tile(acc, rows, cols, c, c_row, c_col, d, d_row, d_col, M, N, alpha, beta, READ_C, MASK_M, MASK_N)


class SharedTile(SimtKernel):
    name = "shared_tile"
    idea = "tiles of A and B go through shared memory"
    expects = "global loads fall 32-fold, from 2K to K/16 for an element of C; 2K reads go to shared memory"
    below = "coalesced"
    function = shared_tile_kernel
    default = SimtConfig(num_warps=32, tile_m=32, tile_n=32, tile_k=32, group_m=8)

    def shared_bytes(self, config: SimtConfig) -> int:
        return 4 * config.tile_k * (config.tile_m + config.tile_n)
