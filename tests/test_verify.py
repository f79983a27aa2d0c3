"""The judge is judged: right results pass, and each way of being wrong is seen."""

from __future__ import annotations

import numpy as np
import pytest

from rungemm.dtypes import BF16, FP16, FP32, INT8, INT32
from rungemm.problem import Problem
from rungemm.verify import reference, tolerance_for, verify


def operands_for(problem: Problem, rng: np.random.Generator) -> dict[str, np.ndarray]:
    def matrix(rows: int, cols: int, dtype: np.dtype) -> np.ndarray:
        return rng.standard_normal((rows, cols)).astype(np.float32).astype(dtype)

    operands = {"A": matrix(problem.m, problem.k, problem.a.dtype.numpy)}
    operands["B"] = matrix(problem.k, problem.n, problem.b.dtype.numpy)
    operands["C"] = matrix(problem.m, problem.n, problem.d.dtype.numpy)
    operands["D"] = np.full((problem.m, problem.n), np.nan, problem.d.dtype.numpy)
    return operands


def fp32_product(problem: Problem, operands: dict[str, np.ndarray]) -> np.ndarray:
    """What an honest fp32 kernel gives: a sum of rounded products, one k at a time."""
    acc = np.zeros((problem.m, problem.n), np.float32)
    a, b = operands["A"].astype(np.float32), operands["B"].astype(np.float32)
    for k in range(problem.effective_k):
        acc += a[:, k : k + 1] * b[k : k + 1]
    out = np.float32(problem.effective_alpha) * acc
    if problem.reads_c:
        out += np.float32(problem.beta) * operands["C"].astype(np.float32)
    return out.astype(problem.d.dtype.numpy)


def to_tf32(x: np.ndarray, nearest: bool) -> np.ndarray:
    bits = x.view(np.uint32).astype(np.uint64)
    if nearest:
        bits = bits + 0xFFF + ((bits >> 13) & 1)
    return (bits & 0xFFFFE000).astype(np.uint32).view(np.float32)


@pytest.mark.parametrize("dtype", [FP32, FP16, BF16], ids=str)
@pytest.mark.parametrize(
    ("m", "n", "k", "alpha", "beta"),
    [(1, 1, 1, 1, 0), (1, 1, 500, 1, 0), (33, 17, 65, -0.5, 2), (64, 64, 99, 1, 0), (5, 6, 0, 1, 0.5), (7, 8, 9, 0, 1)],
)
def test_an_honest_result_passes(dtype, m, n, k, alpha, beta, rng) -> None:
    problem = Problem.dense(m, n, k, dtype=dtype, alpha=alpha, beta=beta)
    operands = operands_for(problem, rng)
    if beta == 0:
        operands["C"][:] = np.nan
    if alpha == 0:
        operands["A"][:] = np.nan
    operands["D"] = fp32_product(problem, operands)
    verdict = verify(problem, operands)
    assert verdict.correct, verdict
    assert verdict.misplaced == 0 and verdict.why == ""


def test_an_output_that_was_never_written_fails(rng) -> None:
    problem = Problem.dense(20, 30, 40)
    operands = operands_for(problem, rng)
    verdict = verify(problem, operands)
    assert not verdict.correct and verdict.misplaced == 600
    assert "600 of 600 elements" in verdict.why and "D[0, 0] = nan" in verdict.why


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0, 100.0])
def test_one_wrong_element_in_many_fails(value, rng) -> None:
    problem = Problem.dense(64, 64, 16)
    operands = operands_for(problem, rng)
    operands["D"] = fp32_product(problem, operands)
    row, col = np.unravel_index(np.abs(operands["D"]).argmax(), (64, 64))
    operands["D"][row, col] = value
    verdict = verify(problem, operands)
    assert not verdict.correct and f"D[{row}, {col}]" in verdict.why and "\n" not in verdict.why


