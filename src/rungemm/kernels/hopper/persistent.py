"""Hopper rung 5, persistent: one program an SM, each walks many tiles, in an order made for L2.

A program a tile pays for its start, and its pipeline runs empty at its end. Here the loader goes on to the next tile
while the multipliers still store this one. The tiles are walked in groups of GROUP rows, so that the programs at work
at one time share rows of A and columns of B, which L2 then holds.
"""

from __future__ import annotations

from ...compat import constexpr, gl, jit, mbarrier
from .pieces import advance, init_ring, load_stage, multiply_steps, multiply_steps_from_registers, store_slices, tile_at
from .rung import HopperRung, RungConfig


@jit
def load(
    a, b, a_ring, b_ring, full, empty, M, N, K,
    TILE_M: constexpr, TILE_N: constexpr, TILE_K: constexpr, GROUP: constexpr,
    A_COLUMNS: constexpr, B_COLUMNS: constexpr,
):  # fmt: skip
    """The loader: it does not stop at the end of a tile."""
    STAGES: constexpr = full.shape[0]
    tiles = gl.cdiv(M, TILE_M) * gl.cdiv(N, TILE_N)
    slot = 0
    phase = 1
    # The change, here and below: tile after tile, a grid apart.
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        tile_m, tile_n = tile_at(tile, M, N, TILE_M, TILE_N, GROUP)
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
    tiles = gl.cdiv(M, TILE_M) * gl.cdiv(N, TILE_N)
    steps = gl.cdiv(K, TILE_K)
    slot = 0
    phase = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        tile_m, tile_n = tile_at(tile, M, N, TILE_M, TILE_N, GROUP)
        acc = gl.zeros([TILE_M, TILE_N], gl.float32, LAYOUT)
        if A_IN_REGISTERS:
            acc, slot, phase = multiply_steps_from_registers(
                acc, steps, slot, phase, a_ring, b_ring, full, empty, 0, A_COLUMNS, B_COLUMNS
            )
        else:
            acc, slot, phase = multiply_steps(
                acc, steps, slot, phase, a_ring, b_ring, full, empty, 0, A_COLUMNS, B_COLUMNS
            )
        store_slices(
            acc, c, d, tile_m * TILE_M, tile_n * TILE_N, c_row, c_col, d_row, d_col, M, N, alpha, beta,
            NUM_WARPS, READ_C,
        )  # fmt: skip


@jit
def persistent_kernel(
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


class Persistent(HopperRung):
    name = "persistent"
    idea = "one program an SM walks many tiles, in groups of rows for L2"
    expects = "loads of the next tile run under the stores of this one; less DRAM traffic from better L2 reuse"
    below = "warp_specialised"
    function = persistent_kernel
    persistent = True
    default = RungConfig(tile_m=128, tile_n=256, tile_k=64, stages=4, group=8)
