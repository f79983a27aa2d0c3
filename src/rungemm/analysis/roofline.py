"""The roofline: the least time that a card's arithmetic and its memory allow a GEMM, and which of the two is longer.

Source: S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model for multicore
architectures", CACM 52(4), 2009. The bytes are the compulsory traffic: every input read once, the result written
once (:attr:`rungemm.problem.Problem.minimum_bytes`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..hardware import Gpu
from ..problem import Problem

__all__ = ["Roofline", "peak_kind", "roofline", "roofline_of"]


@dataclass(frozen=True)
class Roofline:
    """One point under one card's roof.

    Attributes:
        flops: floating-point operations, a multiply-add counting two.
        bytes: bytes moved to and from DRAM.
        peak_tflops: the flat part of the roof, 10^12 operations a second.
        bandwidth_gbs: the slope of the sloping part, 10^9 bytes a second.
    """

    flops: float
    bytes: float
    peak_tflops: float
    bandwidth_gbs: float

    @property
    def intensity(self) -> float:
        """Operations for a byte; 0 where no byte moves."""
        return self.flops / self.bytes if self.bytes else 0.0

    @property
    def ridge(self) -> float:
        """The intensity, in operations for a byte, from which arithmetic is the limit."""
        return self.peak_tflops * 1e12 / (self.bandwidth_gbs * 1e9)

    @property
    def flops_seconds(self) -> float:
        """Seconds of arithmetic at the peak."""
        return self.flops / (self.peak_tflops * 1e12)

    @property
    def bytes_seconds(self) -> float:
        """Seconds of memory traffic at the bandwidth."""
        return self.bytes / (self.bandwidth_gbs * 1e9)

    @property
    def seconds(self) -> float:
        """The least time: the longer of the two, which can overlap entirely."""
        return max(self.flops_seconds, self.bytes_seconds)

    @property
    def bound(self) -> Literal["compute", "memory"]:
        """What takes longer."""
        return "compute" if self.flops_seconds >= self.bytes_seconds else "memory"

    @property
    def attainable_tflops(self) -> float:
        """The height of the roof at this intensity, 10^12 operations a second."""
        return min(self.peak_tflops, self.intensity * self.bandwidth_gbs * 1e-3)


def roofline(flops: float, nbytes: float, *, peak_tflops: float, bandwidth_gbs: float) -> Roofline:
    """The roofline of so many operations and bytes.

    Raises:
        ValueError: a peak or a bandwidth that is not positive, or a negative amount.
    """
    if peak_tflops <= 0 or bandwidth_gbs <= 0:
        raise ValueError(f"peak is {peak_tflops} TFLOPS, bandwidth {bandwidth_gbs} GB/s: both must be above 0")
    if flops < 0 or nbytes < 0:
        raise ValueError(f"{flops} operations and {nbytes} bytes: neither can be negative")
    return Roofline(float(flops), float(nbytes), peak_tflops, bandwidth_gbs)


def peak_kind(problem: Problem) -> str:
    """Which of a card's peaks the problem is measured against: its precision for fp32 operands, else their dtype.

    tf32x3 is measured against tf32: its three products are work of the method, not of the problem.
    """
    name = problem.a.dtype.name
    if name == "fp32":
        return "fp32" if problem.precision == "ieee" else "tf32"
    return "fp8" if name.startswith("fp8") else name


def roofline_of(problem: Problem, gpu: Gpu, nbytes: float | None = None) -> Roofline:
    """A problem's roofline on a card, with its compulsory traffic or, given ``nbytes``, with measured traffic.

    Raises:
        ValueError: the card has no peak for this kind of arithmetic.
    """
    kind = peak_kind(problem)
    peak = gpu.peak(kind)
    if peak is None:
        raise ValueError(f"{gpu.title} has no {kind} arithmetic: it has {', '.join(gpu.peaks)}")
    moved = problem.minimum_bytes if nbytes is None else nbytes
    return roofline(problem.flops, moved, peak_tflops=peak, bandwidth_gbs=gpu.dram_gbs)
