"""What is not ours (float64, complex, sparse, tensors of other classes): the same formula of torch's own functions."""

from __future__ import annotations

import torch
from torch import Tensor

from ..problem import Epilogue, ProblemError
from .fallback import apply_epilogue
from .shapes import words

__all__ = ["composed"]


def composed(
    a: Tensor,
    b: Tensor,
    c: Tensor | None,
    bias: Tensor | None,
    alpha: float,
    beta: float,
    epilogue: Epilogue | None,
    out: Tensor | None,
    out_dtype: torch.dtype | None,
) -> Tensor:
    """``epilogue(alpha * a @ b + beta * c)`` by torch.matmul; zero scalars switch off as they do everywhere here."""
    if out is not None and alpha == 1 and c is None and epilogue is None and out.dtype == a.dtype:
        return torch.matmul(a, b, out=out)
    value = torch.matmul(a, b)
    if alpha != 1:
        value = torch.zeros_like(value) if alpha == 0 else alpha * value
    if c is not None and beta != 0:
        value = value + (c if beta == 1 else beta * c)
    if epilogue is not None:
        value = apply_epilogue(value, bias, epilogue)
    if out is None:
        return value if out_dtype is None else value.to(out_dtype)
    if out.shape != value.shape:
        raise ProblemError(f"out is {words(out)} and the result {words(value)}: pass that shape")
    return out.copy_(value)
