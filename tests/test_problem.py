"""The Problem: BLAS's rules as data, and errors that name the operand."""

from __future__ import annotations

import pytest

from rungemm.dtypes import BF16, FP32, dtype_named
from rungemm.problem import Matrix, Problem, ProblemError


@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
def test_layout_letters_round_trip(layout: str) -> None:
    assert Problem.dense(8, 16, 32, layout=layout).layout == layout


def test_strided_operand_is_neither() -> None:
    problem = Problem(a=Matrix(4, 4, FP32, 8, 2), b=Matrix.dense(4, 4), c=None, d=Matrix.dense(4, 4))
    assert problem.layout == "XN"


def test_alpha_zero_and_empty_k_never_read_the_inputs() -> None:
    assert Problem.dense(4, 4, 4, alpha=0.0).effective_k == 0
    empty = Problem.dense(4, 4, 0, alpha=float("inf"))
    assert empty.effective_alpha == 0.0 and empty.flops == 0
    assert not Problem.dense(4, 4, 4, beta=0.0).reads_c


def test_counts() -> None:
    problem = Problem.dense(4092, 4092, 4092, beta=1.0)
    assert problem.flops == 2 * 4092**3
    assert problem.minimum_bytes == pytest.approx(268e6, rel=0.01)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Problem(Matrix.dense(2, 3), Matrix.dense(4, 5), None, Matrix.dense(2, 5)), "pass B with 3 rows"),
        (lambda: Problem(Matrix.dense(2, 3), Matrix.dense(3, 5), None, Matrix.dense(5, 2)), "D is 5x2; A @ B is 2x5"),
        (lambda: Problem(Matrix.dense(2, 3), Matrix.dense(3, 5), None, Matrix.dense(2, 5), beta=2.0), "no C was given"),
        (lambda: Problem.dense(-1, 2, 3), "M is -1"),
        (lambda: Problem.dense(1, 2, 3, layout="NX"), "layout 'NX' is unknown"),
        (lambda: Problem.dense(1, 2, 3, precision="fp4"), "precision 'fp4' is unknown"),  # type: ignore[arg-type]
    ],
)
def test_errors_name_operand_value_and_remedy(make, message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        make()


def test_problem_is_hashable_and_frozen() -> None:
    assert len({Problem.dense(2, 3, 4), Problem.dense(2, 3, 4), Problem.dense(2, 3, 5)}) == 2


def test_dtype_names() -> None:
    assert dtype_named("torch.bfloat16") is BF16 and dtype_named("float32") is FP32
    with pytest.raises(ValueError, match="dtype complex64 is not supported: use one of"):
        dtype_named("complex64")
