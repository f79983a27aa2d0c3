"""Which problem each rung is set, and on what operands: the same matrices for all, in the type that it takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..dtypes import BF16, FP16, FP32, DType, dtype_named
from ..hardware import Gpu
from ..inputs import random_matrix
from ..kernels import Config, Kernel, LaunchPlan, Unsupported
from ..operands import problem_of_arrays
from ..problem import Precision, Problem, ProblemError

__all__ = ["Posed", "Refused", "Task", "pose"]

CHOICES: dict[str, tuple[DType, Precision]] = {
    "fp32": (FP32, "ieee"),
    "tf32": (FP32, "tf32"),
    "bf16": (BF16, "ieee"),
    "fp16": (FP16, "ieee"),
    "tf32x3": (FP32, "tf32x3"),
}
"""What operands can be multiplied as, by name: their type and the precision. A rung is set the first that it takes."""


@dataclass
class Task:
    """The product that the ladder is climbed on: fp32 operands A (M, K), B (K, N), C (M, N), and the scalars.

    Attributes:
        seed: of the random operands; ``None`` for the user's own, which keep their type.
        arithmetic: the one of CHOICES that every rung is set; ``None`` for the first that each takes.
    """

    a: np.ndarray
    b: np.ndarray
    c: np.ndarray | None
    alpha: float = 1.0
    beta: float = 0.0
    seed: int | None = None
    arithmetic: str | None = None
    _cast: dict[str, dict[str, np.ndarray]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if self.beta != 0 and self.c is None:
            raise ProblemError(f"beta is {self.beta} but no C was given: pass C, or beta=0")
        # Posing it once finds operands that do not fit together before any rung is asked.
        problem_of_arrays(self.a, self.b, self.c, self.blank(), alpha=self.alpha, beta=self.beta)

    @staticmethod
    def random(
        m: int, n: int, k: int, *, alpha: float = 1.0, beta: float = 0.0, seed: int, arithmetic: str | None = None
    ) -> Task:
        """Standard normal operands of that shape; C only if beta is not 0."""
        rng = np.random.default_rng(seed)
        a, b = random_matrix(rng, m, k), random_matrix(rng, k, n)
        return Task(a, b, random_matrix(rng, m, n) if beta != 0 else None, alpha, beta, seed, arithmetic)

    @property
    def shape(self) -> tuple[int, int, int]:
        """M, N, K."""
        return self.a.shape[0], self.b.shape[1], self.a.shape[1]

    def blank(self, dtype: DType = FP32) -> np.ndarray:
        """A fresh D, all NaN, so that an element that is never written shows."""
        return np.full((self.a.shape[0], self.b.shape[1]), np.nan, dtype.numpy)

    def operands(self, dtype: DType) -> dict[str, np.ndarray]:
        """A, B and C in that type (rounded once, then kept) and a fresh D."""
        if dtype == dtype_named(self.a.dtype):
            cast = {"A": self.a, "B": self.b} | ({} if self.c is None else {"C": self.c})
        else:
            if dtype.name not in self._cast:
                named = (("A", self.a), ("B", self.b), ("C", self.c))
                self._cast[dtype.name] = {name: x.astype(dtype.numpy) for name, x in named if x is not None}
            cast = self._cast[dtype.name]
        return {**cast, "D": self.blank(dtype)}


@dataclass
class Posed:
    """One rung with the problem it is set, its config and its plan."""

    kernel: Kernel[Any]
    problem: Problem
    config: Config
    plan: LaunchPlan


@dataclass
class Refused:
    """One rung that takes nothing of what was offered; ``why`` is its predicate's sentence."""

    kernel: Kernel[Any]
    why: str


def pose(kernel: Kernel[Any], task: Task, card: Gpu) -> Posed | Refused:
    """Set the rung the task in the first type and precision that it takes.

    The user's own matrices are never cast: a rung that takes no fp32 then refuses.
    """
    first = None
    for dtype, precision in CHOICES.values() if task.arithmetic is None else (CHOICES[task.arithmetic],):
        if task.seed is None and dtype != dtype_named(task.a.dtype):
            continue
        operands = task.operands(dtype)
        problem = problem_of_arrays(
            operands["A"], operands["B"], operands.get("C"), operands["D"],
            alpha=task.alpha, beta=task.beta, precision=precision,
        )  # fmt: skip
        try:
            config = kernel.default_config(problem, card)
            return Posed(kernel, problem, config, kernel.plan(problem, config, card))
        except Unsupported as error:
            first = first or str(error)
    return Refused(kernel, first or f"{kernel.name} takes none of these operands")
