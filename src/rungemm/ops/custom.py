"""The library as torch operators: what torch.compile, vmap, functional transforms and graph capture see.

``rungemm::gemm`` returns a new dense row-major tensor, always, so the stand-in for tracing knows its strides;
``rungemm::gemm_out`` writes one that is given. An epilogue travels as plain values, for operators take nothing else.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..problem import Epilogue
from .autograd import epilogue_gradient, linear_gradients
from .execute import execute, result_shape

__all__ = ["epilogue_values", "gemm", "gemm_out"]

_SCALARS = (
    "float alpha, float beta, str precision, str bias_kind, str activation, bool gated, float scale, "
    "ScalarType out_dtype"
)
_library = torch.library.Library("rungemm", "DEF")
_library.define(f"gemm(Tensor a, Tensor b, Tensor? c, Tensor? bias, {_SCALARS}) -> Tensor")
_library.define(f"gemm_out(Tensor a, Tensor b, Tensor? c, Tensor? bias, Tensor(a!) out, {_SCALARS}) -> ()")

Scalars = tuple[float, float, str, str, str, bool, float, torch.dtype]


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
    alpha, beta, precision, bias_kind, activation, gated, scale, out_dtype = scalars
    epilogue = _epilogue(bias_kind, activation, gated, scale)
    return execute(a, b, c, bias, None, alpha, beta, precision, epilogue, out_dtype)


def _gemm_out(a: Tensor, b: Tensor, c: Tensor | None, bias: Tensor | None, out: Tensor, *scalars: Any) -> None:
    alpha, beta, precision, bias_kind, activation, gated, scale, out_dtype = scalars
    epilogue = _epilogue(bias_kind, activation, gated, scale)
    execute(a, b, c, bias, out, alpha, beta, precision, epilogue, out_dtype)


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


def _set_up(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    a, b, c, bias, *scalars = inputs
    # C and the bias matter to the gradient only where V is computed again for an activation's derivative.
    again = _epilogue("", *scalars[4:7]) is not None
    ctx.scalars = scalars
    ctx.types = None if c is None else c.dtype, None if bias is None else bias.dtype
    ctx.save_for_backward(a, b, c if again else None, bias if again else None)


def _backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    a, b, c, bias = ctx.saved_tensors
    alpha, beta, precision, bias_kind, activation, gated, scale, _ = ctx.scalars
    rest = _epilogue("", activation, gated, scale)
    if rest is not None:
        value = gemm(a, b, c, bias, alpha, beta, precision, bias_kind, "", False, 1.0, grad.dtype)
        grad = epilogue_gradient(grad, value, rest)

    def product(x: Tensor, y: Tensor, factor: float, dtype: torch.dtype) -> Tensor:
        return gemm(x, y, None, None, factor, 0.0, precision, "", "", False, 1.0, dtype)

    needed = tuple(ctx.needs_input_grad[:4])
    gradients = linear_gradients(product, grad, a, b, ctx.types, bias_kind, alpha, beta, needed)  # type: ignore[arg-type]
    return (*gradients, *(None,) * 8)


torch.library.register_autograd("rungemm::gemm", _backward, setup_context=_set_up, lib=_library)


def _vmap(info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> tuple[Tensor, int]:
    """One more batch: everything becomes 3-D with the mapped dimension first; a mapped bias joins C."""
    tensors = list(arguments[:4])
    alpha, beta, precision, bias_kind, activation, gated, scale, out_dtype = arguments[4:]
    size = info.batch_size
    front = [x if x is None or at is None else x.movedim(at, 0) for x, at in zip(tensors, in_dims[:4], strict=True)]
    a, b, c, bias = front
    inner = (tensors[0].dim() - (in_dims[0] is not None)) == 3  # already a batch without the mapped dimension

    def mapped(x: Tensor | None, at: Any) -> Tensor | None:
        if x is None:
            return None
        x = x if at is not None else x.expand(size, *x.shape)
        return x.flatten(0, 1) if inner else x

    if bias is not None and in_dims[3] is not None:
        added = bias[:, :, None] if bias_kind == "col" else bias[:, None, :]
        added = added[:, None] if inner else added
        if c is None or beta == 0:
            c = added
        else:
            c = beta * (c if in_dims[2] is not None else c.expand(size, *c.shape)) + added
        m, n = a.shape[-2], b.shape[-1]
        batch = (a.shape[1],) if inner and in_dims[0] is not None else (a.shape[0],) if inner else ()
        c, beta, bias, bias_kind = c.expand(size, *batch, m, n), 1.0, None, ""
        c_at: Any = 0
    else:
        c_at = in_dims[2]
    result = gemm(
        mapped(a, in_dims[0]), mapped(b, in_dims[1]), mapped(c, c_at), bias,
        alpha, beta, precision, bias_kind, activation, gated, scale, out_dtype,
    )  # fmt: skip
    return (result.unflatten(0, (size, -1)) if inner else result), 0


torch.library.register_vmap("rungemm::gemm", _vmap, lib=_library)
