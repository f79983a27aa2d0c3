"""The champion's device code: every idea of the Hopper ladder in one persistent, warp-specialised kernel.

One warp loads with TMA, one or two partitions multiply with wgmma. A program's work is a list of pieces
(:func:`piece`): whole tiles of D and, with STREAM, a share of the K steps of the tiles that are left over when the
programs have taken the same number each (stream K: Osama et al., 2023). With SPLITS, pieces are equal runs of a tile's
K steps, whose sums go to a workspace for a second launch to add up. Two multiplying partitions take halves of each
tile's rows, or, with TURNS, whole pieces by turns, so that one finishes its tile while the other multiplies.
"""

from __future__ import annotations

from ...compat import constexpr, gl, jit, mbarrier, tma_store_wait
from ..common import after_earlier_launches
from ..epilogue import Finish
from .pieces import (
    advance,
    biases_ahead,
    end_of_steps,
    init_ring,
    init_turns,
    load_stage,
    multiply_steps,
    multiply_steps_from_registers,
    skip,
    store_slices,
    store_through_shared,
    tile_at,
)
from .stream import add_up_runs, piece, pieces_of_program, split_of


@jit
def load_pieces(
    a, b, a_ring, b_ring, full, empty, M, N, K,
    TILE_M: constexpr, TILE_N: constexpr, TILE_K: constexpr, GROUP: constexpr, STREAM: constexpr, SPLITS: constexpr,
    A_COLUMNS: constexpr, B_COLUMNS: constexpr,
):  # fmt: skip
    """The loader's partition: keeps every free stage of the ring filled, across the borders of tiles."""
    STAGES: constexpr = full.shape[0]
    tiles = gl.cdiv(M, TILE_M) * gl.cdiv(N, TILE_N)
    after_earlier_launches()  # with pdl they may still run: nothing in global memory is touched before this
    slot = 0
    phase = 1  # a fresh mbarrier passes a wait for the phase before its first: all stages start empty
    for index in range(pieces_of_program(tiles, STREAM, SPLITS)):
        tile, first, last = piece(index, tiles, gl.cdiv(K, TILE_K), STREAM, SPLITS)
        tile_m, tile_n = tile_at(tile, M, N, TILE_M, TILE_N, GROUP)
        for step in range(first, last):
            mbarrier.wait(empty.index(slot), phase)
            load_stage(
                a, b, a_ring.index(slot), b_ring.index(slot), full.index(slot),
                tile_m * TILE_M, tile_n * TILE_N, step * TILE_K, A_COLUMNS, B_COLUMNS,
            )  # fmt: skip
            slot, phase = advance(slot, phase, STAGES)


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
def multiply_pieces(
    OWNER: constexpr, staging, a_ring, b_ring, full, empty, turns, c, d, partials, counters,
    c_row, c_col, d_row, d_col, M, N, K, alpha, beta, finish,
    TILE_M: constexpr, TILE_N: constexpr, TILE_K: constexpr, GROUP: constexpr, STREAM: constexpr, SPLITS: constexpr,
    OWNERS: constexpr, TURNS: constexpr, NUM_WARPS: constexpr, PROMOTE: constexpr, INSTRUCTION_K: constexpr,
    A_COLUMNS: constexpr, B_COLUMNS: constexpr, A_IN_REGISTERS: constexpr,
    READ_C: constexpr, D_TMA: constexpr, D_COLUMNS: constexpr, D_VECTOR: constexpr,
):  # fmt: skip
    """A multiplier's partition: its share of the program's pieces, multiplied, finished and stored."""
    STAGES: constexpr = full.shape[0]
    PART_M: constexpr = TILE_M if TURNS else TILE_M // OWNERS
    PART: constexpr = 0 if TURNS else OWNER
    PART_N: constexpr = staging.shape[1] if D_COLUMNS else staging.shape[2]
    LAYOUT: constexpr = gl.NVMMADistributedLayout([3, 0], [NUM_WARPS, 1], [16, TILE_N, INSTRUCTION_K])
    tiles = gl.cdiv(M, TILE_M) * gl.cdiv(N, TILE_N)
    steps = gl.cdiv(K, TILE_K)
    after_earlier_launches()  # with pdl they may still run: nothing in global memory is touched before this
    slot = 0
    phase = 0
    turn = 1 - OWNER  # the first turn is partition 0's: it passes, the other waits
    for index in range(OWNER if TURNS else 0, pieces_of_program(tiles, STREAM, SPLITS), OWNERS if TURNS else 1):
        if TURNS:  # noqa: SIM102 - one is decided when compiling, the other when running
            if index > 0:
                _, first, last = piece(index - 1, tiles, steps, STREAM, SPLITS)
                slot, phase = skip(slot, phase, last - first, STAGES)
        tile, first, last = piece(index, tiles, steps, STREAM, SPLITS)
        tile_m, tile_n = tile_at(tile, M, N, TILE_M, TILE_N, GROUP)
        acc = gl.zeros([PART_M, TILE_N], gl.float32, LAYOUT)
        if TURNS:
            mbarrier.wait(turns.index(OWNER), turn)
            turn ^= 1
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
                acc, last - first, slot, phase, a_ring, b_ring, full, empty, PART, A_COLUMNS, B_COLUMNS, False
            )
        # Behind the last product in flight: the other partition's turn, so that its first product follows this one
        # without a gap, and the bias, whose way from memory is as long as a product.
        if TURNS:
            mbarrier.arrive(turns.index(1 - OWNER))
        row = tile_m * TILE_M + PART * PART_M
        if D_TMA and SPLITS == 1:
            biases = biases_ahead(finish, row, tile_n * TILE_N, M, N, PART_M, TILE_N, PART_N, NUM_WARPS)
        else:
            biases = None  # beside the addresses of ordinary stores there is no room for them
        if PROMOTE == 0 and not A_IN_REGISTERS:
            acc = end_of_steps(acc, last - first, slot, empty)
        if STREAM:
            mine = last - first == steps
            if (last > first) & (last - first < steps):
                acc, mine = add_up_runs(
                    acc, tile, first, tiles, steps, partials, counters, PART, TILE_M // PART_M, LAYOUT
                )
            if mine:
                store_through_shared(
                    acc, staging, OWNER, c, d, row, tile_n * TILE_N, c_row, c_col, d_row, d_col, M, N, alpha, beta,
                    NUM_WARPS, OWNERS, READ_C, D_TMA, D_COLUMNS, D_VECTOR, finish, biases,
                )  # fmt: skip
        elif SPLITS > 1:
            # D's strides are the partial sums' here: one is 1, the other a row's pitch; that times its extent is a
            # split's size. What pads a row is written too, as the zeros that it is: the second launch reads whole rows.
            part = partials + split_of(index, tiles).to(gl.int64) * max(M * d_row, N * d_col)
            store_slices(
                acc, part, part, row, tile_n * TILE_N, d_row, d_col, d_row, d_col, max(M, d_col), max(N, d_row),
                alpha, beta, NUM_WARPS, False,
            )  # fmt: skip
        else:
            store_through_shared(
                acc, staging, OWNER, c, d, row, tile_n * TILE_N, c_row, c_col, d_row, d_col, M, N, alpha, beta,
                NUM_WARPS, OWNERS, READ_C, D_TMA, D_COLUMNS, D_VECTOR, finish, biases,
            )  # fmt: skip
    if D_TMA:
        tma_store_wait(0)


