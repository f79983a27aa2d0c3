"""One product on real tensors, no autograd: the place where a choice is looked up and launched."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from ..problem import Epilogue, Precision
from . import fallback, launch
from .launch import ENTRIES_KEPT, Entry, entry_for, increment_version

__all__ = ["entries", "entry_of", "execute", "follow", "forget", "result_shape"]

entries: dict[tuple[object, ...], Entry] = {}
"""What to do for tensors like these, by all that torch says of them."""


def forget() -> None:
    """Drop every choice made so far, as after tuning: the next call of each problem class chooses anew."""
    # From the ground up: another thread may make what is cleared last of what is not cleared yet.
    launch.forget()
    entries.clear()
    for other in _followers:
        other.clear()


class Memory(Protocol):
    """What can be forgotten."""

    def clear(self) -> None:
        """Forget all."""


_followers: list[Memory] = []
"""Memories of others that are made from this one's entries, and forgotten with them."""


def follow(memory: Memory) -> None:
    """Have a memory cleared by :func:`forget`."""
    _followers.append(memory)


def entry_of(
    a: Tensor, b: Tensor, c: Tensor | None, bias: Tensor | None, out: Tensor, alpha: float, beta: float,
    precision: str, epilogue: Epilogue | None,
) -> Entry:  # fmt: skip
    """What :func:`execute` does for such tensors."""
    kind: Any = precision
    if precision == "default":
        kind = fallback.current_precision() if a.dtype == torch.float32 else "ieee"
    return entry_for(a, b, c if beta != 0 else None, bias, out, alpha, beta, kind, epilogue)


def result_shape(a: Tensor, b: Tensor, gated: bool) -> tuple[int, ...]:
    """The shape of D for a (M, K) or (B, M, K) and b of as many dimensions."""
    n = b.shape[-1]
    return (*a.shape[:-1], n // 2 if gated else n)


def execute(
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
    """``a`` (M, K), ``b`` (K, N), or both with one batch dimension; ``c`` of the product's shape, any strides.

    ``bias`` is a dense vector. Writes ``out`` if given, whatever it shares with the operands; else a new dense tensor.

    ``precision`` "default" is torch's setting at this moment.
    """
    if not launch.on_gpu(a):
        value = fallback.compute(a, b, c, bias, alpha, beta, epilogue, out_dtype)
        if out is None:
            return value.contiguous()
        out.copy_(value)
        return out
    # Lazily negated tensors come from users and as gradients: a kernel sees the memory, not the bit.
    a, b, c, bias = (None if x is None else _resolved(x) for x in (a, b, c, bias))  # type: ignore[assignment]
    if precision == "default":
        precision = fallback.current_precision() if a.dtype == torch.float32 else "ieee"
    target = out
    if target is None:
        target = a.new_empty(result_shape(a, b, epilogue is not None and epilogue.gated), dtype=out_dtype)
    kind: Any = precision
    _launch(a, b, c if beta != 0 else None, bias, target, alpha, beta, kind, epilogue, out is not None)
    return target


def _resolved(x: Tensor) -> Tensor:
    """The tensor itself, or what it stands for: one lazily negated, or zeros without memory."""
    if x.is_neg():
        return x.resolve_neg()
    return x.clone() if x._is_zerotensor() else x


def _launch(
    a: Tensor, b: Tensor, c: Tensor | None, bias: Tensor | None, out: Tensor, alpha: float, beta: float,
    precision: Precision, epilogue: Epilogue | None, given: bool,
) -> None:  # fmt: skip
    a_at, b_at, out_at = a.data_ptr(), b.data_ptr(), out.data_ptr()
    c_at = c.data_ptr() if c is not None else 0
    bias_at = bias.data_ptr() if bias is not None else 0
    key = (
        a.shape, a.stride(), a.dtype, b.shape, b.stride(), out.shape, out.stride(), out.dtype, a.get_device(),
        a_at & 15, b_at & 15, out_at & 15, alpha, beta, precision, epilogue,
        None if c is None else (c.stride(), c.dtype, c_at & 15), None if bias is None else (bias.dtype, bias_at & 15),
    )  # fmt: skip
    entry = entries.get(key)
    if entry is None:
        entry = entry_for(a, b, c, bias, out, alpha, beta, precision, epilogue)
        if len(entries) >= ENTRIES_KEPT:
            entries.clear()
        entries[key] = entry
    if not given:
        entry.run(a, b, c, bias, out)
        return
    end = out_at + entry.out_bytes
    places = [(a_at, entry.a_bytes), (b_at, entry.b_bytes), (bias_at, entry.bias_bytes)]
    if not (c_at == out_at and entry.c_is_out):
        places.append((c_at, entry.c_bytes))
    if any(at < end and out_at < at + length for at, length in places):
        # Written while it is read: into memory of its own first.
        apart = torch.empty_like(out, memory_format=torch.contiguous_format)
        execute(a, b, c, bias, apart, alpha, beta, precision, epilogue, out.dtype)
        out.copy_(apart)
        return
    entry.run(a, b, c, bias, out)
    increment_version(out)
