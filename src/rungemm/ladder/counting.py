"""What a rung asks of memory, counted by the simulator: on the whole problem, or on one full tile of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..hardware import Gpu
from ..operands import problem_of_arrays
from ..problem import Matrix, Problem
from .pose import Posed
from .record import Counts

if TYPE_CHECKING:
    from ..sim import SimReport

__all__ = ["count_tile", "count_whole"]

SECTOR_BYTES = 32
_NAMED = (
    "global_load_requests",
    "global_store_requests",
    "global_load_sectors",
    "global_store_sectors",
    "shared_wavefronts",
    "bank_conflicts",
    "fmas",
)

MOST_K = 4096
"""K of the tile that is counted: longer products repeat the same steps."""


def count_whole(problem: Problem, report: SimReport) -> Counts:
    """The counts of a simulated problem."""
    return _counts(report, problem.m * problem.n, "the whole problem")


def count_tile(posed: Posed, card: Gpu) -> Counts | None:
    """The counts of one full tile of the problem, whole in K up to 4096, with the problem's own strides.

    All tiles but those at a ragged edge ask for the same; no data is needed for that, so it is all zero. ``None`` if
    the rung does not take the smaller problem.
    """
    from ..sim import simulate

    problem, config = posed.problem, posed.config
    rows = min(getattr(config, "tile_m", 128), problem.m)
    cols = min(getattr(config, "tile_n", 128), problem.n)
    depth = min(problem.k, MOST_K)
    operands = {
        "A": _blank(problem.a, rows, depth),
        "B": _blank(problem.b, depth, cols),
        "D": _blank(problem.d, rows, cols),
    }
    if problem.c is not None:
        operands["C"] = _blank(problem.c, rows, cols)
    small = problem_of_arrays(
        operands["A"], operands["B"], operands.get("C"), operands["D"],
        alpha=problem.alpha, beta=problem.beta, precision=problem.precision,
    )  # fmt: skip
    if posed.kernel.supports(small, config, card) is not None:
        return None
    report = simulate(posed.kernel.plan(small, config, card), operands, count=True)
    return _counts(report, rows * cols, f"one tile, {rows}x{cols}x{depth}")


def _blank(matrix: Matrix, rows: int, cols: int) -> np.ndarray:
    """Zeros of that extent with the matrix's strides and alignment."""
    dtype = matrix.dtype.numpy
    line = 128 // dtype.itemsize
    steps = ((rows - 1) * matrix.row_stride, (cols - 1) * matrix.col_stride)
    before = -(-sum(-min(step, 0) for step in steps) // line) * line
    after = sum(max(step, 0) for step in steps)
    # Untouched pages of a large block of zeros cost nothing, so far strides are no burden.
    raw = np.zeros(before + after + 3 * line, dtype)
    aligned = -raw.__array_interface__["data"][0] % 128 // dtype.itemsize
    start = aligned + before + matrix.alignment % 16 // dtype.itemsize
    strides = (matrix.row_stride * dtype.itemsize, matrix.col_stride * dtype.itemsize)
    return np.lib.stride_tricks.as_strided(raw[start:], (rows, cols), strides)


def _counts(report: SimReport, elements: int, counted_on: str) -> Counts:
    total = dict(report.counters)
    known = {name: total.pop(name, 0) for name in _NAMED}

    def per_c(value: int) -> float:
        return value / elements if elements else 0.0

    sectors = known["global_load_sectors"] + known["global_store_sectors"]
    return Counts(
        counted_on,
        elements,
        **known,
        loads_per_c=per_c(total["global_load_elements"]),
        shared_loads_per_c=per_c(total["shared_load_elements"]),
        sector_bytes_per_c=per_c(SECTOR_BYTES * sectors + total["tma_load_bytes"] + total["tma_store_bytes"]),
        wavefronts_per_c=per_c(known["shared_wavefronts"]),
        conflicts_per_c=per_c(known["bank_conflicts"]),
        other={name: value for name, value in total.items() if value},
    )
