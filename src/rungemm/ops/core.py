"""One product with autograd: straight to the launch where nothing watches, as an operator where something does."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ..problem import Epilogue
from . import custom
from .autograd import gradients, kept, mapped, without_bias
from .composed import composed
from .execute import execute
from .fallback import apply_epilogue

__all__ = ["PLAIN", "is_memory", "product", "watched"]

PLAIN = frozenset((Tensor, torch.nn.Parameter))
"""Types of tensors that are what they seem: memory with nothing behind it."""

_transforms = torch._C._functorch.peek_interpreter_stack
_legacy = torch._C._functorch.is_legacy_batchedtensor
_modes = torch._C._len_torch_dispatch_stack
_included, _PRE_DISPATCH = torch._C._dispatch_tls_is_dispatch_key_included, torch._C.DispatchKey.PreDispatch
_tracer = torch._C._get_tracing_state


def watched(*tensors: Tensor | None) -> bool:
    """Whether something must see the call as an operator: a compiler, a transform, a dispatch mode, a subclass."""
    return (
        torch.compiler.is_compiling()
        or _transforms() is not None
        or _modes() > 0
        or _included(_PRE_DISPATCH)  # where torch keeps the modes of make_fx(pre_dispatch=True)
        or _tracer() is not None
        or any(x is not None and (type(x) not in PLAIN or _legacy(x)) for x in tensors)
    )


def is_memory(x: Tensor) -> bool:
    """Whether a plain tensor's elements lie where its strides say: not sparse, nor lazily negated or zero."""
    return x.layout is torch.strided and not x.is_neg() and not x._is_zerotensor()


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
    if b.device != a.device:
        raise RuntimeError(f"A is on {a.device} and B on {b.device}: what was saved for a gradient came back elsewhere")
    if forward_ad._current_level >= 0 and out is None and not torch.compiler.is_compiling():
        # A gradient that is derived forward: torch's own functions carry it, a launch of ours would drop it.
        return composed(a, b, c, bias, alpha, beta, epilogue, None, out_dtype)
    wanted = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (a, b, c, bias))
    rest: Epilogue | None = None
    if wanted and epilogue is not None:
        # The activation's derivative needs V: computed once and kept, as torch itself does, rather than twice.
        rest = without_bias(epilogue)
        epilogue = Epilogue(epilogue.bias) if epilogue.bias is not None else None
    if watched(a, b, c, bias, out):
        if out is not None:
            values = (alpha, beta, precision, *custom.epilogue_values(epilogue), out_dtype)
            custom.gemm_out(a, b, c, bias, out, *values)
            return out
        # The transforms of torch.func derive and map a Function, the compiler an operator.
        transformed = not torch.compiler.is_compiling() and _transforms() is not None
        call = _Product.apply if transformed else custom.through_operator
        value = call(a, b, c, bias, alpha, beta, precision, epilogue, out_dtype)
    elif wanted:
        value = _Product.apply(a, b, c, bias, alpha, beta, precision, epilogue, out_dtype)
    else:
        return execute(a, b, c, bias, out, alpha, beta, precision, epilogue, out_dtype)
    return value if rest is None else apply_epilogue(value, None, rest)


def _again(a: Tensor, b: Tensor, c: Tensor | None, bias: Tensor | None, *rest: Any) -> Tensor:
    return product(a, b, c, bias, None, *rest)


def _launched(a: Tensor, b: Tensor, c: Tensor | None, bias: Tensor | None, *rest: Any) -> Tensor:
    return execute(a, b, c, bias, None, *rest)


class _Product(torch.autograd.Function):
    """The product in a graph; its derivatives are products of ours and can be derived themselves."""

    @staticmethod
    def forward(
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
        # A tracer beneath the transforms must see the operator: the launch itself leaves no trace.
        run = custom.through_operator if watched(a, b, c, bias) else _launched
        return run(a, b, c, bias, alpha, beta, precision, epilogue, out_dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        a, b, c, bias, *scalars, _ = inputs
        ctx.scalars = scalars
        ctx.types = None if c is None else c.dtype, None if bias is None else bias.dtype
        ctx.save_for_backward(*kept(ctx.needs_input_grad, scalars[3], a, b, c, bias))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        alpha, beta, precision, epilogue = ctx.scalars
        needed = ctx.needs_input_grad[:4]
        found = gradients(_again, grad, ctx.saved_tensors, ctx.types, alpha, beta, precision, epilogue, needed)
        return (*found, *(None,) * 5)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> tuple[Tensor, int]:  # type: ignore[override]
        operands: Any = arguments[:4]
        return mapped(_again, info.batch_size, in_dims, operands, *arguments[4:])
