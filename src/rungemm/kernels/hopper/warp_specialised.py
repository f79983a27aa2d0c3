"""Hopper rung 4, warp specialisation: one warp only loads, eight only multiply.

On the rung below the multiplying warps stop to ask for the next load. Here the loader has a program of its own: it runs
ahead as far as the ring allows, and gives its registers to the multipliers. Two mbarriers a stage are all that passes
between them: "full" when the bytes are there, "empty" when the multipliers are done.
"""

from __future__ import annotations

from ...compat import constexpr, gl, jit, mbarrier
from ..common import tile_of_program
from .pieces import advance, init_ring, load_stage, multiply_steps, multiply_steps_from_registers, store_slices
from .rung import HopperRung, RungConfig


@jit
def load(
    a, b, a_ring, b_ring, full, empty, M, N, K,
    TILE_M: constexpr, TILE_N: constexpr, TILE_K: constexpr, GROUP: constexpr,
    A_COLUMNS: constexpr, B_COLUMNS: constexpr,
):  # fmt: skip
    """The loader."""
    STAGES: constexpr = full.shape[0]
    tile_m, tile_n = tile_of_program(M, N, TILE_M, TILE_N, GROUP)
    slot = 0
    phase = 1  # a fresh mbarrier passes a wait for the phase before its first: all stages start empty
    for k0 in range(0, K, TILE_K):
        mbarrier.wait(empty.index(slot), phase)
        load_stage(
            a, b, a_ring.index(slot), b_ring.index(slot), full.index(slot), tile_m * TILE_M, tile_n * TILE_N, k0,
            A_COLUMNS, B_COLUMNS,
        )  # fmt: skip
        slot, phase = advance(slot, phase, STAGES)


@jit
def multiply(
    a_ring, b_ring, full, empty, c, d, c_row, c_col, d_row, d_col, M, N, K, alpha, beta,
    TILE_M: constexpr, TILE_N: constexpr, TILE_K: constexpr, GROUP: constexpr, NUM_WARPS: constexpr,
    INSTRUCTION_K: constexpr, A_COLUMNS: constexpr, B_COLUMNS: constexpr, A_IN_REGISTERS: constexpr,
    READ_C: constexpr,
):  # fmt: skip
    """The multipliers."""
    LAYOUT: constexpr = gl.NVMMADistributedLayout([3, 0], [NUM_WARPS, 1], [16, TILE_N, INSTRUCTION_K])
    tile_m, tile_n = tile_of_program(M, N, TILE_M, TILE_N, GROUP)
    acc = gl.zeros([TILE_M, TILE_N], gl.float32, LAYOUT)
    steps = gl.cdiv(K, TILE_K)
    slot = 0
    phase = 0
    if A_IN_REGISTERS:
        acc, _, _ = multiply_steps_from_registers(
            acc, steps, slot, phase, a_ring, b_ring, full, empty, 0, A_COLUMNS, B_COLUMNS
        )
    else:
        acc, _, _ = multiply_steps(
            acc, steps, slot, phase, a_ring, b_ring, full, empty, 0, A_COLUMNS, B_COLUMNS
        )
    store_slices(
        acc, c, d, tile_m * TILE_M, tile_n * TILE_N, c_row, c_col, d_row, d_col, M, N, alpha, beta, NUM_WARPS, READ_C
    )


@jit
def warp_specialised_kernel(
    a, b, c, d, c_row, c_col, d_row, d_col, M, N, K, alpha, beta,
    TILE_M: constexpr, TILE_N: constexpr, TILE_K: constexpr, GROUP: constexpr, NUM_WARPS: constexpr,
    INSTRUCTION_K: constexpr, A_COLUMNS: constexpr, B_COLUMNS: constexpr, A_IN_REGISTERS: constexpr,
    READ_C: constexpr, STAGES: constexpr,
):  # fmt: skip
    a_ring = gl.allocate_shared_memory(a.dtype, [STAGES] + a.block_type.shape, a.layout)  # noqa: RUF005
    b_ring = gl.allocate_shared_memory(b.dtype, [STAGES] + b.block_type.shape, b.layout)  # noqa: RUF005
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    init_ring(full, empty, 1)
    # The change: the warps part ways here. The loader keeps 24 registers a thread, the multipliers get the rest.
    gl.warp_specialize(
        [
            (multiply, (a_ring, b_ring, full, empty, c, d, c_row, c_col, d_row, d_col, M, N, K, alpha, beta,
                        TILE_M, TILE_N, TILE_K, GROUP, NUM_WARPS, INSTRUCTION_K,
                        A_COLUMNS, B_COLUMNS, A_IN_REGISTERS, READ_C)),
            (load, (a, b, a_ring, b_ring, full, empty, M, N, K, TILE_M, TILE_N, TILE_K, GROUP, A_COLUMNS, B_COLUMNS)),
        ],
        [1],
        [24],
    )  # fmt: skip


class WarpSpecialised(HopperRung):
    name = "warp_specialised"
    idea = "one warp only loads, eight only multiply; mbarriers pass stages between them"
    expects = "no wait and no load request between two products; the loader's registers go to the multipliers"
    below = "tma_pipeline"
    function = warp_specialised_kernel
    default = RungConfig(tile_m=128, tile_n=256, tile_k=64, stages=4)
