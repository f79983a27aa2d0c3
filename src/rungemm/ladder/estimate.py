"""How long the simulator will take, told by timing a small corner of the problem first."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

from ..hardware import Gpu
from ..kernels import Kernel
from .pose import Posed, Task, pose

__all__ = ["QUICK_WORK", "simulated_seconds"]

QUICK_WORK = 256 * 256 * 128
"""Multiply-adds of a problem too small to be worth an estimate: seconds a rung at most."""

PROBE = (128, 256, 64)
"""M, N, K of the corner that is timed, at most: one large tile, or several small ones, and a few steps along K."""


def simulated_seconds(kernels: Sequence[Kernel[Any]], shape: tuple[int, int, int], card: Gpu) -> Iterator[float]:
    """Seconds to simulate and count the rungs, added up rung by rung; right within a factor of two or so.

    A rung's time grows with the multiply-adds, as its tiles and steps do. Each number yielded costs the time of one
    probe, so that the caller can stop as soon as the sum is too much.
    """
    from ..sim import simulate

    probe = tuple(min(extent, most) for extent, most in zip(shape, PROBE, strict=True))
    scale = shape[0] * shape[1] * shape[2] / max(probe[0] * probe[1] * probe[2], 1)
    task = Task.random(*probe, seed=0)
    total = 0.0
    for kernel in kernels:
        posed = pose(kernel, task, card)
        if isinstance(posed, Posed):
            operands = task.operands(posed.problem.a.dtype)
            started = time.monotonic()
            try:
                simulate(posed.plan, operands)
            except Exception:  # whatever is wrong with a rung is told when it is run, not here
                continue
            total += (time.monotonic() - started) * scale
        yield total
