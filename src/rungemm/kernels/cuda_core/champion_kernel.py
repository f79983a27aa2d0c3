"""The fp32 champion's device code. Its plan, layouts and search space are in :mod:`.champion`.

Both operands are seen alike, as tiles of TILE_K rows along K (A's tile is A transposed), so that a fragment of either
is four neighbours in a row. An operand whose neighbours in memory lie along that row goes straight to shared memory by
cp.async; any other passes through registers, which turns it.

Two buffers that the compiler can tell apart, and the loop walks K two tiles at a time: one barrier a tile. What does
not fill a tile along K comes FIRST, and a last tile of C that would reach beyond the matrix starts earlier instead and
stores only what is its own (EDGE 1); of a matrix smaller than a tile it copies the first rows again (EDGE 2). So only
the loads before the loop are masked.

The rounding error of a sum grows with its length. Where cuBLAS splits K and is the more exact for it, FLUSH_PAIRS cuts
the sum here: after so many pairs of tiles the sums so far are added to the program's totals in a workspace, which L2
holds, and start anew.
"""

# Tuples grow in unrolled loops, which neither checker follows.
# mypy: disable-error-code="assignment,misc"
# ruff: noqa: RUF005

from __future__ import annotations

from ...compat import async_copy_commit, async_copy_load, async_copy_wait, barrier, constexpr, gl, jit
from ..common import after_earlier_launches, tile_of_program
from ..epilogue import Finish, bias_of, finished
from .register_tile import join_columns, outer_product, to_registers, zero_registers

__all__ = ["champion_fp32_kernel"]


@jit
def _fetch(pointers, buffer, mask, ASYNC: constexpr, MASKED: constexpr):
    """Start a tile's way from global memory: into the buffer, or into registers, which are returned."""
    value = 0
    if ASYNC:
        if MASKED:
            async_copy_load(buffer, pointers, mask=mask)
        else:
            async_copy_load(buffer, pointers)
    else:
        if MASKED:
            value = gl.load(pointers, mask=mask, other=0.0)
        else:
            value = gl.load(pointers)
    return value


@jit
def _deposit(value, buffer, ASYNC: constexpr):
    """The rest of the way for a tile that went through registers."""
    if not ASYNC:
        buffer.store(value)


@jit
def _multiply(
    a_tile, b_tile, acc, TILE_M: constexpr, TILE_N: constexpr, TILE_K: constexpr,
    THREAD_M: constexpr, THREAD_N: constexpr, A_FRAGMENT: constexpr, B_FRAGMENT: constexpr, SINGLE: constexpr,
    ACROSS: constexpr, PINNED: constexpr,
):  # fmt: skip
    """One tile's worth of multiply-adds: for each k a fragment of A, one of B, and their outer product."""
    for k in gl.static_range(TILE_K):
        a_fragment = a_tile.slice(k, 1, 0).load(A_FRAGMENT).reshape([TILE_M])
        b_fragment = b_tile.slice(k, 1, 0).load(B_FRAGMENT).reshape([TILE_N])
        a_parts = to_registers(a_fragment, THREAD_M, gl.SliceLayout(1, SINGLE))
        b_parts = to_registers(b_fragment, THREAD_N, gl.SliceLayout(0, SINGLE))
        a_columns = ()
        for i in gl.static_range(THREAD_M):
            a_columns = a_columns + (a_parts[i][:, None],)
        b_rows = ()
        for j in gl.static_range(THREAD_N):
            b_rows = b_rows + (b_parts[j][None, :],)
        acc = outer_product(a_columns, b_rows, acc, THREAD_M, THREAD_N, ACROSS, PINNED)
    return acc


@jit
def _first_index(tile, END, TILE: constexpr, EDGE: constexpr, VECTOR: constexpr):
    """Where a program's rows (or columns) start: a last tile that would reach beyond the matrix starts earlier."""
    start = tile * TILE
    if EDGE == 1:
        start = gl.multiple_of(min(start, END - TILE), VECTOR)
    return start


@jit
def _wrapped(index, END, EDGE: constexpr, VECTOR: constexpr):
    """Rows (or columns) to copy of a matrix smaller than a tile: beyond its end, its first ones again."""
    if EDGE == 2:
        index = index % END
        if VECTOR > 1:
            index = gl.max_contiguous(gl.multiple_of(index, VECTOR), VECTOR)
    return index


