"""Training's own short way: rows times a matrix, with gradients, and nothing between autograd and the launch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..problem import Epilogue
from .autograd import without_bias
from .core import is_memory, product, watched
from .execute import entry_of
from .fallback import apply_epilogue
from .front import Front, torch_call
from .launch import Entry
from .model import CUBLAS

__all__ = ["training_call"]


def training_call(
    name: str, a: Tensor, b: Tensor, bias: Tensor | None, front: Front, precision: str, epilogue: Epilogue | None
) -> tuple[Any, bool]:
    """A function of the original tensors for "linear" and "matmul" where a gradient is wanted, and whether torch's own.

    torch's own, if cuBLAS was chosen for the product and would be for both products of its gradient, or what the others
    save is less than they cost the host; else one that launches what was chosen, each for itself.

    Args:
        a: (M, K), the rows of all batches; b: (K, N), as posed.
        front: the short way without a gradient, of the product and its bias alone.
    """
    rest = without_bias(epilogue)
    transposed = name == "linear"
    one_type = front.dtype == a.dtype and (bias is None or bias.dtype == a.dtype)
    derived = None
    if one_type and a.dtype in (torch.float32, torch.float16, torch.bfloat16):
        grad = torch.empty(a.shape[0], b.shape[1], dtype=front.dtype, device=a.device)
        # As backward poses them: the gradient of a weight lies as the weight does.
        to_w = (grad.mT, a, b.mT) if transposed else (a.mT, grad, b)
        derived = tuple(
            entry_of(x, y, None, None, torch.empty_like(to), 1.0, 0.0, precision, None)
            for x, y, to in ((grad, b.mT, a), to_w)
        )
        if _torch_is_faster([front.entry, *derived]) and (precision == "default" or a.dtype != torch.float32):
            return torch_call(name, (a, b, None, bias), 1.0, 0.0, epilogue), True
        if a.dtype == torch.float32 or not (a.is_contiguous() and (b.mT if transposed else b).is_contiguous()):
            derived = None  # fp32's products follow torch's setting at the moment of backward
        elif any(not entry.by_torch and entry.at is None for entry in derived):
            derived = None
    way = _Way(front, transposed, precision, derived)

    def call(x: Tensor, w: Tensor, c: Tensor | None, bias: Tensor | None, out: Tensor | None) -> Tensor:
        value = _Rows.apply(x, w, bias, way)
        return value if rest is None else apply_epilogue(value, None, rest)

    return call, False


HOST_S = 150e-6
"""About what a derivative written in Python costs the host beyond torch's own, forward and backward, in a model, where
Python's code runs cold: 67 us and 160 us on the H200's host, of which torch's own would be about 80."""

BUSY_S = 1e-3
"""Three products as long as this keep a card busy while the host prepares the next: then only their own time counts. A
layer of a Llama block, with all that lies between it and the next and its share of the optimiser, costs the host half
of it (results/h200/llama.json)."""

CLEAR = 0.05
"""The share of its time that ours must promise to save then. The table's gains were measured in an endless row of one
product, where the card is at its power cap; a step pauses, and there cuBLAS was 3% ahead where the table has ours 2%
ahead (14336x4096x4096, the gradient of a weight: docs/log.md)."""


def _torch_is_faster(entries: list[Entry]) -> bool:
    if any(entry.refused for entry in entries):
        return False
    if all(entry.by_torch for entry in entries):
        return True
    busy = saved = 0.0
    for entry in entries:
        if entry.decision is None:
            continue
        chosen = entry.decision.chosen
        cublas = [option.seconds for option in entry.decision.options if option.name == CUBLAS]
        if not cublas:
            return False
        busy += chosen.seconds
        saved += cublas[0] - chosen.seconds
    return saved < HOST_S and (busy < BUSY_S or saved < CLEAR * busy)


class _Way:
    """What a call and its derivative do.

    Attributes:
        front: the product's own way.
        transposed: w is (N, K).
        derived: the ways to the gradients of x and w for dense operands at multiples of 16 bytes, if they are fixed.
    """

    __slots__ = ("derived", "front", "precision", "transposed")

    def __init__(self, front: Front, transposed: bool, precision: str, derived: tuple[Entry, ...] | None) -> None:
        self.front, self.transposed, self.precision, self.derived = front, transposed, precision, derived

    def gradient(self, which: int, left: Tensor, right: Tensor, plain: bool) -> Tensor:
        """Of x (0) or w (1), as a product of two matrices; ``plain`` where :attr:`derived` holds."""
        if not plain or self.derived is None:
            return product(left, right, None, None, None, 1.0, 0.0, self.precision, None, left.dtype)
        entry = self.derived[which]
        if entry.by_torch:
            return torch.mm(left, right)
        shape = (left.shape[0], right.shape[1])
        out = self.front.allocate(shape, (shape[1], 1), left.dtype)
        entry.at(left.data_ptr(), right.data_ptr(), 0, 0, out.data_ptr())
        return out


class _Rows(torch.autograd.Function):
    """``x @ w`` or, ``transposed``, ``x @ w.T``, plus a row bias, for x (..., K)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, bias: Tensor | None, way: _Way) -> Tensor:
        needs_x, needs_w, *_ = ctx.needs_input_grad
        ctx.save_for_backward(x if needs_w else None, w if needs_x else None)
        ctx.facts = way, None if bias is None else bias.dtype, x.shape, w.shape, x.dtype
        front = way.front
        out = front.allocate(front.shape, front.strides, front.dtype)
        entry = front.entry
        if entry.at is not None:
            entry.at(x.data_ptr(), w.data_ptr(), 0, 0 if bias is None else bias.data_ptr(), out.data_ptr())
        else:
            rows, cols = x.view(-1, x.shape[-1]), w.mT if way.transposed else w
            entry.run(rows, cols, None, bias, out.view(-1, out.shape[-1]))
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        x, w = ctx.saved_tensors
        way, bias_type, shape, w_shape, dtype = ctx.facts
        grad_x = grad_w = grad_bias = None
        rows = grad.reshape(-1, grad.shape[-1])
        cast = rows if rows.dtype == dtype else rows.to(dtype)
        plain = (
            not (_grad() or _autocast() or watched(cast, x, w))
            and all(_is_plain(t, dtype, cast.device) for t in (cast, x, w))
            and (x is None or x.shape == shape)
            and (w is None or w.shape == w_shape)
        )
        if ctx.needs_input_grad[0]:
            grad_x = way.gradient(0, cast, w if way.transposed else w.mT, plain).view(shape)
        if ctx.needs_input_grad[1]:
            flat = x.reshape(-1, x.shape[-1])
            left, right = (cast.mT, flat) if way.transposed else (flat.mT, cast)
            grad_w = way.gradient(1, left, right, plain)
        if ctx.needs_input_grad[2] and bias_type is not None:
            grad_bias = rows.sum(0).to(bias_type)
        return grad_x, grad_w, grad_bias, None


_grad, _autocast = torch.is_grad_enabled, torch._C._is_any_autocast_enabled


def _is_plain(x: Tensor | None, dtype: torch.dtype, device: torch.device) -> bool:
    """As the derived products were posed; what was saved may have been unpacked by somebody's hook."""
    return x is None or (
        x.dtype == dtype
        and x.device == device
        and is_memory(x)
        and x.is_contiguous()
        and not x.data_ptr() & 15
    )
