"""Tune one kernel for one problem: prune, compile, survey on the card, then settle it among the best with cuBLAS there.

The last word is a full measurement (:mod:`rungemm.bench.measurement`): cold L2, interleaved, outputs checked against
float64. A config that computes wrongly cannot win, however fast.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..bench.checking import Reference
from ..bench.cold import Rotation, sets_needed
from ..bench.contenders import Contender, Ours, TorchMatmul, matched_precision
from ..bench.data import make_sets, outputs_for, poison, set_bytes
from ..bench.device import CudaDevice, Device
from ..bench.graph import SHORT_KERNEL_S, turns_for
from ..bench.interleaved import Clock, Entry, StopRule, launches_for
from ..bench.measurement import Measurement, Settings, measure
from ..bench.statistics import spread_of
from ..errors import UserError
from ..hardware import Gpu
from ..kernels import Config, Kernel
from ..problem import Problem
from .database import Tuned, TuningDatabase
from .search import STAGES, Stage, Survey, survey
from .space import Candidate, Space, by_predicate, by_resources

__all__ = ["Tuning", "TuningError", "tune"]

SURVEY_SETS = 16
"""Most operand sets in the survey: with many small ones, binding every config to each would take longer than timing."""


class TuningError(UserError):
    """Nothing could be tuned; the message says what stood in the way."""


@dataclass
class Tuning:
    """What tuning a kernel for a problem gave.

    Attributes:
        kernel, problem, gpu: what was tuned.
        space: what could be timed, and what was ruled out and why.
        survey: the stages' findings, by the config's text.
        failures: configs that raised or computed wrongly.
        final: the last measurement: the best few, and cuBLAS.
        best: the winner, as it lies in the database.
        wall_s: seconds it all took.
        notes: what a reader should know (budget ran out, a config was wrong).
    """

    kernel: Kernel[Any]
    problem: Problem
    gpu: Gpu
    space: Space
    survey: Survey = field(default_factory=Survey)
    failures: dict[str, str] = field(default_factory=dict)
    final: Measurement | None = None
    best: Tuned | None = None
    wall_s: float = 0.0
    notes: list[str] = field(default_factory=list)


def tune(
    kernel: Kernel[Any],
    problem: Problem,
    gpu: Gpu,
    *,
    configs: Sequence[Config] | None = None,
    budget_s: float = 60.0,
    finalists: int = 4,
    against: Sequence[Contender] | None = None,
    stages: tuple[Stage, ...] = STAGES,
    final_rule: StopRule | None = None,
    database: TuningDatabase | None = None,
    device: Device | None = None,
    workers: int | None = None,
    spill_limit: int = 0,
    seed: int | None = None,
    say: Callable[[str], None] | None = None,
) -> Tuning:
    """Find the kernel's fastest right config for the problem, and save it.

    Args:
        configs: instead of the kernel's own search space.
        budget_s: seconds of timing, compiling not counted; about a quarter goes to the final measurement.
        finalists: configs in the final measurement.
        against: contenders beside ours in it; cuBLAS by default.
        database: where the result goes; the user's own by default.
        device: what to time on; the current CUDA device by default.

    Raises:
        TuningError: no config is left to time, or none is right.
    """
    tell = say or (lambda _: None)
    started = time.monotonic()
    tell(f"{kernel.name} on {problem}: listing configs")
    space = by_predicate(kernel, problem, gpu, configs)
    if not space.candidates:
        raise TuningError(_nothing_left(kernel, problem, space))
    space = by_resources(
        space, gpu, spill_limit=spill_limit, workers=workers,
        on_done=lambda done, total: tell(f"compiled {done} of {total}"),
    )  # fmt: skip
    if not space.candidates:
        raise TuningError(_nothing_left(kernel, problem, space))
    result = Tuning(kernel, problem, gpu, space)
    device = device or CudaDevice()
    tell(f"timing {len(space.candidates)} configs, at most {budget_s:.0f} s; {len(space.pruned)} were ruled out")
    timing_started = time.monotonic()
    contenders = {str(candidate.config): Ours(kernel, gpu, candidate.config) for candidate in space.candidates}
    _survey(result, contenders, device, 0.75 * budget_s, stages, seed, tell)
    if not result.survey.ranking:
        first = next(iter(result.failures.values()), "the budget ran out at once: give more")
        raise TuningError(f"no config of {kernel.name} gave the product of {problem}: {first}")
    _settle(
        result, contenders, device, finalists, [TorchMatmul()] if against is None else list(against),
        final_rule or StopRule(20, 100, max(2.0, budget_s - (time.monotonic() - timing_started))), seed, tell,
    )  # fmt: skip
    result.wall_s = time.monotonic() - started
    if result.best is not None:
        (database or TuningDatabase()).save(kernel, problem, gpu, result.best)
    return result


def _nothing_left(kernel: Kernel[Any], problem: Problem, space: Space) -> str:
    reason = space.pruned[0].reason if space.pruned else "it has no configs for it"
    return f"no config of {kernel.name} is left to time on {problem}: {reason}"


def _survey(
    result: Tuning,
    contenders: dict[str, Ours],
    device: Device,
    budget_s: float,
    stages: tuple[Stage, ...],
    seed: int | None,
    tell: Callable[[str], None],
) -> None:
    """Bind, check one product of each, and time the right ones in stages.

    A wrong config must not set the pace that the others are dropped by. Configs share the outputs here.
    """
    import torch

    problem, started = result.problem, time.monotonic()
    count = min(SURVEY_SETS, sets_needed(set_bytes(problem), device.l2_bytes))
    rotation = Rotation(count, set_bytes(problem), device.l2_bytes)
    with matched_precision(problem), torch.no_grad():
        sets = make_sets(problem, count, seed=seed or 0, device=device.name)
        for operands, d in zip(sets, outputs_for(problem, count, device.name), strict=True):
            operands["D"] = d
        reference = Reference(problem, sets[0], sets[0]["D"].dtype, keep=True)
        entries: dict[str, Entry] = {}
        best = float("inf")
        for number, (name, contender) in enumerate(contenders.items(), start=1):
            spent = time.monotonic() - started
            if entries and spent > 0.5 * budget_s:
                result.notes.append(f"the budget allowed for {number - 1} of {len(contenders)} configs: give more")
                break
            left = spent / number * (len(contenders) - number)
            tell(f"first launches: {number} of {len(contenders)}, about {left:.0f} s left")
            try:
                calls = [contender.bind(problem, operands) for operands in sets]
                poison(sets[0]["D"])
                calls[0]()
                device.clock.synchronize()
                checked = reference.check({name: sets[0]["D"]})[name]
                if not checked.ok:
                    result.failures[name] = f"wrong result: {checked.why}"
                    continue
                took = _first_time(calls, device.clock)
            except Exception as error:  # whatever a config raises rules it out, and no other
                result.failures[name] = f"{type(error).__name__}: {error}".splitlines()[0]
                continue
            best = min(best, took)
            if took > 3 * best:
                result.survey.dropped[name] = (0, took / best - 1)
                continue
            entries[name] = _entry(calls, took, device)
        if not entries:
            return
        dropped = result.survey.dropped
        result.survey = survey(
            entries, device.clock, rotation, stages=stages, budget_s=budget_s - (time.monotonic() - started), seed=seed,
            on_stage=lambda stage, alive: tell(f"stage {stage} of {len(stages)}: {alive} configs"),
        )  # fmt: skip
        result.survey.dropped = dropped | result.survey.dropped
    if result.survey.cut_short:
        result.notes.append("the budget ended the survey early: give more for a surer answer")


def _first_time(calls: list[Callable[[], None]], clock: Clock) -> float:
    """Seconds of a product that has run once, roughly, from as few launches as may be."""
    took = float("inf")
    for repeats in (1, 3):
        clock.lead_in()
        marks = [clock.mark()]
        for index in range(repeats):
            calls[(1 + index) % len(calls)]()
        marks.append(clock.mark())
        clock.synchronize()
        took = min(took, clock.seconds(*marks) / repeats)
        if took > 0.001:
            break
    return took


def _entry(calls: list[Callable[[], None]], took: float, device: Device) -> Entry:
    def launch(index: int) -> None:
        calls[index]()

    count = len(calls)
    if took >= SHORT_KERNEL_S:
        return Entry(launch, launches_for(took, 0.003))
    turns = turns_for(count)
    inside = turns * count
    launches = max(inside, launches_for(took, 0.001) // inside * inside)
    try:
        return Entry(launch, launches, device.capture(launch, count, turns), turns)
    except RuntimeError:
        return Entry(launch, launches)


def _settle(
    result: Tuning,
    contenders: dict[str, Ours],
    device: Device,
    finalists: int,
    against: list[Contender],
    rule: StopRule,
    seed: int | None,
    tell: Callable[[str], None],
) -> None:
    """Measure the best few in full; the fastest right one wins. If all of them are wrong, the next few are tried."""
    ranking = result.survey.ranking
    for first in range(0, len(ranking), finalists):
        chosen = ranking[first : first + finalists]
        tell(f"final: {len(chosen)} configs against {', '.join(c.name for c in against) or 'each other'}")
        mine: list[Contender] = [replace(contenders[name], name=name) for name in chosen]
        settings = Settings(rule=rule, seed=seed, warm_up_s=1.0)
        reference = against[0].name if against else None
        final = measure(
            result.problem, [*against, *mine], result.gpu, reference=reference, settings=settings, device=device
        )
        right = [name for name in chosen if final.lanes[name].failure is None]
        for name in chosen:
            if final.lanes[name].failure is not None:
                result.failures[name] = str(final.lanes[name].failure)
                result.notes.append(f"{name}: {final.lanes[name].failure}")
        if right:
            winner = min(right, key=lambda name: spread_of(final.lanes[name].seconds).median)
            result.final = final
            result.best = _tuned(result, contenders, final, winner, reference)
            return
    raise TuningError(f"every config of {result.kernel.name} that was fast on {result.problem} computed wrongly")


def _tuned(
    result: Tuning, contenders: dict[str, Ours], final: Measurement, winner: str, reference: str | None
) -> Tuned:
    config = contenders[winner].config
    assert config is not None
    ratio = final.ratio(reference, winner) if reference is not None else None
    checked = final.lanes[winner].checked
    timings = []
    for name in sorted(result.survey.seconds, key=lambda name: result.survey.seconds[name]):
        stage = result.survey.dropped.get(name)
        known = contenders[name].config
        assert known is not None
        timings.append(
            {
                "config": known.to_dict(),
                "us": float(f"{1e6 * result.survey.seconds[name]:.5g}"),
                "rounds": result.survey.rounds[name],
                "dropped": stage[0] if stage else None,
            }
        )
    return Tuned(
        config,
        spread_of(final.lanes[winner].seconds).median,
        ratio.value if ratio else None,
        checked.error if checked else None,
        timings,
        datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    )


def resources_of(space: Space, config: Config) -> Candidate | None:
    """The candidate of a config, for reports."""
    return next((candidate for candidate in space.candidates if candidate.config == config), None)
