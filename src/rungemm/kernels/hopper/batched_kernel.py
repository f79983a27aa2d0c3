"""The device code of :mod:`.champion_batched`: a batch is a third dimension of tiles, walked by one launch.

TMA is told of three dimensions (product, row, column) and moves boxes of one product: rows, columns and K steps that
stick out of a product are filled with zeros or dropped there, so nothing is read or written of its neighbours. The
product is part of a tile's number, not of the grid, which holds 65535 in its third dimension. The ring, the products
and the ordinary stores are the champion's pieces.
"""

from __future__ import annotations

from ...compat import (
    barrier,
    constexpr,
    fence_async_shared,
    gl,
    jit,
    mbarrier,
    tma_load,
    tma_store,
    tma_store_wait,
)
from ..common import after_earlier_launches, load_tile
from .pieces import (
    advance,
    init_ring,
    init_turns,
    matrix_view,
    multiply_steps,
    multiply_steps_from_registers,
    skip,
    split_columns,
    store_through_shared,
    tile_at,
)

__all__ = ["batched_kernel"]


@jit
def tiles_of(batch, M, N, TILE_M: constexpr, TILE_N: constexpr):
    """How many tiles all products have."""
    return batch * gl.cdiv(M, TILE_M) * gl.cdiv(N, TILE_N)


@jit
def place_of(index, M, N, TILE_M: constexpr, TILE_N: constexpr, GROUP: constexpr):
    """Product, first row and first column of the ``index``-th tile: one product's tiles after the other's."""
    tiles = gl.cdiv(M, TILE_M) * gl.cdiv(N, TILE_N)
    tile_m, tile_n = tile_at(index % tiles, M, N, TILE_M, TILE_N, GROUP)
    return index // tiles, tile_m * TILE_M, tile_n * TILE_N


@jit
def load_box(descriptor, stage, full, product, line, k, COLUMNS: constexpr, EACH: constexpr):
    """Asks TMA for one K step of an operand: of this product's, or, not EACH, of the one that all products share.

    The box's leading 1 is left out of the stage: its bytes are those of a matrix.
    """
    which = 0
    if EACH:
        which = product
    if COLUMNS:
        tma_load(descriptor, [which, k, line], full, stage)
    else:
        tma_load(descriptor, [which, line, k], full, stage)


@jit
def load_products(
    a, b, a_ring, b_ring, full, empty, batch, M, N, K,
    TILE_M: constexpr, TILE_N: constexpr, TILE_K: constexpr, GROUP: constexpr,
    A_COLUMNS: constexpr, B_COLUMNS: constexpr, A_EACH: constexpr, B_EACH: constexpr,
):  # fmt: skip
    """The loader's partition: keeps every free stage filled, across the borders of tiles and of products."""
    STAGES: constexpr = full.shape[0]
    slot = 0
    phase = 1  # a fresh mbarrier passes a wait for the phase before its first: all stages start empty
    after_earlier_launches()  # with pdl they may still run: nothing in global memory is touched before this
    for index in range(gl.program_id(0), tiles_of(batch, M, N, TILE_M, TILE_N), gl.num_programs(0)):
        product, row, col = place_of(index, M, N, TILE_M, TILE_N, GROUP)
        for step in range(gl.cdiv(K, TILE_K)):
            mbarrier.wait(empty.index(slot), phase)
            mbarrier.expect(full.index(slot), a.block_type.nbytes + b.block_type.nbytes)
            load_box(a, a_ring.index(slot), full.index(slot), product, row, step * TILE_K, A_COLUMNS, A_EACH)
            # B's lines are its columns: what lies by columns for A lies by rows for B.
            load_box(b, b_ring.index(slot), full.index(slot), product, col, step * TILE_K, not B_COLUMNS, B_EACH)
            slot, phase = advance(slot, phase, STAGES)