def test_nan_and_inf_in_their_places_pass_and_a_wrong_sign_fails(rng) -> None:
    problem = Problem.dense(8, 9, 10)
    operands = operands_for(problem, rng)
    operands["A"][2, 3] = np.nan
    operands["A"][5, 4] = np.inf
    with np.errstate(invalid="ignore"):
        operands["D"] = fp32_product(problem, operands)
    assert verify(problem, operands).correct
    operands["D"][5] *= -1
    assert not verify(problem, operands).correct


def test_a_finite_value_where_nan_belongs_fails(rng) -> None:
    problem = Problem.dense(8, 9, 10)
    operands = operands_for(problem, rng)
    operands["D"] = fp32_product(problem, operands)
    operands["A"][2, 3] = np.nan
    assert verify(problem, operands).misplaced == 9


def test_fp16_overflow_must_be_infinite() -> None:
    problem = Problem.dense(1, 1, 4, dtype=FP16)
    operands = {"A": np.full((1, 4), 200, np.float16), "B": np.full((4, 1), 200, np.float16)}
    assert verify(problem, operands, np.array([[np.inf]], np.float16)).correct
    assert not verify(problem, operands, np.array([[65504]], np.float16)).correct


def test_tf32_rounded_passes_and_cut_off_fails(rng) -> None:
    problem = Problem.dense(96, 96, 128, precision="tf32")
    operands = operands_for(problem, rng)
    errors = {}
    for nearest in (True, False):
        a, b = (to_tf32(operands[role], nearest).astype(np.float64) for role in ("A", "B"))
        verdict = verify(problem, operands, (a @ b).astype(np.float32))
        errors[nearest] = verdict.error
        assert verdict.correct is nearest, verdict
    assert errors[True] == pytest.approx(2.94e-4, rel=0.1) and errors[False] > 6.5e-4


def test_an_error_of_a_few_roundings_too_many_fails(rng) -> None:
    problem = Problem.dense(64, 64, 64)
    operands = operands_for(problem, rng)
    exact = reference(problem, operands)
    noise = rng.standard_normal(exact.shape)
    assert verify(problem, operands, (exact * (1 + 1e-7 * noise)).astype(np.float32)).correct
    assert not verify(problem, operands, (exact * (1 + 1e-5 * noise)).astype(np.float32)).correct
    # fp16 accumulation, or an operand rounded to bf16, is far outside.
    rough = operands["A"].astype(BF16.numpy).astype(np.float64) @ operands["B"].astype(np.float64)
    assert not verify(problem, operands, rough.astype(np.float32)).correct


def test_integers_must_be_exact(rng) -> None:
    problem = Problem.dense(9, 9, 50, dtype=INT8, out_dtype=INT32)
    operands = {r: rng.integers(-128, 128, s).astype(np.int8) for r, s in (("A", (9, 50)), ("B", (50, 9)))}
    exact = operands["A"].astype(np.int32) @ operands["B"].astype(np.int32)
    assert tolerance_for(problem) == 0 and verify(problem, operands, exact).correct
    exact[4, 4] += 1
    assert not verify(problem, operands, exact).correct


def test_single_products_of_three_tf32_parts_pass_and_of_one_fail(rng) -> None:
    failed = 0
    for _ in range(300):
        problem = Problem.dense(1, 1, 1, precision="tf32x3")
        operands = operands_for(problem, rng)
        a, b = operands["A"], operands["B"]
        high_a, high_b = to_tf32(a, True), to_tf32(b, True)
        low_a, low_b = to_tf32(a - high_a, True), to_tf32(b - high_b, True)
        three = sum(x.astype(np.float64) * y for x, y in ((high_a, low_b), (low_a, high_b), (high_a, high_b)))
        operands["D"] = three.astype(np.float32)
        assert verify(problem, operands).correct
        operands["D"] = (high_a.astype(np.float64) * high_b).astype(np.float32)
        failed += not verify(problem, operands).correct
    assert failed > 290
