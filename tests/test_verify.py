"""Right is told from wrong: what passes must be a correctly rounded product, and each kind of mistake must fail."""

from __future__ import annotations

import numpy as np
import pytest

from rungemm.operands import matrix_of, problem_of_arrays
from rungemm.problem import ProblemError
from rungemm.verify import reference, verify


def product(rng, m, n, k, alpha=1.0, beta=0.0):
    """A problem, its operands, and D as an fp32 GEMM would write it."""
    a, b = rng.standard_normal((m, k), dtype=np.float32), rng.standard_normal((k, n), dtype=np.float32)
    c, d = rng.standard_normal((m, n), dtype=np.float32), np.empty((m, n), np.float32)
    for row in range(k):  # one product after the other, in fp32: the rounding that a kernel has
        d[...] = (d if row else 0) + a[:, row : row + 1] * b[row]
    d[...] = np.float32(alpha) * d + np.float32(beta) * c
    return problem_of_arrays(a, b, c, d, alpha=alpha, beta=beta), {"A": a, "B": b, "C": c, "D": d}


@pytest.mark.parametrize("shape", [(1, 1, 1), (7, 5, 3), (64, 48, 300), (1, 1, 4000)])
def test_an_fp32_product_passes(rng, shape):
    problem, operands = product(rng, *shape, alpha=1.5, beta=-0.5)
    verdict = verify(problem, operands)
    assert verdict.correct, verdict.why


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_one_stray_nan_or_inf_fails(rng, value):
    problem, operands = product(rng, 20, 30, 10)
    operands["D"][3, 4] = value
    verdict = verify(problem, operands)
    assert not verdict.correct and verdict.misplaced == 1 and "D[3, 4]" in verdict.why


def test_nan_and_inf_where_they_belong_pass_and_elsewhere_fail(rng):
    problem, operands = product(rng, 20, 30, 10)
    operands["A"][3, 4], operands["B"][2, 7] = np.nan, np.inf
    with np.errstate(all="ignore"):
        operands["D"][...] = reference(problem, operands)
    assert np.isnan(operands["D"][3]).all() and np.isinf(operands["D"][0, 7])
    assert verify(problem, operands).correct
    operands["D"][0, 7] *= -1  # the wrong infinity
    assert verify(problem, operands).misplaced == 1


def test_an_element_never_written_fails(rng):
    problem, operands = product(rng, 20, 30, 10)
    operands["D"][...] = np.nan
    assert verify(problem, operands).misplaced == 600


def test_one_product_left_out_of_one_element_fails(rng):
    problem, operands = product(rng, 16, 16, 64)
    operands["D"][5, 6] -= 2.0
    verdict = verify(problem, operands)
    assert not verdict.correct and "D[5, 6]" in verdict.why


def test_precision_of_half_fails(rng):
    """Operands rounded to fp16 are no fp32 product."""
    problem, operands = product(rng, 64, 64, 64)
    operands["D"][...] = operands["A"].astype(np.float16).astype(np.float32) @ operands["B"]
    assert not verify(problem, operands).correct


def test_blas_rules_for_zero_scalars(rng):
    problem, operands = product(rng, 4, 5, 6, alpha=0.0, beta=0.0)
    operands["A"][...] = operands["B"][...] = operands["C"][...] = np.nan
    assert (reference(problem, operands) == 0).all()
    operands["D"][...] = 0
    assert verify(problem, operands).correct


def test_overflow_is_an_infinity(rng):
    problem, operands = product(rng, 4, 5, 2)
    operands["A"][...] = operands["B"][...] = 1e30
    operands["D"][...] = np.inf
    assert verify(problem, operands).correct


def test_matrix_of_any_strides():
    x = np.zeros((20, 30), np.float32)
    for view, strides in (
        (x, (30, 1)), (x.T, (1, 30)), (x[::2, ::3], (60, 3)), (x[::-1], (-30, 1)),
        (np.broadcast_to(x[0], (9, 30)), (0, 1)),
    ):  # fmt: skip
        matrix = matrix_of("A", view)
        assert (matrix.rows, matrix.cols) == view.shape
        assert (matrix.row_stride, matrix.col_stride) == strides
    assert [matrix_of("A", x[:, i:]).alignment for i in range(1, 5)] == [4, 8, 4, 16]


def test_what_is_no_matrix_is_refused():
    for bad, says in (
        (np.zeros(3, np.float32), "1-D"),
        (np.zeros((2, 2), complex), "complex128"),
        (np.zeros(4, "f4,u1")["f0"].reshape(2, 2), "strides"),
    ):
        with pytest.raises(ProblemError, match=says):
            matrix_of("A", bad)
