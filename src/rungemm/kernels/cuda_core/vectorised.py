"""Rung 6, vectorised: every access is 128 bits wide, and A's tile is stored TRANSPOSED in shared memory.

A thread's eight values of A lay a row apart in shared memory, so each was a read of its own. Stored transposed they
are neighbours, and two 128-bit reads fetch them, as for B. Global loads and stores move four floats at a time too:
a quarter of the instructions for the same bytes.
"""

from __future__ import annotations

from ...compat import constexpr, gl, jit
from ..common import load_tile, store_tile, tile_of_program
from .simt import SimtConfig, ThreadTileKernel


@jit
def vectorised_kernel(
    a, b, c, d, a_row, a_col, b_row, b_col, c_row, c_col, d_row, d_col, M, N, K, alpha, beta,
    TILE_M: constexpr, TILE_N: constexpr, TILE_K: constexpr, READ_C: constexpr,
    MASK_M: constexpr, MASK_N: constexpr, MASK_K: constexpr, NUM_WARPS: constexpr,
    THREAD_M: constexpr, THREAD_N: constexpr, GROUP_M: constexpr,
):  # fmt: skip
    LANES_N: constexpr = min(TILE_N // THREAD_N, 32)
    LANES_M: constexpr = 32 // LANES_N
    WARPS_N: constexpr = TILE_N // (THREAD_N * LANES_N)
    C_LAYOUT: constexpr = gl.BlockedLayout(
        [THREAD_M, THREAD_N], [LANES_M, LANES_N], [NUM_WARPS // WARPS_N, WARPS_N], [1, 0]
    )
    # The change, part one: four neighbours a thread when copying.
    A_LAYOUT: constexpr = gl.BlockedLayout([1, 4], [128 // TILE_K, TILE_K // 4], [NUM_WARPS, 1], [1, 0])
    B_LAYOUT: constexpr = gl.BlockedLayout([1, 4], [1, 32], [NUM_WARPS, 1], [1, 0])
    SHARED: constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    tile_m, tile_n = tile_of_program(M, N, TILE_M, TILE_N, GROUP_M)
    a_rows = (tile_m * TILE_M + gl.arange(0, TILE_M, gl.SliceLayout(1, A_LAYOUT)))[:, None]
    a_cols = gl.arange(0, TILE_K, gl.SliceLayout(0, A_LAYOUT))[None, :]
    b_rows = gl.arange(0, TILE_K, gl.SliceLayout(1, B_LAYOUT))[:, None]
    b_cols = (tile_n * TILE_N + gl.arange(0, TILE_N, gl.SliceLayout(0, B_LAYOUT)))[None, :]

    # The change, part two: A's tile lies transposed, so that a column of it is contiguous.
    a_transposed = gl.allocate_shared_memory(gl.float32, [TILE_K, TILE_M], SHARED)
    a_tile = a_transposed.permute([1, 0])
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


class Vectorised(ThreadTileKernel):
    name = "vectorised"
    idea = "128-bit accesses everywhere; A's tile is transposed in shared memory"
    expects = "load and store instructions fall four-fold for the same bytes"
    below = "thread_tile_2d"
    function = vectorised_kernel
    default = SimtConfig(num_warps=8, tile_m=128, tile_n=128, tile_k=8, thread_m=8, thread_n=8, group_m=8)

    def rejects_layout(self, config: SimtConfig) -> str | None:
        if not 4 <= config.tile_k <= 128:
            return f"tile_k is {config.tile_k}: a thread copies four neighbours of A, tile_k from 4 to 128"
        return self.rejects_thread_grid(config)
