"""The derivatives and the vmap rule, written once, as products that go through the library again.

With ``V = alpha * A @ B + beta * C + bias`` and the gradient G of V: ``dA = alpha * G @ B'``, ``dB = alpha * A' @ G``,
``dC = beta * G``, ``dbias`` = G's sum over what the bias was broadcast along (primes: transposed).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..problem import Epilogue
from .fallback import activate

__all__ = ["Call", "gradients", "kept", "mapped", "without_bias"]

Call = Callable[
    [Tensor, Tensor, "Tensor | None", "Tensor | None", float, float, str, "Epilogue | None", torch.dtype], Tensor
]
"""A product as :func:`.execute.execute` has it, ``out`` left out, that can be derived and mapped again."""


def without_bias(epilogue: Epilogue | None) -> Epilogue | None:
    """What of an epilogue comes after V; ``None`` if nothing does."""
    if epilogue is None:
        return None
    rest = Epilogue(None, epilogue.activation, epilogue.gated, epilogue.scale)
    return None if rest.is_identity else rest


def kept(
    needed: tuple[bool, ...], epilogue: Epilogue | None, a: Tensor, b: Tensor, c: Tensor | None, bias: Tensor | None
) -> tuple[Tensor | None, ...]:
    """What the gradients that are needed take of A, B, C and the bias: a frozen weight's activations are not held."""
    if without_bias(epilogue) is not None:
        return a, b, c, bias
    return a if needed[1] else None, b if needed[0] else None, None, None


def gradients(
    call: Call,
    grad: Tensor,
    operands: tuple[Any, Any, Tensor | None, Tensor | None],
    types: tuple[torch.dtype | None, torch.dtype | None],
    alpha: float,
    beta: float,
    precision: str,
    epilogue: Epilogue | None,
    needed: tuple[bool, ...],
) -> tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]:
    """The gradients of A, B, C and the bias that are needed, from that of the result.

    Args:
        operands: A, B, C and the bias, as :func:`kept` chose.
        types: the types of C and the bias.
    """
    a, b, c, bias = operands
    kind = epilogue.bias if epilogue is not None else None
    rest = without_bias(epilogue)
    if rest is not None:
        value = call(a, b, c, bias, alpha, beta, precision, None if kind is None else Epilogue(kind), grad.dtype)
        grad = _before_epilogue(grad, value, rest)
    grad_a = grad_b = grad_c = grad_bias = None
    if needed[0] or needed[1]:
        dtype = (a if a is not None else b).dtype  # A and B are of one type
        cast = grad if grad.dtype == dtype else grad.to(dtype)
        if needed[0]:
            grad_a = call(cast, b.mT, None, None, alpha, 0.0, precision, None, dtype)
        if needed[1]:
            grad_b = call(a.mT, cast, None, None, alpha, 0.0, precision, None, dtype)
    if needed[2]:
        grad_c = (grad if beta == 1 else grad * beta).to(types[0])
    if needed[3]:
        kept = grad.dim() - (2 if kind == "col" else 1)
        grad_bias = grad.sum([axis for axis in range(grad.dim()) if axis != kept]).to(types[1])
    return grad_a, grad_b, grad_c, grad_bias


def _before_epilogue(grad: Tensor, value: Tensor, epilogue: Epilogue) -> Tensor:
    """The gradient of V from that of ``scale * act(V)`` or of its gated form; the bias is in V."""
    if epilogue.scale != 1.0:
        grad = grad * epilogue.scale
    if not epilogue.gated:
        return _before_activation(grad, value, epilogue.activation)
    half = value.shape[-1] // 2
    left, right = value[..., :half], value[..., half:]
    of_left = _before_activation(grad * right, left, epilogue.activation)
    return torch.cat((of_left, grad * activate(left, epilogue.activation)), -1)


def _before_activation(grad: Tensor, value: Tensor, name: str | None) -> Tensor:
    aten = torch.ops.aten
    if name is None:
        return grad
    if name == "relu":
        return aten.threshold_backward(grad, value, 0)
    if name == "silu":
        if not torch.is_grad_enabled():
            return aten.silu_backward(grad, value)
        sigmoid = torch.sigmoid(value)  # torch's operator has no derivative itself
        return grad * sigmoid * (1 + value * (1 - sigmoid))
    return aten.gelu_backward(grad, value, approximate="tanh" if name == "gelu_tanh" else "none")


def mapped(
    call: Call,
    size: int,
    in_dims: tuple[Any, ...],
    operands: tuple[Tensor, Tensor, Tensor | None, Tensor | None],
    alpha: float,
    beta: float,
    precision: str,
    epilogue: Epilogue | None,
    out_dtype: torch.dtype,
) -> tuple[Tensor, int]:
    """vmap: one more batch. Everything becomes 3-D with the mapped dimension first; a mapped bias joins C."""
    a_at, b_at, c_at, bias_at = in_dims[:4]
    inner = operands[0].dim() - (a_at is not None) == 3  # a batch already, without the mapped dimension
    a, b, c, bias = (
        x if x is None or at is None else x.movedim(at, 0) for x, at in zip(operands, in_dims[:4], strict=True)
    )
    assert a is not None and b is not None

    def merged(x: Tensor | None, at: Any) -> Tensor | None:
        if x is None:
            return None
        x = x if at is not None else x.expand(size, *x.shape)
        return x.flatten(0, 1) if inner else x

    if bias is not None and bias_at is not None and epilogue is not None:
        m, n = a.shape[-2], b.shape[-1]
        added = bias[:, :, None] if epilogue.bias == "col" else bias[:, None, :]
        added = added[:, None] if inner else added
        if c is not None and beta != 0:
            added = beta * (c if c_at is not None else c.expand(size, *c.shape)) + added
        batch = (a.shape[0 if a_at is None else 1],) if inner else ()
        c, c_at, beta, bias, epilogue = added.expand(size, *batch, m, n), 0, 1.0, None, without_bias(epilogue)
    full_a, full_b = merged(a, a_at), merged(b, b_at)
    assert full_a is not None and full_b is not None
    result = call(full_a, full_b, merged(c, c_at), bias, alpha, beta, precision, epilogue, out_dtype)
    return (result.unflatten(0, (size, -1)) if inner else result), 0
