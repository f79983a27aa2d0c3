"""One product with autograd: straight to the launch where nothing watches, through the torch operator where it does."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..problem import Epilogue
from . import custom
from .autograd import linear_gradients
from .execute import execute
from .fallback import apply_epilogue

__all__ = ["PLAIN", "product", "watched"]

PLAIN = frozenset((Tensor, torch.nn.Parameter))
"""Types of tensors that are what they seem: memory with nothing behind it."""

_transforms = torch._C._functorch.peek_interpreter_stack
_modes = torch._C._len_torch_dispatch_stack
_tracer = torch._C._get_tracing_state


def watched(*tensors: Tensor | None) -> bool:
    """Whether something must see the call as an operator: a compiler, a transform, a dispatch mode, a subclass."""
    return (
        torch.compiler.is_compiling()
        or _transforms() is not None
        or _modes() > 0
        or _tracer() is not None
        or any(x is not None and type(x) not in PLAIN for x in tensors)
    )


def product(
    a: Tensor,
    b: Tensor,
    c: Tensor | None,
    bias: Tensor | None,
    out: Tensor | None,
    alpha: float,
    beta: float,
    precision: str,
    epilogue: Epilogue | None,
    out_dtype: torch.dtype,
) -> Tensor:
    """As :func:`.execute.execute`, differentiable where a gradient is wanted (then ``out`` is ``None``)."""
    if epilogue is not None and epilogue.is_identity:
        epilogue = None
    wanted = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (a, b, c, bias))
    rest: Epilogue | None = None
    if wanted and epilogue is not None:
        # The activation's derivative needs V: computed once and kept, as torch itself does, rather than twice.
        rest = Epilogue(None, epilogue.activation, epilogue.gated, epilogue.scale)
        epilogue = Epilogue(epilogue.bias) if epilogue.bias is not None else None
    if watched(a, b, c, bias, out):
        values = (alpha, beta, precision, *custom.epilogue_values(epilogue), out_dtype)
        if out is not None:
            custom.gemm_out(a, b, c, bias, out, *values)
            return out
        value = custom.gemm(a, b, c, bias, *values)
    elif wanted:
        value = _Product.apply(a, b, c, bias, alpha, beta, precision, epilogue, out_dtype)
    else:
        return execute(a, b, c, bias, out, alpha, beta, precision, epilogue, out_dtype)
    return value if rest is None or rest.is_identity else apply_epilogue(value, None, rest)


class _Product(torch.autograd.Function):
    """``alpha * A @ B + beta * C + bias`` in a graph; its derivatives are products of ours and derivable themselves."""

    @staticmethod
    def forward(
        ctx: Any,
        a: Tensor,
        b: Tensor,
        c: Tensor | None,
        bias: Tensor | None,
        alpha: float,
        beta: float,
        precision: str,
        epilogue: Epilogue | None,
        out_dtype: torch.dtype,
    ) -> Tensor:
        ctx.save_for_backward(a, b)
        ctx.types = None if c is None else c.dtype, None if bias is None else bias.dtype
        ctx.scalars = alpha, beta, precision, (epilogue.bias or "") if epilogue is not None else ""
        return execute(a, b, c, bias, None, alpha, beta, precision, epilogue, out_dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        a, b = ctx.saved_tensors
        alpha, beta, precision, kind = ctx.scalars

        def again(x: Tensor, y: Tensor, factor: float, dtype: torch.dtype) -> Tensor:
            return product(x, y, None, None, None, factor, 0.0, precision, None, dtype)

        needed = ctx.needs_input_grad[:4]
        return (*linear_gradients(again, grad, a, b, ctx.types, kind, alpha, beta, needed), *(None,) * 5)
