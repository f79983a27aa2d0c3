"""Hopper rung 7, ping-pong: two multiplying partitions take tiles by turns.

With one partition the tensor cores stand still while it finishes a tile. Here the other one multiplies meanwhile: each
has four warps and every second tile of the program. The loader fills one ring for both in the order of the tiles, so a
partition skips the stages of the other's tile. It must not begin before the other has taken them: an mbarrier's wait
knows a phase by its parity only, and would take the stage filled two rounds before for its own. Two more mbarriers hand
the turn over (the simulator finds the fault when they are left out).
"""

from __future__ import annotations

from ...compat import constexpr, gl, jit, mbarrier, tma_store_wait
from .persistent import load
from .pieces import (
    init_ring,
    init_turns,
    multiply_steps,
    multiply_steps_from_registers,
    skip,
    store_through_shared,
    tile_at,
)
from .subtiled_epilogue import EpilogueConfig, SubtiledEpilogue


@jit
def multiply(
    ME: constexpr, staging, a_ring, b_ring, full, empty, turns, c, d, c_row, c_col, d_row, d_col, M, N, K, alpha, beta,
    TILE_M: constexpr, TILE_N: constexpr, TILE_K: constexpr, GROUP: constexpr, NUM_WARPS: constexpr,
    INSTRUCTION_K: constexpr, A_COLUMNS: constexpr, B_COLUMNS: constexpr, A_IN_REGISTERS: constexpr,
    READ_C: constexpr, D_TMA: constexpr, D_COLUMNS: constexpr, D_VECTOR: constexpr,
):  # fmt: skip
    """One of the two multipliers: the program's tiles number ME, ME + 2, ..."""
    STAGES: constexpr = full.shape[0]
    LAYOUT: constexpr = gl.NVMMADistributedLayout([3, 0], [NUM_WARPS, 1], [16, TILE_N, INSTRUCTION_K])
    tiles = gl.cdiv(M, TILE_M) * gl.cdiv(N, TILE_N)
    steps = gl.cdiv(K, TILE_K)
    slot = 0
    phase = 0
    turn = 1 - ME  # the first turn is partition 0's: it passes, the other waits
    # The change: every second tile, and the stages of the tiles between are the other's.
    if ME == 1:
        slot, phase = skip(slot, phase, steps, STAGES)
    first = gl.program_id(0) + ME * gl.num_programs(0)
    for tile in range(first, tiles, 2 * gl.num_programs(0)):
        tile_m, tile_n = tile_at(tile, M, N, TILE_M, TILE_N, GROUP)
        acc = gl.zeros([TILE_M, TILE_N], gl.float32, LAYOUT)
        mbarrier.wait(turns.index(ME), turn)
        turn ^= 1
        if A_IN_REGISTERS:
            acc, slot, phase = multiply_steps_from_registers(
                acc, steps, slot, phase, a_ring, b_ring, full, empty, 0, A_COLUMNS, B_COLUMNS
            )
        else:
            acc, slot, phase = multiply_steps(
                acc, steps, slot, phase, a_ring, b_ring, full, empty, 0, A_COLUMNS, B_COLUMNS
            )
        mbarrier.arrive(turns.index(1 - ME))
        slot, phase = skip(slot, phase, steps, STAGES)
        store_through_shared(
            acc, staging, ME, c, d, tile_m * TILE_M, tile_n * TILE_N, c_row, c_col, d_row, d_col, M, N, alpha, beta,
            NUM_WARPS, 2, READ_C, D_TMA, D_COLUMNS, D_VECTOR,
        )  # fmt: skip
    if D_TMA:
        tma_store_wait(0)


@jit
def ping_pong_kernel(
    a, b, c, d, c_row, c_col, d_row, d_col, M, N, K, alpha, beta,
    TILE_M: constexpr, TILE_N: constexpr, TILE_K: constexpr, GROUP: constexpr, NUM_WARPS: constexpr,
    INSTRUCTION_K: constexpr, A_COLUMNS: constexpr, B_COLUMNS: constexpr, A_IN_REGISTERS: constexpr,
    READ_C: constexpr, STAGES: constexpr, D_TMA: constexpr, D_COLUMNS: constexpr, D_VECTOR: constexpr,
    BUFFERS: constexpr, STAGING: constexpr, STAGING_LAYOUT: constexpr, D_TYPE: constexpr,
):  # fmt: skip
    a_ring = gl.allocate_shared_memory(a.dtype, [STAGES] + a.block_type.shape, a.layout)  # noqa: RUF005
    b_ring = gl.allocate_shared_memory(b.dtype, [STAGES] + b.block_type.shape, b.layout)  # noqa: RUF005
    staging = gl.allocate_shared_memory(D_TYPE, [2 * BUFFERS] + STAGING, STAGING_LAYOUT)  # noqa: RUF005
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    turns = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    init_ring(full, empty, 1)
    init_turns(turns)
    gl.warp_specialize(
        [
            (multiply, (0, staging, a_ring, b_ring, full, empty, turns, c, d, c_row, c_col, d_row, d_col,
                        M, N, K, alpha, beta, TILE_M, TILE_N, TILE_K, GROUP, NUM_WARPS, INSTRUCTION_K,
                        A_COLUMNS, B_COLUMNS, A_IN_REGISTERS, READ_C, D_TMA, D_COLUMNS, D_VECTOR)),
            (multiply, (1, staging, a_ring, b_ring, full, empty, turns, c, d, c_row, c_col, d_row, d_col,
                        M, N, K, alpha, beta, TILE_M, TILE_N, TILE_K, GROUP, NUM_WARPS, INSTRUCTION_K,
                        A_COLUMNS, B_COLUMNS, A_IN_REGISTERS, READ_C, D_TMA, D_COLUMNS, D_VECTOR)),
            (load, (a, b, a_ring, b_ring, full, empty, M, N, K, TILE_M, TILE_N, TILE_K, GROUP, A_COLUMNS, B_COLUMNS)),
        ],
        [4, 1],
        [240, 24],
    )  # fmt: skip


class PingPong(SubtiledEpilogue):
    name = "ping_pong"
    idea = "two multiplying partitions take tiles by turns: one stores while the other multiplies"
    expects = "tensor cores work through the epilogues; but a partition's tile is half as large, so L2 gives more bytes"
    below = "subtiled_epilogue"
    function = ping_pong_kernel
    partitions = 2
    default = EpilogueConfig(tile_m=128, tile_n=128, tile_k=64, num_warps=4, stages=6, group=8, buffers=1)
