"""The fastest of several ways to compute one problem, found as the measurement itself will time it.

Contenders that are the best of many (cuBLASLt's proposals, ``tl.dot``'s configs, CUTLASS's operators) choose with this.
A product that takes 5 us cannot be chosen by events around single calls: the host needs longer than that to launch, and
what is compared is the host. So here too the ways take turns, on operand sets that leave the L2 between two uses, and
short ones are replayed from graphs. Two stages: all of them briefly, then the fastest few at length.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..problem import Problem
from .cold import Rotation, sets_needed
from .data import make_sets, outputs_for, set_bytes
from .device import CudaDevice, Device
from .graph import SHORT_KERNEL_S, turns_for
from .interleaved import Entry, StopRule, estimate, launches_for, time_interleaved
from .statistics import spread_of

__all__ = ["FINALISTS", "Choose", "Way", "seconds_of"]

Way = Callable[[dict[str, Any]], Callable[[], None]]
"""Binds one way of computing to an operand set (tensors "A", "B", "C" if read, "D"): the call queues the product."""

Choose = Callable[[Sequence[Way], Problem], "list[float]"]
"""What :func:`seconds_of` is: seconds a product of each way, infinity for one that does not run."""

FINALISTS = 6
HOPELESS = 3.0
"""Ways that take so many times the fastest's first estimate are not timed further."""

FIRST = (StopRule(3, 3, 60.0), 0.002)
FINAL = (StopRule(9, 9, 60.0), 0.005)
"""Rounds of the two stages, and the seconds that a sample in them aims for."""


def seconds_of(
    ways: Sequence[Way], problem: Problem, *, device: Device | None = None, finalists: int = FINALISTS
) -> list[float]:
    """Seconds a product of each way, cold: infinity for those that raise or are far from the fastest.

    Only the ``finalists`` fastest have figures of the second stage; the others keep those of the first, no better than
    any finalist's.
    """
    device = device or CudaDevice()
    count = sets_needed(set_bytes(problem), device.l2_bytes)
    sets = make_sets(problem, count, device=device.name)
    sets = [{**operands, "D": d} for operands, d in zip(sets, outputs_for(problem, count, device.name), strict=True)]
    launches: dict[str, Callable[[int], None]] = {}
    estimates: dict[str, float] = {}
    for place, way in enumerate(ways):
        try:
            calls = [way(operands) for operands in sets]
            estimates[str(place)] = estimate(calls, device.clock)
        except Exception:  # a way that does not compile, fit or run is out; their errors are of many kinds
            continue
        launches[str(place)] = _in_turn(calls)
    found = [math.inf] * len(ways)
    if not launches:
        return found
    best = min(estimates.values())
    hopeful = [name for name in launches if estimates[name] <= HOPELESS * best]
    timed = _timed({name: launches[name] for name in hopeful}, estimates, device, count, problem, FIRST)
    last = sorted(timed, key=lambda name: timed[name])[:finalists]
    settled = _timed({name: launches[name] for name in last}, estimates, device, count, problem, FINAL)
    slowest = max(settled.values())
    for name, seconds in timed.items():
        found[int(name)] = settled.get(name, max(seconds, slowest))
    return found


def _in_turn(calls: Sequence[Callable[[], None]]) -> Callable[[int], None]:
    return lambda index: calls[index]()


def _timed(
    launches: Mapping[str, Callable[[int], None]],
    estimates: Mapping[str, float],
    device: Device,
    count: int,
    problem: Problem,
    stage: tuple[StopRule, float],
) -> dict[str, float]:
    """Median seconds a product of each, interleaved: replayed from graphs if the fastest is short."""
    rule, sample_s = stage
    short = min(estimates[name] for name in launches) < SHORT_KERNEL_S
    entries = {}
    for name, launch in launches.items():
        launched = launches_for(estimates[name], sample_s)
        entries[name] = _replayed(launch, launched, device, count) if short else Entry(launch, launched)
    rotation = Rotation(count, set_bytes(problem), device.l2_bytes)
    rounds = time_interleaved(entries, device.clock, rotation, rule=rule, seed=0)
    return {name: spread_of(seconds).median for name, seconds in rounds.seconds.items()}


def _replayed(launch: Callable[[int], None], launches: int, device: Device, count: int) -> Entry:
    """Graph replays of whole turns; plain launches of whole turns where it cannot be captured."""
    turns = turns_for(count)
    inside = turns * count
    launches = max(inside, launches // inside * inside)
    try:
        return Entry(launch, launches, device.capture(launch, count, turns), turns)
    except RuntimeError:
        return Entry(launch, launches)
