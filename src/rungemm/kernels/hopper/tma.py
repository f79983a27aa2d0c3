"""Hopper rung 2, TMA: one thread asks the copy engine for a whole tile, where all threads issued loads before.

TMA computes the addresses, swizzles the tile as wgmma wants it and fills what lies outside the matrix with zeros, so
the masks go. The bytes' arrival is awaited at an mbarrier. It moves matrices whose rows start at multiples of 16 bytes;
others are first copied into an aligned workspace, as a launch of the plan.
"""

from __future__ import annotations

from ...compat import barrier, constexpr, fence_async_shared, gl, jit, mbarrier, warpgroup_mma
from ..common import tile_of_program
from .pieces import load_stage, matrix_view, store_slices
from .rung import HopperRung, RungConfig


@jit
def tma_kernel(
    a, b, c, d, c_row, c_col, d_row, d_col, M, N, K, alpha, beta,
    TILE_M: constexpr, TILE_N: constexpr, TILE_K: constexpr, GROUP: constexpr, NUM_WARPS: constexpr,
    INSTRUCTION_K: constexpr, A_COLUMNS: constexpr, B_COLUMNS: constexpr, A_IN_REGISTERS: constexpr,
    READ_C: constexpr, STAGES: constexpr,
):  # fmt: skip
    LAYOUT: constexpr = gl.NVMMADistributedLayout([3, 0], [NUM_WARPS, 1], [16, TILE_N, INSTRUCTION_K])
    tile_m, tile_n = tile_of_program(M, N, TILE_M, TILE_N, GROUP)
    a_stage = gl.allocate_shared_memory(a.dtype, a.block_type.shape, a.layout)
    b_stage = gl.allocate_shared_memory(b.dtype, b.block_type.shape, b.layout)
    full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(full, count=1)
    fence_async_shared()
    acc = gl.zeros([TILE_M, TILE_N], gl.float32, LAYOUT)
    a_tile = matrix_view(a_stage, A_COLUMNS)
    b_tile = matrix_view(b_stage, B_COLUMNS)
    phase = 0
    for k0 in range(0, K, TILE_K):
        # The product before was waited for; with the barrier, all warps are done with the tiles.
        barrier()
        # The change: two requests, made by one thread.
        load_stage(a, b, a_stage, b_stage, full, tile_m * TILE_M, tile_n * TILE_N, k0, A_COLUMNS, B_COLUMNS)
        mbarrier.wait(full, phase)
        phase ^= 1
        if A_IN_REGISTERS:
            fragment = a_tile.load(gl.DotOperandLayout(0, LAYOUT, 1))
            acc = warpgroup_mma(fragment, b_tile, acc)
        else:
            acc = warpgroup_mma(a_tile, b_tile, acc)

    store_slices(
        acc, c, d, tile_m * TILE_M, tile_n * TILE_N, c_row, c_col, d_row, d_col, M, N, alpha, beta, NUM_WARPS, READ_C
    )


class Tma(HopperRung):
    name = "tma"
    idea = "TMA: one thread asks for a whole tile, an mbarrier says when it is there"
    expects = "the load instructions, their address arithmetic and the registers they pass through are gone"
    below = "wgmma_shared"
    function = tma_kernel
    default = RungConfig(tile_m=128, tile_n=128, tile_k=64)
