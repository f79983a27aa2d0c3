"""What cuBLAS does not take, as torch calls it: its interface counts in 32 bits. No torch, no GPU."""

from __future__ import annotations

from ..kernels.plan import INT32_MAX
from ..problem import Matrix, Problem

__all__ = ["cublas_refuses"]


def cublas_refuses(problem: Problem) -> str | None:
    """Why torch's call of cuBLAS would raise for this problem, or ``None`` if it would not.

    m, n, k, the count of products and each leading dimension are an int there (cublasGemmEx and its kin without "_64",
    which torch 2.13 calls). Distances between the products of a batch are 64 bits wide. C does not count: torch copies
    it into the result first.
    """
    extents = (("M", problem.m), ("N", problem.n), ("K", problem.effective_k), ("batch", problem.batch))
    for name, extent in extents:
        if extent > INT32_MAX:
            return f"{name} is {extent}: cuBLAS takes up to {INT32_MAX}"
    for name, matrix in (("A", problem.a), ("B", problem.b), ("D", problem.d)):
        if (pitch := _pitch(matrix)) > INT32_MAX:
            return f"the pitch of {name} is {pitch} elements: cuBLAS takes up to {INT32_MAX}"
    return None


def _pitch(matrix: Matrix) -> int:
    """Elements between lines of neighbours; 0 where there is one line, or none whose elements are neighbours.

    The latter torch makes dense itself.
    """
    if matrix.col_stride == 1 and matrix.rows > 1:
        return matrix.row_stride
    return matrix.col_stride if matrix.row_stride == 1 and matrix.cols > 1 else 0
