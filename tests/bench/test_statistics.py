from __future__ import annotations

import numpy as np
import pytest

from rungemm.bench.statistics import geometric_mean, paired_ratio, spread_of


def test_spread_of_known_samples() -> None:
    spread = spread_of([float(x) for x in range(1, 102)])
    assert (spread.median, spread.low, spread.high, spread.count) == (51.0, 11.0, 91.0, 101)
    assert spread.relative == pytest.approx(80 / 51)


@pytest.mark.parametrize("bad", [[], [1.0, float("nan")], [1.0, float("inf")]])
def test_spread_refuses_what_is_no_sample(bad: list[float]) -> None:
    with pytest.raises(ValueError):
        spread_of(bad)


def test_ratio_of_paired_rounds_ignores_a_drift_that_both_share(rng: np.random.Generator) -> None:
    drift = 1 + 0.5 * rng.random(40)  # 50% from round to round
    ratio = paired_ratio(2.0 * drift, 1.0 * drift)
    assert ratio.value == pytest.approx(2.0) and ratio.half_width < 1e-9 and ratio.rounds == 40
    shuffled = paired_ratio(2.0 * drift, 1.0 * rng.permutation(drift))
    assert shuffled.half_width > 0.01, "pairing is what removes the drift"


def test_interval_covers_the_truth_about_as_often_as_it_says(rng: np.random.Generator) -> None:
    truth, hits, trials = 1.05, 0, 200
    for _ in range(trials):
        ours = np.exp(0.02 * rng.standard_normal(25))
        theirs = truth * np.exp(0.02 * rng.standard_normal(25))
        ratio = paired_ratio(theirs, ours, resamples=400)
        hits += ratio.low <= truth <= ratio.high
    # 95% nominal; at 0.95 the chance of fewer than 176 hits in 200 is about 1 in 30000
    assert hits >= 176


def test_interval_narrows_with_rounds(rng: np.random.Generator) -> None:
    noise = np.exp(0.05 * rng.standard_normal((2, 800)))
    few, many = paired_ratio(noise[0, :20], noise[1, :20]), paired_ratio(noise[0], noise[1])
    assert many.half_width < few.half_width


def test_one_round_knows_nothing() -> None:
    ratio = paired_ratio([2.0], [1.0])
    assert ratio.value == 2.0 and ratio.half_width == float("inf")


@pytest.mark.parametrize(("top", "bottom"), [([1.0], [1.0, 2.0]), ([], []), ([0.0], [1.0]), ([1.0], [float("nan")])])
def test_ratio_refuses(top: list[float], bottom: list[float]) -> None:
    with pytest.raises(ValueError):
        paired_ratio(top, bottom)


def test_geometric_mean() -> None:
    assert geometric_mean([0.5, 2.0]) == pytest.approx(1.0)
    with pytest.raises(ValueError):
        geometric_mean([1.0, 0.0])
