"""Every rung on the simulator against float64: ragged shapes, strides, offsets, and BLAS's rules for zero."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from rungemm.hardware import find_gpu
from rungemm.kernels.base import Kernel, Unsupported
from rungemm.kernels.registry import LADDER
from rungemm.operands import problem_of_arrays
from rungemm.sim import simulate
from rungemm.verify import verify

H200 = find_gpu("h200")


@dataclass(frozen=True)
class Case:
    """A shape, the scalars, and how the operands lie."""

    name: str
    m: int
    n: int
    k: int
    alpha: float = 1.5
    beta: float = -0.5
    lie: str = "dense"  # "dense", "transposed", "strided", "offset", "reversed"
    nan: str = ""  # the operand that is all NaN


CASES = (
    Case("1x1x1", 1, 1, 1),
    Case("7x5x3", 7, 5, 3),
    Case("33x32x32", 33, 32, 32),
    Case("127x129x65", 127, 129, 65),
    Case("1x128x1", 1, 128, 1),
    Case("1000x37x51", 1000, 37, 51),
    Case("K=0", 9, 17, 0),
    Case("M=0", 0, 17, 5),
    Case("beta=0, C all NaN", 35, 20, 18, beta=0.0, nan="C"),
    Case("alpha=0, A all NaN", 35, 20, 18, alpha=0.0, nan="A"),
    Case("transposed views", 70, 33, 40, lie="transposed"),
    Case("strided views", 40, 70, 33, lie="strided"),
    Case("reversed views", 40, 33, 17, lie="reversed"),
    Case("one-element storage offset", 64, 40, 33, lie="offset"),
    Case("whole tiles", 128, 128, 64, beta=0.0),
)


def lay(rng: np.random.Generator, rows: int, cols: int, dtype: np.dtype, lie: str) -> np.ndarray:
    """A random matrix that lies in memory as asked."""
    values = rng.standard_normal((rows, cols)).astype(dtype)
    if lie == "transposed":
        home = np.full((cols, rows), np.nan, np.float32).astype(dtype)
        view = home.T
    elif lie == "strided":
        home = np.full((2 * rows + 1, 3 * cols + 2), np.nan, np.float32).astype(dtype)
        view = home[1::2, 2::3]
    elif lie == "reversed":
        home = np.full((rows, cols), np.nan, np.float32).astype(dtype)
        view = home[::-1, ::-1]
    elif lie == "offset":
        home = np.full(rows * cols + 1, np.nan, np.float32).astype(dtype)
        view = home[1:].reshape(rows, cols)
    else:
        view = np.empty((rows, cols), dtype)
    view[...] = values
    return view


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
@pytest.mark.parametrize("kernel", LADDER, ids=lambda k: k.name)
def test_a_rung_is_right(kernel: Kernel, case: Case, rng: np.random.Generator) -> None:
    element = kernel.dtypes[0].numpy
    a = lay(rng, case.m, case.k, element, case.lie)
    b = lay(rng, case.k, case.n, element, case.lie)
    c = lay(rng, case.m, case.n, element, case.lie)
    d = lay(rng, case.m, case.n, element, case.lie)
    if case.nan:
        {"A": a, "C": c}[case.nan][...] = np.nan
    d[...] = np.nan
    operands = {"A": a, "B": b, "C": c, "D": d}
    before = {role: array.copy() for role, array in operands.items()}
    reasons = []
    for precision in ("ieee", "tf32"):
        problem = problem_of_arrays(a, b, c, d, alpha=case.alpha, beta=case.beta, precision=precision)
        try:
            plan = kernel.plan(problem, kernel.default_config(problem, H200), H200)
        except Unsupported as reason:
            reasons.append(str(reason))
            continue
        break
    else:
        pytest.skip("; ".join(reasons))
    simulate(plan, operands, count=False)
    if case.nan == "A":
        operands = {**operands, "A": np.zeros_like(a)}
    verdict = verify(problem, operands)
    assert verdict.correct, verdict.why
    for role in ("A", "B", "C"):
        # Bit for bit, so that NaN equals itself.
        assert before[role].tobytes() == {"A": a, "B": b, "C": c}[role].copy().tobytes(), f"{role} was changed"
