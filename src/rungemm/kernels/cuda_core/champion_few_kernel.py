"""The fp32 champion's device code for few tiles: the warps of a block split K. Its plan: :mod:`.champion_few`.

A product with a tile or less for each SM has no second block to cover a block's waits, and splitting K over blocks
costs a second launch, which takes as long as half of such a product. So here a block is as many groups of warps as it
takes to fill an SM, each group with the whole tile in its registers: of GROUPS neighbouring k each group multiplies its
own. At the end the groups' sums meet in shared memory, are added in a fixed order, and go to D: one launch.

Both operands come by cp.async into a ring of STAGES buffers, one barrier a buffer. An operand whose neighbours in
memory lie along K is turned on the way, four bytes at a time: cp.async may put every four bytes where it likes, and the
buffer's swizzle keeps the eight k that a warp writes at once in different banks.

What is left over at the matrix's edges is a narrow strip below and one on the right. A tile of the usual shape would
be mostly empty there, and with hardly more tiles than SMs each costs a whole round. So strips get tiles of their own
shape, long and thin, of the same area: three bodies in one kernel, of which a program runs one.
"""

# Tuples grow in unrolled loops, which neither checker follows.
# mypy: disable-error-code="assignment,misc,var-annotated"
# ruff: noqa: RUF005

from __future__ import annotations

from ...compat import async_copy_commit, async_copy_load, async_copy_wait, barrier, constexpr, gl, jit
from ..common import after_earlier_launches
from ..epilogue import Finish, bias_of, finished
from .register_tile import outer_product

__all__ = ["champion_few_kernel"]


