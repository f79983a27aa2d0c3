"""What the kernels of batches share: which operands all products have in common, strides, and ``D = beta * C``."""

from __future__ import annotations

from ..compat import constexpr, gl, jit
from ..problem import Matrix, Problem
from .common import after_earlier_launches, cdiv, load_tile
from .plan import INT32_MAX, Argument, Launch, Pointer, Scalar, strides_of

__all__ = ["is_shared", "moved_bytes", "output_arguments", "rejects_batch", "scale_products_launch"]

TILE = 64
NUM_WARPS = 4


def is_shared(matrix: Matrix, batch: int) -> bool:
    """All products have this matrix (or there is one product)."""
    return batch == 1 or matrix.batch_stride == 0


def moved_bytes(problem: Problem) -> int:
    """Bytes if every input is read once, an operand that all products share once for all, and D is written once."""

    def size(matrix: Matrix) -> int:
        each = 1 if is_shared(matrix, problem.batch) else problem.batch
        return each * matrix.rows * matrix.cols * matrix.dtype.bytes

    total = problem.batch * problem.m * problem.n * problem.d.dtype.bytes
    if problem.effective_k:
        total += size(problem.a) + size(problem.b)
    return total + (size(problem.c) if problem.c is not None and problem.reads_c else 0)


def rejects_batch(name: str, problem: Problem) -> str | None:
    """What no kernel of batches takes."""
    if problem.epilogue is not None:
        return f"{name} has no fused epilogue: apply it afterwards"
    if problem.batch > 1 and problem.d.batch_stride == 0:
        return f"D's {problem.batch} products lie in one place (batch stride 0): pass a D with a matrix for each"
    if problem.batch * cdiv(problem.m, TILE) * cdiv(problem.n, TILE) > INT32_MAX:
        return f"{problem.batch} products of {problem.m}x{problem.n}: beyond a grid of {INT32_MAX} programs"
    return None


def output_arguments(problem: Problem, to: Argument) -> tuple[tuple[str, Argument], ...]:
    """``c`` and ``d``, the latter as ``to``, with ``c_batch`` (64 bits), ``c_row``, ``c_col``, and D's strides."""
    c = problem.c if problem.reads_c and problem.c is not None else problem.d
    return (
        ("c", Pointer("C" if problem.reads_c else "D", c.dtype, c.alignment)),
        ("d", to),
        ("c_batch", Scalar(c.batch_stride, "i64")),
        *strides_of("c", c),
        ("d_batch", Scalar(problem.d.batch_stride, "i64")),
        *strides_of("d", problem.d),
    )


@jit
def scale_products_kernel(
    c, d, c_batch, c_row, c_col, d_batch, d_row, d_col, M, N, beta,
    TILE: constexpr, NUM_WARPS: constexpr, READ_C: constexpr, DOWN: constexpr,
):  # fmt: skip
    """One program a tile of a product; DOWN: neighbours in memory lie along D's columns."""
    if DOWN:
        LAYOUT: constexpr = gl.BlockedLayout([1, 1], [32, 1], [1, NUM_WARPS], [0, 1])
    else:
        LAYOUT: constexpr = gl.BlockedLayout([1, 1], [1, 32], [NUM_WARPS, 1], [1, 0])  # type: ignore[no-redef]
    across = gl.cdiv(N, TILE)
    tiles = gl.cdiv(M, TILE) * across
    product = (gl.program_id(0) // tiles).to(gl.int64)
    tile = gl.program_id(0) % tiles
    rows = (tile // across * TILE + gl.arange(0, TILE, gl.SliceLayout(1, LAYOUT)))[:, None]
    cols = (tile % across * TILE + gl.arange(0, TILE, gl.SliceLayout(0, LAYOUT)))[None, :]
    out = gl.zeros([TILE, TILE], gl.float32, LAYOUT)
    after_earlier_launches()  # with pdl they may still run: nothing in global memory is touched before this
    if READ_C:
        c += product * c_batch
        out = load_tile(c, rows, cols, c_row, c_col, M, N, True, True).to(gl.float32) * beta
    d += product * d_batch
    gl.store(d + rows * d_row + cols * d_col, out.to(d.dtype.element_ty), mask=(rows < M) & (cols < N))


def scale_products_launch(problem: Problem) -> Launch:
    """The launch that finishes a batch with nothing to multiply (K or alpha is 0): A and B must not be looked at."""
    d = problem.d
    tiles = problem.batch * cdiv(problem.m, TILE) * cdiv(problem.n, TILE)
    arguments = (
        *output_arguments(problem, Pointer("D", d.dtype, d.alignment)),
        ("M", Scalar.index(problem.m)),
        ("N", Scalar.index(problem.n)),
        ("beta", Scalar.real(problem.beta)),
    )
    constants = (("TILE", TILE), ("NUM_WARPS", NUM_WARPS), ("READ_C", problem.reads_c), ("DOWN", d.is_col_major))
    return Launch(scale_products_kernel, (tiles, 1, 1), arguments, constants, NUM_WARPS)