@jit
def store_by_tma(
    acc, staging, OWNER: constexpr, c, d, product, row, col, c_row, c_col, M, N, alpha, beta,
    NUM_WARPS: constexpr, OWNERS: constexpr, READ_C: constexpr, D_COLUMNS: constexpr,
):  # fmt: skip
    """``D[product, row:, col:] = alpha * acc + beta * C`` by TMA, a narrow slice of columns at a time, through
    ``staging``, whose buffers are used by turns; ``c`` points to the product's first element."""
    PART_N: constexpr = staging.shape[1] if D_COLUMNS else staging.shape[2]
    PARTS: constexpr = acc.shape[1] // PART_N
    BUFFERS: constexpr = staging.shape[0] // OWNERS
    LAYOUT: constexpr = gl.NVMMADistributedLayout([3, 0], [NUM_WARPS, 1], [16, PART_N, 16])
    rows = (row + gl.arange(0, acc.shape[0], gl.SliceLayout(1, LAYOUT)))[:, None]
    cols = (col + gl.arange(0, PART_N, gl.SliceLayout(0, LAYOUT)))[None, :]
    parts = split_columns(acc, PARTS)
    for i in gl.static_range(PARTS):
        part = gl.convert_layout(parts[i], LAYOUT, assert_trivial=True) * alpha
        if READ_C:
            old = load_tile(c, rows, cols + i * PART_N, c_row, c_col, M, N, True, True)
            part = gl.fma(old.to(gl.float32), beta, part)
        buffer = staging.index(OWNER * BUFFERS + i % BUFFERS)
        tma_store_wait(BUFFERS - 1)
        barrier()
        matrix_view(buffer, D_COLUMNS).store(part.to(buffer.dtype))
        fence_async_shared()
        barrier()
        if D_COLUMNS:
            tma_store(d, [product, col + i * PART_N, row], buffer)
        else:
            tma_store(d, [product, row, col + i * PART_N], buffer)


@jit
def multiply_products(
    OWNER: constexpr, staging, a_ring, b_ring, full, empty, turns, c, d,
    c_batch, c_row, c_col, d_batch, d_row, d_col, batch, M, N, K, alpha, beta,
    TILE_M: constexpr, TILE_N: constexpr, TILE_K: constexpr, GROUP: constexpr, OWNERS: constexpr, TURNS: constexpr,
    NUM_WARPS: constexpr, INSTRUCTION_K: constexpr, A_COLUMNS: constexpr, B_COLUMNS: constexpr,
    A_IN_REGISTERS: constexpr, READ_C: constexpr, D_TMA: constexpr, D_COLUMNS: constexpr, D_VECTOR: constexpr,
):  # fmt: skip
    """A multiplier's partition: its share of the program's tiles, multiplied and stored."""
    STAGES: constexpr = full.shape[0]
    PART_M: constexpr = TILE_M if TURNS else TILE_M // OWNERS
    PART: constexpr = 0 if TURNS else OWNER
    BY_TURNS: constexpr = OWNERS if TURNS else 1
    LAYOUT: constexpr = gl.NVMMADistributedLayout([3, 0], [NUM_WARPS, 1], [16, TILE_N, INSTRUCTION_K])
    steps = gl.cdiv(K, TILE_K)
    slot = 0
    phase = 0
    turn = 1 - OWNER  # the first turn is partition 0's: it passes, the other waits
    if TURNS:
        slot, phase = skip(slot, phase, OWNER * steps, STAGES)
    programs = gl.num_programs(0)
    after_earlier_launches()  # with pdl they may still run: nothing in global memory is touched before this
    begin = gl.program_id(0) + (OWNER * programs if TURNS else 0)
    for index in range(begin, tiles_of(batch, M, N, TILE_M, TILE_N), BY_TURNS * programs):
        product, row, col = place_of(index, M, N, TILE_M, TILE_N, GROUP)
        acc = gl.zeros([PART_M, TILE_N], gl.float32, LAYOUT)
        if TURNS:
            mbarrier.wait(turns.index(OWNER), turn)
            turn ^= 1
        if A_IN_REGISTERS:
            acc, slot, phase = multiply_steps_from_registers(
                acc, steps, slot, phase, a_ring, b_ring, full, empty, PART, A_COLUMNS, B_COLUMNS
            )
        else:
            acc, slot, phase = multiply_steps(
                acc, steps, slot, phase, a_ring, b_ring, full, empty, PART, A_COLUMNS, B_COLUMNS
            )
        if TURNS:
            mbarrier.arrive(turns.index(1 - OWNER))
            slot, phase = skip(slot, phase, steps, STAGES)  # the other partition's tile
        row += PART * PART_M
        c_here = c + product.to(gl.int64) * c_batch
        if D_TMA:
            store_by_tma(
                acc, staging, OWNER, c_here, d, product, row, col, c_row, c_col, M, N, alpha, beta,
                NUM_WARPS, OWNERS, READ_C, D_COLUMNS,
            )  # fmt: skip
        else:
            store_through_shared(
                acc, staging, OWNER, c_here, d + product.to(gl.int64) * d_batch, row, col, c_row, c_col, d_row, d_col,
                M, N, alpha, beta, NUM_WARPS, OWNERS, READ_C, False, D_COLUMNS, D_VECTOR,
            )  # fmt: skip
    if D_TMA:
        tma_store_wait(0)


