"""A compiled plan's resources and bounds on a card, from the calculators of :mod:`rungemm.analysis`."""

from __future__ import annotations

from collections.abc import Sequence

from ..analysis import occupancy, roofline_of, waves
from ..compiling import Compiled
from ..hardware import Gpu
from ..kernels import LaunchPlan
from ..problem import Problem
from .record import Bounds, Counts, Resources

__all__ = ["bounds_of", "resources_of"]


def resources_of(plan: LaunchPlan, compiled: Sequence[Compiled], card: Gpu) -> Resources | None:
    """What the plan's heaviest launch takes on the card; ``None`` for a plan that launches nothing.

    Of several launches the one whose blocks take most registers and shared memory is told of: a copy that prepares the
    operands, or a sum of partial results, says little of the rung.
    """
    if not compiled:
        return None
    weights = [item.num_warps * card.warp_size * 4 * item.registers + item.shared_bytes for item in compiled]
    heaviest = weights.index(max(weights))
    main = compiled[heaviest]
    threads = main.num_warps * card.warp_size
    fit = occupancy(card, threads=threads, registers=main.registers, shared_bytes=main.shared_bytes)
    programs = plan.launches[heaviest].programs
    rounds = waves(programs, sms=card.sms, blocks_per_sm=max(fit.blocks, 1))
    return Resources(
        card=card.name,
        registers=main.registers,
        spill_bytes=main.spill_bytes,
        shared_bytes=main.shared_bytes,
        threads=threads,
        blocks_per_sm=fit.blocks,
        warps_per_sm=fit.warps,
        max_warps_per_sm=fit.max_warps,
        occupancy=fit.share,
        limiter=fit.limiter,
        launches=len(plan.launches),
        programs=programs,
        waves=rounds.rounds,
        wave_efficiency=rounds.efficiency,
    )


def bounds_of(problem: Problem, counts: Counts | None, card: Gpu) -> Bounds:
    """The roofline of the problem on the card, and what the counted traffic would allow.

    Shared memory delivers one wavefront (128 bytes) an SM and clock: CUDA C++ Programming Guide, "Shared Memory" of
    compute capability 5.x and up, 32 banks of 4 bytes a clock.
    """
    roof = roofline_of(problem, card)
    counted = uncached = shared = None
    if counts is not None and counts.elements:
        flops_per_c = 2 * problem.effective_k
        if counts.sector_bytes_per_c:
            counted = flops_per_c / counts.sector_bytes_per_c
            uncached = min(roof.peak_tflops, counted * card.dram_gbs * 1e-3)
        if counts.wavefronts_per_c:
            per_wavefront = flops_per_c / counts.wavefronts_per_c
            shared = min(roof.peak_tflops, per_wavefront * card.sms * card.boost_mhz * 1e-6)
    return Bounds(roof.intensity, roof.ridge, roof.bound, roof.attainable_tflops, counted, uncached, shared)
