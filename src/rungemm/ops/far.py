"""What is beyond cuBLAS's limits (:mod:`.limits`) and not for our kernels: dense copies and pieces that it takes."""

from __future__ import annotations

import torch
from torch import Tensor

from ..kernels.plan import INT32_MAX
from ..problem import Epilogue
from . import fallback

__all__ = ["compute_far", "near"]

LONGEST = INT32_MAX
"""The largest extent and pitch of a piece."""


def near(x: Tensor) -> Tensor:
    """``x``, or a dense copy of it where a distance along its last two dimensions is beyond cuBLAS's reach."""
    distances = [stride for stride, extent in zip(x.stride()[-2:], x.shape[-2:], strict=True) if extent > 1]
    return x if max(distances, default=0) <= LONGEST else x.contiguous()


def compute_far(
    a: Tensor, b: Tensor, c: Tensor | None, bias: Tensor | None, out: Tensor, alpha: float, beta: float,
    epilogue: Epilogue | None, precision: str | None,
) -> None:  # fmt: skip
    """As :func:`.fallback.compute`, into ``out``: halves of an extent that is too long, dense copies of a far operand.

    Halves of K meet in the widest type there is for them: fp32, and int32 for an int32 result.
    """
    scalars = alpha, beta, epilogue, precision
    if epilogue is not None and epilogue.gated and b.shape[-1] > LONGEST:
        # The halves of the columns are the gate's two sides: all of V first.
        value = out.new_empty((*out.shape[:-1], b.shape[-1]))
        bare = None if epilogue.bias is None else Epilogue(epilogue.bias)
        compute_far(a, b, c, bias, value, alpha, beta, bare, precision)
        fallback.finish(value, None, Epilogue(None, epilogue.activation, True, epilogue.scale), out)
        return
    kind = None if bias is None or epilogue is None else epilogue.bias
    if out.dim() == 3 and out.shape[0] > LONGEST:
        for part in _halves(out.shape[0]):
            x, y = (operand[part] if operand.dim() == 3 else operand for operand in (a, b))
            compute_far(x, y, None if c is None else c[part], bias, out[part], *scalars)
    elif a.shape[-2] > LONGEST:
        for part in _halves(a.shape[-2]):
            own = bias[part] if bias is not None and kind == "col" else bias
            compute_far(a[..., part, :], b, None if c is None else c[..., part, :], own, out[..., part, :], *scalars)
    elif b.shape[-1] > LONGEST:
        for part in _halves(b.shape[-1]):
            own = bias[part] if bias is not None and kind == "row" else bias
            compute_far(a, b[..., part], None if c is None else c[..., part], own, out[..., part], *scalars)
    elif a.shape[-1] > LONGEST and alpha != 0:
        wide = out.dtype if out.dtype == torch.int32 else torch.float32
        total = torch.zeros((*out.shape[:-1], b.shape[-1]), dtype=wide, device=out.device)
        one = torch.empty_like(total)
        for part in _halves(a.shape[-1]):
            compute_far(a[..., part], b[..., part, :], None, None, one, alpha, 0.0, None, precision)
            total += one
        if c is not None and beta != 0:
            total += (beta if wide != torch.int32 else int(beta)) * c
        out.copy_(total if epilogue is None else fallback.apply_epilogue(total, bias, epilogue))
    else:
        out.copy_(fallback.compute(near(a), near(b), c, bias, alpha, beta, epilogue, out.dtype, precision))


def _halves(extent: int) -> tuple[slice, slice]:
    return slice(0, extent // 2), slice(extent // 2, extent)
