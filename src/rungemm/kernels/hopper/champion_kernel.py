"""The champion's device code: every idea of the Hopper ladder in one persistent, warp-specialised kernel.

One warp loads with TMA, one or two partitions multiply with wgmma. A unit of work is a tile of D, or, with SPLITS, a
part of a tile's K range; programs walk the units a grid apart.
"""

from __future__ import annotations

from ...compat import (
    barrier,
    constexpr,
    gl,
    jit,
    mbarrier,
    tma_store_wait,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from .pieces import advance, init_ring, load_stage, matrix_view, steps_of, store_through_shared, tile_at


@jit
def load_units(
    a, b, a_ring, b_ring, full, empty, M, N, K,
    TILE_M: constexpr, TILE_N: constexpr, TILE_K: constexpr, GROUP: constexpr, SPLITS: constexpr,
    A_COLUMNS: constexpr, B_COLUMNS: constexpr,
):  # fmt: skip
    """The loader's partition: keeps every free stage of the ring filled, across the borders of tiles."""
    STAGES: constexpr = full.shape[0]
    units = gl.cdiv(M, TILE_M) * gl.cdiv(N, TILE_N) * SPLITS
    slot = 0
    phase = 1  # a fresh mbarrier passes a wait for the phase before its first: all stages start empty
    for unit in range(gl.program_id(0), units, gl.num_programs(0)):
        tile_m, tile_n = tile_at(unit // SPLITS, M, N, TILE_M, TILE_N, GROUP)
        first, last = steps_of(unit % SPLITS, K, TILE_K, SPLITS)
        for step in range(first, last):
            mbarrier.wait(empty.index(slot), phase)
            load_stage(
                a, b, a_ring.index(slot), b_ring.index(slot), full.index(slot),
                tile_m * TILE_M, tile_n * TILE_N, step * TILE_K, A_COLUMNS, B_COLUMNS,
            )  # fmt: skip
            slot, phase = advance(slot, phase, STAGES)


@jit
def multiply_steps(
    acc, steps, slot, phase, a_ring, b_ring, full, empty,
    PART: constexpr, A_COLUMNS: constexpr, B_COLUMNS: constexpr,
):  # fmt: skip
    """``acc`` = the product over ``steps`` stages of the ring; one wgmma group stays in flight behind the next wait."""
    STAGES: constexpr = full.shape[0]
    PART_M: constexpr = acc.shape[0]
    before = slot
    for step in range(steps):
        mbarrier.wait(full.index(slot), phase)
        a = matrix_view(a_ring.index(slot), A_COLUMNS).slice(PART * PART_M, PART_M, 0)
        b = matrix_view(b_ring.index(slot), B_COLUMNS)
        token = warpgroup_mma(a, b, acc, use_acc=step > 0, is_async=True)
        acc = warpgroup_mma_wait(1, deps=(token,))
        mbarrier.arrive(empty.index(before), pred=step > 0)
        before = slot
        slot, phase = advance(slot, phase, STAGES)
    acc = warpgroup_mma_wait(0, deps=(acc,))
    mbarrier.arrive(empty.index(before), pred=steps > 0)
    return acc, slot, phase


@jit
def multiply_steps_from_registers(
    acc, steps, slot, phase, a_ring, b_ring, full, empty,
    PART: constexpr, A_COLUMNS: constexpr, B_COLUMNS: constexpr,
):  # fmt: skip
    """As :func:`multiply_steps` with A in registers, for fp32: wgmma reads its shared operands along K only.

    wgmma must be done with a fragment before its registers take the next, so nothing stays in flight here: two
    partitions hide each other's reads. (A fragment read ahead makes ptxas serialise every wgmma: its note C7513.)
    """
    STAGES: constexpr = full.shape[0]
    PART_M: constexpr = acc.shape[0]
    for step in range(steps):
        mbarrier.wait(full.index(slot), phase)
        tile = matrix_view(a_ring.index(slot), A_COLUMNS).slice(PART * PART_M, PART_M, 0)
        fragment = tile.load(gl.DotOperandLayout(0, acc.type.layout, 1))
        b = matrix_view(b_ring.index(slot), B_COLUMNS)
        token = warpgroup_mma(fragment, b, acc, use_acc=step > 0, is_async=True)
        acc = warpgroup_mma_wait(0, deps=(token,))
        mbarrier.arrive(empty.index(slot))
        slot, phase = advance(slot, phase, STAGES)
    return acc, slot, phase


@jit
def multiply_promoted(
    acc, steps, slot, phase, a_ring, b_ring, full, empty,
    PART: constexpr, A_COLUMNS: constexpr, B_COLUMNS: constexpr, A_IN_REGISTERS: constexpr, PROMOTE: constexpr,
):  # fmt: skip
    """As :func:`multiply_steps`, but the tensor cores add up PROMOTE steps at most; beyond, fp32 adds round to nearest.

    Tensor cores cut off what they cannot keep when they accumulate, always towards zero, so that a long K drifts
    (Ootomo and Yokota, 2022, "Recovering single precision accuracy from Tensor Cores").
    """
    part = gl.zeros_like(acc)
    for done in range(0, steps, PROMOTE):
        here = min(steps - done, PROMOTE)
        if A_IN_REGISTERS:
            part, slot, phase = multiply_steps_from_registers(
                part, here, slot, phase, a_ring, b_ring, full, empty, PART, A_COLUMNS, B_COLUMNS
            )
        else:
            part, slot, phase = multiply_steps(
                part, here, slot, phase, a_ring, b_ring, full, empty, PART, A_COLUMNS, B_COLUMNS
            )
        acc += part
    return acc, slot, phase


@jit
def add_up_splits(acc, index, split, partials, counters, SPLITS: constexpr, LAYOUT: constexpr):
    """Leaves this program's part in memory; the last of the SPLITS to arrive adds all up, in order of K.

    The order of the additions does not depend on who is last, so the result is the same bits in every run.
    Returns the sum, and whether this program has it.
    """
    ROWS: constexpr = acc.shape[0]
    COLS: constexpr = acc.shape[1]
    rows = gl.arange(0, ROWS, gl.SliceLayout(1, LAYOUT))[:, None]
    cols = gl.arange(0, COLS, gl.SliceLayout(0, LAYOUT))[None, :]
    base = partials + index * (SPLITS * ROWS * COLS)
    offsets = rows * COLS + cols
    gl.store(base + split * (ROWS * COLS) + offsets, acc)
    barrier()
    arrived = gl.atomic_add(counters + index, 1, sem="acq_rel")
    last = arrived == SPLITS - 1
    if last:
        acc = gl.load(base + offsets, cache_modifier=".cg")
        for other in gl.static_range(1, SPLITS):
            acc += gl.load(base + other * (ROWS * COLS) + offsets, cache_modifier=".cg")
        gl.store(counters + index, 0)
    return acc, last


@jit
def multiply_units(
    PART: constexpr, staging, a_ring, b_ring, full, empty, c, d, partials, counters,
    c_row, c_col, d_row, d_col, M, N, K, alpha, beta,
    TILE_M: constexpr, TILE_N: constexpr, TILE_K: constexpr, GROUP: constexpr, SPLITS: constexpr,
    CONSUMERS: constexpr, NUM_WARPS: constexpr, PROMOTE: constexpr, INSTRUCTION_K: constexpr,
    A_COLUMNS: constexpr, B_COLUMNS: constexpr, A_IN_REGISTERS: constexpr,
    READ_C: constexpr, D_TMA: constexpr, D_COLUMNS: constexpr, D_VECTOR: constexpr,
):  # fmt: skip
    """A multiplier's partition: its PART of each tile's rows, multiplied, finished and stored."""
    PART_M: constexpr = TILE_M // CONSUMERS
    LAYOUT: constexpr = gl.NVMMADistributedLayout([3, 0], [NUM_WARPS, 1], [16, TILE_N, INSTRUCTION_K])
    units = gl.cdiv(M, TILE_M) * gl.cdiv(N, TILE_N) * SPLITS
    slot = 0
    phase = 0
    for unit in range(gl.program_id(0), units, gl.num_programs(0)):
        tile_m, tile_n = tile_at(unit // SPLITS, M, N, TILE_M, TILE_N, GROUP)
        first, last = steps_of(unit % SPLITS, K, TILE_K, SPLITS)
        acc = gl.zeros([PART_M, TILE_N], gl.float32, LAYOUT)
        if PROMOTE > 0:
            acc, slot, phase = multiply_promoted(
                acc, last - first, slot, phase, a_ring, b_ring, full, empty,
                PART, A_COLUMNS, B_COLUMNS, A_IN_REGISTERS, PROMOTE,
            )  # fmt: skip
        elif A_IN_REGISTERS:
            acc, slot, phase = multiply_steps_from_registers(
                acc, last - first, slot, phase, a_ring, b_ring, full, empty, PART, A_COLUMNS, B_COLUMNS
            )
        else:
            acc, slot, phase = multiply_steps(
                acc, last - first, slot, phase, a_ring, b_ring, full, empty, PART, A_COLUMNS, B_COLUMNS
            )
        row = tile_m * TILE_M + PART * PART_M
        if SPLITS > 1:
            index = unit // SPLITS * CONSUMERS + PART
            acc, mine = add_up_splits(acc, index, unit % SPLITS, partials, counters, SPLITS, LAYOUT)
            if mine:
                store_through_shared(
                    acc, staging, PART, c, d, row, tile_n * TILE_N, c_row, c_col, d_row, d_col, M, N, alpha, beta,
                    NUM_WARPS, CONSUMERS, READ_C, D_TMA, D_COLUMNS, D_VECTOR,
                )  # fmt: skip
        else:
            store_through_shared(
                acc, staging, PART, c, d, row, tile_n * TILE_N, c_row, c_col, d_row, d_col, M, N, alpha, beta,
                NUM_WARPS, CONSUMERS, READ_C, D_TMA, D_COLUMNS, D_VECTOR,
            )  # fmt: skip
    if D_TMA:
        tma_store_wait(0)


@jit
def champion_hopper_kernel(
    a, b, c, d, partials, counters, c_row, c_col, d_row, d_col, M, N, K, alpha, beta,
    TILE_M: constexpr, TILE_N: constexpr, TILE_K: constexpr, GROUP: constexpr, SPLITS: constexpr,
    STAGES: constexpr, CONSUMERS: constexpr, NUM_WARPS: constexpr, PROMOTE: constexpr, INSTRUCTION_K: constexpr,
    A_COLUMNS: constexpr, B_COLUMNS: constexpr, A_IN_REGISTERS: constexpr,
    READ_C: constexpr, D_TMA: constexpr, D_COLUMNS: constexpr, D_VECTOR: constexpr,
    BUFFERS: constexpr, STAGING: constexpr, STAGING_LAYOUT: constexpr, D_TYPE: constexpr,
    LOADER_REGISTERS: constexpr, MULTIPLIER_REGISTERS: constexpr,
):  # fmt: skip
    a_ring = gl.allocate_shared_memory(a.dtype, [STAGES] + a.block_type.shape, a.layout)  # noqa: RUF005
    b_ring = gl.allocate_shared_memory(b.dtype, [STAGES] + b.block_type.shape, b.layout)  # noqa: RUF005
    staging = gl.allocate_shared_memory(D_TYPE, [CONSUMERS * BUFFERS] + STAGING, STAGING_LAYOUT)  # noqa: RUF005
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    init_ring(full, empty, CONSUMERS)
    # The argument lists are written out because a constexpr in a tuple that has a name becomes a run-time value.
    if CONSUMERS == 1:
        gl.warp_specialize(
            [
                (multiply_units, (0, staging, a_ring, b_ring, full, empty, c, d, partials, counters,
                                  c_row, c_col, d_row, d_col, M, N, K, alpha, beta,
                                  TILE_M, TILE_N, TILE_K, GROUP, SPLITS, CONSUMERS, NUM_WARPS, PROMOTE, INSTRUCTION_K,
                                  A_COLUMNS, B_COLUMNS, A_IN_REGISTERS, READ_C, D_TMA, D_COLUMNS, D_VECTOR)),
                (load_units, (a, b, a_ring, b_ring, full, empty, M, N, K,
                              TILE_M, TILE_N, TILE_K, GROUP, SPLITS, A_COLUMNS, B_COLUMNS)),
            ],
            [1],
            [LOADER_REGISTERS],
        )  # fmt: skip
    else:
        gl.warp_specialize(
            [
                (multiply_units, (0, staging, a_ring, b_ring, full, empty, c, d, partials, counters,
                                  c_row, c_col, d_row, d_col, M, N, K, alpha, beta,
                                  TILE_M, TILE_N, TILE_K, GROUP, SPLITS, CONSUMERS, NUM_WARPS, PROMOTE, INSTRUCTION_K,
                                  A_COLUMNS, B_COLUMNS, A_IN_REGISTERS, READ_C, D_TMA, D_COLUMNS, D_VECTOR)),
                (multiply_units, (1, staging, a_ring, b_ring, full, empty, c, d, partials, counters,
                                  c_row, c_col, d_row, d_col, M, N, K, alpha, beta,
                                  TILE_M, TILE_N, TILE_K, GROUP, SPLITS, CONSUMERS, NUM_WARPS, PROMOTE, INSTRUCTION_K,
                                  A_COLUMNS, B_COLUMNS, A_IN_REGISTERS, READ_C, D_TMA, D_COLUMNS, D_VECTOR)),
                (load_units, (a, b, a_ring, b_ring, full, empty, M, N, K,
                              TILE_M, TILE_N, TILE_K, GROUP, SPLITS, A_COLUMNS, B_COLUMNS)),
            ],
            [NUM_WARPS, 1],
            [MULTIPLIER_REGISTERS, LOADER_REGISTERS],
        )  # fmt: skip
