"""Tensor-core rung 1, mma.sync: tf32 products of fp32 operands, with 2 to 5 stages of cp.async.

On the ladder below, a multiply-add takes an instruction a lane. Here one instruction of a warp multiplies 16x8 by 8x8.
Operands keep 11 bits of mantissa, rounded to nearest on their way into registers; the caller's matrices stay as they
are. Tiles lie in a ring of stages: while one is multiplied, cp.async fills those behind it. Rows cannot be padded
against bank conflicts, for cp.async does not compile into padded layouts, so they are swizzled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...compat import async_copy_commit, async_copy_wait, barrier, constexpr, gl, jit, mma_v2
from ...dtypes import FP32
from ...problem import Problem
from ..common import store_tile, tile_of_program
from .pieces import copy_step, fragment
from .rung import MmaConfig, MmaRung


@jit
def tf32_mma_kernel(
    a, b, c, d, a_row, a_col, b_row, b_col, c_row, c_col, d_row, d_col, M, N, K, alpha, beta,
    a_rows, a_cols, b_rows, b_cols, TILE_M: constexpr, TILE_N: constexpr, TILE_K: constexpr, READ_C: constexpr,
    MASK_M: constexpr, MASK_N: constexpr, MASKS: constexpr, GROUP: constexpr, STAGES: constexpr,
    TYPE: constexpr, ACC_TYPE: constexpr, LAYOUT: constexpr, K_WIDTH: constexpr,
    A_COPY: constexpr, B_COPY: constexpr, A_SHARED: constexpr, B_SHARED: constexpr,
):  # fmt: skip
    tile_m, tile_n = tile_of_program(M, N, TILE_M, TILE_N, GROUP)
    row = tile_m * TILE_M
    col = tile_n * TILE_N
    a_ring = gl.allocate_shared_memory(TYPE, [STAGES, TILE_M, TILE_K], A_SHARED)
    b_ring = gl.allocate_shared_memory(TYPE, [STAGES, TILE_K, TILE_N], B_SHARED)
    steps = gl.cdiv(K, TILE_K)
    for step in gl.static_range(STAGES - 1):
        if step < steps:
            copy_step(
                a_ring.index(step), b_ring.index(step), a, b, a_row, a_col, b_row, b_col, row, col, step * TILE_K,
                a_rows, a_cols, b_rows, b_cols, TILE_M, TILE_N, TILE_K, MASKS, A_COPY, B_COPY,
            )  # fmt: skip
        # Past the end too: a group without copies keeps the count of groups in flight.
        async_copy_commit()
    acc = gl.zeros([TILE_M, TILE_N], ACC_TYPE, LAYOUT)
    for step in range(steps):
        async_copy_wait(STAGES - 2)
        # All warps' copies are there, and all warps are done with the stage that is filled next.
        barrier()
        ahead = step + STAGES - 1
        if ahead < steps:
            copy_step(
                a_ring.index(ahead % STAGES), b_ring.index(ahead % STAGES), a, b, a_row, a_col, b_row, b_col,
                row, col, ahead * TILE_K, a_rows, a_cols, b_rows, b_cols,
                TILE_M, TILE_N, TILE_K, MASKS, A_COPY, B_COPY,
            )  # fmt: skip
        async_copy_commit()
        # The change: fragments in registers, and one instruction a warp for 16 x 8 x 8 products.
        left = fragment(a_ring.index(step % STAGES), LAYOUT, 0, K_WIDTH)
        right = fragment(b_ring.index(step % STAGES), LAYOUT, 1, K_WIDTH)
        acc = mma_v2(left, right, acc)
    async_copy_wait(0)

    rows = (row + gl.arange(0, TILE_M, gl.SliceLayout(1, LAYOUT)))[:, None]
    cols = (col + gl.arange(0, TILE_N, gl.SliceLayout(0, LAYOUT)))[None, :]
    store_tile(
        acc.to(gl.float32), rows, cols, c, c_row, c_col, d, d_row, d_col, M, N, alpha, beta, READ_C, MASK_M, MASK_N
    )


class Tf32Mma(MmaRung):
    name = "tf32_mma"
    idea = "mma.sync: a warp multiplies 16x8 by 8x8 in one instruction, in tf32; cp.async fills 2 to 5 stages ahead"
    expects = "the multiply-adds' issue slots are free; shared memory and the waits for it now set the pace"
    below = "warp_tile"
    function = tf32_mma_kernel
    dtypes = (FP32,)

    def candidates(self, problem: Problem) -> Iterator[MmaConfig]:
        base = MmaConfig(tile_k=16, stages=4, group=8)
        yield base  # two blocks an SM: 125 registers a thread; with 3 and 5 stages ptxas takes 141
        for stages in (2, 3, 5):
            yield replace(base, stages=stages)
        # Tiles row by row, as in the originals (whose stages are 8 along K; Gluon's mma_v2 wants 16).
        for stages in (2, 3, 4, 5):
            yield replace(base, stages=stages, group=1)
        for tile_k, stages in ((32, 2), (32, 3), (32, 4)):
            yield replace(base, tile_k=tile_k, stages=stages)
        yield replace(base, tile_n=256, warps_m=2, tile_k=16)
        yield replace(base, tile_m=64, tile_n=64, num_warps=4, warps_m=2, tile_k=32)
