from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from rungemm.bench.cold import Rotation
from rungemm.bench.interleaved import Entry, StopRule, launches_for, time_interleaved, warm_up

from .fake import FakeClock


def rotation() -> Rotation:
    return Rotation(4, 100, 100)


def test_every_round_times_every_contender_once_in_a_random_order(rng: np.random.Generator, seed: int) -> None:
    clock = FakeClock()
    entries = {
        name: Entry(clock.kernel(t, rng), launches) for name, t, launches in (("a", 1, 3), ("b", 2, 1), ("c", 5, 2))
    }
    result = time_interleaved(entries, clock, rotation(), rule=StopRule(60, 60, 1e9), seed=seed)
    assert result.count == 60 and result.stopped_by == "rounds"
    assert all(sorted(order) == ["a", "b", "c"] for order in result.orders)
    firsts = Counter(order[0] for order in result.orders)
    assert len(firsts) == 3, "someone was never first in 60 rounds: the order is not random"
    assert result.seconds == {"a": [1.0] * 60, "b": [2.0] * 60, "c": [5.0] * 60}


def test_the_ratio_survives_a_drift_that_ruins_back_to_back_timing(rng: np.random.Generator, seed: int) -> None:
    """b is 3% slower, and the card slows down by a quarter along the run, far more than what is looked for."""
    clock = FakeClock()

    def drift(t: float) -> float:
        return 1 + 0.25 * math.sin(t / 300)

    entries = {name: Entry(clock.kernel(t, rng, 0.003, drift)) for name, t in (("a", 1.0), ("b", 1.03))}
    result = time_interleaved(entries, clock, rotation(), reference="a", rule=StopRule(100, 100, 1e9), seed=seed)
    ratio = result.ratio("b", "a")
    assert ratio.low <= 1.03 <= ratio.high or abs(ratio.value - 1.03) < 0.003
    spread = np.percentile(result.seconds["a"], 90) / np.percentile(result.seconds["a"], 10)
    assert spread > 1.1, "the drift was meant to be large"


def test_stops_when_the_ratio_is_known(rng: np.random.Generator, seed: int) -> None:
    clock = FakeClock()
    quiet = {n: Entry(clock.kernel(1.0, rng, 0.001)) for n in "ab"}
    result = time_interleaved(quiet, clock, rotation(), reference="a", rule=StopRule(20, 500, 1e9, 0.01), seed=seed)
    assert (result.count, result.stopped_by) == (20, "precision")
    noisy = {n: Entry(clock.kernel(1.0, rng, 0.10)) for n in "ab"}
    result = time_interleaved(noisy, clock, rotation(), reference="a", rule=StopRule(20, 60, 1e9, 0.001), seed=seed)
    assert (result.count, result.stopped_by) == (60, "rounds")


def test_budget_stops_after_the_least_rounds_and_a_hard_one_before(rng: np.random.Generator) -> None:
    clock = FakeClock()
    entries = {"a": Entry(clock.kernel(1.0, rng))}
    soft = time_interleaved(entries, clock, rotation(), rule=StopRule(7, 99, 3.0), now=lambda: clock.time)
    assert (soft.count, soft.stopped_by) == (7, "budget")
    hard = time_interleaved(entries, clock, rotation(), rule=StopRule(7, 99, 3.0, hard=True), now=lambda: clock.time)
    assert (hard.count, hard.stopped_by) == (3, "budget")


def test_a_graph_counts_whole_turns(rng: np.random.Generator) -> None:
    clock, turns = FakeClock(), rotation()
    launch = clock.kernel(1.0, rng)

    def replay() -> None:
        for index in range(8):
            launch(index % 4)

    entries = {"graph": Entry(launch, 19, replay, turns=2), "plain": Entry(launch, 8)}
    result = time_interleaved(entries, clock, turns, rule=StopRule(2, 2, 1e9))
    assert result.seconds["graph"] == [1.0, 1.0] and turns.uses == 2 * (16 + 8)
    assert turns.closest == 300


def test_wrong_names() -> None:
    with pytest.raises(ValueError, match="no contenders"):
        time_interleaved({}, FakeClock(), rotation())
    with pytest.raises(ValueError, match="'z' is no contender"):
        time_interleaved({"a": Entry(lambda _: None)}, FakeClock(), rotation(), reference="z")


def test_warm_up_waits_until_the_time_settles(rng: np.random.Generator) -> None:
    clock = FakeClock()
    entries = {"a": Entry(clock.kernel(1.0, rng, drift=lambda t: 1 + 5 * math.exp(-t / 5)))}
    rounds = warm_up(entries, clock, rotation(), budget_s=1e9, now=lambda: clock.time)
    assert 5 < rounds < 100 and 1 + 5 * math.exp(-clock.time / 5) < 1.05
    assert warm_up(entries, clock, rotation(), budget_s=0.0, now=lambda: clock.time) == 1


@pytest.mark.parametrize(("seconds", "launches"), [(1.0, 1), (0.005, 1), (0.001, 5), (1e-9, 1000), (0.0, 1000)])
def test_launches_a_round(seconds: float, launches: int) -> None:
    assert launches_for(seconds) == launches


class Watched(FakeClock):
    """A clock that keeps what was asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[str] = []

    def lead_in(self) -> None:
        self.events.append("lead in")

    def mark(self) -> float:
        self.events.append("mark")
        return super().mark()

    def synchronize(self) -> None:
        self.events.append("wait")


def test_a_round_leads_in_before_its_first_mark(rng: np.random.Generator) -> None:
    clock = Watched()
    time_interleaved({n: Entry(clock.kernel(1.0, rng)) for n in "ab"}, clock, rotation(), rule=StopRule(2, 2, 1e9))
    assert clock.events == ["lead in", *["mark"] * 4, "wait"] * 2


def test_a_pause_before_every_sample(rng: np.random.Generator) -> None:
    """On an idle device, and what is queued after it leads in as ever."""
    clock = Watched()
    found = time_interleaved(
        {n: Entry(clock.kernel(1.0, rng)) for n in "ab"}, clock, rotation(), rule=StopRule(2, 2, 1e9), pause_s=0.5,
        sleep=lambda seconds: clock.events.append(f"rest {seconds}"),
    )  # fmt: skip
    sample = ["wait", "rest 0.5", "lead in", "mark", "mark"]
    assert clock.events == [*sample, *sample, "wait"] * 2 and found.count == 2
