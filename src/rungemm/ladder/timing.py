"""Speeds of the rungs on the card at hand, all in one interleaved run with cuBLAS; needs torch and a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..bench import Ours, Settings, StopRule, TorchMatmul, measure
from ..hardware import Gpu
from ..kernels import Kernel
from ..problem import Problem
from .pose import Posed, Task, pose
from .record import Speed

__all__ = ["time_rungs"]

RULE = StopRule(min_rounds=10, max_rounds=50, budget_s=45.0)
"""Enough rounds for a ratio to a fraction of a percent, and few enough for the slowest rung to be waited for."""


def time_rungs(
    kernels: Sequence[Kernel[Any]], task: Task, card: Gpu, *, on_stage: Callable[[str], None] | None = None
) -> tuple[dict[str, Speed], list[str]]:
    """The speed of each rung that gave a right result, by name; and a line for whatever could not be timed.

    The rungs are timed on fresh normal data of the task's shape, types and strides, in buffers that rotate beyond the
    L2; rungs that are set problems of different types are timed in one run for each type, with cuBLAS in each.
    """
    groups: dict[Problem, list[Posed]] = {}
    for kernel in kernels:
        posed = pose(kernel, task, card)
        if isinstance(posed, Posed) and not posed.problem.is_empty and posed.problem.effective_k:
            groups.setdefault(posed.problem, []).append(posed)
    speeds: dict[str, Speed] = {}
    notes: list[str] = []
    for problem, members in groups.items():
        contenders = [Ours(item.kernel, card, item.config) for item in members]
        settings = Settings(rule=RULE, host_time=False)
        try:
            measured = measure(problem, [*contenders, TorchMatmul()], card, settings=settings, on_stage=on_stage)
        except Exception as error:  # no memory, warm caches, an impossible figure: what was checked still counts
            notes.append(f"{problem} was not timed: {' '.join(str(error).split())}")
            continue
        cublas = measured.lanes["cublas"]
        for item in members:
            lane = measured.lanes[item.kernel.name]
            if lane.failure is not None or lane.tflops is None:
                notes.append(f"{item.kernel.name} was not timed: {lane.failure}")
                continue
            ratio = measured.ratio("cublas", item.kernel.name)
            speeds[item.kernel.name] = Speed(
                tflops=lane.tflops,
                cublas_tflops=cublas.tflops,
                ratio=None if ratio is None else ratio.value,
                ratio_low=None if ratio is None else ratio.low,
                ratio_high=None if ratio is None else ratio.high,
                peak_share=measured.peak_share(item.kernel.name),
                rounds=len(lane.seconds),
            )
    return speeds, notes
