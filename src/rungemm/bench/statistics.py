"""Median, spread, and the ratio of two contenders from paired rounds with its confidence interval.

A round times every contender once, minutes of drift in clocks and power apart from no other round's sample, so the
ratio within a round is what repeats; its median over rounds is the result. The interval is the percentile bootstrap
of that median (Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13): no shape of the noise is
assumed, which matters because GPU timings have a long upper tail.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Ratio", "Spread", "geometric_mean", "paired_ratio", "spread_of"]


@dataclass(frozen=True)
class Spread:
    """What a list of samples says, in the samples' own unit: median, tenth and ninetieth percentile, count."""

    median: float
    low: float
    high: float
    count: int

    @property
    def relative(self) -> float:
        """(ninetieth - tenth percentile) / median: the noise, as a share."""
        return (self.high - self.low) / self.median if self.median else 0.0


@dataclass(frozen=True)
class Ratio:
    """A ratio of two contenders' times: the median over paired rounds and its confidence interval."""

    value: float
    low: float
    high: float
    rounds: int

    @property
    def half_width(self) -> float:
        """Half the interval as a share of the ratio: 0.01 means "known to 1%"."""
        return (self.high - self.low) / (2 * self.value) if self.value else float("inf")

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def spread_of(samples: Sequence[float]) -> Spread:
    """The spread of at least one sample.

    Raises:
        ValueError: no samples, or one that is not a finite number.
    """
    values = np.asarray(samples, dtype=np.float64)
    if values.size == 0:
        raise ValueError("no samples: time at least one round")
    if not np.isfinite(values).all():
        raise ValueError("a sample is not finite: the clock failed, time again")
    low, median, high = np.percentile(values, [10, 50, 90])
    return Spread(float(median), float(low), float(high), int(values.size))


def paired_ratio(
    numerator: Sequence[float],
    denominator: Sequence[float],
    *,
    confidence: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> Ratio:
    """Median of ``numerator[r] / denominator[r]`` over rounds r, with a bootstrap interval.

    With the contender's time above and ours below, a value over 1 says that we are faster. The resampling is
    seeded, so the same samples always give the same interval.

    Raises:
        ValueError: different lengths, no rounds, or a time that is not positive.
    """
    top, bottom = np.asarray(numerator, dtype=np.float64), np.asarray(denominator, dtype=np.float64)
    if top.shape != bottom.shape:
        raise ValueError(f"{top.size} and {bottom.size} samples: rounds are paired, give one sample of each a round")
    if top.size == 0:
        raise ValueError("no samples: time at least one round")
    if not ((top > 0).all() and (bottom > 0).all()):
        raise ValueError("a time is not positive: the clock is too coarse for this launch, time more launches a round")
    ratios = top / bottom
    value = float(np.median(ratios))
    if ratios.size == 1:
        return Ratio(value, 0.0, float("inf"), 1)
    rng = np.random.default_rng(seed)
    medians = np.median(ratios[rng.integers(0, ratios.size, (resamples, ratios.size))], axis=1)
    tail = 50 * (1 - confidence)
    low, high = np.percentile(medians, [tail, 100 - tail])
    return Ratio(value, float(low), float(high), int(ratios.size))


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean of positive numbers: the mean of a suite's ratios, unmoved by which one is on top.

    Raises:
        ValueError: no values, or one that is not positive.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.size == 0 or not (array > 0).all():
        raise ValueError("a geometric mean needs at least one value, all of them positive")
    return float(np.exp(np.log(array).mean()))
