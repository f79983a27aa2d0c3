"""Rung 7, bank-conflict free: lanes that read shared memory together read different banks.

A 128-bit read serves eight lanes at a time, and they must touch 32 different banks. A thread's eight columns of B in a
row make its neighbours' reads start eight banks apart: four lanes cover all banks, the other four hit them again. Held
as 4 + 4, the second four half a tile further on, neighbours' reads join without a gap. The same goes for the rows of A.
The other cure, for the stores that transpose A: rows padded by 4 elements, so that a column is not one single bank.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...compat import constexpr, gl, jit
from ...hardware import Gpu
from ...problem import Problem
from ..common import load_tile, store_tile, tile_of_program
from .simt import QuadConfig, QuadTileKernel, SimtConfig


@jit
def bank_conflict_free_kernel(
    a, b, c, d, a_row, a_col, b_row, b_col, c_row, c_col, d_row, d_col, M, N, K, alpha, beta,
    TILE_M: constexpr, TILE_N: constexpr, TILE_K: constexpr, READ_C: constexpr,
    MASK_M: constexpr, MASK_N: constexpr, MASK_K: constexpr, NUM_WARPS: constexpr,
    THREAD_M: constexpr, THREAD_N: constexpr, GROUP_M: constexpr, TOGETHER: constexpr, A_SHARED: constexpr,
):  # fmt: skip
    LANES_N: constexpr = min(TILE_N // THREAD_N, 32)
    LANES_M: constexpr = 32 // LANES_N
    WARPS_N: constexpr = TILE_N // (THREAD_N * LANES_N)
    # The change, part one: TOGETHER (4) neighbours a thread; what is left of its tile lies half a tile off.
    C_LAYOUT: constexpr = gl.BlockedLayout(
        [min(THREAD_M, TOGETHER), min(THREAD_N, TOGETHER)],
        [LANES_M, LANES_N], [NUM_WARPS // WARPS_N, WARPS_N], [1, 0],
    )  # fmt: skip
    A_LAYOUT: constexpr = gl.BlockedLayout([1, 4], [128 // TILE_K, TILE_K // 4], [NUM_WARPS, 1], [1, 0])
    B_LAYOUT: constexpr = gl.BlockedLayout([1, 4], [1, 32], [NUM_WARPS, 1], [1, 0])
    # The change, part two: A_SHARED may have 4 elements of padding after each row.
    B_SHARED: constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    tile_m, tile_n = tile_of_program(M, N, TILE_M, TILE_N, GROUP_M)
    a_rows = (tile_m * TILE_M + gl.arange(0, TILE_M, gl.SliceLayout(1, A_LAYOUT)))[:, None]
    a_cols = gl.arange(0, TILE_K, gl.SliceLayout(0, A_LAYOUT))[None, :]
    b_rows = gl.arange(0, TILE_K, gl.SliceLayout(1, B_LAYOUT))[:, None]
    b_cols = (tile_n * TILE_N + gl.arange(0, TILE_N, gl.SliceLayout(0, B_LAYOUT)))[None, :]

    a_transposed = gl.allocate_shared_memory(gl.float32, [TILE_K, TILE_M], A_SHARED)
    a_tile = a_transposed.permute([1, 0])
    b_tile = gl.allocate_shared_memory(gl.float32, [TILE_K, TILE_N], B_SHARED)
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


class BankConflictFree(QuadTileKernel):
    name = "bank_conflict_free"
    idea = "a thread's 8 rows and columns are split 4 + 4, half a tile apart; or A's rows are padded by 4"
    expects = "shared-memory bank conflicts fall: on reads by the split, on the transposing stores by the padding"
    below = "vectorised"
    function = bank_conflict_free_kernel
    default = QuadConfig(num_warps=8, tile_m=128, tile_n=128, tile_k=8, thread_m=8, thread_n=8, together=4)

    def configs(self, problem: Problem, gpu: Gpu) -> Iterator[SimtConfig]:
        yield self.default
        yield replace(self.default, together=8, pad=4)
        yield replace(self.default, pad=4)
