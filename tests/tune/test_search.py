from __future__ import annotations

import numpy as np
import pytest

from rungemm.bench.cold import Rotation
from rungemm.bench.interleaved import Entry
from rungemm.tune.search import STAGES, Stage, survey


class Clock:
    """A device that is one number; how often each kernel ran is counted."""

    def __init__(self, rng: np.random.Generator, noise: float) -> None:
        self.time, self.rng, self.noise = 0.0, rng, noise
        self.launched: dict[str, int] = {}

    def lead_in(self) -> None:
        return None

    def mark(self) -> float:
        return self.time

    def synchronize(self) -> None:
        return None

    def seconds(self, start: float, end: float) -> float:
        return end - start

    def entry(self, name: str, seconds: float) -> Entry:
        def launch(_: int) -> None:
            self.launched[name] = self.launched.get(name, 0) + 1
            self.time += seconds * float(np.exp(self.noise * self.rng.standard_normal()))

        return Entry(launch)


def test_the_fastest_of_two_hundred_is_found_and_losers_cost_little(rng: np.random.Generator, seed: int) -> None:
    clock = Clock(rng, 0.005)
    truth = {f"config{i}": 1.0 + 0.02 * i for i in rng.permutation(200)}
    result = survey(
        {n: clock.entry(n, t) for n, t in truth.items()}, clock, Rotation(2, 10, 1), budget_s=1e9, seed=seed
    )
    assert truth[result.ranking[0]] <= 1.02 and not result.cut_short
    rounds = sum(stage.rounds for stage in STAGES)
    assert clock.launched["config0"] == rounds
    assert clock.launched["config199"] == STAGES[0].rounds, "a config five times slower was timed more than once"
    assert sum(clock.launched.values()) < 0.25 * rounds * len(truth)
    assert set(result.dropped) | set(result.ranking) == set(truth)
    for name, (stage, slower) in result.dropped.items():
        assert slower > 0 and 1 <= stage <= len(STAGES)
        assert result.rounds[name] == sum(s.rounds for s in STAGES[:stage])


def test_the_budget_cuts_it_short(rng: np.random.Generator) -> None:
    clock = Clock(rng, 0.0)
    entries = {f"c{i}": clock.entry(f"c{i}", 1.0 + 0.001 * i) for i in range(10)}
    stages = (Stage(2, 0.5, 10), Stage(50, 0.5, 10))
    result = survey(entries, clock, Rotation(2, 10, 1), stages=stages, budget_s=45.0, now=lambda: clock.time)
    assert result.cut_short and result.ranking[0] == "c0"
    assert clock.time < 60


def test_keep_bounds_the_field_even_when_all_are_equal(rng: np.random.Generator) -> None:
    clock = Clock(rng, 0.0)
    entries = {f"c{i}": clock.entry(f"c{i}", 1.0) for i in range(10)}
    result = survey(entries, clock, Rotation(2, 10, 1), stages=(Stage(1, 0.5, 3),), budget_s=1e9)
    assert len(result.ranking) == 3 and len(result.dropped) == 7


def test_nothing_to_time() -> None:
    with pytest.raises(ValueError, match="--show-pruned"):
        survey({}, Clock(np.random.default_rng(0), 0), Rotation(2, 10, 1))
