"""From NumPy arrays to the problem they pose."""

from __future__ import annotations

import numpy as np

from .dtypes import dtype_named
from .problem import Matrix, Precision, Problem, ProblemError

__all__ = ["matrix_of", "problem_of_arrays"]


def matrix_of(operand: str, array: np.ndarray) -> Matrix:
    """The :class:`Matrix` that a 2-D array is: extent, element type, strides in elements, alignment of its first byte.

    Raises:
        ProblemError: not 2-D, a type that is none of ours, or strides that are no whole number of elements.
    """
    if array.ndim != 2:
        raise ProblemError(f"{operand} is {array.ndim}-D; a matrix is 2-D: reshape it")
    try:
        dtype = dtype_named(array.dtype)
    except ValueError as error:
        raise ProblemError(f"{operand}: {error}") from None
    steps = [divmod(stride, array.itemsize) for stride in array.strides]
    if any(rest for _, rest in steps):
        raise ProblemError(f"{operand} has strides of {array.strides} bytes, no multiple of {array.itemsize}: copy it")
    address = array.__array_interface__["data"][0]
    alignment = min(address & -address, 16) if address else 16
    return Matrix(array.shape[0], array.shape[1], dtype, steps[0][0], steps[1][0], 0, alignment)


def problem_of_arrays(
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray | None,
    d: np.ndarray,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    precision: Precision = "ieee",
) -> Problem:
    """``D = alpha * A @ B + beta * C`` for 2-D arrays with any strides: A (M, K), B (K, N), C and D (M, N).

    Raises:
        ProblemError: extents that do not agree, or an operand that is no matrix.
    """
    return Problem(
        a=matrix_of("A", a),
        b=matrix_of("B", b),
        c=None if c is None else matrix_of("C", c),
        d=matrix_of("D", d),
        alpha=alpha,
        beta=beta,
        precision=precision,
    )
