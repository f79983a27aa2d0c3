"""Two results files compared: which contender got slower on which problem, and how sure that is.

What is compared is a contender's ratio against the reference of its own run (its pace), because absolute times move
with the card's clocks from run to run and the ratio does not. The interval of the change is a bootstrap over both
runs' rounds. A change counts only when the whole interval is beyond the threshold. Where a run lacks the reference,
the times themselves are compared, and the line says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

__all__ = ["AGREEMENT", "THRESHOLD", "Change", "agreement", "compare"]

THRESHOLD = 0.03
"""Smallest change that counts: ratios repeat within 2% from run to run and machine to machine (docs/method.md)."""

AGREEMENT = 0.02
"""What two runs, an hour or a machine apart, must agree within on every ratio to be believed."""

Verdict = Literal["slower", "faster", "same", "unsure"]


@dataclass(frozen=True)
class Change:
    """One contender on one problem in both runs.

    Attributes:
        problem: "4096x4096x4096 bf16 NT ieee".
        contender: its name.
        change: new speed over old speed (0.9: 10% slower), with its interval ``low`` to ``high``.
        absolute: compared by time, for want of the reference in one of the runs.
        verdict: "slower" or "faster" when the whole interval is beyond the threshold, "same" when it is within it,
            else "unsure".
    """

    problem: str
    contender: str
    change: float
    low: float
    high: float
    absolute: bool
    verdict: Verdict

    def __str__(self) -> str:
        by = " (by time: no reference in both runs)" if self.absolute else ""
        return (
            f"{self.verdict:<7} {self.contender} on {self.problem}: {100 * (self.change - 1):+.1f}% "
            f"[{100 * (self.low - 1):+.1f}%, {100 * (self.high - 1):+.1f}%]{by}"
        )


def compare(
    old: dict[str, Any], new: dict[str, Any], *, reference: str = "cublas", threshold: float = THRESHOLD
) -> list[Change]:
    """Every contender and problem that both raw documents measured; the reference itself only where it is alone.

    Raises:
        ValueError: the threshold is not between 0 and 1.
    """
    if not 0 < threshold < 1:
        raise ValueError(f"threshold {threshold} is not between 0 and 1: 0.03 is 3%")
    # A product may stand in two suites; it is compared with its own suite's if that was measured before.
    before = {key: measured for key, measured in _lanes(old)}
    same_suite = {(*key, measured.get("suite")): measured for key, measured in _lanes(old)}
    changes = []
    for key, measured in _lanes(new):
        was = same_suite.get((*key, measured.get("suite")), before.get(key))
        if was is None:
            continue
        name = key[1]
        pace_old, pace_new = _pace(was, name, reference), _pace(measured, name, reference)
        absolute = pace_old is None or pace_new is None
        if name == reference and len(measured["lanes"]) > 1:
            continue
        if pace_old is None or pace_new is None:
            pace_old, pace_new = _speed(was, name), _speed(measured, name)
        value, low, high = _change(pace_old, pace_new)
        changes.append(Change(key[0], name, value, low, high, absolute, _verdict(low, high, threshold)))
    return changes


def agreement(old: dict[str, Any], new: dict[str, Any], *, reference: str = "cublas") -> list[Change]:
    """The changes of :func:`compare` that are changes of a ratio to the reference, the largest first.

    Two runs of the same code agree when the first is within :data:`AGREEMENT` of 1.
    """
    ratios = [change for change in compare(old, new, reference=reference) if not change.absolute]
    return sorted(ratios, key=lambda change: -abs(change.change - 1))


def _lanes(document: dict[str, Any]) -> Iterator[tuple[tuple[str, str], dict[str, Any]]]:
    """Every lane that has a figure: its problem's title and its contender, and the measurement that it is of."""
    for measurement in document["measurements"]:
        for name, lane in measurement["lanes"].items():
            if not lane["failure"] and lane["us"]:
                yield (_title(measurement), name), measurement


def _title(measurement: dict[str, Any]) -> str:
    problem, cold = measurement["problem"], measurement["cold_l2"]["cold"]
    batch = f"{problem['batch']}x " if problem["batch"] != 1 else ""
    scalars = "" if (problem["alpha"], problem["beta"]) == (1.0, 0.0) else f" a={problem['alpha']} b={problem['beta']}"
    types = (
        problem["dtype"] if problem["dtype"] == problem["out_dtype"] else f"{problem['dtype']}->{problem['out_dtype']}"
    )
    shape = f"{batch}{problem['m']}x{problem['n']}x{problem['k']}"
    return (
        f"{shape} {types} {problem['layout']} {problem['precision']}{scalars}"
        + ("" if cold else " warm")
        + ("" if measurement["data"] == "normal" else f" {measurement['data']}")
    )


def _pace(measurement: dict[str, Any], name: str, reference: str) -> np.ndarray | None:
    """Reference time over the contender's, round by round."""
    base = measurement["lanes"].get(reference)
    if base is None or base["failure"] or not base["us"] or name == reference:
        return None
    return np.asarray(base["us"]) / np.asarray(measurement["lanes"][name]["us"])


def _speed(measurement: dict[str, Any], name: str) -> np.ndarray:
    return 1 / np.asarray(measurement["lanes"][name]["us"])


def _change(old: np.ndarray, new: np.ndarray, resamples: int = 2000) -> tuple[float, float, float]:
    """new / old of the medians, and its 99% bootstrap interval: a report looks at hundreds of pairs."""
    rng = np.random.default_rng(0)
    value = float(np.median(new) / np.median(old))

    def medians(samples: np.ndarray) -> np.ndarray:
        return np.median(samples[rng.integers(0, samples.size, (resamples, samples.size))], axis=1)

    low, high = np.percentile(medians(new) / medians(old), [0.5, 99.5])
    return value, float(low), float(high)


def _verdict(low: float, high: float, threshold: float) -> Verdict:
    if high < 1 - threshold:
        return "slower"
    if low > 1 / (1 - threshold):
        return "faster"
    if low >= 1 - threshold and high <= 1 / (1 - threshold):
        return "same"
    return "unsure"
