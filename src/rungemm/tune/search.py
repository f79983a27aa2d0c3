"""Timing many configs in rounds, losers dropped early: most of the time goes to those that may win.

A stage times every config that is left in a few interleaved rounds, then drops those that are slower than the best by
more than the stage's margin. Margins shrink as rounds grow: one round tells a twofold loser, it takes twenty to tell
one percent. Nothing here knows CUDA, so it is tested on a clock of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from ..bench.cold import Rotation
from ..bench.interleaved import Clock, Entry, StopRule, time_interleaved

__all__ = ["STAGES", "Stage", "Survey", "survey"]


@dataclass(frozen=True)
class Stage:
    """So many rounds; then whoever is slower than the best by more than ``margin`` goes; at most ``keep`` stay."""

    rounds: int
    margin: float
    keep: int


STAGES: tuple[Stage, ...] = (Stage(1, 0.50, 200), Stage(2, 0.20, 64), Stage(4, 0.08, 24), Stage(8, 0.04, 8))


@dataclass
class Survey:
    """What the stages found.

    Attributes:
        seconds: median seconds a product, by name, over all rounds that a config was in.
        rounds: how many rounds that was.
        dropped: for those that went, the stage (from 1) and how much slower than the best it was then.
        ranking: the survivors, fastest first.
        cut_short: the budget ended the stages early.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    rounds: dict[str, int] = field(default_factory=dict)
    dropped: dict[str, tuple[int, float]] = field(default_factory=dict)
    ranking: list[str] = field(default_factory=list)
    cut_short: bool = False


def survey(
    entries: Mapping[str, Entry],
    clock: Clock,
    rotation: Rotation,
    *,
    stages: tuple[Stage, ...] = STAGES,
    budget_s: float = 60.0,
    seed: int | None = None,
    now: Callable[[], float] = time.monotonic,
    on_stage: Callable[[int, int], None] | None = None,
) -> Survey:
    """Run the stages on the entries. The budget ends a stage after the round in which it ran out.

    Raises:
        ValueError: no entries.
    """
    if not entries:
        raise ValueError("no configs to time: every one was ruled out (--show-pruned prints why)")
    result, start = Survey(), now()
    samples: dict[str, list[float]] = {name: [] for name in entries}
    alive = list(entries)
    for number, stage in enumerate(stages, start=1):
        if on_stage is not None:
            on_stage(number, len(alive))
        left = budget_s - (now() - start)
        if left <= 0 and number > 1:
            result.cut_short = True
            break
        rule = StopRule(stage.rounds, stage.rounds, max(left, 0.0), hard=True)
        timed = time_interleaved(
            {name: entries[name] for name in alive}, clock, rotation, rule=rule, seed=seed, now=now
        )
        for name in alive:
            samples[name] += timed.seconds[name]
        result.cut_short = timed.count < stage.rounds
        alive = _keep(alive, samples, stage, number, result)
        if len(alive) == 1 or result.cut_short:
            break
    result.seconds = {name: float(np.median(values)) for name, values in samples.items() if values}
    result.rounds = {name: len(values) for name, values in samples.items()}
    result.ranking = sorted(alive, key=lambda name: result.seconds[name])
    return result


def _keep(alive: list[str], samples: dict[str, list[float]], stage: Stage, number: int, result: Survey) -> list[str]:
    """Those within the margin of the best, fastest first, at most ``keep``; the others are noted as dropped."""
    medians = {name: float(np.median(samples[name])) for name in alive}
    best = min(medians.values())
    kept: list[str] = []
    for name in sorted(alive, key=lambda name: medians[name]):
        slower = medians[name] / best - 1
        if slower <= stage.margin and len(kept) < stage.keep:
            kept.append(name)
        else:
            result.dropped[name] = (number, slower)
    return kept
