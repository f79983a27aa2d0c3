"""The derivatives, written once: as products that go through the library again, so they can be derived again.

With ``V = alpha * A @ B + beta * C + bias`` and the gradient G of V: ``dA = alpha * G @ B'``, ``dB = alpha * A' @ G``,
``dC = beta * G``, ``dbias`` = G's sum over what the bias was broadcast along (primes: transposed).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..problem import Epilogue
from .fallback import activate

__all__ = ["Product", "epilogue_gradient", "linear_gradients"]

Product = Callable[[Tensor, Tensor, float, torch.dtype], Tensor]
"""``alpha * a @ b`` in a type, differentiable."""

Gradients = tuple["Tensor | None", "Tensor | None", "Tensor | None", "Tensor | None"]


def linear_gradients(
    product: Product,
    grad: Tensor,
    a: Tensor,
    b: Tensor,
    types: tuple[torch.dtype | None, torch.dtype | None],
    bias_kind: str,
    alpha: float,
    beta: float,
    needed: tuple[bool, bool, bool, bool],
) -> Gradients:
    """The gradients of A, B, C and the bias that are needed.

    Args:
        grad: G, of the result's shape, (M, N) or (B, M, N), like ``a`` and ``b``.
        types: the types of C and the bias.
        bias_kind: "row" or "col"; anything where there is no bias.
    """
    grad_a = grad_b = grad_c = grad_bias = None
    cast = grad if grad.dtype == a.dtype else grad.to(a.dtype)
    if needed[0]:
        grad_a = product(cast, b.mT, alpha, a.dtype)
    if needed[1]:
        grad_b = product(a.mT, cast, alpha, b.dtype)
    if needed[2]:
        grad_c = (grad if beta == 1 else grad * beta).to(types[0])
    if needed[3]:
        kept = grad.dim() - (2 if bias_kind == "col" else 1)
        over = [axis for axis in range(grad.dim()) if axis != kept]
        grad_bias = grad.sum(over).to(types[1])
    return grad_a, grad_b, grad_c, grad_bias


def epilogue_gradient(grad: Tensor, value: Tensor, epilogue: Epilogue) -> Tensor:
    """The gradient of V from that of ``scale * act(V)`` or of its gated form; the bias is in V."""
    if epilogue.scale != 1.0:
        grad = grad * epilogue.scale
    if not epilogue.gated:
        return _activation_gradient(grad, value, epilogue.activation)
    half = value.shape[-1] // 2
    left, right = value[..., :half], value[..., half:]
    of_left = _activation_gradient(grad * right, left, epilogue.activation)
    return torch.cat((of_left, grad * activate(left, epilogue.activation)), -1)


def _activation_gradient(grad: Tensor, value: Tensor, name: str | None) -> Tensor:
    aten = torch.ops.aten
    if name is None:
        return grad
    if name == "relu":
        return aten.threshold_backward(grad, value, 0)
    if name == "silu":
        return aten.silu_backward(grad, value)
    return aten.gelu_backward(grad, value, approximate="tanh" if name == "gelu_tanh" else "none")
