"""Tensors become problems; what is no GEMM is refused in one line that says what to do."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from rungemm.dtypes import BF16, FP32  # noqa: E402
from rungemm.gpu import problem_of  # noqa: E402
from rungemm.problem import ProblemError  # noqa: E402


def test_extents_strides_and_alignment() -> None:
    base = torch.empty(64 * 64 + 1)
    a = base[1 : 1 + 20 * 32].view(20, 32)[:, :7]
    b = torch.empty(9, 7, dtype=torch.float32).t()
    c, d = torch.empty(20, 9), torch.empty(20, 18)[:, ::2]
    problem = problem_of(a, b, c, d, alpha=3, beta=0.5, precision="tf32")
    assert (problem.m, problem.n, problem.k, problem.batch) == (20, 9, 7, 1)
    assert (problem.a.row_stride, problem.a.col_stride, problem.a.alignment) == (32, 1, 4)
    assert (problem.b.row_stride, problem.b.col_stride, problem.b.alignment) == (1, 7, 16)
    assert (problem.d.row_stride, problem.d.col_stride) == (18, 2)
    assert problem.c is not None and problem.layout == "NT" and problem.alpha == 3.0 and problem.precision == "tf32"
    assert problem.a.dtype == FP32
    assert problem_of(a, b, c, d).c is None, "with beta=0, C is not looked at"
    assert problem_of(a.bfloat16(), b.bfloat16(), None, d).a.dtype == BF16


def test_batches() -> None:
    a, b, d = torch.empty(5, 3, 4), torch.empty(4, 6), torch.empty(5, 3, 6)
    problem = problem_of(a, b, None, d)
    assert problem.batch == 5 and problem.a.batch_stride == 12 and problem.b.batch_stride == 0
    with pytest.raises(ProblemError, match="B has 4 batches and another operand 5"):
        problem_of(a, torch.empty(4, 4, 6), None, d)
    with pytest.raises(ProblemError, match="D is 2-D"):
        problem_of(a, b, None, torch.empty(3, 6))


def test_empty_operands_are_problems() -> None:
    assert problem_of(torch.empty(0, 3), torch.empty(3, 4), None, torch.empty(0, 4)).is_empty
    assert problem_of(torch.empty(2, 0), torch.empty(0, 4), None, torch.empty(2, 4)).effective_k == 0


A, B, D = torch.empty(4, 5), torch.empty(5, 6), torch.empty(4, 6)
SQUARE = torch.empty(12, 12)


@pytest.mark.parametrize(
    ("a", "b", "d", "more", "message"),
    [
        ([[1.0]], B, D, {}, r"A is a list: pass a torch.Tensor"),
        (A[0], B, D, {}, r"A is 1-D \(5\)"),
        (A, torch.empty(4, 6), D, {}, r"K differs \(5 columns of A, 4 rows of B\)"),
        (A, B, torch.empty(6, 4), {}, r"D is 6x4; A @ B is 4x6"),
        (A.to_sparse(), B, D, {}, r"A is torch.sparse_coo.*to_dense"),
        (A.to(torch.complex64), B, D, {}, r"A: dtype complex64 is not supported.*fp32"),
        (A.to("meta"), B, D, {}, r"A is on meta and D on cpu"),
        (A, B, D, {"beta": 1.0}, r"beta is 1.0 but no C"),
        (A, B, D, {"alpha": torch.ones(1)}, r"alpha is a Tensor.*float\(alpha\)"),
        (A, B, D, {"precision": "half"}, r"precision 'half' is unknown"),
        (A, B, D[:, :1].expand(4, 6), {}, r"D has a stride of 0"),
        (SQUARE, torch.empty(12, 12), SQUARE, {}, r"D shares memory with A"),
        (torch.empty(12, 12), SQUARE, SQUARE.t(), {}, r"D shares memory with B"),
        (SQUARE[1:5, :5], B, SQUARE.flatten()[10:34].view(4, 6), {}, r"D shares memory with A"),
    ],
)
def test_what_is_no_gemm_is_refused_in_one_line(a, b, d, more, message) -> None:
    with pytest.raises(ProblemError, match=message) as caught:
        problem_of(a, b, None, d, **more)
    assert "\n" not in str(caught.value)


def test_interleaved_views_and_c_that_is_d_are_taken() -> None:
    both = torch.empty(8, 16)
    problem_of(both[:, :8], torch.empty(8, 8), None, both[:, 8:])
    d = torch.empty(4, 6)
    problem_of(A, B, d, d, beta=1.0)
    with pytest.raises(ProblemError, match="C and D overlap"):
        problem_of(torch.empty(6, 5), torch.empty(5, 12), SQUARE[1:7], SQUARE[:6], beta=1.0)
