"""Right or wrong: a result against float64, element by element, with NaN and Inf where they belong.

The error is ``||out - ref|| / ||ref||`` over the positions that are finite in both. A position that is NaN, +Inf or
-Inf in one and not the same in the other makes the result wrong, whatever the error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from .problem import Problem

__all__ = ["Verdict", "reference", "tolerance_for", "verify"]


@dataclass(frozen=True)
class Verdict:
    """What a comparison with float64 found.

    Attributes:
        correct: every NaN and Inf is in its place and the error is within the tolerance.
        error: ``||out - ref|| / ||ref||`` over the finite positions; ``||out||`` where the reference is all zero.
        tolerance: the error allowed for the types and K.
        misplaced: positions whose NaN or Inf differ from the reference's.
        why: one line that says what is wrong and where; empty when correct.
    """

    correct: bool
    error: float
    tolerance: float
    misplaced: int
    why: str = ""


# Relative error of a product of many normal random numbers whose operands were rounded to nearest tf32 first: 2.94e-4,
# measured on an H200 and the same as cuBLAS's; cut off instead of rounded, it is 7.7e-4, which must not pass.
_TF32_ERROR = 2.94e-4
# Of three tf32 products: each operand keeps all but 2^-23 in its two parts, the product of the two small parts, at most
# 2^-22, is left out, and the sums are cut to fp32. 1e-7 on average and 6e-7 at most in four million single products
# computed so; an H200 came to 7e-7 in one.
_TF32X3_ERROR = 1.5e-7
_MANY = 1024

# The tensor cores cut the low bits of their sums off at every 8 to 32 products, instead of rounding: a bias that grows
# as K. For fp8 on Hopper the sum keeps some 14 bits, unless it is moved to fp32 registers now and then.
_CUT_PER_PRODUCT = 2.0**-26
_CUT_PER_PRODUCT_FP8 = 2.0**-22


def tolerance_for(problem: Problem) -> float:
    """The error allowed for random data.

    Rounding the result to D's type costs at most half its epsilon; the error of an fp32 sum of K products grows as the
    square root of K (N. Higham, "Accuracy and Stability of Numerical Algorithms", 2nd ed., section 4.2), with an
    allowance of 4. Tensor cores add a bias, and tf32 the rounding of its operands (tf32x3 what its three products
    leave out): twice what it comes to on average, or five times where there are too few results to average over. A
    result of integers must be exact.
    """
    if problem.d.dtype.is_integer:
        return 0.0
    accumulate = 4 * 2.0**-24 * math.sqrt(max(problem.effective_k, 1))
    if problem.a.dtype.bits == 8:
        accumulate += _CUT_PER_PRODUCT_FP8 * problem.effective_k
    elif problem.a.dtype.bits == 16 or problem.precision != "ieee":
        accumulate += _CUT_PER_PRODUCT * problem.effective_k
    rounded = 0.0
    if problem.a.dtype.name == "fp32" and problem.precision != "ieee":
        average = _TF32_ERROR if problem.precision == "tf32" else _TF32X3_ERROR
        rounded = average * (2 if problem.m * problem.n >= _MANY else 5)
    return accumulate + problem.d.dtype.epsilon / 2 + rounded


def reference(problem: Problem, operands: Mapping[str, np.ndarray]) -> np.ndarray:
    """``alpha * A @ B + beta * C`` in float64, (M, N); what a zero scalar or K switches off is not read."""
    out = np.zeros((problem.m, problem.n))
    with np.errstate(all="ignore"):
        if problem.effective_k:
            out = problem.alpha * (operands["A"].astype(np.float64) @ operands["B"].astype(np.float64))
        if problem.reads_c:
            out = out + problem.beta * operands["C"].astype(np.float64)
    return out


def _magnitude(problem: Problem, operands: Mapping[str, np.ndarray]) -> np.ndarray:
    """The size that each element of D has for operands of random sign: what an error is to be held against.

    An element near zero by cancellation (a single dot product, say) carries the error of its large terms; its own
    value is no measure of it.
    """
    out = np.zeros((problem.m, problem.n))
    with np.errstate(all="ignore"):
        if problem.effective_k:
            a, b = operands["A"].astype(np.float64), operands["B"].astype(np.float64)
            out = problem.alpha**2 * ((a * a) @ (b * b))
        if problem.reads_c:
            out = out + (problem.beta * operands["C"].astype(np.float64)) ** 2
        return np.sqrt(out)


def verify(problem: Problem, operands: Mapping[str, np.ndarray], out: np.ndarray | None = None) -> Verdict:
    """Compare ``out`` (by default the operand D), shape (M, N), with the float64 product of the other operands."""
    out = operands["D"] if out is None else out
    tolerance = tolerance_for(problem)
    if out.size == 0:
        return Verdict(True, 0.0, tolerance, 0)
    expected = reference(problem, operands)
    with np.errstate(all="ignore"):
        # Beyond the type's largest number the right answer is an infinity.
        overflows = np.isinf(expected.astype(out.dtype).astype(np.float64))
        expected = np.where(overflows, np.sign(expected) * np.inf, expected)
        got = out.astype(np.float64)
        finite = np.isfinite(expected) & np.isfinite(got)
        misplaced = ~finite & ~((got == expected) | (np.isnan(got) & np.isnan(expected)))
        difference = np.where(finite, got - expected, 0.0)
        norm = float(np.linalg.norm(np.where(finite, expected, 0.0)))
        off = float(np.linalg.norm(difference))
        error = off / norm if norm else off
        held_to = max(norm, float(np.linalg.norm(np.where(finite, _magnitude(problem, operands), 0.0))))
    count = int(misplaced.sum())
    if count:
        row, col = (int(i[0]) for i in np.nonzero(misplaced))
        why = (
            f"{count} of {out.size} elements are NaN or Inf where float64 is not, or the reverse; the first is "
            f"D[{row}, {col}] = {got[row, col]}, float64 {expected[row, col]}"
        )
        return Verdict(False, error, tolerance, count, why)
    if off > tolerance * held_to:
        row, col = (int(i) for i in np.unravel_index(int(np.argmax(np.abs(difference))), out.shape))
        why = (
            f"error {error:.2e} is over {tolerance:.2e}; the worst is D[{row}, {col}] = {got[row, col]:.9g}, "
            f"float64 {expected[row, col]:.9g}"
        )
        return Verdict(False, error, tolerance, 0, why)
    return Verdict(True, error, tolerance, 0)
