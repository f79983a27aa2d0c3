"""The mma.sync champion's device code. Its plan, layouts and search space are in :mod:`.champion`.

A ring of K steps in shared memory, filled by cp.async 4 to 16 bytes at a time or, where neighbours in memory allow no
such copy, by loads into registers that are stored a step later. Nothing branches in the loop, which is unrolled once
round the ring: rows and columns beyond the matrix are its first ones again, which nobody stores (of a matrix smaller
than a tile they are masked: they would be most of it), and the mask along K, which a last step that is not full needs,
also stops the copies at the end. So ptxas is free to put copies, addresses and the next fragments between products, and
to read fragments ahead: it does, by itself. (Read ahead in the source, from step to step, they cost registers twice:
264 bytes spilled where this has none, and two-byte values are packed anew.)

A far stride, and an extent along the neighbours, come in units of the vectors in which they are copied: that is how the
compiler learns what divides them (at launch it is told multiples of 16 only).
"""

from __future__ import annotations

from ...compat import async_copy_commit, async_copy_load, async_copy_wait, barrier, constexpr, gl, jit, mma_v2
from ..common import tile_of_program
from ..epilogue import Finish
from .pieces import store_rows

__all__ = ["champion_mma_kernel"]


@jit
def _slots(COUNT: constexpr, ROWS: constexpr, COLS: constexpr, TYPE: constexpr, SHARED: constexpr):
    """COUNT tiles in shared memory."""
    slots = (gl.allocate_shared_memory(TYPE, [ROWS, COLS], SHARED),)
    if COUNT > 1:
        slots += _slots(COUNT - 1, ROWS, COLS, TYPE, SHARED)
    return slots


@jit
def _wrapped(index, END, EDGE: constexpr):
    """Rows (or columns) to copy. EDGE 1: beyond the end, the first ones again; 2: :func:`_within` keeps them out."""
    if EDGE == 1:
        index = index % END
    return index


@jit
def _within(ks, left, index, END, EDGE: constexpr):
    """What is copied of a tile: up to ``left`` along K and, with EDGE 2, up to the end of the rows (or columns) too."""
    if EDGE == 2:
        mask = (ks < left) & (index < END)
    else:
        mask = ks < left
    return mask


@jit
def _fetch(pointers, slot, mask, ASYNC: constexpr):
    """Start a tile's way from global memory: into the slot, or into registers, which are returned."""
    value = 0
    if ASYNC:
        async_copy_load(slot, pointers, mask=mask)
    else:
        value = gl.load(pointers, mask=mask, other=0.0)
    return value


@jit
def _deposit(value, slot, ASYNC: constexpr):
    """The rest of the way for a tile that went through registers."""
    if not ASYNC:
        slot.store(value)


@jit
def _nearest_tf32(x):
    """Half a unit of tf32's last place further from zero: as the tensor cores cut, they see x rounded to nearest."""
    nudged = (x.to(gl.int32, bitcast=True) + 0x1000).to(gl.float32, bitcast=True)
    # Not of a NaN, for some would turn into zeros. In an infinity the nudge is among the bits that are cut.
    return gl.where(x == x, nudged, x)


@jit
def _fragment(tile, PART: constexpr, LAYOUT: constexpr, OPERAND: constexpr, K_WIDTH: constexpr, PRODUCTS: constexpr):
    """16 along K of a tile, from ``16 * PART`` on, as mma.sync's operand in registers: by ldmatrix where it can be."""
    value = tile.slice(16 * PART, 16, 1 - OPERAND).load(gl.DotOperandLayout(OPERAND, LAYOUT, K_WIDTH))
    if K_WIDTH == 1 and PRODUCTS == 1:
        value = _nearest_tf32(value)
    return value


@jit
def _halves(x):
    """``x`` without infinities, and what tf32 cuts off it, rounded. Of NaN and infinities, nothing."""
    finite = gl.where(gl.abs(x) < float("inf"), x, 0.0)
    high = (finite.to(gl.int32, bitcast=True) & -8192).to(gl.float32, bitcast=True)
    rest = ((finite - high).to(gl.int32, bitcast=True) + 0x1000).to(gl.float32, bitcast=True)
    return finite, rest


@jit
def _multiply(acc, left, right, PRODUCTS: constexpr):
    """``acc + left @ right``; with three PRODUCTS, nearly as exact as fp32: high*rest, rest*high and high*high.

    The tensor cores cut ``left`` down to its high half themselves. An infinity meets only the other's high half.
    """
    if PRODUCTS == 3:
        left_finite, left_rest = _halves(left)
        right_finite, right_rest = _halves(right)
        acc = mma_v2(left_rest, right_finite, acc)
        acc = mma_v2(left_finite, right_rest, acc)
    return mma_v2(left, right, acc)


