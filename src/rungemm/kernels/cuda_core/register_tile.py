"""A thread's tile of C as single registers, multiplied in the order that the register file likes.

An SM sub-partition can issue one multiply-add a clock, which names three source registers; the register file's two
banks (even and odd numbers) deliver one each. So one source must come from the reuse cache, which holds what the
instruction before read in the same place, and the other two must lie in different banks, which ptxas sees to. Walking
the tile like a serpent, down one column and up the next, each multiply-add shares a source with the one before it: at
a turn it keeps the row's, elsewhere the column's. Walking every column downwards would read three at each turn.
"""

# Tuples grow in unrolled loops, which neither checker follows.
# mypy: disable-error-code="assignment,misc"
# ruff: noqa: RUF005

from __future__ import annotations

from ...compat import constexpr, gl, jit, pinned_fma

__all__ = ["join_columns", "outer_product", "to_registers", "zero_registers"]


@jit
def _halves(x):
    """The first and the second half of a 1-D tile that one thread holds both of: no instruction."""
    return gl.split(x.reshape([2, x.shape[0] // 2]).permute([1, 0]))


@jit
def _neighbours(x):
    """The even and the odd elements of a 1-D tile whose neighbours lie in one thread: no instruction."""
    return gl.split(x.reshape([x.shape[0] // 2, 2]))


@jit
def to_registers(x, COUNT: constexpr, LAYOUT: constexpr):
    """A 1-D fragment as a tuple of ``COUNT`` tiles of one element a thread: four neighbours, then the next four.

    ``x`` gives every thread COUNT elements: groups of four neighbours, the groups equally far apart. Each tile of the
    result has ``LAYOUT`` and an element for each thread across the fragment.
    """
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
def zero_registers(ROWS: constexpr, COLS: constexpr, COUNT: constexpr, LAYOUT: constexpr):
    """``COUNT`` accumulators of one element a thread."""
    registers = ()
    for _ in gl.static_range(COUNT):
        registers = registers + (gl.zeros([ROWS, COLS], gl.float32, LAYOUT),)
    return registers


@jit
def _fma(a, b, c, PINNED: constexpr):
    return pinned_fma(a, b, c) if PINNED else gl.fma(a, b, c)


@jit
def _product(a, b, acc, long: constexpr, short: constexpr, THREAD_M: constexpr, ACROSS: constexpr, PINNED: constexpr):
    """Step ``short`` of line ``long``, a row or a column of the tile, added to its accumulator."""
    if ACROSS:
        product = _fma(a[long], b[short], acc[short * THREAD_M + long], PINNED)
    else:
        product = _fma(a[short], b[long], acc[long * THREAD_M + short], PINNED)
    return product


@jit
def outer_product(a, b, acc, THREAD_M: constexpr, THREAD_N: constexpr, ACROSS: constexpr, PINNED: constexpr):
    """``acc[j][i] += a[i] * b[j]`` over a thread's tile, column by column, every other column upwards.

    ``a`` and ``b`` are tuples of THREAD_M columns and THREAD_N rows, ``acc`` of their products, columns one after the
    other. Short runs, along the shorter side, are what ptxas keeps best. With ACROSS, row by row instead: what ptxas
    makes of either differs from kernel to kernel. Without PINNED, LLVM sorts them anew.
    """
    SHORT: constexpr = THREAD_N if ACROSS else THREAD_M
    LONG: constexpr = THREAD_M if ACROSS else THREAD_N
    product = ()
    for long in gl.static_range(LONG):
        line = ()
        for step in gl.static_range(SHORT):
            if long % 2 == 0:
                line = line + (_product(a, b, acc, long, step, THREAD_M, ACROSS, PINNED),)
            else:
                line = (_product(a, b, acc, long, SHORT - 1 - step, THREAD_M, ACROSS, PINNED),) + line
        product = product + line
    if ACROSS:
        columns = ()
        for j in gl.static_range(THREAD_N):
            for i in gl.static_range(THREAD_M):
                columns = columns + (product[i * THREAD_N + j],)
        product = columns
    return product


@jit
def _side_by_side(x, y):
    """Columns of x and y alternating: neighbours in one thread, no instruction."""
    return gl.join(x, y).reshape([x.shape[0], 2 * x.shape[1]])


@jit
def join_columns(x0, x1, x2, x3, LAYOUT: constexpr):
    """Four accumulators of neighbouring columns as one tile of four elements a thread."""
    return gl.convert_layout(
        _side_by_side(_side_by_side(x0, x2), _side_by_side(x1, x3)), LAYOUT, assert_trivial=True
    )
