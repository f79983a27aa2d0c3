"""Contenders interleaved: every round times each of them once, in an order drawn anew, in one process.

Clocks, power and temperature drift; contenders timed one after the other are timed on different cards, in effect.
Within a round they see the same one, and the random order keeps a contender from always running in the heat that
another one left. Nothing here knows CUDA: a clock is passed in, so tests run it on a clock of their own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from .cold import Rotation
from .statistics import Ratio, paired_ratio

__all__ = ["Clock", "Entry", "Rounds", "StopRule", "estimate", "launches_for", "time_interleaved", "warm_up"]


class Clock(Protocol):
    """A stream's clock: marks are queued in order with the launches and read after :meth:`synchronize`."""

    def lead_in(self) -> None:
        """Queue something short and untimed, so that the device is busy while the host queues what follows.

        Without it the first sample after a wait would begin on an idle device and include the host's launch.
        """

    def mark(self) -> Any:
        """Queue a time stamp."""

    def synchronize(self) -> None:
        """Wait until everything queued has run."""

    def seconds(self, start: Any, end: Any) -> float:
        """Seconds between two marks that have passed."""


@dataclass(frozen=True)
class Entry:
    """One contender as the loop sees it.

    Attributes:
        launch: queues one product on the operand set of that index.
        launches: products a round.
        replay: queues ``turns`` products on EVERY set in order (a captured graph); ``launches`` then counts in whole
            replays.
        turns: how often a replay goes round all the sets.
    """

    launch: Callable[[int], None]
    launches: int = 1
    replay: Callable[[], None] | None = None
    turns: int = 1

    def run(self, rotation: Rotation) -> int:
        """Queue this round's products; returns how many."""
        if self.replay is None:
            for _ in range(self.launches):
                self.launch(rotation.take())
            return self.launches
        inside = self.turns * rotation.sets
        replays = max(1, self.launches // inside)
        for _ in range(replays):
            for _ in range(self.turns):
                rotation.turn()
            self.replay()
        return replays * inside


@dataclass(frozen=True)
class StopRule:
    """When enough rounds were timed.

    Attributes:
        min_rounds, max_rounds: at least and at most this many.
        budget_s: stop after the round in which this much host time has passed, but not before ``min_rounds``
            unless ``hard`` is set.
        precision: stop when every ratio against the reference is known to this share.
        hard: the budget also cuts ``min_rounds`` short.
    """

    min_rounds: int = 20
    max_rounds: int = 200
    budget_s: float = 30.0
    precision: float = 0.01
    hard: bool = False


@dataclass
class Rounds:
    """Seconds per product, by contender, one entry a round (so index r of all lists is the same round)."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    orders: list[list[str]] = field(default_factory=list)
    stopped_by: str = ""

    @property
    def count(self) -> int:
        return len(self.orders)

    def ratio(self, contender: str, ours: str) -> Ratio:
        """Contender's time over our time: above 1, we are faster."""
        return paired_ratio(self.seconds[contender], self.seconds[ours])


def estimate(calls: Sequence[Callable[[], None]], clock: Clock) -> float:
    """Seconds a product takes, roughly: the better of two times three queued together, after one that compiles."""
    calls[0]()
    clock.synchronize()
    best = float("inf")
    for _ in range(2):
        clock.lead_in()
        first = clock.mark()
        repeats = 3
        for index in range(repeats):
            calls[index % len(calls)]()
        last = clock.mark()
        clock.synchronize()
        took = clock.seconds(first, last) / repeats
        best = min(best, took)
        if took > 0.02:
            break
    return best


def launches_for(seconds: float, target_s: float = 0.005, most: int = 1000) -> int:
    """Products a round, so that a sample lasts about ``target_s``: long against the clock's half microsecond."""
    if seconds <= 0:
        return most
    return max(1, min(most, round(target_s / seconds)))


def warm_up(
    entries: Mapping[str, Entry],
    clock: Clock,
    rotation: Rotation,
    *,
    settled: float = 0.01,
    budget_s: float = 2.0,
    now: Callable[[], float] = time.monotonic,
) -> int:
    """Run rounds until the whole round's time moved by less than ``settled`` twice in a row; returns the rounds run.

    That is when clocks, page tables and caches of compiled code have settled; ``budget_s`` bounds it.
    """
    start, before, calm, rounds = now(), None, 0, 0
    while calm < 2 and (rounds == 0 or now() - start < budget_s):
        clock.lead_in()
        first = clock.mark()
        for entry in entries.values():
            entry.run(rotation)
        last = clock.mark()
        clock.synchronize()
        took = clock.seconds(first, last)
        calm = calm + 1 if before and abs(took - before) <= settled * before else 0
        before, rounds = took, rounds + 1
    return rounds


def time_interleaved(
    entries: Mapping[str, Entry],
    clock: Clock,
    rotation: Rotation,
    *,
    reference: str | None = None,
    rule: StopRule | None = None,
    seed: int | None = None,
    pause_s: float = 0.0,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    on_round: Callable[[int], None] | None = None,
) -> Rounds:
    """Time all contenders round by round.

    Args:
        entries: contenders by name.
        reference: whom the others are compared with; the stop rule watches those ratios.
        seed: of the order; drawn from the system's entropy when ``None``.
        pause_s: seconds that the device rests before every sample: then no sample is at the device's power cap because
            of the one before.

    Raises:
        ValueError: no contenders, or the reference is none of them.
    """
    if not entries:
        raise ValueError("no contenders: name at least one")
    if reference is not None and reference not in entries:
        raise ValueError(f"the reference {reference!r} is no contender: it is one of {', '.join(entries)}")
    rule = rule or StopRule()
    rng = np.random.default_rng(seed)
    result = Rounds({name: [] for name in entries})
    start = now()
    while True:
        order = [str(name) for name in rng.permutation(list(entries))]
        marks = []
        if not pause_s:
            clock.lead_in()
        for name in order:
            if pause_s:
                clock.synchronize()
                sleep(pause_s)
                clock.lead_in()
            first = clock.mark()
            launches = entries[name].run(rotation)
            marks.append((name, first, clock.mark(), launches))
        clock.synchronize()
        for name, first, last, launches in marks:
            result.seconds[name].append(clock.seconds(first, last) / launches)
        result.orders.append(order)
        if on_round is not None:
            on_round(result.count)
        reason = _stop(result, reference, rule, now() - start)
        if reason:
            result.stopped_by = reason
            return result


def _stop(result: Rounds, reference: str | None, rule: StopRule, elapsed: float) -> str:
    """Why to stop now, or an empty string."""
    over = elapsed >= rule.budget_s
    if result.count < rule.min_rounds:
        return "budget" if over and rule.hard else ""
    if over:
        return "budget"
    if result.count >= rule.max_rounds:
        return "rounds"
    if result.count % 5:
        return ""  # the bootstrap of many contenders every round would starve the device
    if reference is None:
        return ""
    others = [name for name in result.seconds if name != reference]
    if all(result.ratio(reference, name).half_width <= rule.precision for name in others):
        return "precision"
    return ""
