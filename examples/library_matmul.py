"""The library in place of torch.matmul: the same call, with what it chose and why.

    python examples/library_matmul.py            # on a GPU if torch sees one, else on the CPU (then torch computes)
"""

from __future__ import annotations

import torch

import rungemm
from rungemm.ops.explain import describe

device = "cuda" if torch.cuda.is_available() else "cpu"
a = torch.randn(4, 333, 555, device=device, dtype=torch.bfloat16)
b = torch.randn(555, 777, device=device, dtype=torch.bfloat16)

c = rungemm.matmul(a, b)
error = (c.double() - a.double() @ b.double()).norm() / (a.double() @ b.double()).norm()
print(f"{tuple(a.shape)} @ {tuple(b.shape)} -> {tuple(c.shape)}, error {error:.2e} against float64")

# An epilogue is part of the call, in a fixed order: product, C, bias, activation or gate, scale, cast.
w, bias = torch.randn(2 * 512, 555, device=device, dtype=torch.bfloat16), torch.zeros(1024, device=device).bfloat16()
print("linear + SwiGLU:", tuple(rungemm.linear(a, w, bias, "swiglu").shape))

# Why this kernel? The same question can be asked on a laptop, for any card.
print("\n".join(describe(rungemm.explain_dispatch((4 * 333, 777, 555), dtype="bf16", gpu="h200"))[:6]))
