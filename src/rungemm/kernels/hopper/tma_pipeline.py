"""Hopper rung 3, a pipeline of stages: TMA loads several K steps ahead of the products.

The tiles of STAGES steps lie in a ring. While wgmma reads one, TMA fills those behind it, so a load has the time of
several products to arrive. The same warps ask for the loads and multiply: a stage is asked for again when the product
before the current one is done with it, so one product is always in flight.
"""

from __future__ import annotations

from ...compat import barrier, constexpr, fence_async_shared, gl, jit, mbarrier, warpgroup_mma, warpgroup_mma_wait
from ..common import tile_of_program
from .pieces import load_stage, matrix_view, store_slices
from .rung import HopperRung, RungConfig


@jit
def tma_pipeline_kernel(
    a, b, c, d, c_row, c_col, d_row, d_col, M, N, K, alpha, beta,
    TILE_M: constexpr, TILE_N: constexpr, TILE_K: constexpr, GROUP: constexpr, NUM_WARPS: constexpr,
    INSTRUCTION_K: constexpr, A_COLUMNS: constexpr, B_COLUMNS: constexpr, A_IN_REGISTERS: constexpr,
    READ_C: constexpr, STAGES: constexpr,
):  # fmt: skip
    LAYOUT: constexpr = gl.NVMMADistributedLayout([3, 0], [NUM_WARPS, 1], [16, TILE_N, INSTRUCTION_K])
    tile_m, tile_n = tile_of_program(M, N, TILE_M, TILE_N, GROUP)
    row = tile_m * TILE_M
    col = tile_n * TILE_N
    # The change: a ring of stages, each with its mbarrier.
    a_ring = gl.allocate_shared_memory(a.dtype, [STAGES] + a.block_type.shape, a.layout)  # noqa: RUF005
    b_ring = gl.allocate_shared_memory(b.dtype, [STAGES] + b.block_type.shape, b.layout)  # noqa: RUF005
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
    fence_async_shared()
    steps = gl.cdiv(K, TILE_K)
    for step in range(min(steps, STAGES - 1)):
        load_stage(
            a, b, a_ring.index(step), b_ring.index(step), full.index(step), row, col, step * TILE_K,
            A_COLUMNS, B_COLUMNS,
        )  # fmt: skip
    acc = gl.zeros([TILE_M, TILE_N], gl.float32, LAYOUT)
    for step in range(steps):
        slot = step % STAGES
        mbarrier.wait(full.index(slot), step // STAGES & 1)
        a_tile = matrix_view(a_ring.index(slot), A_COLUMNS)
        b_tile = matrix_view(b_ring.index(slot), B_COLUMNS)
        if A_IN_REGISTERS:
            fragment = a_tile.load(gl.DotOperandLayout(0, LAYOUT, 1))
            token = warpgroup_mma(fragment, b_tile, acc, is_async=True)
            acc = warpgroup_mma_wait(0, deps=(token,))
        else:
            token = warpgroup_mma(a_tile, b_tile, acc, is_async=True)
            acc = warpgroup_mma_wait(1, deps=(token,))
        # The product before this one is done, and with it the stage that the ring needs next.
        barrier()
        ahead = step + STAGES - 1
        if ahead < steps:
            free = ahead % STAGES
            load_stage(
                a, b, a_ring.index(free), b_ring.index(free), full.index(free), row, col, ahead * TILE_K,
                A_COLUMNS, B_COLUMNS,
            )  # fmt: skip
    acc = warpgroup_mma_wait(0, deps=(acc,))

    store_slices(
        acc, c, d, row, col, c_row, c_col, d_row, d_col, M, N, alpha, beta, NUM_WARPS, READ_C
    )


class TmaPipeline(HopperRung):
    name = "tma_pipeline"
    idea = "a ring of stages: TMA loads several K steps ahead of the products"
    expects = "the wait for memory disappears behind the products; tensor cores are busy most of the time"
    below = "tma"
    function = tma_pipeline_kernel
    default = RungConfig(tile_m=128, tile_n=256, tile_k=64, stages=4)
