"""The short way for a call like one before: is it like one, then one launch.

A front is made after a call has gone the long way (checks, shapes, choice) with tensors that nothing watches. Its key
holds everything that the long way looked at: shapes, strides, types, devices, the last four bits of each address, the
scalars, torch's precision, whether a gradient is wanted. What a key cannot hold is asked in every call: autocast,
transforms, forward derivatives, the negative bit, memory shared with ``out``. The second such call finds it by that key
and leaves a note for those after it, which torch's own guards find in a fraction of the time (:mod:`.guards`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad as _forward_ad

from ..problem import Epilogue
from . import fallback, launch
from .core import is_memory, watched
from .execute import follow
from .fallback import current_precision
from .guards import calls, note, recall
from .launch import ENTRIES_KEPT, Entry
from .memory import Allocate, allocator
from .shapes import dense_strides

__all__ = ["Front", "Key", "at_precision", "fronts", "key_of", "long_ways", "precision_of", "remember", "short"]

Key = tuple[object, ...]
TorchCall = Callable[[Tensor, Tensor, "Tensor | None", "Tensor | None", "Tensor | None"], Tensor]

_FLOAT32 = torch.float32
_modes = torch._C._len_torch_dispatch_stack
_autocast = torch._C._is_any_autocast_enabled
_grad = torch.is_grad_enabled
_compiling = torch.compiler.is_compiling
_version = torch._C._increment_version
_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 1)


class Front:
    """What to do.

    Attributes:
        shape, strides, dtype: of a new result, which is dense.
        allocate: makes it of them.
        entry: the launch; its ``at`` takes addresses.
        call: a function of the original tensors instead of the launch: torch's own, where cuBLAS was chosen, or one
            that records a gradient.
        captured: the same, but only while a CUDA graph is being captured (:attr:`.Decision.eager`).
        by_torch: one of the two is torch's own function: it does whatever is asked.
        device: the card's index.
    """

    __slots__ = ("allocate", "by_torch", "call", "captured", "device", "dtype", "entry", "shape", "strides")

    def __init__(
        self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device, entry: Entry, call: Any = None, *,
        captured: Any = None, by_torch: bool = False,
    ) -> None:  # fmt: skip
        self.shape, self.dtype, self.entry, self.call = tuple(shape), dtype, entry, call
        self.captured, self.by_torch = captured, by_torch
        self.device = device.index or 0
        self.strides = dense_strides(self.shape)
        self.allocate: Allocate = allocator(device)


fronts: dict[tuple[object, ...], Front] = {}
long_ways: dict[tuple[object, ...], None] = {}
"""Keys of calls that have no short way, so that none is looked for again."""
follow(fronts)
follow(long_ways)
follow(calls)


def key_of(
    name: str, a: Tensor, b: Tensor, c: Tensor | None, bias: Tensor | None, out: Tensor | None, precision: str | None,
    *rest: object,
) -> Key | None:
    """The key of a call, or ``None`` where something needs the long way: also where an operand is no tensor at all."""
    if (
        watched(a, b, c, bias, out)
        or _autocast()
        or _forward_ad._current_level >= 0
        or not is_memory(a)
        or not is_memory(b)
    ):
        return None
    dtype = a.dtype
    grad = _grad()
    wanted = grad and (
        a.requires_grad
        or b.requires_grad
        or (c is not None and c.requires_grad)
        or (bias is not None and bias.requires_grad)
    )
    if out is not None and (wanted or (grad and out.requires_grad)):
        return None
    facts: Key = (
        name, current_precision() if precision is None and dtype is _FLOAT32 else precision, wanted, dtype, a.shape,
        a.stride(), a.get_device(), b.dtype, b.shape, b.stride(), b.get_device(),
        a.data_ptr() & 15 | (b.data_ptr() & 15) << 4, rest, _facts(bias) if bias is not None else None,
    )  # fmt: skip
    if c is None and out is None:
        return facts if bias is None or facts[-1] is not None else None
    for x in (c, out):
        more = None if x is None else _facts(x)
        if x is not None and more is None:
            return None
        facts += (more,)
    return facts if bias is None or facts[13] is not None else None


def precision_of(key: Key) -> str:
    """The precision that :func:`key_of` found: torch's setting at that moment, where the call left it open."""
    return key[1]  # type: ignore[return-value]


def _facts(x: Tensor) -> Key | None:
    """What a key holds of an operand; ``None`` where it needs the long way."""
    if not is_memory(x):
        return None
    return x.dtype, x.shape, x.stride(), x.get_device(), x.data_ptr() & 15


