"""K split over several programs: partial sums in a workspace, and the kernel that adds them up in a fixed order.

The order of the additions is fixed, so the result is the same bits every time; atomic additions would be in the order
in which the programs happen to finish. What the second launch costs is latency: one partial sum after the other would
wait for L2 as often as there are splits. So a block takes a short piece of one row, all its partial sums at once, a
few in each thread and the rest in other lanes and warps, and adds across those at the end.
"""

from __future__ import annotations

from ...compat import constexpr, gl, jit
from ...dtypes import FP32
from ...problem import Problem
from ..common import after_earlier_launches, cdiv, gemm_arguments, store_tile
from ..epilogue import Finish, epilogue_arguments, epilogue_constants
from ..plan import Argument, Launch, Pointer, Scalar, Workspace

__all__ = ["PARTIAL_SUMS", "partial_arguments", "partial_sums", "prescale_launch", "reduction_launch", "split_stride"]

PARTIAL_SUMS = "partial sums"
FEW_SPLITS = 8
"""Up to so many, a thread adds all the partial sums of its elements itself."""
PARTS_AT_ONCE = 32
ENOUGH_BLOCKS = 264


@jit
def add_up_kernel(
    partial, c, d, c_row, c_col, d_row, d_col, M, N, alpha, beta, pitch, split_stride, bias, scale,
    COLS: constexpr, PARTS: constexpr, SPLITS: constexpr, READ_C: constexpr, MASK_N: constexpr, MASK_PITCH: constexpr,
    NUM_WARPS: constexpr, BIAS: constexpr, ACTIVATION: constexpr, SCALED: constexpr,
):  # fmt: skip
    # A row's piece of COLS elements by PARTS partial sums: four elements a lane, other parts in other lanes and warps.
    LANES_N: constexpr = min(32, COLS // 4)
    WARPS_N: constexpr = min(NUM_WARPS, COLS // (4 * LANES_N))
    LAYOUT: constexpr = gl.BlockedLayout([1, 4], [32 // LANES_N, LANES_N], [NUM_WARPS // WARPS_N, WARPS_N], [1, 0])
    STORE: constexpr = gl.BlockedLayout([1, 1], [1, 32], [1, NUM_WARPS], [1, 0])
    row = gl.program_id(0)
    start = gl.program_id(1) * COLS
    parts = gl.arange(0, PARTS, gl.SliceLayout(1, LAYOUT))[:, None]
    cols = (start + gl.arange(0, COLS, gl.SliceLayout(0, LAYOUT)))[None, :]
    pointers = partial + row.to(gl.int64) * pitch + (parts.to(gl.int64) * split_stride + cols)
    acc = gl.zeros([PARTS, COLS], gl.float32, LAYOUT)
    after_earlier_launches()  # with pdl they may still run: nothing in global memory is touched before this
    for first in gl.static_range(0, SPLITS, PARTS):
        if MASK_PITCH or first + PARTS > SPLITS:
            acc += gl.load(pointers, mask=(first + parts < SPLITS) & (cols < pitch), other=0.0)
        else:
            acc += gl.load(pointers)
        pointers += PARTS * split_stride
    total = gl.convert_layout(gl.sum(acc, axis=0)[None, :], STORE)
    rows = row + gl.arange(0, 1, gl.SliceLayout(1, STORE))[:, None]
    cols = (start + gl.arange(0, COLS, gl.SliceLayout(0, STORE)))[None, :]
    finish = Finish(bias, scale, BIAS, ACTIVATION, SCALED)
    store_tile(total, rows, cols, c, c_row, c_col, d, d_row, d_col, M, N, alpha, beta, READ_C, False, MASK_N, finish)


def partial_sums(problem: Problem, splits: int, pitch: int) -> Workspace:
    """Room for ``splits`` row-major matrices of M rows of ``pitch`` fp32 elements, of which N are the matrix's."""
    return Workspace(PARTIAL_SUMS, FP32, splits * problem.m * pitch)


def partial_arguments(pitch: int) -> dict[str, Argument]:
    """What differs from :func:`..common.gemm_arguments` in the launch that writes partial sums: D, alpha and beta."""
    where = Pointer(PARTIAL_SUMS, FP32)
    row, one = Scalar.index(pitch), Scalar.index(1)
    return {
        "c": where, "c_row": row, "c_col": one, "d": where, "d_row": row, "d_col": one,
        "alpha": Scalar.real(1.0), "beta": Scalar.real(0.0),
    }  # fmt: skip


def split_stride(problem: Problem, pitch: int) -> Scalar:
    """Elements from one split's partial sums to the next."""
    return Scalar.index(problem.m * pitch)


def prescale_launch(problem: Problem) -> Launch:
    """``D = beta * C`` (zero without a C), for parts that are then added into D one by one."""
    return _add_up(problem, 0, problem.n)


def reduction_launch(problem: Problem, splits: int, pitch: int) -> Launch:
    """The second launch: ``D = alpha * (sum of the partial sums, in a fixed order) + beta * C``, then the epilogue."""
    return _add_up(problem, splits, pitch)


def _add_up(problem: Problem, splits: int, pitch: int) -> Launch:
    taken = ("c", "d", "c_row", "c_col", "d_row", "d_col", "M", "N", "alpha", "beta")
    known = dict(gemm_arguments(problem))
    arguments: tuple[tuple[str, Argument], ...] = (
        ("partial", Pointer(PARTIAL_SUMS, FP32) if splits else known["d"]),
        *((name, known[name]) for name in taken),
        ("pitch", Scalar.index(pitch)),
        ("split_stride", split_stride(problem, pitch)),
        *epilogue_arguments(problem),
    )
    warps, cols, parts = _shape(problem, splits)
    constants = (
        ("COLS", cols), ("PARTS", parts), ("SPLITS", splits), ("READ_C", problem.reads_c),
        ("MASK_N", problem.n % cols != 0), ("MASK_PITCH", pitch % cols != 0), ("NUM_WARPS", warps),
        *epilogue_constants(problem),
    )  # fmt: skip
    return Launch(add_up_kernel, (problem.m, cdiv(problem.n, cols), 1), arguments, constants, warps)


def _shape(problem: Problem, splits: int) -> tuple[int, int, int]:
    """Warps of a block, elements of a row and partial sums that it takes at once: few splits, long pieces of a row."""
    few = splits <= FEW_SPLITS
    warps, cols = (4, 512) if few else (8, 128)
    while cols > 16 and (cols // 2 >= problem.n or problem.m * cdiv(problem.n, cols) < ENOUGH_BLOCKS):
        cols //= 2
    at_once = min(PARTS_AT_ONCE, 1 << max(0, splits - 1).bit_length())
    lanes_n = min(32, cols // 4)
    held = 32 // lanes_n * max(1, warps // max(1, cols // (4 * lanes_n)))
    return warps, cols, max(at_once, held)
