"""The long way of a call: check, cast, pose, multiply; and what it leaves for the next call like it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ..problem import PRECISIONS, Epilogue, ProblemError
from . import launch
from .arguments import (
    OURS,
    autocast,
    bias_of_any,
    check_gate,
    check_tensors,
    check_types,
    checked_bias,
    expand_c,
    number,
    overridden,
    refuse_gradient,
    target_of,
    with_bias,
)  # fmt: skip
from .composed import composed
from .core import product
from .execute import entry_of
from .fallback import default_out_dtype
from .front import Front, at_precision, long_ways, precision_of, remember, torch_call
from .rows import training_call
from .shapes import pose

__all__ = ["TORCHS", "general"]

TORCHS = frozenset((torch.float32, torch.float16, torch.bfloat16))
"""The types that torch's own functions take as ours do."""


def general(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    bias: Tensor | None = None,
    epilogue: Epilogue | None = None,
    out: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    precision: str | None = None,
    name: str,
    fold: bool = True,
    key: tuple[object, ...] | None = None,
) -> Tensor:
    """Every call that is not short: check, cast, pose, multiply, and give the result its shape."""
    check_tensors(A=a, B=b, C=c, bias=bias, out=out)
    alpha, beta = number("alpha", alpha), number("beta", beta)
    if beta == 0:
        # A C that wants a gradient has one, of zeros, as in torch; it is not read.
        c = c if c is not None and c.requires_grad and torch.is_grad_enabled() else None
    elif c is None:
        raise ProblemError(f"beta is {beta} but no C was given: pass C, or beta=0")
    if precision is not None and precision not in PRECISIONS:
        raise ProblemError(f"precision {precision!r} is unknown: use one of {', '.join(PRECISIONS)}")
    if out is None:
        a, b, c, bias = autocast(a, b, c, bias)
    else:
        refuse_gradient(name, out, a, b, c, bias)
    if a.dtype != b.dtype:
        raise ProblemError(f"A is {a.dtype} and B is {b.dtype}: convert one, e.g. B.to({a.dtype})")
    epilogue = with_bias(epilogue, bias)
    wanted = out.dtype if out is not None else out_dtype or default_out_dtype(a.dtype)
    if out is not None and out_dtype is not None and out_dtype != out.dtype:
        raise ProblemError(f"out is {out.dtype} and out_dtype {out_dtype}: pass one of the two")
    foreign = overridden(*(x for x in (a, b, c, bias) if x is not None))
    if foreign or a.dtype not in OURS or a.layout != torch.strided or b.layout != torch.strided:
        return composed(a, b, c, bias_of_any(a, b, bias, epilogue), alpha, beta, epilogue, out, out_dtype)
    check_types(a, c, bias, wanted, alpha, beta, epilogue)
    posed = pose(a, b, fold=fold and not (epilogue is not None and epilogue.bias == "col"))
    m, n = posed.core[-2:]
    check_gate(epilogue, n, b)
    core_c = expand_c(c, posed.core, posed.result)
    dense_bias = checked_bias(bias, epilogue, m if b.dim() == 1 or a.dim() == 1 else posed.result[-2], n)
    gated = epilogue is not None and epilogue.gated
    result = (*posed.result[:-1], n // 2) if gated else posed.result
    core = (*posed.core[:-1], n // 2) if gated else posed.core
    # The key holds out's shape as it was: an empty one has no address yet.
    resized = out is not None and tuple(out.shape) != result
    target = None if out is None else target_of(out, result, core)
    kind = precision or "default"
    if forward_ad._current_level >= 0 and a.dtype in TORCHS:
        # Forward derivatives: torch's own functions carry them, a launch of ours would drop them.
        return composed(a, b, c, bias, alpha, beta, epilogue, out, wanted)
    given, core_operands = (a, b, c, bias), (posed.a, posed.b, core_c, dense_bias)
    may_be_short = launch.on_gpu(a) and (out is None or (target is not None and not resized))
    if not may_be_short or key in long_ways:
        key = None
    # As the key has it: torch's setting may change while this is compiled.
    setting = precision_of(key) if key is not None and a.dtype == torch.float32 else kind
    if key is not None and torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in given):
        # The first call as all that follow: what autograd keeps is compared when a checkpoint computes again.
        front = _training_front(name, given, core_operands, wanted, result, kind, setting, epilogue)
        remember(key, front)
        if front is not None:
            return front.call(a, b.mT if name == "linear" else b, None, bias, None)
        key = None
        setting = kind
    value = product(*core_operands, target, alpha, beta, setting, epilogue, wanted)
    if key is not None:
        into = out is not None
        _remember(key, name, given, core_operands, value, result, alpha, beta, precision, setting, epilogue, into)
    if out is None:
        return value if tuple(value.shape) == result else value.view(result)
    if target is None:
        out.copy_(value.view(result))
    return out


def _copied(given: tuple[Any, ...], posed: tuple[Any, ...]) -> bool:
    """Whether an operand was copied on the long way, so that there is no short one."""
    return any(x is not None and x.data_ptr() != y.data_ptr() for x, y in zip(given, posed, strict=True))


def _training_front(
    name: str, given: tuple[Any, ...], posed: tuple[Any, ...], dtype: torch.dtype, result: tuple[int, ...], kind: str,
    setting: str, epilogue: Epilogue | None,
) -> Front | None:  # fmt: skip
    """The short way for rows times a matrix with a gradient, if there is one."""
    a, b, _, bias = posed
    if name not in ("linear", "matmul") or a.dim() != 2 or given[0].dim() < 2 or given[1].dim() != 2:
        return None
    if _copied(given, posed):
        return None
    # What autograd keeps is V: the product and its bias alone.
    part = None if epilogue is None or epilogue.bias is None else Epilogue(epilogue.bias)
    out = a.new_empty((a.shape[0], b.shape[1]), dtype=dtype)
    entry = entry_of(a.detach(), b.detach(), None, bias, out, 1.0, 0.0, setting, part)
    if not entry.by_torch and entry.at is None:
        return None
    front = Front((*result[:-1], b.shape[1]), dtype, a.device, entry)
    front.call, front.by_torch = training_call(name, a.detach(), b.detach(), bias, front, kind, epilogue)
    return front


def _row_times_matrix(a: Tensor, b: Tensor, c: Tensor | None, bias: Tensor | None, out: Tensor | None) -> Tensor:
    """What torch.matmul does for a vector times a matrix, which (2.13) warns there that it resizes ``out``."""
    assert out is not None
    torch.mm(a[None], b, out=out[None])
    return out


def _remember(
    key: tuple[object, ...], name: str, given: tuple[Any, ...], posed: tuple[Any, ...], value: Tensor,
    result: tuple[int, ...], alpha: float, beta: float, precision: str | None, setting: str,
    epilogue: Epilogue | None, into: bool,
) -> None:  # fmt: skip
    """Keep the short way to this result, or that there is none."""
    if _copied(given, posed):
        remember(key, None)
        return
    a, b, c, bias = posed
    call = None
    entry = entry_of(a, b, c, bias, value, alpha, beta, setting, epilogue)
    # torch's own functions want one type for all, and torch.matmul (2.13) fails on some batches with a transposed out.
    one_type = a.dtype in TORCHS and all(x is None or x.dtype == a.dtype for x in (value, c, bias))
    plain = value.is_contiguous() or given[0].dim() == given[1].dim() == 2 or name == "bmm"
    if entry.by_torch and one_type and plain:
        matrices = name == "matmul" and epilogue is None and given[0].dim() == given[1].dim() == 2
        row = name == "matmul" and into and given[0].dim() == 1 and given[1].dim() == 2
        call = _row_times_matrix if row else torch_call("mm" if matrices else name, given, alpha, beta, epilogue)
        if call is not None and precision is not None and a.dtype == torch.float32:
            call = at_precision(call, precision)
    front = None
    if call is not None and entry.eager is not None:
        launched = replace(entry, at=entry.eager)
        front = Front(result, value.dtype, a.device, launched, captured=call, by_torch=True)
    elif call is not None or entry.at is not None:
        front = Front(result, value.dtype, a.device, entry, call, by_torch=call is not None)
    remember(key, front)
