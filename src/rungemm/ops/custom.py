"""The library as torch operators: what torch.compile, vmap, dispatch modes and exporters see.

``rungemm::gemm`` returns a new dense row-major tensor, always, so the stand-in for tracing knows its strides;
``rungemm::gemm_out`` writes one that is given. An epilogue travels as plain values, for operators take nothing else.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from ..problem import Epilogue
from .autograd import gradients, kept, mapped
from .execute import execute, result_shape

__all__ = ["gemm", "gemm_out", "through_operator"]

_SCALARS = (
    "float alpha, float beta, str precision, str bias_kind, str activation, bool gated, float scale, "
    "ScalarType out_dtype"
)
_library = torch.library.Library("rungemm", "DEF")
_library.define(f"gemm(Tensor a, Tensor b, Tensor? c, Tensor? bias, {_SCALARS}) -> Tensor")
_library.define(f"gemm_out(Tensor a, Tensor b, Tensor? c, Tensor? bias, Tensor(a!) out, {_SCALARS}) -> ()")


def epilogue_values(epilogue: Epilogue | None) -> tuple[str, str, bool, float]:
    """An epilogue as an operator's arguments: bias kind, activation, gated, scale; empty words for none."""
    if epilogue is None:
        return "", "", False, 1.0
    return epilogue.bias or "", epilogue.activation or "", epilogue.gated, epilogue.scale


def _epilogue(bias_kind: str, activation: str, gated: bool, scale: float) -> Epilogue | None:
    kind: Any = bias_kind or None
    found = Epilogue(kind, activation or None, gated, scale)
    return None if found.is_identity else found


def _gemm(a: Tensor, b: Tensor, c: Tensor | None, bias: Tensor | None, *scalars: Any) -> Tensor:
    alpha, beta, precision, *values, out_dtype = scalars
    return execute(a, b, c, bias, None, alpha, beta, precision, _epilogue(*values), out_dtype)


def _gemm_out(a: Tensor, b: Tensor, c: Tensor | None, bias: Tensor | None, out: Tensor, *scalars: Any) -> None:
    alpha, beta, precision, *values, out_dtype = scalars
    execute(a, b, c, bias, out, alpha, beta, precision, _epilogue(*values), out_dtype)


_library.impl("gemm", _gemm, "CompositeExplicitAutograd")
_library.impl("gemm_out", _gemm_out, "CompositeExplicitAutograd")


@torch.library.register_fake("rungemm::gemm", lib=_library)
def _fake_gemm(a: Tensor, b: Tensor, c: Tensor | None, bias: Tensor | None, *scalars: Any) -> Tensor:
    return a.new_empty(result_shape(a, b, scalars[5]), dtype=scalars[7])


@torch.library.register_fake("rungemm::gemm_out", lib=_library)
def _fake_gemm_out(a: Tensor, b: Tensor, c: Tensor | None, bias: Tensor | None, out: Tensor, *scalars: Any) -> None:
    return None


gemm = torch.ops.rungemm.gemm
gemm_out = torch.ops.rungemm.gemm_out


def through_operator(
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
    """``rungemm::gemm`` with an epilogue as the library has it."""
    return gemm(a, b, c, bias, alpha, beta, precision, *epilogue_values(epilogue), out_dtype)


def _set_up(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    a, b, c, bias, alpha, beta, precision, *values, _ = inputs
    ctx.scalars = alpha, beta, precision, _epilogue(*values)
    ctx.types = None if c is None else c.dtype, None if bias is None else bias.dtype
    ctx.save_for_backward(*kept(ctx.needs_input_grad, ctx.scalars[3], a, b, c, bias))


def _backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    alpha, beta, precision, epilogue = ctx.scalars
    needed = ctx.needs_input_grad[:4]
    found = gradients(through_operator, grad, ctx.saved_tensors, ctx.types, alpha, beta, precision, epilogue, needed)
    return (*found, *(None,) * 8)


def _vmap(info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> tuple[Tensor, int]:
    alpha, beta, precision, *values, out_dtype = arguments[4:]
    operands: Any = arguments[:4]
    return mapped(
        through_operator, info.batch_size, in_dims, operands, alpha, beta, precision, _epilogue(*values), out_dtype
    )


torch.library.register_autograd("rungemm::gemm", _backward, setup_context=_set_up, lib=_library)
torch.library.register_vmap("rungemm::gemm", _vmap, lib=_library)


@register_flop_formula([gemm, gemm_out])
def _flops(a: Any, b: Any, *arguments: Any, **keywords: Any) -> int:
    """2 M N K a batch, from the shapes of A and B."""
    return 2 * prod(a) * int(b[-1])
