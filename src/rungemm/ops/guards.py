"""Whether a call's tensors are like those of one before, asked of torch in one step.

What :mod:`.front` asks one by one (type, layout, negative bit, autocast, transforms, dispatch modes, tracing, dtype,
device, sizes, strides) torch.compile asks too, before it runs what it compiled, of several tensors at once and in
compiled code: 0.3 us a tensor in place of 2. Where this torch has no such guards, there are just no short cuts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

__all__ = ["KEPT_ALIKE", "Seen", "calls", "note", "recall"]

KEPT_ALIKE = 8
"""Of calls whose cheap keys are equal: strides, types and switches differ seldom."""

CALLS_KEPT = 4096

_Guards: Any = getattr(getattr(torch._C._dynamo, "guards", None), "TensorGuards", None)
_grad = torch.is_grad_enabled


class Seen:
    """A call of which every tensor's type, place, layout and gradient is known.

    Attributes:
        check: whether tensors are like its own, and the thread's state too where it changes what torch does with them.
        grad: whether gradients were recorded, if that matters: an operand requires one.
        fronts: by the last four bits of the tensors' addresses, what to do.
    """

    __slots__ = ("check", "fronts", "grad")

    def __init__(self, check: Callable[..., bool], tensors: tuple[Tensor, ...]) -> None:
        self.check = check
        self.grad = _grad() if any(x.requires_grad for x in tensors) else None
        self.fronts: dict[int, Any] = {}


calls: dict[tuple[object, ...], list[Seen]] = {}
"""What :func:`recall` goes through. Made from :data:`.front.fronts`, and forgotten after them."""


def recall(cheap: tuple[object, ...], *tensors: Tensor) -> Seen | None:
    """The call before that had this cheap key and such tensors, in this order."""
    for seen in calls.get(cheap, ()):
        if seen.check(*tensors) and (seen.grad is None or seen.grad is _grad()):
            return seen
    return None


def note(cheap: tuple[object, ...], tensors: tuple[Tensor, ...], bits: int, front: Any) -> None:
    """Have :func:`recall` find ``front`` next time. Called where nothing watches, with tensors that are what they seem.

    Args:
        cheap: what the guards do not see: the function, its scalars, the precision, and of the shapes what tells calls
            apart quickly.
        bits: the last four bits of the tensors' addresses.
    """
    if len(set(map(id, tensors))) < len(tensors):
        return  # the guards refuse one tensor given twice
    seen = recall(cheap, *tensors)
    if seen is None:
        check = _check_of(tensors)
        if check is None:
            return
        if len(calls) >= CALLS_KEPT:
            calls.clear()
        seen = Seen(check, tensors)
        # A new list, for another thread may be going through the old one.
        calls[cheap] = [seen, *calls.get(cheap, ())][:KEPT_ALIKE]
    seen.fronts[bits] = front


def _check_of(tensors: tuple[Tensor, ...]) -> Callable[..., bool] | None:
    if _Guards is None:
        return None
    try:
        # None: no dimension is dynamic.
        check: Callable[..., bool] = _Guards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None).check
        return check if check(*tensors) is True else None
    except (TypeError, RuntimeError):
        return None
