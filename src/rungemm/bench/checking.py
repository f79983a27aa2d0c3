"""The outputs of the very launches that were timed, against float64.

Outputs are poisoned before timing and compared afterwards, set by set, with a float64 product made on the device in
blocks of rows. The error is ``||out - ref|| / ||ref||`` over the positions where the reference is finite; where it is
not, the kind (NaN, +Inf, -Inf) must match, and any NaN or Inf that the reference lacks is a failure, not a number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..problem import Problem

__all__ = ["Checked", "check_outputs", "tolerance_for"]

_BLOCK_ELEMENTS = 1 << 25
"""Elements of a float64 block of D at a time: 256 MB."""


@dataclass(frozen=True)
class Checked:
    """The largest relative error over the sets, the positions whose NaN or Inf differ, and the tolerance."""

    error: float
    mismatched: int
    tolerance: float

    @property
    def ok(self) -> bool:
        return self.mismatched == 0 and self.error <= self.tolerance

    @property
    def why(self) -> str:
        """One line for the report; empty when it passed."""
        if self.mismatched:
            return f"{self.mismatched} elements are NaN or Inf where float64 is not (or the reverse)"
        return "" if self.ok else f"error {self.error:.2e} is over the tolerance {self.tolerance:.2e}"


def tolerance_for(problem: Problem) -> float:
    """The error allowed, from the types and K.

    Rounding the result to D's type costs at most half its epsilon; an fp32 sum of K products grows, for random data, as
    the square root of K (Higham, "Accuracy and Stability of Numerical Algorithms", section 4.2), times an allowance of
    4; tf32 operands each carry half of 2^-10. An output of integers must be exact.
    """
    if problem.d.dtype.is_integer:
        return 0.0
    result = problem.d.dtype.epsilon / 2
    accumulate = 2.0**-24 * math.sqrt(max(problem.k, 1))
    operands = 2.0**-11 if problem.a.dtype.name == "fp32" and problem.precision == "tf32" else 0.0
    return 4 * accumulate + result + 2 * operands


def check_outputs(
    problem: Problem, sets: Sequence[dict[str, Any]], outputs: Mapping[str, Sequence[Any | None]]
) -> dict[str, Checked]:
    """Every contender's outputs, by name and set, against one float64 reference a set (made once, shared by all).

    ``None`` stands for a set that the contender was never timed on. A contender with no set at all fails.
    """
    import torch

    worst: dict[str, list[Any]] = {name: [0.0, 0] for name in outputs}
    for name, tensors in outputs.items():
        if all(tensor is None for tensor in tensors):
            worst[name] = [math.inf, 0]
    for index, operands in enumerate(sets):
        sums: dict[str, list[Any]] = {name: [0.0, 0.0, 0] for name in outputs if outputs[name][index] is not None}
        if not sums:
            continue
        for batch in range(problem.batch):
            a, b = _pick(operands["A"], batch, problem), _pick(operands["B"], batch, problem).double()
            c = _pick(operands["C"], batch, problem) if problem.reads_c else None
            step = max(1, _BLOCK_ELEMENTS // max(problem.n, 1))
            for row in range(0, problem.m, step):
                rows = slice(row, row + step)
                expected = problem.alpha * (a[rows].double() @ b)
                if c is not None:
                    expected += problem.beta * c[rows].double()
                finite = torch.isfinite(expected)
                for name in sums:
                    out = _pick(outputs[name][index], batch, problem)[rows].double()
                    wrong = ~((out == expected) | (out.isnan() & expected.isnan())) & ~(finite & out.isfinite())
                    both = finite & out.isfinite()
                    difference = torch.where(both, out - expected, 0.0)
                    total = sums[name]
                    total[0] += difference.square().sum()
                    total[1] += torch.where(both, expected, 0.0).square().sum()
                    total[2] += wrong.sum()
        for name, (difference, norm, wrong) in sums.items():
            error = math.sqrt(float(difference) / float(norm)) if float(norm) > 0 else math.sqrt(float(difference))
            worst[name][0] = max(worst[name][0], error)
            worst[name][1] += int(wrong)
    allowed = tolerance_for(problem)
    return {name: Checked(float(error), int(wrong), allowed) for name, (error, wrong) in worst.items()}


def _pick(tensor: Any, batch: int, problem: Problem) -> Any:
    return tensor if problem.batch == 1 else tensor[batch]
