"""int8 and fp8 operands whose elements stand for scaled numbers."""

from __future__ import annotations

import torch
from torch import Tensor

from ..problem import Epilogue, ProblemError
from .arguments import (
    NARROW,
    bias_of_any,
    check_tensors,
    expand_c,
    number,
    refuse_gradient,
    target_of,
    with_bias,
)
from .composed import finished
from .general import general
from .shapes import words

__all__ = ["scaled"]

_WANTED = (torch.float32, torch.float16, torch.bfloat16)


def scaled(
    a: Tensor, b: Tensor, c: Tensor | None, alpha: float, beta: float, bias: Tensor | None, epilogue: Epilogue | None,
    scale_a: Tensor | float | None, scale_b: Tensor | float | None, out: Tensor | None, out_dtype: torch.dtype | None,
) -> Tensor:  # fmt: skip
    """int8 and fp8 operands whose elements stand for scaled numbers: an fp32 product, then all the rest on it."""
    check_tensors(A=a, B=b, C=c, bias=bias, out=out)
    if a.dtype not in NARROW:
        raise ProblemError(f"A is {a.dtype}: scales are for int8 and fp8 operands; use alpha")
    if out is not None and out_dtype not in (None, out.dtype):
        raise ProblemError(f"out is {out.dtype} and out_dtype {out_dtype}: pass one of the two")
    wanted = out.dtype if out is not None else out_dtype or torch.bfloat16
    if wanted not in _WANTED:
        raise ProblemError(f"a scaled result would be {wanted}: ask for {', '.join(map(str, _WANTED))}")
    if out is not None:
        scales = (x if isinstance(x, Tensor) else None for x in (scale_a, scale_b))
        refuse_gradient("gemm", out, c, bias, *scales)
    factor, beta = number("alpha", alpha), number("beta", beta)
    if c is None and beta != 0:
        raise ProblemError(f"beta is {beta} but no C was given: pass C, or beta=0")
    epilogue = with_bias(epilogue, bias)
    factors = []
    for name, scale, operand, axis in (("scale_a", scale_a, a, -2), ("scale_b", scale_b, b, -1)):
        if isinstance(scale, Tensor):
            check_tensors(A=a, **{name: scale})
            if scale.is_complex():
                raise ProblemError(f"{name} is {scale.dtype}: pass real numbers")
            line = () if operand.dim() < 2 else (operand.shape[-2], 1) if axis == -2 else (1, operand.shape[-1])
            if scale.numel() != 1 and (not line or tuple(scale.shape[-2:]) != line):
                wants = f", or {line[0]}x{line[1]}" if line else ""
                raise ProblemError(f"{name} is {words(scale)}: pass one element{wants}")
            factors.append((name, scale.reshape(()) if scale.numel() == 1 else scale))
        elif scale is not None:
            factor *= number(name, scale)
    value = general(a, b, alpha=factor, out_dtype=torch.float32, name="gemm")
    shape = tuple(value.shape)
    for name, scale in factors:
        value = value * scale
        if tuple(value.shape) != shape:
            product_words = "x".join(map(str, shape))
            raise ProblemError(f"{name} is {words(scale)} and A @ B {product_words}: their batches must be equal")
    bias = bias_of_any(a, b, bias, epilogue)
    for name, operand in (("C", c), ("bias", bias)):
        if operand is not None and operand.is_complex():
            raise ProblemError(f"{name} is {operand.dtype} and the result {wanted}: pass real numbers")
    if c is not None and beta != 0:
        full = expand_c(c, shape, shape)
        assert full is not None
        value = value + beta * full
    if epilogue is not None:
        value = finished(value, a, b, bias, epilogue)
    if out is None:
        return value.to(wanted)
    target_of(out, tuple(value.shape), tuple(value.shape))
    return out.copy_(value)
