"""The problems that every rung must solve on the card: extents, layouts, views and scalars, with their operands."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from rungemm.dtypes import DType
from rungemm.gpu import problem_of
from rungemm.problem import Problem

__all__ = ["CASES", "OTHER_TYPES", "Case", "Operands", "operands_of"]


@dataclass(frozen=True)
class Case:
    """One problem. ``views``: operands are strided, offset views; ``poison``: fill what must not be read with NaN."""

    m: int
    n: int
    k: int
    layout: str = "NN"
    alpha: float = 1.0
    beta: float = 0.0
    views: bool = False
    poison: bool = False

    def __str__(self) -> str:
        text = f"{self.m}x{self.n}x{self.k}-{self.layout}-a{self.alpha:g}-b{self.beta:g}"
        return text + ("-views" if self.views else "") + ("-poison" if self.poison else "")


# Few distinct specialisations (a compilation each), many values: extents that are 1, odd, one off a tile, and whole.
CASES = (
    Case(512, 512, 512),
    Case(512, 512, 512, "TT", alpha=-0.5, beta=2.0),
    Case(1000, 999, 1001, alpha=1.5, beta=0.5),
    Case(129, 127, 33, "NT", beta=1.0),
    Case(129, 127, 33, "TN", poison=True),
    Case(31, 129, 7, "TT"),
    Case(1, 129, 127),
    Case(127, 1, 31, beta=-1.0),
    Case(33, 31, 1),
    Case(7, 1, 1, "TN"),
    Case(65, 67, 35, views=True, alpha=0.25, beta=3.0),
    Case(129, 127, 33, "NT", alpha=0.0, beta=0.5, poison=True),
    Case(129, 127, 0, "NT", beta=0.5),
    Case(129, 127, 0, "NT", poison=True),
    Case(0, 5, 7),
    Case(5, 0, 7),
)

# For a rung's further element types and precisions.
OTHER_TYPES = (CASES[0], CASES[2], CASES[4], CASES[10])


@dataclass
class Operands:
    """A case's tensors on the card. ``d_base`` is D with the elements between those of a strided D."""

    problem: Problem
    a: torch.Tensor
    b: torch.Tensor
    c: torch.Tensor | None
    d: torch.Tensor
    d_base: torch.Tensor

    @property
    def by_role(self) -> dict[str, Any]:
        return {"A": self.a, "B": self.b, "C": self.c, "D": self.d}

    def fresh(self) -> Operands:
        """The same inputs and another D, all NaN."""
        base = torch.full_like(self.d_base, float("nan"))
        d = base.as_strided(self.d.shape, self.d.stride(), self.d.storage_offset())
        return replace(self, d=d, d_base=base)


def operands_of(case: Case, dtype: DType, precision: str, out: DType, generator: torch.Generator) -> Operands:
    """Normal random tensors for a case; what the case must not read is NaN where it says ``poison``."""
    scalar = getattr(torch, dtype.torch)
    result = getattr(torch, out.torch)

    def matrix(rows: int, cols: int, transposed: bool, of: torch.dtype) -> torch.Tensor:
        if transposed:
            return matrix(cols, rows, False, of).t()
        if case.views:
            # One element in, every second row, every third column.
            base = torch.randn(2 * rows * 3 * cols + 1, generator=generator, device="cuda").to(of)
            return base.as_strided((rows, cols), (6 * cols, 3), 1)
        return torch.randn(rows, cols, generator=generator, device="cuda").to(of)

    a = matrix(case.m, case.k, case.layout[0] == "T", scalar)
    b = matrix(case.k, case.n, case.layout[1] == "T", scalar)
    c = matrix(case.m, case.n, False, result)
    if case.views:
        d_base = torch.full((2 * case.m * 2 * case.n + 1,), float("nan"), dtype=result, device="cuda")
        d = d_base.as_strided((case.m, case.n), (4 * case.n, 2), 1)
    else:
        d = d_base = torch.full((case.m, case.n), float("nan"), dtype=result, device="cuda")
    if case.poison:
        if case.beta == 0:
            c.fill_(float("nan"))
        if case.alpha == 0:
            a.fill_(float("nan"))
            b.fill_(float("inf"))
    problem = problem_of(a, b, c, d, case.alpha, case.beta, precision)  # type: ignore[arg-type]
    return Operands(problem, a, b, c, d, d_base)