@jit
def _quads(x, COUNT: constexpr, LAYOUT: constexpr):
    """A fragment [GROUPS, width] as COUNT tiles of one element a thread: four neighbours, then the next four."""
    groups = (x,)
    if COUNT >= 8:
        groups = _halves(x)
    if COUNT >= 16:
        groups = _halves(groups[0]) + _halves(groups[1])
    registers = ()
    for g in gl.static_range(COUNT // 4):
        even, odd = _neighbours(groups[g])
        x0, x2 = _neighbours(even)
        x1, x3 = _neighbours(odd)
        registers = registers + (
            gl.convert_layout(x0, LAYOUT, assert_trivial=True),
            gl.convert_layout(x1, LAYOUT, assert_trivial=True),
            gl.convert_layout(x2, LAYOUT, assert_trivial=True),
            gl.convert_layout(x3, LAYOUT, assert_trivial=True),
        )
    return registers


@jit
def _halves(x):
    """The first and the second half of each row of a tile that one thread holds both of: no instruction."""
    return gl.split(x.reshape([x.shape[0], 2, x.shape[1] // 2]).permute([0, 2, 1]))


@jit
def _neighbours(x):
    """The even and the odd elements of each row of a tile whose neighbours lie in one thread: no instruction."""
    return gl.split(x.reshape([x.shape[0], x.shape[1] // 2, 2]))


@jit
def _alternating_columns(x, y):
    """Columns of x and y alternating."""
    return gl.join(x, y).reshape([x.shape[0], x.shape[1], 2 * x.shape[2]])


@jit
def _beside(x, y):
    """y to the right of x."""
    return gl.join(x, y).permute([0, 1, 3, 2]).reshape([x.shape[0], x.shape[1], 2 * x.shape[2]])


@jit
def _alternating_rows(x, y):
    """Rows of x and y alternating."""
    return gl.join(x, y).permute([0, 1, 3, 2]).reshape([x.shape[0], 2 * x.shape[1], x.shape[2]])


@jit
def _below(x, y):
    """y below x."""
    return gl.join(x, y).permute([0, 3, 1, 2]).reshape([x.shape[0], 2 * x.shape[1], x.shape[2]])


@jit
def _four_columns(acc, at: constexpr, THREAD_M: constexpr):
    """Four neighbouring accumulators of a thread's row, from number ``at`` on."""
    return _alternating_columns(
        _alternating_columns(acc[at], acc[at + 2 * THREAD_M]),
        _alternating_columns(acc[at + THREAD_M], acc[at + 3 * THREAD_M]),
    )


@jit
def _row(acc, i: constexpr, THREAD_M: constexpr, THREAD_N: constexpr):
    """A thread's row i of accumulators as [GROUPS, threads down, TILE_N]."""
    row = _four_columns(acc, i, THREAD_M)
    if THREAD_N >= 8:
        row = _beside(row, _four_columns(acc, 4 * THREAD_M + i, THREAD_M))
    if THREAD_N >= 16:
        right = _beside(_four_columns(acc, 8 * THREAD_M + i, THREAD_M), _four_columns(acc, 12 * THREAD_M + i, THREAD_M))
        row = _beside(row, right)
    return row


@jit
def _four_rows(acc, i: constexpr, THREAD_M: constexpr, THREAD_N: constexpr):
    return _alternating_rows(
        _alternating_rows(_row(acc, i, THREAD_M, THREAD_N), _row(acc, i + 2, THREAD_M, THREAD_N)),
        _alternating_rows(_row(acc, i + 1, THREAD_M, THREAD_N), _row(acc, i + 3, THREAD_M, THREAD_N)),
    )


@jit
def _whole(acc, THREAD_M: constexpr, THREAD_N: constexpr):
    """All accumulators as [GROUPS, TILE_M, TILE_N]: every group's part of the tile's sums, no instruction."""
    tile = _four_rows(acc, 0, THREAD_M, THREAD_N)
    if THREAD_M >= 8:
        tile = _below(tile, _four_rows(acc, 4, THREAD_M, THREAD_N))
    if THREAD_M >= 16:
        tile = _below(tile, _below(_four_rows(acc, 8, THREAD_M, THREAD_N), _four_rows(acc, 12, THREAD_M, THREAD_N)))
    return tile


@jit
def _multiply(
    a_tile, b_tile, acc, GROUPS: constexpr, TILE_K: constexpr, THREAD_M: constexpr, THREAD_N: constexpr,
    A_FRAGMENT: constexpr, B_FRAGMENT: constexpr, SINGLE: constexpr, ACROSS: constexpr, PINNED: constexpr,
    PARTS: constexpr = 1, a_free=None, a_next=None, a_stride=None, a_mask=None,
    b_free=None, b_next=None, b_stride=None, b_mask=None,
):  # fmt: skip
    """One buffer's worth of multiply-adds: each group takes its own of every GROUPS neighbouring k.

    A buffer is a tuple of PARTS parts; into the parts of a free one, if given, the next copies go out between them.
    """
    STEPS: constexpr = TILE_K // GROUPS // PARTS
    for step in gl.static_range(STEPS * PARTS):
        if a_free is not None and step % STEPS == 0:
            async_copy_load(a_free[step // STEPS], a_next + step // STEPS * (TILE_K // PARTS) * a_stride, mask=a_mask)
            async_copy_load(b_free[step // STEPS], b_next + step // STEPS * (TILE_K // PARTS) * b_stride, mask=b_mask)
        a_fragment = a_tile[step // STEPS].slice(step % STEPS * GROUPS, GROUPS, 0).load(A_FRAGMENT)
        b_fragment = b_tile[step // STEPS].slice(step % STEPS * GROUPS, GROUPS, 0).load(B_FRAGMENT)
        a_parts = _quads(a_fragment, THREAD_M, gl.SliceLayout(2, SINGLE))
        b_parts = _quads(b_fragment, THREAD_N, gl.SliceLayout(1, SINGLE))
        a_columns = ()
        for i in gl.static_range(THREAD_M):
            a_columns = a_columns + (a_parts[i][:, :, None],)
        b_rows = ()
        for j in gl.static_range(THREAD_N):
            b_rows = b_rows + (b_parts[j][:, None, :],)
        acc = outer_product(a_columns, b_rows, acc, THREAD_M, THREAD_N, ACROSS, PINNED)
    return acc


@jit
def _start(first, TILE: constexpr, END, WRAPS: constexpr, VECTOR: constexpr):
    """Where a tile's rows (or columns) start: one that would reach beyond the end starts earlier."""
    start = first
    if not WRAPS:
        start = gl.multiple_of(min(first, END - TILE), VECTOR)
    return start


@jit
def _within(TILE: constexpr, LAYOUT: constexpr, END, WRAPS: constexpr, VECTOR: constexpr):
    """A tile's rows (or columns), counted from its start; of a matrix smaller than a tile the first ones again."""
    index = gl.arange(0, TILE, LAYOUT)
    if WRAPS:
        index = index % END
        if VECTOR > 1:
            index = gl.max_contiguous(gl.multiple_of(index, VECTOR), VECTOR)
    return index


@jit
def _tile_of_d(
    a, b, c, d, a_row, a_col, b_row, b_col, c_row, c_col, d_row, d_col, alpha, beta,
    first_row, first_col, row_end, col_end, first, tiles, finish,
    TILE_K: constexpr, GROUPS: constexpr, STAGES: constexpr, THREAD_M: constexpr, THREAD_N: constexpr,
    ACROSS: constexpr, PINNED: constexpr, LACKING: constexpr, READ_C: constexpr,
    A_VECTOR: constexpr, B_VECTOR: constexpr, PARTS: constexpr, SHAPE: constexpr,
):  # fmt: skip
    """The tile of D whose rows begin at first_row and whose columns at first_col, as far as it lies before the ends."""
    TILE_M: constexpr = SHAPE[0]
    TILE_N: constexpr = SHAPE[1]
    WRAP_M: constexpr = SHAPE[2]
    WRAP_N: constexpr = SHAPE[3]
    MASK: constexpr = SHAPE[4]
    A_COPY: constexpr = SHAPE[5]
    B_COPY: constexpr = SHAPE[6]
    A_SHARED: constexpr = SHAPE[7]
    B_SHARED: constexpr = SHAPE[8]
    A_FRAGMENT: constexpr = SHAPE[9]
    B_FRAGMENT: constexpr = SHAPE[10]
    SINGLE: constexpr = SHAPE[11]
    WHOLE: constexpr = SHAPE[12]
    SUMS: constexpr = SHAPE[13]
    OUT: constexpr = SHAPE[14]
    m0 = _start(first_row, TILE_M, row_end, WRAP_M, A_VECTOR)
    n0 = _start(first_col, TILE_N, col_end, WRAP_N, B_VECTOR)
    k0 = first * TILE_K - LACKING
    PART: constexpr = TILE_K // PARTS
    a_ks = gl.arange(0, PART, gl.SliceLayout(1, A_COPY))[:, None]
    b_ks = gl.arange(0, PART, gl.SliceLayout(1, B_COPY))[:, None]
    a_rows = _within(TILE_M, gl.SliceLayout(0, A_COPY), row_end, WRAP_M, A_VECTOR)[None, :]
    b_cols = _within(TILE_N, gl.SliceLayout(0, B_COPY), col_end, WRAP_N, B_VECTOR)[None, :]
    # One base for the tile, which moves along K, and every thread's offsets from it, which stay: 64 bits wide, so that
    # the compiler may take constant differences between them for immediates.
    a_base = a + m0.to(gl.int64) * a_row + k0 * a_col
    b_base = b + n0.to(gl.int64) * b_col + k0 * b_row
    a_offsets = a_ks.to(gl.int64) * a_col + a_rows.to(gl.int64) * a_row
    b_offsets = b_ks.to(gl.int64) * b_row + b_cols.to(gl.int64) * b_col
    # With PARTS over 1 every part of every buffer is an allocation of its own: the compiler puts a barrier between
    # accesses that it cannot tell apart, which are any two of one allocation.
    if PARTS == 1:
        a_ring = gl.allocate_shared_memory(gl.float32, [STAGES, TILE_K, TILE_M], A_SHARED)
        b_ring = gl.allocate_shared_memory(gl.float32, [STAGES, TILE_K, TILE_N], B_SHARED)
    a_tiles = ()
    b_tiles = ()
    for stage in gl.static_range(STAGES):
        a_parts = ()
        b_parts = ()
        for _ in gl.static_range(PARTS):
            if PARTS == 1:
                a_parts = a_parts + (a_ring.index(stage),)
                b_parts = b_parts + (b_ring.index(stage),)
            else:
                a_parts = a_parts + (gl.allocate_shared_memory(gl.float32, [PART, TILE_M], A_SHARED),)
                b_parts = b_parts + (gl.allocate_shared_memory(gl.float32, [PART, TILE_N], B_SHARED),)
        a_tiles = a_tiles + (a_parts,)
        b_tiles = b_tiles + (b_parts,)
    acc = ()
    for _ in gl.static_range(THREAD_M * THREAD_N):
        acc = acc + (gl.zeros([GROUPS, TILE_M // THREAD_M, TILE_N // THREAD_N], gl.float32, SINGLE),)

    after_earlier_launches()  # with pdl they may still run: nothing in global memory is touched before this
    # Only the first buffer can lack some of its k.
    for ahead in gl.static_range(STAGES - 1):
        if ahead < tiles:
            for part in gl.static_range(PARTS):
                a_free, b_free = a_tiles[ahead][part], b_tiles[ahead][part]
                a_next = a_base + (ahead * TILE_K + part * PART) * a_col + a_offsets
                b_next = b_base + (ahead * TILE_K + part * PART) * b_row + b_offsets
                if ahead == 0 and LACKING:
                    async_copy_load(a_free, a_next, mask=(k0 + part * PART + a_ks >= 0) & (a_rows >= 0))
                    async_copy_load(b_free, b_next, mask=(k0 + part * PART + b_ks >= 0) & (b_cols >= 0))
                else:
                    async_copy_load(a_free, a_next)
                    async_copy_load(b_free, b_next)
        async_copy_commit()
    a_base += (STAGES - 1) * TILE_K * a_col
    b_base += (STAGES - 1) * TILE_K * b_row
    # In both loops: once everybody is at the barrier, everybody's copies are there, and everybody is done with the
    # buffer before this one, which is the one to fill.
    if PARTS == 1:
        slot = 0
        for tile in range(tiles):
            async_copy_wait(STAGES - 2)
            barrier()
            if tile + STAGES - 1 < tiles:
                free = (slot + STAGES - 1) % STAGES
                async_copy_load(a_ring.index(free), a_base + a_offsets)
                async_copy_load(b_ring.index(free), b_base + b_offsets)
            async_copy_commit()
            a_base += TILE_K * a_col
            b_base += TILE_K * b_row
            acc = _multiply(
                (a_ring.index(slot),), (b_ring.index(slot),), acc, GROUPS, TILE_K, THREAD_M, THREAD_N,
                A_FRAGMENT, B_FRAGMENT, SINGLE, ACROSS, PINNED,
            )  # fmt: skip
            slot = (slot + 1) % STAGES
    else:
        for turn in range(0, tiles, STAGES):
            for stage in gl.static_range(STAGES):
                if turn + stage < tiles:
                    async_copy_wait(STAGES - 2)
                    barrier()
                    more = turn + stage + STAGES - 1 < tiles
                    acc = _multiply(
                        a_tiles[stage], b_tiles[stage], acc, GROUPS, TILE_K, THREAD_M, THREAD_N,
                        A_FRAGMENT, B_FRAGMENT, SINGLE, ACROSS, PINNED, PARTS,
                        a_tiles[(stage + STAGES - 1) % STAGES], a_base + a_offsets, a_col,
                        gl.full([PART, TILE_M], more, gl.int1, A_COPY),
                        b_tiles[(stage + STAGES - 1) % STAGES], b_base + b_offsets, b_row,
                        gl.full([PART, TILE_N], more, gl.int1, B_COPY),
                    )  # fmt: skip
                    async_copy_commit()
                    a_base += TILE_K * a_col
                    b_base += TILE_K * b_row
    async_copy_wait(0)

    sums = gl.allocate_shared_memory(gl.float32, [GROUPS, TILE_M, TILE_N], SUMS)
    barrier()
    sums.store(gl.convert_layout(_whole(acc, THREAD_M, THREAD_N), WHOLE, assert_trivial=True))
    barrier()
    total = gl.sum(sums.load(OUT), axis=0) * alpha
    rows = (m0 + gl.arange(0, TILE_M, gl.SliceLayout(1, gl.SliceLayout(0, OUT))))[:, None]
    cols = (n0 + gl.arange(0, TILE_N, gl.SliceLayout(0, gl.SliceLayout(0, OUT))))[None, :]
    d_pointers = d + rows * d_row + cols * d_col
    if MASK:
        mask = (rows >= first_row) & (rows < row_end) & ((cols >= first_col) & (cols < col_end))
        if READ_C:
            total = gl.fma(gl.load(c + rows * c_row + cols * c_col, mask=mask, other=0.0), beta, total)
        total = finished(total, bias_of(finish, rows, cols, row_end, col_end), finish)
        gl.store(d_pointers, total, mask=mask)
    else:
        if READ_C:
            total = gl.fma(gl.load(c + rows * c_row + cols * c_col), beta, total)
        total = finished(total, bias_of(finish, rows, cols, row_end, col_end), finish)
        gl.store(d_pointers, total)


@jit
def champion_few_kernel(
    a, b, c, d, a_row, a_col, b_row, b_col, c_row, c_col, d_row, d_col, M, N, K, alpha, beta,
    split_tiles, split_stride, rows, cols, bias, scale,
    TILE_K: constexpr, GROUPS: constexpr, STAGES: constexpr, THREAD_M: constexpr, THREAD_N: constexpr,
    ACROSS: constexpr, PINNED: constexpr, LACKING: constexpr, READ_C: constexpr, SPLIT: constexpr,
    A_VECTOR: constexpr, B_VECTOR: constexpr, PARTS: constexpr, MAIN: constexpr, BELOW: constexpr, RIGHT: constexpr,
    BIAS: constexpr, ACTIVATION: constexpr, SCALED: constexpr,
):  # fmt: skip
    # What the plan knows of the strides, for 16 bytes a lane: the launcher only tells multiples of 16.
    if A_VECTOR > 1:
        a_col = gl.multiple_of(a_col, A_VECTOR)
    if B_VECTOR > 1:
        b_row = gl.multiple_of(b_row, B_VECTOR)
    # Along K: how many buffers' worth there is and which of it is this program's; the first of all lacks LACKING k.
    tiles = gl.cdiv(K, TILE_K)
    first = 0
    if SPLIT:
        first = gl.program_id(1) * split_tiles
        tiles = min(tiles - first, split_tiles)
        d += gl.program_id(1).to(gl.int64) * split_stride
    finish = Finish(bias, scale, BIAS, ACTIVATION, SCALED)
    program = gl.program_id(0)
    # The first rows x cols of D in tiles of the usual shape, then the strip below, as wide as D, then the one on the
    # right.
    across = gl.cdiv(cols, MAIN[1])
    main = gl.cdiv(rows, MAIN[0]) * across
    below = main
    if BELOW is not None:
        below += gl.cdiv(N, BELOW[1])
    if program < main:
        _tile_of_d(
            a, b, c, d, a_row, a_col, b_row, b_col, c_row, c_col, d_row, d_col, alpha, beta,
            program // across * MAIN[0], program % across * MAIN[1], rows, cols, first, tiles, finish,
            TILE_K, GROUPS, STAGES, THREAD_M, THREAD_N, ACROSS, PINNED, LACKING, READ_C, A_VECTOR, B_VECTOR, PARTS,
            MAIN,
        )  # fmt: skip
    if BELOW is not None:  # noqa: SIM102 (compile-time, then run-time)
        if (program >= main) & (program < below):
            _tile_of_d(
                a, b, c, d, a_row, a_col, b_row, b_col, c_row, c_col, d_row, d_col, alpha, beta,
                rows, (program - main) * BELOW[1], M, N, first, tiles, finish,
                TILE_K, GROUPS, STAGES, THREAD_M, THREAD_N, ACROSS, PINNED, LACKING, READ_C, A_VECTOR, B_VECTOR, PARTS,
                BELOW,
            )  # fmt: skip
    if RIGHT is not None:  # noqa: SIM102 (compile-time, then run-time)
        if program >= below:
            _tile_of_d(
                a, b, c, d, a_row, a_col, b_row, b_col, c_row, c_col, d_row, d_col, alpha, beta,
                (program - below) * RIGHT[0], cols, rows, N, first, tiles, finish,
                TILE_K, GROUPS, STAGES, THREAD_M, THREAD_N, ACROSS, PINNED, LACKING, READ_C, A_VECTOR, B_VECTOR, PARTS,
                RIGHT,
            )  # fmt: skip
