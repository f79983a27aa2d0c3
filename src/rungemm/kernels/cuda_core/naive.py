"""Rung 1, naive: one thread computes one element of C, and the lanes of a warp run DOWN a column.

This is the kernel everyone writes first, with the axes the wrong way round. Thirty-two lanes that share a column
of C read thirty-two different rows of A, each a whole row pitch from the next: one request touches 32 sectors of
32 bytes and uses 4 bytes of each. B's element is the same for the whole warp. Nothing is reused on chip except by
the caches: every element of C costs 2K loads.
"""

from __future__ import annotations

from ...compat import constexpr, gl, jit
from ..common import load_tile, store_tile, tile_of_program
from .simt import SimtConfig, SimtKernel


@jit
def naive_kernel(
    a, b, c, d, a_row, a_col, b_row, b_col, c_row, c_col, d_row, d_col, M, N, K, alpha, beta,
    TILE_M: constexpr, TILE_N: constexpr, TILE_K: constexpr, READ_C: constexpr,
    MASK_M: constexpr, MASK_N: constexpr, MASK_K: constexpr, NUM_WARPS: constexpr, GROUP_M: constexpr,
):  # fmt: skip
    # One element a thread; the lanes of a warp lie along M (dimension 0), the slow one in memory.
    C_LAYOUT: constexpr = gl.BlockedLayout([1, 1], [32, 1], [1, NUM_WARPS], [0, 1])
    tile_m, tile_n = tile_of_program(M, N, TILE_M, TILE_N, GROUP_M)
    rows = (tile_m * TILE_M + gl.arange(0, TILE_M, gl.SliceLayout(1, C_LAYOUT)))[:, None]
    cols = (tile_n * TILE_N + gl.arange(0, TILE_N, gl.SliceLayout(0, C_LAYOUT)))[None, :]

    acc = gl.zeros([TILE_M, TILE_N], gl.float32, C_LAYOUT)
    for k0 in range(0, K, TILE_K):
        for k in gl.static_range(TILE_K):  # unrolled, so that the loads of several steps are in flight together
            a_column = load_tile(a, rows, k0 + k, a_row, a_col, M, K, MASK_M, MASK_K)
            b_row_k = load_tile(b, k0 + k, cols, b_row, b_col, K, N, MASK_K, MASK_N)
            acc = gl.fma(a_column, b_row_k, acc)

    store_tile(acc, rows, cols, c, c_row, c_col, d, d_row, d_col, M, N, alpha, beta, READ_C, MASK_M, MASK_N)


class Naive(SimtKernel):
    name = "naive"
    idea = "one thread computes one element of C; the lanes of a warp run down a column"
    expects = "the floor to climb from: A's loads are uncoalesced, 32 sectors a request, and nothing is reused on chip"
    function = naive_kernel
    default = SimtConfig(num_warps=32, tile_m=32, tile_n=32, tile_k=4, group_m=128)
