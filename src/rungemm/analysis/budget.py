"""Where a GEMM's time goes: the work that no kernel can avoid, what tiles and waves add to it, and the rest.

The work is the longer of the roofline's two times (S. Williams and others, CACM 52(4), 2009). Tiles that reach beyond C
and a last wave that does not fill the card cost arithmetic time in proportion to the slots they waste (NVIDIA, "Matrix
Multiplication Background User's Guide", tile and wave quantisation). Launches and scratch traffic cost their own. What
is then left of the time is the kernel's: instructions that are not multiply-adds, waits that nothing covers.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..hardware import Gpu
from ..problem import Problem
from .roofline import roofline_of
from .waves import tile_efficiency

__all__ = ["LAUNCH_S", "Part", "time_budget"]

LAUNCH_S = 2e-6
"""Seconds from the end of one kernel to the start of the next in a stream, on an H200 (results/h200/tuning)."""


@dataclass(frozen=True)
class Part:
    """One part of a time: what it goes to, and its seconds."""

    what: str
    seconds: float


def time_budget(
    seconds: float,
    problem: Problem,
    gpu: Gpu,
    *,
    tile: tuple[int, int] | None = None,
    wave_efficiency: float = 1.0,
    launches: int = 1,
    scratch_bytes: int = 0,
) -> list[Part]:
    """Split ``seconds``, a product's whole time, into parts that add up to it; parts of no time are left out.

    Args:
        tile: rows and columns of C that a block computes; ``None`` where that is not known.
        wave_efficiency: share of the block slots, over all waves, that do work (:class:`..waves.Waves`).
        launches: kernels of the product, one after another.
        scratch_bytes: of workspace, written once and read once.

    Raises:
        ValueError: a time that is not positive, an efficiency outside 0 to 1, or no launch.
    """
    if seconds <= 0:
        raise ValueError(f"the time is {seconds} s: it must be above 0")
    if not 0 < wave_efficiency <= 1:
        raise ValueError(f"wave efficiency is {wave_efficiency}: it must be above 0 and at most 1")
    if launches < 1:
        raise ValueError(f"launches is {launches}: it must be 1 or more")
    roof = roofline_of(problem, gpu)
    arithmetic = roof.flops_seconds * (3 if problem.precision == "tf32x3" else 1)
    rate = gpu.dram_gbs * 1e9
    parts = []
    if arithmetic >= roof.bytes_seconds:
        parts.append(Part("multiply-adds at the card's peak", arithmetic))
        inside = tile_efficiency(problem.m, problem.n, *tile) if tile is not None else 1.0
        covered = arithmetic / inside if inside else arithmetic
        parts.append(Part("tiles' parts outside C", covered - arithmetic))
        parts.append(Part("slots idle in the last wave", covered / wave_efficiency - covered))
    else:
        parts.append(Part("reading A and B and writing D once, at DRAM's rate", roof.bytes_seconds))
    parts.append(Part("further launches", (launches - 1) * LAUNCH_S))
    parts.append(Part("partial sums and copies through memory", 2 * scratch_bytes / rate))
    known = sum(part.seconds for part in parts)
    if known > seconds:
        # The time is a measurement or a model of its own: then the parts only say how it divides.
        parts = [Part(part.what, part.seconds * seconds / known) for part in parts]
    else:
        parts.append(Part("the kernel's other instructions, waits and start", seconds - known))
    return [part for part in parts if part.seconds > 0]
