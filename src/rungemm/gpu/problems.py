"""From torch tensors to a :class:`~rungemm.problem.Problem`, with errors that say what to do."""

from __future__ import annotations

import numbers

import torch

from ..dtypes import DType, dtype_named
from ..problem import Epilogue, Matrix, Precision, Problem, ProblemError

__all__ = ["matrix_of", "problem_of"]

_TYPES: dict[torch.dtype, DType] = {}


def problem_of(
    a: torch.Tensor,
    b: torch.Tensor,
    c: torch.Tensor | None,
    d: torch.Tensor,
    alpha: float = 1.0,
    beta: float = 0.0,
    precision: Precision = "ieee",
    epilogue: Epilogue | None = None,
) -> Problem:
    """What ``d = epilogue(alpha * a @ b + beta * c)`` asks.

    Args:
        a: M x K, any strides, with a leading batch dimension or without.
        b: K x N, likewise; a 2-D operand beside a 3-D one is used for every batch.
        c: M x N, or ``None``; looked at only if ``beta`` is not 0. May be ``d`` itself.
        d: M x N, written; must share no memory with ``a`` or ``b``.

    Raises:
        ProblemError: the operands do not make a GEMM: the message names the operand, its value and the remedy.
    """
    operands = {"A": a, "B": b, "D": d}
    for name, value in (("alpha", alpha), ("beta", beta)):
        if not isinstance(value, numbers.Real):
            raise ProblemError(f"{name} is a {type(value).__name__}: pass a Python number, e.g. float({name})")
    alpha, beta = float(alpha), float(beta)
    if beta != 0:
        if c is None:
            raise ProblemError(f"beta is {beta} but no C was given: pass C, or beta=0")
        operands["C"] = c
    for name, operand in operands.items():
        _check_tensor(name, operand, d)
    batched = [operand.shape[0] for operand in operands.values() if operand.dim() == 3]
    batch = max(batched, default=1)
    for name, operand in operands.items():
        if operand.dim() == 3 and operand.shape[0] != batch:
            raise ProblemError(f"{name} has {operand.shape[0]} batches and another operand {batch}: make them equal")
    if batched and d.dim() == 2:
        raise ProblemError(f"D is 2-D ({_shape(d)}) for {batch} products: pass D with {batch} batches")
    problem = Problem(
        a=matrix_of("A", a),
        b=matrix_of("B", b),
        c=matrix_of("C", operands["C"]) if "C" in operands else None,
        d=matrix_of("D", d),
        batch=batch,
        alpha=alpha,
        beta=beta,
        precision=precision,
        epilogue=epilogue,
    )
    _check_written(operands)
    return problem


def matrix_of(name: str, tensor: torch.Tensor) -> Matrix:
    """One operand, 2-D or batched; ``name`` is for the error.

    Raises:
        ProblemError: an element type that no kernel here knows.
    """
    dtype = _TYPES.get(tensor.dtype)
    if dtype is None:
        try:
            dtype = _TYPES[tensor.dtype] = dtype_named(tensor.dtype)
        except ValueError as error:
            raise ProblemError(f"{name}: {error}; convert it, e.g. {name}.float()") from None
    strides = tensor.stride()
    address = tensor.data_ptr()
    return Matrix(
        rows=tensor.shape[-2],
        cols=tensor.shape[-1],
        dtype=dtype,
        row_stride=strides[-2],
        col_stride=strides[-1],
        batch_stride=strides[0] if tensor.dim() == 3 else 0,
        alignment=min(address & -address, 16) if address else 16,
    )


def _check_tensor(name: str, operand: torch.Tensor, d: torch.Tensor) -> None:
    if not isinstance(operand, torch.Tensor):
        raise ProblemError(f"{name} is a {type(operand).__name__}: pass a torch.Tensor, e.g. torch.as_tensor({name})")
    if operand.layout != torch.strided:
        raise ProblemError(f"{name} is {operand.layout}: pass a dense tensor, e.g. {name}.to_dense()")
    if operand.dim() not in (2, 3):
        raise ProblemError(f"{name} is {operand.dim()}-D ({_shape(operand)}): pass a matrix, or a 3-D batch of them")
    if isinstance(d, torch.Tensor) and operand.device != d.device:
        raise ProblemError(f"{name} is on {operand.device} and D on {d.device}: move them to one device")


def _shape(tensor: torch.Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "a scalar"


def _check_written(operands: dict[str, torch.Tensor]) -> None:
    """D's elements must be distinct places, and none of them an element of A or B."""
    d = operands["D"]
    if any(stride == 0 and extent > 1 for stride, extent in zip(d.stride(), d.shape, strict=True)):
        raise ProblemError(f"D has a stride of 0 {tuple(d.stride())}: its elements share memory; pass D.contiguous()")
    for name in ("A", "B"):
        if _overlap(operands[name], d):
            raise ProblemError(f"D shares memory with {name}: pass another D, or {name}.clone()")
    c = operands.get("C")
    if c is not None and _overlap(c, d) and (c.data_ptr(), c.stride()) != (d.data_ptr(), d.stride()):
        raise ProblemError("C and D overlap without being the same matrix: pass another D, or C.clone()")


def _overlap(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether two tensors surely share an element: their spans meet and one of them fills its span.

    Two interleaved views (the left and the right half of a matrix) meet in span and share nothing; whether strided
    views share an element is a hard question in general and is not asked here.
    """
    if x.numel() == 0 or y.numel() == 0:
        return False
    first, last = _span(x)
    other_first, other_last = _span(y)
    if first > other_last or other_first > last:
        return False
    if x.data_ptr() == y.data_ptr():
        return True
    fills = first + x.numel() * x.element_size() > last, other_first + y.numel() * y.element_size() > other_last
    return (fills[0] and (first <= other_first <= last or first <= other_last <= last)) or (
        fills[1] and (other_first <= first <= other_last or other_first <= last <= other_last)
    )


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """Addresses of the first and of the last byte (torch's strides are never negative)."""
    reach = sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (reach + 1) * tensor.element_size() - 1
