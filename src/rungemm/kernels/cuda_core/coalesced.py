"""Rung 2, coalesced: the same kernel with the lanes of a warp running ALONG a row.

In Gluon this is one line: the order of the lanes in the layout. Thirty-two lanes now read thirty-two neighbours
of B, 128 bytes in 4 full sectors, and one element of A that they all share; C's store is coalesced too.

A block is 16 warps here, one row of the tile each, which is faster than the naive rung's 32: config 2 has its 32x32.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...compat import constexpr, gl, jit
from ...hardware import Gpu
from ...problem import Problem
from ..common import load_tile, store_tile, tile_of_program
from .simt import SimtConfig, SimtKernel


@jit
def coalesced_kernel(
    a, b, c, d, a_row, a_col, b_row, b_col, c_row, c_col, d_row, d_col, M, N, K, alpha, beta,
    TILE_M: constexpr, TILE_N: constexpr, TILE_K: constexpr, READ_C: constexpr,
    MASK_M: constexpr, MASK_N: constexpr, MASK_K: constexpr, NUM_WARPS: constexpr, GROUP_M: constexpr,
):  # fmt: skip
    # The change: the lanes of a warp lie along N (dimension 1), the fast one in memory.
    C_LAYOUT: constexpr = gl.BlockedLayout([1, 1], [1, 32], [NUM_WARPS, 1], [1, 0])
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


class Coalesced(SimtKernel):
    name = "coalesced"
    idea = "the lanes of a warp run along a row of C"
    expects = "B and C move in full sectors: about 4 sectors a request for B and 1 for A instead of 1 and 32"
    below = "naive"
    function = coalesced_kernel
    default = SimtConfig(num_warps=16, tile_m=16, tile_n=32, tile_k=4, group_m=256)

    def configs(self, problem: Problem, gpu: Gpu) -> Iterator[SimtConfig]:
        yield self.default
        yield replace(self.default, num_warps=32, tile_m=32, group_m=128)
