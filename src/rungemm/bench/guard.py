"""Nothing that the card cannot do is ever reported as a result.

A figure over the dense peak, or one that reads its operands faster than DRAM can give them, means that the clock,
the operation count or the cache state is wrong (or the kernel skipped work). It is an error, not a record.
"""

from __future__ import annotations

from ..analysis.roofline import peak_kind
from ..errors import UserError
from ..hardware import Gpu
from ..problem import Problem

__all__ = ["ImpossibleResultError", "check_possible", "peak_of", "tflops_of"]


class ImpossibleResultError(UserError):
    """A measured figure is beyond the card; the message says which limit."""


def peak_of(problem: Problem, gpu: Gpu) -> float | None:
    """The dense peak for the problem in TFLOPS, or ``None`` where the card has no figure.

    tf32x3 makes three tf32 products for one, so that its peak is a third of tf32's.
    """
    peak = gpu.peak(peak_kind(problem))
    if peak is not None and problem.precision == "tf32x3" and problem.a.dtype.name == "fp32":
        return peak / 3
    return peak


def tflops_of(problem: Problem, seconds: float) -> float:
    """``2 * batch * M * N * K`` over the time, in TFLOPS."""
    return problem.flops / seconds / 1e12


def check_possible(name: str, problem: Problem, seconds: float, gpu: Gpu, *, cold: bool) -> float:
    """The contender's TFLOPS.

    Raises:
        ImpossibleResultError: over the card's dense peak, or (cold) A and B came faster than DRAM's datasheet rate.
    """
    if not seconds > 0:
        raise ImpossibleResultError(f"{name} on {problem} took {seconds} s: the clock failed, time again")
    rate, peak = tflops_of(problem, seconds), peak_of(problem, gpu)
    if peak is not None and rate > peak:
        raise ImpossibleResultError(
            f"{name} on {problem}: {rate:.1f} TFLOPS is over {gpu.title}'s dense peak of {peak:.1f}: the timing or the "
            "work done is wrong; check that the contender writes its whole result"
        )
    if cold:
        operands = problem.batch * problem.k * (problem.m * problem.a.dtype.bytes + problem.n * problem.b.dtype.bytes)
        gbs = operands / seconds / 1e9
        if gbs > gpu.dram_gbs:
            raise ImpossibleResultError(
                f"{name} on {problem}: A and B were read at {gbs:.0f} GB/s, over {gpu.title}'s DRAM rate of "
                f"{gpu.dram_gbs:.0f}: the caches were warm, or the work was not done"
            )
    return rate