@jit
def batched_kernel(
    a, b, c, d, c_batch, c_row, c_col, d_batch, d_row, d_col, batch, M, N, K, alpha, beta,
    TILE_M: constexpr, TILE_N: constexpr, TILE_K: constexpr, GROUP: constexpr, STAGES: constexpr, OWNERS: constexpr,
    TURNS: constexpr, NUM_WARPS: constexpr, INSTRUCTION_K: constexpr, A_COLUMNS: constexpr, B_COLUMNS: constexpr,
    A_EACH: constexpr, B_EACH: constexpr, A_IN_REGISTERS: constexpr, READ_C: constexpr,
    A_BOX: constexpr, B_BOX: constexpr, A_LAYOUT: constexpr, B_LAYOUT: constexpr,
    D_TMA: constexpr, D_COLUMNS: constexpr, D_VECTOR: constexpr,
    BUFFERS: constexpr, STAGING: constexpr, STAGING_LAYOUT: constexpr, D_TYPE: constexpr,
    LOADER_REGISTERS: constexpr, MULTIPLIER_REGISTERS: constexpr,
):  # fmt: skip
    """One persistent launch for all products. A_EACH, B_EACH: an operand of each product's own, not one for all."""
    a_ring = gl.allocate_shared_memory(a.dtype, [STAGES] + A_BOX, A_LAYOUT)  # noqa: RUF005
    b_ring = gl.allocate_shared_memory(b.dtype, [STAGES] + B_BOX, B_LAYOUT)  # noqa: RUF005
    staging = gl.allocate_shared_memory(D_TYPE, [OWNERS * BUFFERS] + STAGING, STAGING_LAYOUT)  # noqa: RUF005
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    turns = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    init_ring(full, empty, 1 if TURNS else OWNERS)
    init_turns(turns)
    # The argument lists are written out because a constexpr in a tuple that has a name becomes a run-time value.
    if OWNERS == 1:
        gl.warp_specialize(
            [
                (multiply_products, (0, staging, a_ring, b_ring, full, empty, turns, c, d,
                                     c_batch, c_row, c_col, d_batch, d_row, d_col, batch, M, N, K, alpha, beta,
                                     TILE_M, TILE_N, TILE_K, GROUP, OWNERS, TURNS, NUM_WARPS, INSTRUCTION_K,
                                     A_COLUMNS, B_COLUMNS, A_IN_REGISTERS, READ_C, D_TMA, D_COLUMNS, D_VECTOR)),
                (load_products, (a, b, a_ring, b_ring, full, empty, batch, M, N, K,
                                 TILE_M, TILE_N, TILE_K, GROUP, A_COLUMNS, B_COLUMNS, A_EACH, B_EACH)),
            ],
            [1],
            [LOADER_REGISTERS],
        )  # fmt: skip
    else:
        gl.warp_specialize(
            [
                (multiply_products, (0, staging, a_ring, b_ring, full, empty, turns, c, d,
                                     c_batch, c_row, c_col, d_batch, d_row, d_col, batch, M, N, K, alpha, beta,
                                     TILE_M, TILE_N, TILE_K, GROUP, OWNERS, TURNS, NUM_WARPS, INSTRUCTION_K,
                                     A_COLUMNS, B_COLUMNS, A_IN_REGISTERS, READ_C, D_TMA, D_COLUMNS, D_VECTOR)),
                (multiply_products, (1, staging, a_ring, b_ring, full, empty, turns, c, d,
                                     c_batch, c_row, c_col, d_batch, d_row, d_col, batch, M, N, K, alpha, beta,
                                     TILE_M, TILE_N, TILE_K, GROUP, OWNERS, TURNS, NUM_WARPS, INSTRUCTION_K,
                                     A_COLUMNS, B_COLUMNS, A_IN_REGISTERS, READ_C, D_TMA, D_COLUMNS, D_VECTOR)),
                (load_products, (a, b, a_ring, b_ring, full, empty, batch, M, N, K,
                                 TILE_M, TILE_N, TILE_K, GROUP, A_COLUMNS, B_COLUMNS, A_EACH, B_EACH)),
            ],
            [NUM_WARPS, 1],
            [MULTIPLIER_REGISTERS, LOADER_REGISTERS],
        )  # fmt: skip
