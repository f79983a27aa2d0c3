"""The outputs of the very launches that were timed, against float64.

Outputs are poisoned before timing and compared afterwards, set by set, with a float64 product made on the device in
blocks of rows. The error is ``||out - ref|| / ||ref||`` over the positions where the reference is finite; where it is
not, the kind (NaN, +Inf, -Inf) must match, and any NaN or Inf that the reference lacks is a failure, not a number.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..problem import Problem
from ..verify import tolerance_for

__all__ = ["Checked", "Reference", "check_outputs"]

_BLOCK_ELEMENTS = 1 << 25
"""Elements of a float64 block of D at a time: 256 MB."""


@dataclass(frozen=True)
class Checked:
    """What the comparison found, the worst over the sets.

    Attributes:
        error: ``||out - ref|| / ||ref||`` over the finite positions; ``||out||`` where the reference is all zero.
        mismatched: positions whose NaN or Inf differ from the reference's.
        tolerance: the error allowed for the types and K (:func:`rungemm.verify.tolerance_for`).
        held: the error against the size that D has for operands of random sign, where that is larger than the
            reference's (cancellation: a single dot product near zero carries the error of its large terms); this is
            what the tolerance is held against.
    """

    error: float
    mismatched: int
    tolerance: float
    held: float

    @property
    def ok(self) -> bool:
        return self.mismatched == 0 and self.held <= self.tolerance

    @property
    def why(self) -> str:
        """One line for the report; empty when it passed."""
        if self.mismatched:
            return f"{self.mismatched} elements are NaN or Inf where float64 is not, or the reverse"
        return "" if self.ok else f"error {self.error:.2e} is over the tolerance {self.tolerance:.2e}"


class Reference:
    """The float64 product of one operand set, to hold any number of outputs against.

    With ``keep`` its blocks stay in memory (8 bytes an element of D), for outputs that come one after another.
    """

    def __init__(self, problem: Problem, operands: dict[str, Any], out_dtype: Any, keep: bool = False) -> None:
        self.problem, self.operands, self.out_dtype = problem, operands, out_dtype
        self.size = sum(_size_for_random_signs(problem, operands, products) for products in _groups(problem))
        self._kept = list(self._blocks()) if keep else None

    def _blocks(self) -> Iterator[tuple[slice, slice, Any]]:
        for products in _groups(self.problem):
            for rows, expected in _reference_blocks(self.problem, self.operands, products, self.out_dtype):
                yield products, rows, expected

    def check(self, outputs: Mapping[str, Any]) -> dict[str, Checked]:
        """Each output, by name, compared."""
        import torch

        sums = {name: torch.zeros(3, dtype=torch.float64, device=out.device) for name, out in outputs.items()}
        for products, rows, expected in self._blocks() if self._kept is None else self._kept:
            for name, out in outputs.items():
                sums[name] += _compare(_pick(out, products)[:, rows].double(), expected)
        allowed, result = tolerance_for(self.problem), {}
        for name, total in sums.items():
            off, norm, wrong = total.tolist()
            larger = max(norm, self.size) if math.isfinite(self.size) else norm
            error = math.sqrt(off / norm) if norm > 0 else math.sqrt(off)
            held = math.sqrt(off / larger) if larger > 0 else math.sqrt(off)
            result[name] = Checked(error, int(wrong), allowed, held)
        return result


def check_outputs(
    problem: Problem, sets: Sequence[dict[str, Any]], outputs: Mapping[str, Sequence[Any | None]]
) -> dict[str, Checked]:
    """Every contender's outputs, by name and set, against one float64 reference a set (made once, shared by all).

    ``None`` stands for a set that the contender was never timed on. A contender with no set at all fails.
    """
    worst: dict[str, Checked] = {}
    for index, operands in enumerate(sets):
        here: dict[str, Any] = {name: tensors[index] for name, tensors in outputs.items() if tensors[index] is not None}
        if not here:
            continue
        out_dtype = next(iter(here.values())).dtype
        for name, found in Reference(problem, operands, out_dtype).check(here).items():
            before = worst.get(name, Checked(0.0, 0, found.tolerance, 0.0))
            worst[name] = Checked(
                max(before.error, found.error), before.mismatched + found.mismatched, found.tolerance,
                max(before.held, found.held),
            )  # fmt: skip
    never = Checked(math.inf, 0, tolerance_for(problem), math.inf)
    return {name: worst.get(name, never) for name in outputs}


def _groups(problem: Problem) -> Iterator[slice]:
    """The products, as many together as a block holds of all that they read and write: small ones by the thousand."""
    of_one = problem.m * problem.n + problem.k * (problem.m + problem.n)
    count = max(1, _BLOCK_ELEMENTS // max(of_one, 1))
    for first in range(0, problem.batch, count):
        yield slice(first, min(first + count, problem.batch))


def _reference_blocks(
    problem: Problem, operands: dict[str, Any], products: slice, out_dtype: Any
) -> Iterator[tuple[slice, Any]]:
    """Blocks of rows of ``alpha * A @ B + beta * C`` in float64; what a zero scalar or K switches off is not read."""
    import torch

    device = operands["A"].device
    b = _pick(operands["B"], products).double() if problem.effective_k else None
    count = products.stop - products.start
    step = max(1, _BLOCK_ELEMENTS // max(problem.n * count, 1))
    for row in range(0, problem.m, step):
        rows = slice(row, min(row + step, problem.m))
        if b is None:
            expected = torch.zeros(count, rows.stop - row, problem.n, dtype=torch.float64, device=device)
        else:
            expected = problem.alpha * (_pick(operands["A"], products)[:, rows].double() @ b)
        if problem.reads_c:
            expected += problem.beta * _pick(operands["C"], products)[:, rows].double()
        if out_dtype.is_floating_point and out_dtype.itemsize == 2:
            # Beyond the type's largest number the right answer is an infinity.
            expected = torch.where(expected.to(out_dtype).isinf(), expected.sign() * math.inf, expected)
        yield rows, expected


def _compare(out: Any, expected: Any) -> Any:
    """Sum of squared differences, sum of squares of the reference, and count of misplaced NaN or Inf, on the device."""
    import torch

    both = expected.isfinite() & out.isfinite()
    wrong = ~both & ~((out == expected) | (out.isnan() & expected.isnan()))
    difference = torch.where(both, out - expected, 0.0)
    return torch.stack(
        [difference.square().sum(), torch.where(both, expected, 0.0).square().sum(), wrong.sum().double()]
    )


def _size_for_random_signs(problem: Problem, operands: dict[str, Any], products: slice) -> float:
    """``||D||^2`` to expect of products with random signs: over k, the squares of A's column times those of B's row."""
    size = 0.0
    if problem.effective_k:
        a, b = (_pick(operands[role], products) for role in ("A", "B"))
        columns = sum(block.double().square().sum(1) for block in a.split(4096, 1))
        rows = sum(block.double().square().sum(2) for block in b.split(4096, 2))
        size += problem.alpha**2 * float((columns * rows).sum())
    if problem.reads_c:
        size += problem.beta**2 * float(_pick(operands["C"], products).double().square().sum())
    return size


def _pick(tensor: Any, products: slice) -> Any:
    """These products' matrices, in three dimensions."""
    return (tensor[None] if tensor.dim() == 2 else tensor)[products]