@jit
def _store(
    value, rows, cols, first_row, first_col, c, c_row, c_col, d, d_row, d_col, M, N, alpha, beta,
    finish, READ_C: constexpr, MASK: constexpr,
):  # fmt: skip
    """``D = alpha * value + beta * C`` and the epilogue, for the rows and columns from first_row and first_col on."""
    out = value * alpha
    mask = ((rows >= first_row) & (rows < M)) & ((cols >= first_col) & (cols < N))
    if READ_C:
        if MASK:
            old = gl.load(c + rows * c_row + cols * c_col, mask=mask, other=0.0)
        else:
            old = gl.load(c + rows * c_row + cols * c_col)
        out = gl.fma(old, beta, out)
    out = finished(out, bias_of(finish, rows, cols, M, N), finish)
    if MASK:
        gl.store(d + rows * d_row + cols * d_col, out, mask=mask)
    else:
        gl.store(d + rows * d_row + cols * d_col, out)


@jit
def _piece(acc, i: constexpr, j: constexpr, THREAD_M: constexpr, STORE: constexpr):
    """Row i of four neighbouring columns from j on, as a tile of all the threads'."""
    return join_columns(
        acc[j * THREAD_M + i], acc[(j + 1) * THREAD_M + i],
        acc[(j + 2) * THREAD_M + i], acc[(j + 3) * THREAD_M + i], STORE,
    )  # fmt: skip


@jit
def _add_to_totals(totals, acc, more, COUNT: constexpr, THREADS: constexpr):
    """``totals += acc`` or, unless there are ``more`` in them, ``= acc``; every thread touches only its own.

    One accumulator after the other, not four neighbours at once: 16 bytes want four registers in a row, which would
    bind all the accumulators and cost the loop its order of registers. So many loads before the first sum is needed
    that L2 is waited for a few times and not COUNT times.
    """
    LOADS: constexpr = 16
    if more:
        for first in gl.static_range(0, COUNT, LOADS):
            old = ()
            for i in gl.static_range(LOADS):
                old = old + (gl.load(totals + (first + i) * THREADS),)
            for i in gl.static_range(LOADS):
                gl.store(totals + (first + i) * THREADS, old[i] + acc[first + i])
    else:
        for i in gl.static_range(COUNT):
            gl.store(totals + i * THREADS, acc[i])


@jit
def _two_tiles(
    a_pointers, b_pointers, acc, a0, a1, b0, b1, a_col, b_row, more,
    TILE_M: constexpr, TILE_N: constexpr, TILE_K: constexpr, THREAD_M: constexpr, THREAD_N: constexpr,
    A_ASYNC: constexpr, B_ASYNC: constexpr, A_FRAGMENT: constexpr, B_FRAGMENT: constexpr, SINGLE: constexpr,
    ACROSS: constexpr, PINNED: constexpr,
):  # fmt: skip
    """Multiply the tile in buffer 0 while the next one comes, then that one while the one after it comes, if any."""
    a_pointers += TILE_K * a_col
    b_pointers += TILE_K * b_row
    a_value = _fetch(a_pointers, a1, 0, A_ASYNC, False)
    b_value = _fetch(b_pointers, b1, 0, B_ASYNC, False)
    async_copy_commit()
    acc = _multiply(
        a0, b0, acc, TILE_M, TILE_N, TILE_K, THREAD_M, THREAD_N, A_FRAGMENT, B_FRAGMENT, SINGLE, ACROSS, PINNED,
    )  # fmt: skip
    _deposit(a_value, a1, A_ASYNC)
    _deposit(b_value, b1, B_ASYNC)
    async_copy_wait(0)
    barrier()
    # After the last tile there is none to fetch: the same one again, which nobody reads.
    ahead = gl.where(more, TILE_K, 0)
    a_pointers += ahead * a_col
    b_pointers += ahead * b_row
    a_value = _fetch(a_pointers, a0, 0, A_ASYNC, False)
    b_value = _fetch(b_pointers, b0, 0, B_ASYNC, False)
    async_copy_commit()
    acc = _multiply(
        a1, b1, acc, TILE_M, TILE_N, TILE_K, THREAD_M, THREAD_N, A_FRAGMENT, B_FRAGMENT, SINGLE, ACROSS, PINNED,
    )  # fmt: skip
    _deposit(a_value, a0, A_ASYNC)
    _deposit(b_value, b0, B_ASYNC)
    async_copy_wait(0)
    barrier()
    return a_pointers, b_pointers, acc