@jit
def _multiply_step(
    acc, left, right, a_slot, b_slot, LAYOUT: constexpr, K_WIDTH: constexpr, PRODUCTS: constexpr
):  # fmt: skip
    """``acc`` with the products of a K step, of which ``left`` and ``right`` are the first part; the other parts'
    fragments are read as the compiler sees fit."""
    # Tensor cores cut bits off a long sum; for three products a step's sum is short, and added with rounding.
    part = acc
    if PRODUCTS == 3:
        part = gl.zeros(acc.shape, acc.dtype, LAYOUT)
    part = _multiply(part, left, right, PRODUCTS)
    for i in gl.static_range(1, a_slot.shape[1] // 16):
        next_left = _fragment(a_slot, i, LAYOUT, 0, K_WIDTH, PRODUCTS)
        next_right = _fragment(b_slot, i, LAYOUT, 1, K_WIDTH, PRODUCTS)
        part = _multiply(part, next_left, next_right, PRODUCTS)
    if PRODUCTS == 3:
        part += acc
    return part


@jit
def _step(
    acc, a_slot, b_slot, filled_a_slot, filled_b_slot, a_pointers, b_pointers, a_mask, b_mask,
    STAGES: constexpr, LAYOUT: constexpr, K_WIDTH: constexpr, PRODUCTS: constexpr, EARLY: constexpr,
    A_ASYNC: constexpr, B_ASYNC: constexpr,
):  # fmt: skip
    """A K step, while the slot that the step before has left is filled.

    The compiler keeps fragments' reads and copies in the order written. EARLY: products can begin before the copies.
    """
    async_copy_wait(STAGES - 2)
    barrier()
    if EARLY:
        left = _fragment(a_slot, 0, LAYOUT, 0, K_WIDTH, PRODUCTS)
        right = _fragment(b_slot, 0, LAYOUT, 1, K_WIDTH, PRODUCTS)
    a_value = _fetch(a_pointers, filled_a_slot, a_mask, A_ASYNC)
    b_value = _fetch(b_pointers, filled_b_slot, b_mask, B_ASYNC)
    async_copy_commit()
    if not EARLY:
        left = _fragment(a_slot, 0, LAYOUT, 0, K_WIDTH, PRODUCTS)
        right = _fragment(b_slot, 0, LAYOUT, 1, K_WIDTH, PRODUCTS)
    acc = _multiply_step(acc, left, right, a_slot, b_slot, LAYOUT, K_WIDTH, PRODUCTS)
    _deposit(a_value, filled_a_slot, A_ASYNC)
    _deposit(b_value, filled_b_slot, B_ASYNC)
    return acc


@jit
def champion_mma_kernel(
    a, b, c, d, a_row, a_col, b_row, b_col, c_row, c_col, d_row, d_col, M, N, K, alpha, beta,
    a_rows, a_k, b_k, b_cols, store_m, store_n, split_steps, split_stride, bias, scale,
    TILE_M: constexpr, TILE_N: constexpr, TILE_K: constexpr, READ_C: constexpr, MASK_M: constexpr, MASK_N: constexpr,
    EDGE_M: constexpr, EDGE_N: constexpr, GROUP: constexpr, STAGES: constexpr, EARLY: constexpr, PRODUCTS: constexpr,
    SPLIT: constexpr, TYPE: constexpr, ACC_TYPE: constexpr, LAYOUT: constexpr, K_WIDTH: constexpr,
    A_VECTOR: constexpr, B_VECTOR: constexpr, A_NEAR: constexpr, B_NEAR: constexpr,
    A_ASYNC: constexpr, B_ASYNC: constexpr, D_VECTOR: constexpr, D_NEAR: constexpr,
    A_COPY: constexpr, B_COPY: constexpr, A_SHARED: constexpr, B_SHARED: constexpr, OUT: constexpr, PARTS: constexpr,
    FINISHED: constexpr, BIAS: constexpr, ACTIVATION: constexpr, SCALED: constexpr,
):  # fmt: skip
    tile_m, tile_n = tile_of_program(M, N, TILE_M, TILE_N, GROUP)
    row = tile_m * TILE_M
    col = tile_n * TILE_N
    # Along K: this program's steps, and where the operands end, counted from the first of them.
    steps = gl.cdiv(K, TILE_K)
    first = 0
    if SPLIT:
        first = gl.program_id(1) * split_steps
        steps = min(steps - first, split_steps)
        d += gl.program_id(1).to(gl.int64) * split_stride
    k0 = first * TILE_K
    if A_NEAR == 1:
        a_row *= A_VECTOR
        a_left = min(a_k * A_VECTOR - k0, steps * TILE_K)
        a_end = a_rows
    else:
        a_col *= A_VECTOR
        a_left = min(a_k - k0, steps * TILE_K)
        a_end = a_rows * A_VECTOR
    if B_NEAR == 1:
        b_row *= B_VECTOR
        b_left = min(b_k - k0, steps * TILE_K)
        b_end = b_cols * B_VECTOR
    else:
        b_col *= B_VECTOR
        b_left = min(b_k * B_VECTOR - k0, steps * TILE_K)
        b_end = b_cols
    if D_NEAR == 1:
        d_row *= D_VECTOR
        store_n *= D_VECTOR
    else:
        d_col *= D_VECTOR
        store_m *= D_VECTOR
    a_ks = gl.arange(0, TILE_K, gl.SliceLayout(0, A_COPY))[None, :]
    b_ks = gl.arange(0, TILE_K, gl.SliceLayout(1, B_COPY))[:, None]
    a_down = _wrapped(row + gl.arange(0, TILE_M, gl.SliceLayout(1, A_COPY)), a_end, EDGE_M)[:, None]
    b_across = _wrapped(col + gl.arange(0, TILE_N, gl.SliceLayout(0, B_COPY)), b_end, EDGE_N)[None, :]
    a_offsets = a_down * a_row + a_ks * a_col
    b_offsets = b_ks * b_row + b_across * b_col
    a += k0 * a_col
    b += k0 * b_row

    # A buffer for each stage, not a ring in one, and the loop unrolled over them: so the compiler sees that a copy into
    # one does not touch another, and puts no barriers of its own between them.
    a_slots = _slots(STAGES, TILE_M, TILE_K, TYPE, A_SHARED)
    b_slots = _slots(STAGES, TILE_K, TILE_N, TYPE, B_SHARED)
    for stage in gl.static_range(STAGES - 1):
        a_first = _fetch(a + a_offsets, a_slots[stage], _within(a_ks, a_left, a_down, a_end, EDGE_M), A_ASYNC)
        b_first = _fetch(b + b_offsets, b_slots[stage], _within(b_ks, b_left, b_across, b_end, EDGE_N), B_ASYNC)
        async_copy_commit()
        _deposit(a_first, a_slots[stage], A_ASYNC)
        _deposit(b_first, b_slots[stage], B_ASYNC)
        a += TILE_K * a_col
        b += TILE_K * b_row
        a_left -= TILE_K
        b_left -= TILE_K
    acc = gl.zeros([TILE_M, TILE_N], ACC_TYPE, LAYOUT)
    rounds = steps // STAGES
    for _ in range(rounds):
        for stage in gl.static_range(STAGES):
            acc = _step(
                acc, a_slots[stage], b_slots[stage],
                a_slots[(stage + STAGES - 1) % STAGES], b_slots[(stage + STAGES - 1) % STAGES],
                a + a_offsets, b + b_offsets,
                _within(a_ks, a_left, a_down, a_end, EDGE_M), _within(b_ks, b_left, b_across, b_end, EDGE_N),
                STAGES, LAYOUT, K_WIDTH, PRODUCTS, EARLY, A_ASYNC, B_ASYNC,
            )  # fmt: skip
            a += TILE_K * a_col
            b += TILE_K * b_row
            a_left -= TILE_K
            b_left -= TILE_K
    # What is left over lies in the first slots.
    async_copy_wait(0)
    barrier()
    for stage in gl.static_range(STAGES - 1):
        if rounds * STAGES + stage < steps:
            last_left = _fragment(a_slots[stage], 0, LAYOUT, 0, K_WIDTH, PRODUCTS)
            last_right = _fragment(b_slots[stage], 0, LAYOUT, 1, K_WIDTH, PRODUCTS)
            acc = _multiply_step(
                acc, last_left, last_right, a_slots[stage], b_slots[stage], LAYOUT, K_WIDTH, PRODUCTS
            )
    if FINISHED:
        finish = Finish(bias, scale, BIAS, ACTIVATION, SCALED)
        store_rows(
            acc, row, col, c, c_row, c_col, d, d_row, d_col, store_m, store_n, alpha, beta, LAYOUT, OUT, PARTS,
            READ_C, MASK_M, MASK_N, finish,
        )  # fmt: skip
    else:
        store_rows(
            acc, row, col, c, c_row, c_col, d, d_row, d_col, store_m, store_n, alpha, beta, LAYOUT, OUT, PARTS,
            READ_C, MASK_M, MASK_N,
        )  # fmt: skip