@jit
def champion_hopper_kernel(
    a, b, c, d, partials, counters, c_row, c_col, d_row, d_col, M, N, K, alpha, beta, bias, scale,
    TILE_M: constexpr, TILE_N: constexpr, TILE_K: constexpr, GROUP: constexpr, STREAM: constexpr, SPLITS: constexpr,
    STAGES: constexpr, OWNERS: constexpr, TURNS: constexpr, NUM_WARPS: constexpr, PROMOTE: constexpr,
    INSTRUCTION_K: constexpr, A_COLUMNS: constexpr, B_COLUMNS: constexpr, A_IN_REGISTERS: constexpr,
    READ_C: constexpr, BIAS: constexpr, ACTIVATION: constexpr, SCALED: constexpr,
    D_TMA: constexpr, D_COLUMNS: constexpr, D_VECTOR: constexpr,
    BUFFERS: constexpr, STAGING: constexpr, STAGING_LAYOUT: constexpr, D_TYPE: constexpr,
    LOADER_REGISTERS: constexpr, MULTIPLIER_REGISTERS: constexpr,
):  # fmt: skip
    a_ring = gl.allocate_shared_memory(a.dtype, [STAGES] + a.block_type.shape, a.layout)  # noqa: RUF005
    b_ring = gl.allocate_shared_memory(b.dtype, [STAGES] + b.block_type.shape, b.layout)  # noqa: RUF005
    staging = gl.allocate_shared_memory(D_TYPE, [OWNERS * BUFFERS] + STAGING, STAGING_LAYOUT)  # noqa: RUF005
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    turns = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    init_ring(full, empty, 1 if TURNS else OWNERS)
    init_turns(turns)
    finish = Finish(bias, scale, BIAS, ACTIVATION, SCALED)
    # The argument lists are written out because a constexpr in a tuple that has a name becomes a run-time value.
    if OWNERS == 1:
        gl.warp_specialize(
            [
                (multiply_pieces, (0, staging, a_ring, b_ring, full, empty, turns, c, d,
                                  partials, counters, c_row, c_col, d_row, d_col, M, N, K, alpha, beta, finish,
                                  TILE_M, TILE_N, TILE_K, GROUP, STREAM, SPLITS, OWNERS, TURNS, NUM_WARPS,
                                  PROMOTE, INSTRUCTION_K, A_COLUMNS, B_COLUMNS, A_IN_REGISTERS,
                                  READ_C, D_TMA, D_COLUMNS, D_VECTOR)),
                (load_pieces, (a, b, a_ring, b_ring, full, empty, M, N, K,
                              TILE_M, TILE_N, TILE_K, GROUP, STREAM, SPLITS, A_COLUMNS, B_COLUMNS)),
            ],
            [1],
            [LOADER_REGISTERS],
        )  # fmt: skip
    else:
        gl.warp_specialize(
            [
                (multiply_pieces, (0, staging, a_ring, b_ring, full, empty, turns, c, d,
                                  partials, counters, c_row, c_col, d_row, d_col, M, N, K, alpha, beta, finish,
                                  TILE_M, TILE_N, TILE_K, GROUP, STREAM, SPLITS, OWNERS, TURNS, NUM_WARPS,
                                  PROMOTE, INSTRUCTION_K, A_COLUMNS, B_COLUMNS, A_IN_REGISTERS,
                                  READ_C, D_TMA, D_COLUMNS, D_VECTOR)),
                (multiply_pieces, (1, staging, a_ring, b_ring, full, empty, turns, c, d,
                                  partials, counters, c_row, c_col, d_row, d_col, M, N, K, alpha, beta, finish,
                                  TILE_M, TILE_N, TILE_K, GROUP, STREAM, SPLITS, OWNERS, TURNS, NUM_WARPS,
                                  PROMOTE, INSTRUCTION_K, A_COLUMNS, B_COLUMNS, A_IN_REGISTERS,
                                  READ_C, D_TMA, D_COLUMNS, D_VECTOR)),
                (load_pieces, (a, b, a_ring, b_ring, full, empty, M, N, K,
                              TILE_M, TILE_N, TILE_K, GROUP, STREAM, SPLITS, A_COLUMNS, B_COLUMNS)),
            ],
            [NUM_WARPS, 1],
            [MULTIPLIER_REGISTERS, LOADER_REGISTERS],
        )  # fmt: skip
