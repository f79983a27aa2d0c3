"""What a rung asks of memory, counted by the simulator: on the whole problem, or on one full tile of it."""

from __future__ import annotations

from collections.abc import Mapping
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

PERIOD = 256
"""A multiple of every step along K that the rungs take: their counts repeat with it."""


def count_whole(problem: Problem, report: SimReport) -> Counts:
    """The counts of a simulated problem."""
    return _counts(report.counters, problem.m * problem.n, "the whole problem")


def count_tile(posed: Posed, card: Gpu) -> Counts | None:
    """The counts of one full tile of the problem, whole in K, with the problem's own strides.

    All tiles but those at a ragged edge ask for the same; no data is needed for that, so it is all zero. A long K is
    not walked to its end: every PERIOD of it asks for the same again, so the counts at two shorter extents, with the
    same remainder, give those at the whole one. Rungs of several launches divide K among programs and are walked
    whole. ``None`` if the rung does not take the smaller problem.
    """
    tile = posed.config.to_dict()
    rows = min(tile.get("tile_m", 128), posed.problem.m)
    cols = min(tile.get("tile_n", 128), posed.problem.n)
    k = posed.problem.k
    counted_on = f"one tile, {rows}x{cols}x{k}"
    if k <= 3 * PERIOD or len(posed.plan.launches) > 1:
        total = _count(posed, card, rows, cols, k)
        return None if total is None else _counts(total, rows * cols, counted_on)
    short = PERIOD + k % PERIOD
    first, second = (_count(posed, card, rows, cols, depth) for depth in (short, short + PERIOD))
    if first is None or second is None:
        return None
    periods = (k - short) // PERIOD
    total = {name: first[name] + periods * (second[name] - first[name]) for name in first}
    return _counts(total, rows * cols, counted_on)


def _count(posed: Posed, card: Gpu, rows: int, cols: int, depth: int) -> dict[str, int] | None:
    """The simulator's counters for a corner of the problem."""
    from ..sim import simulate

    problem, config = posed.problem, posed.config
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
    return simulate(posed.kernel.plan(small, config, card), operands, count=True).counters


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


def _counts(counters: Mapping[str, int], elements: int, counted_on: str) -> Counts:
    total = dict(counters)
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
