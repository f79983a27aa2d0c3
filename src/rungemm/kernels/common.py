"""The pieces that every rung shares: which tile a program owns, masked loads, and the store of a C tile.

These carry no idea of their own; a rung's file is about what lies between them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ..compat import constexpr, gl, grid_launch_dependents, grid_wait, jit
from ..problem import Problem
from .epilogue import bias_of, finished
from .plan import Argument, Pointer, Scalar, strides_of

__all__ = [
    "after_earlier_launches", "cdiv", "gemm_arguments", "gemm_constants", "load_tile", "store_tile", "tile_of_program",
]  # fmt: skip


def cdiv(a: int, b: int) -> int:
    """a / b rounded up."""
    return -(-a // b)


@jit
def after_earlier_launches():
    """What a launch with ``pdl`` (:class:`.plan.Launch`) begins with: the launches before it have ended, and the next
    one may begin, up to here.

    Letting it begin only after the wait keeps the order also for kernels of others that read, before they wait
    themselves, what was written two launches ago.
    """
    grid_wait()
    grid_launch_dependents()


@jit
def tile_of_program(M, N, TILE_M: constexpr, TILE_N: constexpr, GROUP_M: constexpr):
    """The tile (row, column, counted in tiles) of this program.

    GROUP_M = 1 walks C row by row. A larger group walks GROUP_M rows of tiles together, column by column, so that
    programs running at the same time share more of A and B in L2.
    """
    program = gl.program_id(0)
    tiles_n = gl.cdiv(N, TILE_N)
    if GROUP_M == 1:
        tile_m = program // tiles_n
        tile_n = program % tiles_n
    else:
        tiles_m = gl.cdiv(M, TILE_M)
        in_group = GROUP_M * tiles_n
        first = program // in_group * GROUP_M
        rows = min(tiles_m - first, GROUP_M)
        within = program % in_group
        tile_m = first + within % rows
        tile_n = within // rows
    return tile_m, tile_n


@jit
def load_tile(matrix, rows, cols, row_stride, col_stride, row_end, col_end, MASK_ROWS: constexpr, MASK_COLS: constexpr):
    """``matrix[rows, cols]``, zero outside: a column of row indices and a row of column indices, or a scalar for one.

    The masks are compile-time switches: where the tiles divide the matrix, no comparison is made at all.
    """
    pointers = matrix + rows * row_stride + cols * col_stride
    if MASK_ROWS and MASK_COLS:
        tile = gl.load(pointers, mask=(rows < row_end) & (cols < col_end), other=0.0)
    elif MASK_ROWS:
        tile = gl.load(pointers, mask=rows < row_end, other=0.0)
    elif MASK_COLS:
        tile = gl.load(pointers, mask=cols < col_end, other=0.0)
    else:
        tile = gl.load(pointers)
    return tile


@jit
def store_tile(
    acc, rows, cols, c, c_row, c_col, d, d_row, d_col, M, N, alpha, beta,
    READ_C: constexpr, MASK_ROWS: constexpr, MASK_COLS: constexpr, finish=None,
):  # fmt: skip
    """``D[rows, cols] = alpha * acc + beta * C[rows, cols]``; without READ_C, C is not touched.

    ``finish``: what of an epilogue follows (:class:`.epilogue.Finish`), in the kernels that fuse one.
    """
    out = acc * alpha
    if READ_C:
        old = load_tile(c, rows, cols, c_row, c_col, M, N, MASK_ROWS, MASK_COLS)
        out = gl.fma(old.to(gl.float32), beta, out)
    if finish is not None:
        out = finished(out, bias_of(finish, rows, cols, M, N), finish)
    pointers = d + rows * d_row + cols * d_col
    value = out.to(d.dtype.element_ty)
    if MASK_ROWS or MASK_COLS:
        gl.store(pointers, value, mask=(rows < M) & (cols < N))
    else:
        gl.store(pointers, value)


def gemm_arguments(problem: Problem) -> Iterable[tuple[str, Argument]]:
    """The arguments that every rung takes, in this order: four matrices, their strides, the extents, the scalars.

    Without a C to read, C's pointer is D's: the kernel never touches it.
    """
    c = problem.c if problem.reads_c and problem.c is not None else problem.d
    c_role = "C" if problem.reads_c else "D"
    for name, role, matrix in (("a", "A", problem.a), ("b", "B", problem.b), ("c", c_role, c), ("d", "D", problem.d)):
        yield name, Pointer(role, matrix.dtype, matrix.alignment)
    for name, matrix in (("a", problem.a), ("b", problem.b), ("c", c), ("d", problem.d)):
        yield from strides_of(name, matrix)
    yield "M", Scalar.index(problem.m)
    yield "N", Scalar.index(problem.n)
    yield "K", replace(Scalar.index(problem.effective_k), loose=True)
    yield "alpha", Scalar.real(problem.effective_alpha)
    yield "beta", Scalar.real(problem.beta)


def gemm_constants(problem: Problem, tile_m: int, tile_n: int, tile_k: int) -> Iterable[tuple[str, Any]]:
    """The constants that every rung takes: the tile, whether C is read, and where masks are needed."""
    yield "TILE_M", tile_m
    yield "TILE_N", tile_n
    yield "TILE_K", tile_k
    yield "READ_C", problem.reads_c
    yield "MASK_M", problem.m % tile_m != 0
    yield "MASK_N", problem.n % tile_n != 0
    yield "MASK_K", problem.effective_k % tile_k != 0
