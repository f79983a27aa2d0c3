"""What the library's tests share: fresh random tensors, and a comparison with float64."""

from __future__ import annotations

import math

import numpy as np
import torch

EPSILON = {torch.float32: 2.0**-23, torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}
FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def normal(rng: np.random.Generator, *shape: int, dtype: torch.dtype = torch.float32, device: str = "cpu"):
    """Standard normal numbers."""
    return torch.from_numpy(rng.standard_normal(shape)).to(dtype).to(device)


def size_of(a: torch.Tensor, b: torch.Tensor) -> float:
    """``|| |A| @ |B| || / sqrt(K)``: how large the product is where its terms do not cancel."""
    return float((a.double().abs() @ b.double().abs()).norm()) / math.sqrt(max(a.shape[-1], 1))


def assert_close(
    out: torch.Tensor, reference: torch.Tensor, k: int, steps: int = 1, tf32: bool = False, size: float = 0.0
) -> None:
    """``||out - ref|| / ||ref||`` within what the type and K allow, NaN and Inf exactly where they belong.

    ``steps`` is how many roundings to the result's type there may be (an epilogue that is not fused has more). Where
    all terms may cancel at once, as with operands of stride 0, the error is held against ``size`` if that is larger.
    """
    assert out.shape == reference.shape, f"{tuple(out.shape)} is not {tuple(reference.shape)}"
    got, want = out.detach().double().cpu(), reference.detach().double().cpu()
    for kind in (torch.isnan, torch.isposinf, torch.isneginf):
        wrong = int((kind(got) != kind(want)).sum())
        assert wrong == 0, f"{wrong} positions differ in {kind.__name__}"
    finite = torch.isfinite(want)
    got, want = got[finite], want[finite]
    norm = max(float(want.norm()), size)
    error = float((got - want).norm()) / (norm if norm else 1.0)
    allowed = 4 * 2.0**-24 * math.sqrt(max(k, 1)) + steps * EPSILON[out.dtype] / 2 + (2.0**-10 if tf32 else 0.0)
    assert error <= allowed, f"error {error:.3g}, allowed {allowed:.3g}"


def poisoned(*shape: int, dtype: torch.dtype, device: str) -> torch.Tensor:
    """A tensor of NaN: what is not written shows."""
    return torch.full(shape, math.nan, dtype=dtype, device=device)