@jit
def champion_fp32_kernel(
    a, b, c, d, a_row, a_col, b_row, b_col, c_row, c_col, d_row, d_col, M, N, K, alpha, beta,
    split_tiles, split_stride, store_m, store_n, totals, bias, scale,
    TILE_M: constexpr, TILE_N: constexpr, TILE_K: constexpr, READ_C: constexpr,
    EDGE_M: constexpr, EDGE_N: constexpr, MASK_STORE: constexpr, LACKING: constexpr, ODD: constexpr, SPLIT: constexpr,
    THREAD_M: constexpr, THREAD_N: constexpr, GROUP_M: constexpr,
    ACROSS: constexpr, PINNED: constexpr,
    FLUSH_PAIRS: constexpr, A_VECTOR: constexpr, B_VECTOR: constexpr,
    A_ASYNC: constexpr, B_ASYNC: constexpr, A_COPY: constexpr, B_COPY: constexpr,
    A_SHARED: constexpr, B_SHARED: constexpr, A_FRAGMENT: constexpr, B_FRAGMENT: constexpr,
    SINGLE: constexpr, STORE: constexpr, BIAS: constexpr, ACTIVATION: constexpr, SCALED: constexpr,
):  # fmt: skip
    tile_m, tile_n = tile_of_program(M, N, TILE_M, TILE_N, GROUP_M)
    # Along K: how many tiles there are and which of them are this program's; the first of all lacks LACKING of its k.
    tiles = gl.cdiv(K, TILE_K)
    first = 0
    if SPLIT:
        first = gl.program_id(1) * split_tiles
        tiles = min(tiles - first, split_tiles)
        d += gl.program_id(1).to(gl.int64) * split_stride
    k0 = first * TILE_K - LACKING

    a_ks = gl.arange(0, TILE_K, gl.SliceLayout(1, A_COPY))[:, None]
    b_ks = gl.arange(0, TILE_K, gl.SliceLayout(1, B_COPY))[:, None]
    A_NEIGHBOURS: constexpr = A_VECTOR if A_ASYNC else 1
    B_NEIGHBOURS: constexpr = B_VECTOR if B_ASYNC else 1
    m0 = _first_index(tile_m, M, TILE_M, EDGE_M, A_NEIGHBOURS)
    n0 = _first_index(tile_n, N, TILE_N, EDGE_N, B_NEIGHBOURS)
    a_rows = _wrapped(m0 + gl.arange(0, TILE_M, gl.SliceLayout(0, A_COPY)), M, EDGE_M, A_NEIGHBOURS)[None, :]
    b_cols = _wrapped(n0 + gl.arange(0, TILE_N, gl.SliceLayout(0, B_COPY)), N, EDGE_N, B_NEIGHBOURS)[None, :]
    # What the plan knows of the strides, for 16 bytes a lane: the launcher only tells multiples of 16.
    if A_VECTOR > 1:
        if A_ASYNC:
            a_col = gl.multiple_of(a_col, A_VECTOR)
        else:
            a_row = gl.multiple_of(a_row, A_VECTOR)
    if B_VECTOR > 1:
        if B_ASYNC:
            b_row = gl.multiple_of(b_row, B_VECTOR)
        else:
            b_col = gl.multiple_of(b_col, B_VECTOR)
    a_pointers = a + k0 * a_col + (a_ks * a_col + a_rows * a_row)
    b_pointers = b + k0 * b_row + (b_ks * b_row + b_cols * b_col)

    a0 = gl.allocate_shared_memory(gl.float32, [TILE_K, TILE_M], A_SHARED)
    a1 = gl.allocate_shared_memory(gl.float32, [TILE_K, TILE_M], A_SHARED)
    b0 = gl.allocate_shared_memory(gl.float32, [TILE_K, TILE_N], B_SHARED)
    b1 = gl.allocate_shared_memory(gl.float32, [TILE_K, TILE_N], B_SHARED)
    THREADS_M: constexpr = TILE_M // THREAD_M
    THREADS_N: constexpr = TILE_N // THREAD_N
    COUNT: constexpr = THREAD_M * THREAD_N
    acc = zero_registers(THREADS_M, THREADS_N, COUNT, SINGLE)

    after_earlier_launches()  # with pdl they may still run: nothing in global memory is touched before this
    if tiles > 0:
        a_value = _fetch(a_pointers, a0, (k0 + a_ks >= 0) & (a_rows >= 0), A_ASYNC, LACKING > 0)
        b_value = _fetch(b_pointers, b0, (k0 + b_ks >= 0) & (b_cols >= 0), B_ASYNC, LACKING > 0)
        async_copy_commit()
        _deposit(a_value, a0, A_ASYNC)
        _deposit(b_value, b0, B_ASYNC)
        async_copy_wait(0)
        barrier()
    pairs = tiles // 2
    if FLUSH_PAIRS:
        # The program's own tile of totals: of every thread its first accumulator, of every thread its second ...
        own = gl.program_id(0) + gl.program_id(1) * gl.num_programs(0)
        totals += own.to(gl.int64) * (TILE_M * TILE_N)
        total_rows = gl.arange(0, THREADS_M, gl.SliceLayout(1, SINGLE))[:, None]
        total_cols = gl.arange(0, THREADS_N, gl.SliceLayout(0, SINGLE))[None, :]
        totals += total_rows * THREADS_N + total_cols
        for begin in range(0, pairs, FLUSH_PAIRS):
            if begin > 0:
                _add_to_totals(totals, acc, begin > FLUSH_PAIRS, COUNT, THREADS_M * THREADS_N)
                acc = zero_registers(THREADS_M, THREADS_N, COUNT, SINGLE)
            for pair in range(begin, min(begin + FLUSH_PAIRS, pairs)):
                a_pointers, b_pointers, acc = _two_tiles(
                    a_pointers, b_pointers, acc, a0, a1, b0, b1, a_col, b_row, 2 * pair + 2 < tiles,
                    TILE_M, TILE_N, TILE_K, THREAD_M, THREAD_N, A_ASYNC, B_ASYNC, A_FRAGMENT, B_FRAGMENT, SINGLE,
                    ACROSS, PINNED,
                )  # fmt: skip
    else:
        for pair in range(pairs):
            a_pointers, b_pointers, acc = _two_tiles(
                a_pointers, b_pointers, acc, a0, a1, b0, b1, a_col, b_row, 2 * pair + 2 < tiles,
                TILE_M, TILE_N, TILE_K, THREAD_M, THREAD_N, A_ASYNC, B_ASYNC, A_FRAGMENT, B_FRAGMENT, SINGLE,
                ACROSS, PINNED,
            )  # fmt: skip
    if ODD:  # noqa: SIM102 (compile-time, then run-time)
        if tiles % 2 == 1:
            acc = _multiply(
                a0, b0, acc, TILE_M, TILE_N, TILE_K, THREAD_M, THREAD_N, A_FRAGMENT, B_FRAGMENT, SINGLE,
                ACROSS, PINNED,
            )  # fmt: skip

    if FLUSH_PAIRS:
        complete = ()
        for i in gl.static_range(COUNT):
            old = gl.load(totals + i * (THREADS_M * THREADS_N), mask=pairs > FLUSH_PAIRS, other=0.0)
            complete = complete + (acc[i] + old,)
        acc = complete
    rows = (m0 + 4 * gl.arange(0, THREADS_M, gl.SliceLayout(1, STORE)))[:, None]
    cols = (n0 + gl.arange(0, 4 * THREADS_N, gl.SliceLayout(0, STORE)))[None, :]
    finish = Finish(bias, scale, BIAS, ACTIVATION, SCALED)
    for i in gl.static_range(THREAD_M):
        for j in gl.static_range(0, THREAD_N, 4):
            part = _piece(acc, i, j, THREAD_M, STORE)
            _store(
                part, rows + (i // 4 * 4 * THREADS_M + i % 4), cols + j * THREADS_N, tile_m * TILE_M, tile_n * TILE_N,
                c, c_row, c_col, d, d_row, d_col, store_m, store_n, alpha, beta, finish, READ_C,
                MASK_STORE,
            )  # fmt: skip
