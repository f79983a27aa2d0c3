"""Tensor-core rung 2, mma.sync: two-byte operands, fragments read one product ahead.

On the rung below a warp reads its fragments and then multiplies them: the tensor cores wait for shared memory. Here
each K step is multiplied in parts of 16, and while one part is multiplied the next one's fragments are on their way
into a second set of registers, across the boundary of a step too. Operands of two bytes are read by ldmatrix, four 8x8
matrices an instruction; the groups of a row are permuted (XOR) so that no two of its reads meet in a bank. D leaves
through the shared memory that the ring no longer needs, in whole lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from ...compat import async_copy_commit, async_copy_wait, barrier, constexpr, gl, jit, mma_v2
from ...dtypes import FP16
from ...problem import Matrix, Problem
from ..common import tile_of_program
from .pieces import copy_step, multiply_ahead, part_fragment, store_rows
from .rung import MmaConfig, MmaRung


@jit
def mma_multistage_kernel(
    a, b, c, d, a_row, a_col, b_row, b_col, c_row, c_col, d_row, d_col, M, N, K, alpha, beta,
    a_rows, a_cols, b_rows, b_cols, TILE_M: constexpr, TILE_N: constexpr, TILE_K: constexpr, READ_C: constexpr,
    MASK_M: constexpr, MASK_N: constexpr, MASKS: constexpr, GROUP: constexpr, STAGES: constexpr,
    TYPE: constexpr, ACC_TYPE: constexpr, LAYOUT: constexpr, K_WIDTH: constexpr,
    A_COPY: constexpr, B_COPY: constexpr, A_SHARED: constexpr, B_SHARED: constexpr,
    OUT: constexpr, PARTS: constexpr,
):  # fmt: skip
    tile_m, tile_n = tile_of_program(M, N, TILE_M, TILE_N, GROUP)
    row = tile_m * TILE_M
    col = tile_n * TILE_N
    a_ring = gl.allocate_shared_memory(TYPE, [STAGES, TILE_M, TILE_K], A_SHARED)
    b_ring = gl.allocate_shared_memory(TYPE, [STAGES, TILE_K, TILE_N], B_SHARED)
    steps = gl.cdiv(K, TILE_K)
    for step in gl.static_range(STAGES):
        if step < steps:
            copy_step(
                a_ring.index(step), b_ring.index(step), a, b, a_row, a_col, b_row, b_col, row, col, step * TILE_K,
                a_rows, a_cols, b_rows, b_cols, TILE_M, TILE_N, TILE_K, MASKS, A_COPY, B_COPY,
            )  # fmt: skip
        async_copy_commit()
    async_copy_wait(STAGES - 1)
    barrier()
    acc = gl.zeros([TILE_M, TILE_N], ACC_TYPE, LAYOUT)
    left = part_fragment(a_ring.index(0), 0, LAYOUT, 0, K_WIDTH)
    right = part_fragment(b_ring.index(0), 0, LAYOUT, 1, K_WIDTH)
    for step in range(steps - 1):
        # The change: each part's fragments are asked for before the part ahead of it is multiplied ...
        slot = step % STAGES
        acc, last_left, last_right = multiply_ahead(
            acc, left, right, a_ring.index(slot), b_ring.index(slot), 0, LAYOUT, K_WIDTH
        )
        # ... and the next step's before the last. Its copies are there, and nobody reads this step's stage again.
        async_copy_wait(STAGES - 2)
        barrier()
        ahead = step + STAGES
        if ahead < steps:
            copy_step(
                a_ring.index(slot), b_ring.index(slot), a, b, a_row, a_col, b_row, b_col, row, col, ahead * TILE_K,
                a_rows, a_cols, b_rows, b_cols, TILE_M, TILE_N, TILE_K, MASKS, A_COPY, B_COPY,
            )  # fmt: skip
        async_copy_commit()
        left = part_fragment(a_ring.index((step + 1) % STAGES), 0, LAYOUT, 0, K_WIDTH)
        right = part_fragment(b_ring.index((step + 1) % STAGES), 0, LAYOUT, 1, K_WIDTH)
        acc = mma_v2(last_left, last_right, acc)
    final = (steps - 1) % STAGES
    acc, last_left, last_right = multiply_ahead(
        acc, left, right, a_ring.index(final), b_ring.index(final), 0, LAYOUT, K_WIDTH
    )
    acc = mma_v2(last_left, last_right, acc)
    async_copy_wait(0)
    store_rows(
        acc, row, col, c, c_row, c_col, d, d_row, d_col, M, N, alpha, beta, LAYOUT, OUT, PARTS, READ_C, MASK_M, MASK_N
    )


class MmaMultistage(MmaRung):
    name = "mma_multistage"
    idea = "fp16 and bf16 by ldmatrix from swizzled shared memory; fragments are read one product ahead"
    expects = "half the bytes for an element and twice the products an instruction; no wait for fragments"
    below = "tf32_mma"
    function = mma_multistage_kernel
    steps = 2

    def candidates(self, problem: Problem) -> Iterator[MmaConfig]:
        base = MmaConfig(tile_m=128, tile_n=256, tile_k=32, num_warps=8, warps_m=2, stages=3, group=8)
        yield replace(base, stages=4, tile_k=64)
        yield replace(base, stages=4)
        yield base
        yield replace(base, tile_m=256, tile_n=128, warps_m=4, stages=4)
        yield replace(base, tile_n=128, stages=4)
        yield replace(base, tile_n=128, num_warps=4, stages=3)
        yield replace(base, tile_m=64, tile_n=64, num_warps=4, stages=4)
        if problem.a.dtype == FP16:
            yield replace(base, accumulate="fp16", stages=4)

    def constants(self, problem: Problem, config: MmaConfig, a: Matrix, b: Matrix) -> Iterable[tuple[str, Any]]:
        yield from super().constants(problem, config, a, b)
        yield from self.output_constants(problem, config)
