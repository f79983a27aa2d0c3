"""What TMA takes of a matrix, and what it would do to the memory around it."""

from __future__ import annotations

from rungemm.dtypes import BF16, FP32
from rungemm.kernels.hopper.operands import tma_reason
from rungemm.kernels.hopper.setup import set_up
from rungemm.problem import Matrix, Problem


def test_a_line_that_ends_inside_16_bytes_is_read_but_not_written() -> None:
    for dtype, n in ((FP32, 70), (BF16, 68), (FP32, 1)):
        matrix = Matrix(5, n, dtype, 72, 1)
        assert tma_reason(matrix, columns=False) is None
        assert "whole groups of 16 bytes" in (tma_reason(matrix, columns=False, written=True) or "")
    assert tma_reason(Matrix(5, 72, FP32, 80, 1), columns=False, written=True) is None


def test_a_d_of_one_element_is_stored_by_ordinary_instructions() -> None:
    assert set_up(Problem.dense(1, 1, 1, dtype=BF16), False).d is None
    assert set_up(Problem.dense(1, 129, 64, dtype=BF16), False).d is None
    assert set_up(Problem.dense(1, 128, 64, dtype=BF16), False).d is not None
    assert set_up(Problem.dense(128, 1, 64, dtype=BF16), True).d is not None