def short(
    name: str, a: Tensor, b: Tensor, c: Tensor | None, bias: Tensor | None, out: Tensor | None, precision: str | None,
    *rest: object,
) -> Tensor | Key | None:  # fmt: skip
    """The result of a call that is like one before.

    Returns:
        The result; or, where there is no short way yet, or ``out`` shares memory with an operand, the call's key; or
        ``None``, where something needs the long way.
    """
    # What the guards do not see: a compiler, modes of torch's own that trace, forward derivatives.
    if _compiling() or _modes() or _forward_ad._current_level >= 0:
        return None
    given: tuple[Tensor, ...] = (a, b) if out is None else (a, b, out)
    if c is not None:
        given += (c,)
    if bias is not None:
        given += (bias,)
    try:
        # torch's setting for fp32 is asked once: another thread may change it meanwhile.
        setting = current_precision() if precision is None and a.dtype is _FLOAT32 else precision
        cheap = name, a.shape, b.shape, setting, rest, c is None, bias is None, out is None
        seen = recall(cheap, *given)
    except (AttributeError, RuntimeError, TypeError):
        # No tensors, nested ones, which have no shape, or scalars that cannot be hashed: the long way says so.
        return None
    key: Key | None = None
    front: Front | None = None
    if seen is not None:
        at = tuple([x.data_ptr() for x in given])
        front = seen.fronts.get(_bits(at))
    if front is None:
        key = key_of(name, a, b, c, bias, out, setting, *rest)
        if key is None or (front := fronts.get(key)) is None:
            return key
        at = tuple([x.data_ptr() for x in given])
        note(cheap, given, _bits(at), front)
    done = _run(front, at, a, b, c, bias, out)
    return done if done is not None else key or key_of(name, a, b, c, bias, out, setting, *rest)


def _bits(addresses: tuple[int, ...]) -> int:
    """The last four bits of each."""
    bits = 0
    for address in addresses:
        bits = bits << 4 | address & 15
    return bits


def _run(
    front: Front, at: tuple[int, ...], a: Tensor, b: Tensor, c: Tensor | None, bias: Tensor | None, out: Tensor | None
) -> Tensor | None:
    """What a front says; ``None`` if ``out`` shares memory with an operand.

    Args:
        at: addresses of a, b, and of those of out, c and bias that there are.
    """
    call, entry = front.call, front.entry
    # The default stream, 0, is never captured; to ask that first is quicker.
    if front.captured is not None and _stream(front.device) and launch.capturing():
        call = front.captured
    if out is None:
        if call is not None:
            return call(a, b, c, bias, out)
        c_at = 0 if c is None else at[2]
        bias_at = 0 if bias is None else at[-1]
        out = front.allocate(front.shape, front.strides, front.dtype)
        entry.at(at[0], at[1], c_at, bias_at, out.data_ptr())
        return out
    a_at, b_at, out_at = at[:3]
    end = out_at + entry.out_bytes
    if (a_at < end and out_at < a_at + entry.a_bytes) or (b_at < end and out_at < b_at + entry.b_bytes):
        return None
    c_at = 0 if c is None else at[3]
    if c_at and c_at < end and out_at < c_at + entry.c_bytes and not (c_at == out_at and entry.c_is_out):
        return None
    bias_at = 0 if bias is None else at[-1]
    if bias_at and bias_at < end and out_at < bias_at + entry.bias_bytes:
        return None
    if call is not None:
        return call(a, b, c, bias, out)
    entry.at(a_at, b_at, c_at, bias_at, out_at)
    _version((out,))
    return out


def remember(key: tuple[object, ...], front: Front | None) -> None:
    """The next call with this key takes the short way, or, ``None``, knows that there is none."""
    memory: dict[tuple[object, ...], Any] = long_ways if front is None else fronts
    if len(memory) >= ENTRIES_KEPT:
        memory.clear()
    memory[key] = front


def torch_call(
    name: str, operands: tuple[Tensor | None, ...], alpha: float, beta: float, epilogue: Epilogue | None
) -> TorchCall | None:
    """torch's own function for a call of ours by that name, where there is one and something is multiplied.

    "mm" is what torch.matmul itself calls for two matrices.
    """
    a, b, c, _ = operands
    if name in ("gemm", "addmm") and epilogue is None and a is not None and b is not None:
        if c is None:
            # beta is 0: C may be of any shape and type, which torch.addmm would not have.
            name = "matmul" if alpha == 1 else ""
        elif a.dim() == b.dim() == 2:
            name = "addmm"
    if name == "mm":
        return lambda a, b, c, bias, out: torch.mm(a, b) if out is None else torch.mm(a, b, out=out)
    if name == "matmul" and epilogue is None:
        return lambda a, b, c, bias, out: torch.matmul(a, b) if out is None else torch.matmul(a, b, out=out)
    if name == "bmm":
        return lambda a, b, c, bias, out: torch.bmm(a, b) if out is None else torch.bmm(a, b, out=out)
    if name == "addmm":
        return lambda a, b, c, bias, out: torch.addmm(c, a, b, alpha=alpha, beta=beta, out=out)  # type: ignore[arg-type]
    if name == "linear":
        rest = None if epilogue is None else Epilogue(None, epilogue.activation, epilogue.gated, epilogue.scale)
        if rest is None or rest.is_identity:
            return lambda x, w, c, bias, out: torch.nn.functional.linear(x, w, bias)
        return lambda x, w, c, bias, out: fallback.apply_epilogue(torch.nn.functional.linear(x, w, bias), None, rest)
    return None


def at_precision(call: TorchCall, precision: str) -> TorchCall:
    """A call of torch's under the fp32 precision asked for, whatever torch's setting is when it comes."""

    def run(a: Tensor, b: Tensor, c: Tensor | None, bias: Tensor | None, out: Tensor | None) -> Tensor:
        with fallback.torch_precision(a, precision):
            return call(a, b, c, bias, out)

    return run
