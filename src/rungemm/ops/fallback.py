"""The same products by torch's own operators: what runs on the CPU, where cuBLAS wins, and for types we have not.

This is also the readable definition of what the library computes:
``V = alpha * A @ B + beta * C``, plus bias, activation (or gate), scale, cast.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor

from ..problem import Epilogue

__all__ = [
    "activate",
    "apply_epilogue",
    "compute",
    "current_precision",
    "default_out_dtype",
    "finish",
    "linear_part",
    "torch_precision",
]

_FP8 = tuple(getattr(torch, name) for name in ("float8_e4m3fn", "float8_e5m2"))


def default_out_dtype(dtype: torch.dtype) -> torch.dtype:
    """The result's type where none is asked for: int32 for int8, bfloat16 for fp8, else the operands' own."""
    if dtype == torch.int8:
        return torch.int32
    return torch.bfloat16 if dtype in _FP8 else dtype


def compute(
    a: Tensor,
    b: Tensor,
    c: Tensor | None,
    bias: Tensor | None,
    alpha: float,
    beta: float,
    epilogue: Epilogue | None,
    out_dtype: torch.dtype,
    precision: str | None = None,
) -> Tensor:
    """The whole problem: ``a`` (M, K) or (B, M, K), ``b`` likewise, ``c`` (M, N) or (B, M, N), ``bias`` a vector.

    Returns a new dense tensor. ``beta == 0`` never reads C, ``alpha == 0`` or ``K == 0`` never reads A and B.
    """
    fused_bias = bias if epilogue is not None and epilogue.bias == "row" else None
    # The types are settled by now: autocast, which acts on the public functions' arguments, must not act again here.
    kind = a.device.type  # "meta" has no autocast of its own
    casts = torch._C._is_any_autocast_enabled() and torch.amp.is_autocast_available(kind)
    with torch.amp.autocast(kind, enabled=False) if casts else nullcontext():
        value = linear_part(a, b, c, fused_bias, alpha, beta, out_dtype, precision)
        if epilogue is not None:
            value = apply_epilogue(value, None if fused_bias is not None else bias, epilogue)
        return value.to(out_dtype)


def linear_part(
    a: Tensor,
    b: Tensor,
    c: Tensor | None,
    bias: Tensor | None,
    alpha: float,
    beta: float,
    out_dtype: torch.dtype,
    precision: str | None = None,
) -> Tensor:
    """``alpha * a @ b + beta * c + bias`` (a row bias), in ``out_dtype``."""
    if a.dim() != b.dim():
        batch = (a if a.dim() == 3 else b).shape[0]
        a, b = (x if x.dim() == 3 else x.expand(batch, *x.shape) for x in (a, b))
    m, n, k = a.shape[-2], b.shape[-1], a.shape[-1]
    shape = (*a.shape[:-2], m, n)
    if beta == 0:
        c = None
    if alpha == 0 or k == 0:
        value = a.new_zeros(shape, dtype=out_dtype)
    elif a.dtype == torch.int8 or a.dtype in _FP8:
        value = alpha * _narrow(a, b, out_dtype) if alpha != 1 else _narrow(a, b, out_dtype)
    elif out_dtype != a.dtype or (c is not None and c.dtype != a.dtype) or (bias is not None and bias.dtype != a.dtype):
        value = _product(a, b, out_dtype, precision)
        value = alpha * value if alpha != 1 else value
    elif alpha == 1 and c is None and bias is None:
        return _product(a, b, out_dtype, precision)
    else:
        # One call of torch does it: cuBLASLt adds a vector in its epilogue, cuBLAS a whole C.
        added, weight = (bias, 1.0) if c is None and bias is not None else (c, beta)
        with torch_precision(a, precision):
            if added is None:
                added, weight = a.new_zeros(()), 0.0
            call = torch.addmm if a.dim() == 2 else torch.baddbmm
            value = call(added, a, b, alpha=alpha, beta=weight)
        if c is not None and bias is not None:
            value = value + bias
        return value
    if c is not None:
        weight = beta if c.is_floating_point() else int(beta)  # int32 sums stay exact
        value = value + (c if beta == 1 else weight * c)
    if bias is not None:
        value = value + bias
    return value.to(out_dtype)


def apply_epilogue(value: Tensor, bias: Tensor | None, epilogue: Epilogue) -> Tensor:
    """Bias, activation or gate, scale, in this order, in ``value``'s type."""
    if bias is not None:
        value = value + (bias[:, None] if epilogue.bias == "col" else bias)
    if epilogue.gated:
        half = value.shape[-1] // 2
        value = activate(value[..., :half], epilogue.activation) * value[..., half:]
    else:
        value = activate(value, epilogue.activation)
    return value * epilogue.scale if epilogue.scale != 1.0 else value


