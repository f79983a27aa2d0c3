"""What is not ours (float64, complex, sparse, tensors of other classes): the same formula of torch's own functions."""

from __future__ import annotations

import torch
from torch import Tensor

from ..problem import Epilogue, ProblemError
from .arguments import overridden, target_of
from .fallback import apply_epilogue
from .far import near
from .shapes import result_of, words

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
    """``epilogue(alpha * a @ b + beta * c)`` by torch.matmul; zero scalars switch off as they do everywhere here.

    Raises:
        ProblemError: shapes of dense operands that do not go together, scalars that operands of whole numbers cannot
            take, a C or an ``out`` that does not fit the product.
    """
    dense = a.layout is torch.strided and b.layout is torch.strided and not overridden(a, b)
    result = result_of(a, b)[1] if dense else None
    # A sparse operand has no strides to be far apart.
    a, b = (near(x) if x.is_cuda and x.layout is torch.strided else x for x in (a, b))
    # torch.matmul (2.13) warns of a resized out where a vector stands before a matrix.
    bare = alpha == 1 and (c is None or beta == 0) and epilogue is None and (a.dim() > 1 or b.dim() != 2)
    if out is not None and bare and out.dtype == a.dtype and result == tuple(out.shape) and _apart(out, a, b):
        return torch.matmul(a, b, out=out)
    value = torch.matmul(a, b)
    if not (value.is_floating_point() or value.is_complex()):
        # Whole numbers leave the type as it is, as in torch.
        alpha, beta = _whole("alpha", alpha, value), _whole("beta", beta, value)
    if alpha != 1:
        value = torch.zeros_like(value) if alpha == 0 else alpha * value
    if c is not None and beta != 0:
        _check_c(c, value)
        value = value + (c if beta == 1 else beta * c)
    if epilogue is not None:
        value = finished(value, a, b, bias, epilogue)
    if out is None:
        return value if out_dtype is None else value.to(out_dtype)
    if not _holds(out.dtype, value.dtype):
        raise ProblemError(f"out is {out.dtype} and the result {value.dtype}: pass one that can hold it")
    target_of(out, tuple(value.shape), tuple(value.shape))
    return out.copy_(value)


def _apart(out: Tensor, *operands: Tensor) -> bool:
    """Whether ``out`` surely has memory that no operand has: torch.matmul writes it while it reads them."""
    if torch.compiler.is_compiling() or any(type(x) is not Tensor for x in (out, *operands)):
        return False
    return out.untyped_storage()._cdata not in [x.untyped_storage()._cdata for x in operands]


def _holds(out: torch.dtype, value: torch.dtype) -> bool:
    """torch.can_cast, which a compiler does not trace: no imaginary part and no fraction is dropped."""
    return out.is_complex or (not value.is_complex and (out.is_floating_point or not value.is_floating_point))


def _whole(name: str, scalar: float, value: Tensor) -> float:
    if scalar % 1 != 0:
        raise ProblemError(f"{name} is {scalar} and the product {value.dtype}: pass a whole number, or convert A and B")
    return int(scalar)


def _check_c(c: Tensor, value: Tensor) -> None:
    """C is broadcast to the product, not the product to C."""
    fits = c.dim() <= value.dim() and all(
        x in (1, y) for x, y in zip(reversed(c.shape), reversed(value.shape), strict=False)
    )
    if not fits:
        raise ProblemError(f"C is {words(c)} and A @ B {words(value)}: pass C with that shape")
    if c.is_complex() and not value.is_complex():
        raise ProblemError(f"C is {c.dtype} and A @ B {value.dtype}: convert one")


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
