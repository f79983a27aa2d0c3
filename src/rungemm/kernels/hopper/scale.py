"""D = epilogue(beta * C), for when there is nothing to multiply (K or alpha is 0): A and B must not be looked at."""

from __future__ import annotations

from ...compat import constexpr, gl, jit
from ...problem import Problem
from ..common import cdiv, load_tile
from ..epilogue import Finish, bias_of, epilogue_arguments, epilogue_constants, finished
from ..plan import Launch, Pointer, Scalar, strides_of

__all__ = ["scale_launch"]

TILE = 64
NUM_WARPS = 4


@jit
def scale_kernel(
    c, d, c_row, c_col, d_row, d_col, M, N, beta, bias, scale,
    TILE: constexpr, NUM_WARPS: constexpr, READ_C: constexpr, DOWN: constexpr,
    BIAS: constexpr, ACTIVATION: constexpr, SCALED: constexpr,
):  # fmt: skip
    """One program a tile; DOWN: neighbours in memory lie along D's columns."""
    if DOWN:
        LAYOUT: constexpr = gl.BlockedLayout([1, 1], [32, 1], [1, NUM_WARPS], [0, 1])
    else:
        LAYOUT: constexpr = gl.BlockedLayout([1, 1], [1, 32], [NUM_WARPS, 1], [1, 0])  # type: ignore[no-redef]
    across = gl.cdiv(N, TILE)
    rows = (gl.program_id(0) // across * TILE + gl.arange(0, TILE, gl.SliceLayout(1, LAYOUT)))[:, None]
    cols = (gl.program_id(0) % across * TILE + gl.arange(0, TILE, gl.SliceLayout(0, LAYOUT)))[None, :]
    out = gl.zeros([TILE, TILE], gl.float32, LAYOUT)
    if READ_C:
        out = load_tile(c, rows, cols, c_row, c_col, M, N, True, True).to(gl.float32) * beta
    finish = Finish(bias, scale, BIAS, ACTIVATION, SCALED)
    out = finished(out, bias_of(finish, rows, cols, M, N), finish)
    gl.store(d + rows * d_row + cols * d_col, out.to(d.dtype.element_ty), mask=(rows < M) & (cols < N))


def scale_launch(problem: Problem) -> Launch:
    """The launch that finishes a problem with nothing to multiply."""
    c = problem.c if problem.reads_c and problem.c is not None else problem.d
    d = problem.d
    arguments = (
        ("c", Pointer("C" if problem.reads_c else "D", c.dtype, c.alignment)),
        ("d", Pointer("D", d.dtype, d.alignment)),
        *strides_of("c", c),
        *strides_of("d", d),
        ("M", Scalar.index(problem.m)),
        ("N", Scalar.index(problem.n)),
        ("beta", Scalar.real(problem.beta)),
        *epilogue_arguments(problem),
    )
    constants = (
        ("TILE", TILE), ("NUM_WARPS", NUM_WARPS), ("READ_C", problem.reads_c), ("DOWN", d.is_col_major),
        *epilogue_constants(problem),
    )  # fmt: skip
    tiles = cdiv(problem.m, TILE) * cdiv(problem.n, TILE)
    return Launch(scale_kernel, (tiles, 1, 1), arguments, constants, NUM_WARPS)
