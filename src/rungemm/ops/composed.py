"""What is not ours (float64, complex, sparse, tensors of other classes): the same formula of torch's own functions."""

from __future__ import annotations

import torch
from torch import Tensor

from ..problem import Epilogue, ProblemError
from .fallback import apply_epilogue
from .far import near
from .shapes import words

__all__ = ["composed", "finished"]


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
    if a.is_cuda and a.layout is torch.strided:
        a, b = near(a), near(b)
    if out is not None and alpha == 1 and c is None and epilogue is None and out.dtype == a.dtype:
        return torch.matmul(a, b, out=out)
    value = torch.matmul(a, b)
    if not (value.is_floating_point() or value.is_complex()):
        # Whole numbers leave the type as it is, as in torch.
        alpha, beta = (int(x) if x == int(x) else x for x in (alpha, beta))
    if alpha != 1:
        value = torch.zeros_like(value) if alpha == 0 else alpha * value
    if c is not None and beta != 0:
        value = value + (c if beta == 1 else beta * c)
    if epilogue is not None:
        value = finished(value, a, b, bias, epilogue)
    if out is None:
        return value if out_dtype is None else value.to(out_dtype)
    if out.shape != value.shape:
        raise ProblemError(f"out is {words(out)} and the result {words(value)}: pass that shape")
    return out.copy_(value)


def finished(value: Tensor, a: Tensor, b: Tensor, bias: Tensor | None, epilogue: Epilogue) -> Tensor:
    """:func:`apply_epilogue` on ``a @ b`` in the user's shape, in which a vector's extent of 1 is gone."""
    if a.dim() == 1:
        value = value.unsqueeze(-1 if b.dim() == 1 else -2)
    if b.dim() == 1:
        value = value.unsqueeze(-1)
    value = apply_epilogue(value, bias, epilogue)
    if b.dim() == 1:
        value = value.squeeze(-1)
    return value.squeeze(-1 if b.dim() == 1 else -2) if a.dim() == 1 else value
