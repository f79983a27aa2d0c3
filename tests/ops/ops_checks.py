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


def assert_close(out: torch.Tensor, reference: torch.Tensor, k: int, steps: int = 1, tf32: bool = False) -> None:
    """``||out - ref|| / ||ref||`` within what the type and K allow, NaN and Inf exactly where they belong.

    ``steps`` is how many roundings to the result's type there may be (an epilogue that is not fused has more).
    """
    assert out.shape == reference.shape, f"{tuple(out.shape)} is not {tuple(reference.shape)}"
    got, want = out.detach().double().cpu(), reference.detach().double().cpu()
    for kind in (torch.isnan, torch.isposinf, torch.isneginf):
        wrong = int((kind(got) != kind(want)).sum())
        assert wrong == 0, f"{wrong} positions differ in {kind.__name__}"
    finite = torch.isfinite(want)
    got, want = got[finite], want[finite]
    norm = float(want.norm())
    error = float((got - want).norm()) / (norm if norm else 1.0)
    allowed = 4 * 2.0**-24 * math.sqrt(max(k, 1)) + steps * EPSILON[out.dtype] / 2 + (2.0**-10 if tf32 else 0.0)
    assert error <= allowed, f"error {error:.3g}, allowed {allowed:.3g}"


def poisoned(*shape: int, dtype: torch.dtype, device: str) -> torch.Tensor:
    """A tensor of NaN: what is not written shows."""
    return torch.full(shape, math.nan, dtype=dtype, device=device)