def finish(value: Tensor, bias: Tensor | None, epilogue: Epilogue, out: Tensor) -> None:
    """:func:`apply_epilogue` into ``out``, overwriting ``value``, which may be ``out`` itself: the fewest kernels."""
    if bias is not None:
        value.add_(bias[:, None] if epilogue.bias == "col" else bias)
    if epilogue.gated:
        half = value.shape[-1] // 2
        torch.mul(activate(value[..., :half], epilogue.activation), value[..., half:], out=out)
    else:
        if epilogue.activation == "relu":
            torch.relu_(value)
        elif epilogue.activation == "silu":
            F.silu(value, inplace=True)
        elif epilogue.activation is not None:
            torch.ops.aten.gelu_(value, approximate="tanh" if epilogue.activation == "gelu_tanh" else "none")
        if value is not out:
            out.copy_(value)
    if epilogue.scale != 1.0:
        out.mul_(epilogue.scale)


def activate(value: Tensor, name: str | None) -> Tensor:
    """The activation of that name, as torch has it."""
    if name is None:
        return value
    if name == "relu":
        return F.relu(value)
    if name == "silu":
        return F.silu(value)
    return F.gelu(value, approximate="tanh" if name == "gelu_tanh" else "none")


def _product(a: Tensor, b: Tensor, out_dtype: torch.dtype, precision: str | None) -> Tensor:
    call = torch.mm if a.dim() == 2 else torch.bmm
    with torch_precision(a, precision):
        if out_dtype == a.dtype:
            return call(a, b)
        if a.dtype == torch.float32:
            return call(a, b).to(out_dtype)
        # fp16 and bf16 meet in fp32, the only type that holds both.
        wide = call(a, b, out_dtype=torch.float32) if a.is_cuda else call(a.float(), b.float())
        return wide.to(out_dtype)


def _narrow(a: Tensor, b: Tensor, out_dtype: torch.dtype) -> Tensor:
    """int8 and fp8, exact in the products: int8 sums are exact and wrap around as int32 does."""
    if a.dtype in _FP8:
        if a.is_cuda:
            # Both fp8 types are exact in bfloat16.
            return _product(a.to(torch.bfloat16), b.to(torch.bfloat16), torch.float32, None).to(out_dtype)
        return _product(a.float(), b.float(), torch.float32, None).to(out_dtype)
    if not a.is_cuda:
        call = torch.mm if a.dim() == 2 else torch.bmm
        return call(a.to(torch.int32), b.to(torch.int32)).to(out_dtype)
    if a.dim() == 2 and a.shape[0] > 16 and a.shape[1] % 8 == 0 and b.shape[1] % 8 == 0:
        dense = b if b.is_contiguous() or b.mT.is_contiguous() else b.contiguous()
        return torch._int_mm(a.contiguous(), dense).to(out_dtype)
    # Sums of int8 products are exact in float64 up to K = 2^39.
    call = torch.mm if a.dim() == 2 else torch.bmm
    return call(a.double(), b.double()).to(torch.int64).to(torch.int32).to(out_dtype)


_precision_lock = threading.Lock()


@contextmanager
def torch_precision(a: Tensor, precision: str | None) -> Iterator[None]:
    """torch's fp32 setting as asked for, for one call; cuBLAS has no tf32x3, so that takes true fp32.

    The setting is global: calls that change it wait for each other.
    """
    if precision is None or a.dtype != torch.float32 or not a.is_cuda:
        yield
        return
    matmul = torch.backends.cuda.matmul
    wanted = "tf32" if precision == "tf32" else "ieee"
    if current_precision() == wanted:
        yield
        return
    with _precision_lock:
        before = matmul.fp32_precision
        matmul.fp32_precision = wanted
        try:
            yield
        finally:
            matmul.fp32_precision = before


def current_precision() -> str:
    """torch's setting for fp32 products on CUDA: "ieee" or "tf32"."""
    return "tf32" if torch._C._get_fp32_precision_getter("cuda", "matmul") == "tf32" else "ieee"
