"""K split over several programs: partial sums in a workspace, and the kernel that adds them up in order.

The order of the additions is fixed, so the result is the same bits every time; atomic additions would be in the order
in which the programs happen to finish.
"""

from __future__ import annotations

from ...compat import constexpr, gl, jit
from ...dtypes import FP32
from ...problem import Problem
from ..common import cdiv, gemm_arguments, store_tile
from ..plan import Argument, Launch, Pointer, Scalar, Workspace

__all__ = ["PARTIAL_SUMS", "partial_arguments", "partial_sums", "prescale_launch", "reduction_launch", "split_stride"]

PARTIAL_SUMS = "partial sums"
TILE_M, TILE_N, NUM_WARPS = 4, 256, 4


@jit
def add_up_kernel(
    partial, c, d, c_row, c_col, d_row, d_col, M, N, alpha, beta, split_stride,
    TILE_M: constexpr, TILE_N: constexpr, SPLITS: constexpr, READ_C: constexpr, MASK_M: constexpr, MASK_N: constexpr,
    NUM_WARPS: constexpr,
):  # fmt: skip
    LAYOUT: constexpr = gl.BlockedLayout([1, 4], [1, 32], [NUM_WARPS // 2, 2], [1, 0])
    rows = (gl.program_id(0) * TILE_M + gl.arange(0, TILE_M, gl.SliceLayout(1, LAYOUT)))[:, None]
    cols = (gl.program_id(1) * TILE_N + gl.arange(0, TILE_N, gl.SliceLayout(0, LAYOUT)))[None, :]
    pointers = partial + rows.to(gl.int64) * N + cols
    acc = gl.zeros([TILE_M, TILE_N], gl.float32, LAYOUT)
    for _ in range(SPLITS):
        if MASK_M or MASK_N:
            acc += gl.load(pointers, mask=(rows < M) & (cols < N), other=0.0)
        else:
            acc += gl.load(pointers)
        pointers += split_stride
    store_tile(acc, rows, cols, c, c_row, c_col, d, d_row, d_col, M, N, alpha, beta, READ_C, MASK_M, MASK_N)


def partial_sums(problem: Problem, splits: int) -> Workspace:
    """Room for ``splits`` dense row-major M x N matrices of fp32."""
    return Workspace(PARTIAL_SUMS, FP32, splits * problem.m * problem.n)


def partial_arguments(problem: Problem) -> dict[str, Argument]:
    """What differs from :func:`..common.gemm_arguments` in the launch that writes partial sums: D, alpha and beta."""
    where = Pointer(PARTIAL_SUMS, FP32)
    row, one = Scalar.index(problem.n), Scalar.index(1)
    return {
        "c": where, "c_row": row, "c_col": one, "d": where, "d_row": row, "d_col": one,
        "alpha": Scalar.real(1.0), "beta": Scalar.real(0.0),
    }  # fmt: skip


def split_stride(problem: Problem) -> Scalar:
    """Elements from one split's partial sums to the next."""
    return Scalar.index(problem.m * problem.n)


def prescale_launch(problem: Problem) -> Launch:
    """``D = beta * C`` (zero without a C), for parts that are then added into D one by one."""
    return _add_up(problem, 0)


def reduction_launch(problem: Problem, splits: int) -> Launch:
    """The second launch: ``D = alpha * (sum of the partial sums, first to last) + beta * C``."""
    return _add_up(problem, splits)


def _add_up(problem: Problem, splits: int) -> Launch:
    taken = ("c", "d", "c_row", "c_col", "d_row", "d_col", "M", "N", "alpha", "beta")
    known = dict(gemm_arguments(problem))
    arguments: tuple[tuple[str, Argument], ...] = (
        ("partial", Pointer(PARTIAL_SUMS, FP32) if splits else known["d"]),
        *((name, known[name]) for name in taken),
        ("split_stride", split_stride(problem)),
    )
    constants = (
        ("TILE_M", TILE_M), ("TILE_N", TILE_N), ("SPLITS", splits), ("READ_C", problem.reads_c),
        ("MASK_M", problem.m % TILE_M != 0), ("MASK_N", problem.n % TILE_N != 0), ("NUM_WARPS", NUM_WARPS),
    )  # fmt: skip
    grid = (cdiv(problem.m, TILE_M), cdiv(problem.n, TILE_N), 1)
    return Launch(add_up_kernel, grid, arguments, constants, NUM_WARPS)
