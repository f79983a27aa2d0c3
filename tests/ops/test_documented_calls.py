"""The calls that docs/library.md prints run as printed, and give what their comments say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from ops_checks import assert_close, normal  # noqa: E402

import rungemm  # noqa: E402

PAGE = Path(__file__).parents[2] / "docs" / "library.md"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_calls_of_the_page(dtype, rng, device) -> None:
    block = re.search(r"```python\n(import rungemm\n.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    a, b, c = (normal(rng, *shape, dtype=dtype, device=device) for shape in ((24, 40), (40, 56), (24, 56)))
    weight, bias, gate_and_up = b.mT.contiguous(), normal(rng, 56, dtype=dtype, device=device), b.mT.contiguous()
    model = torch.nn.Sequential(torch.nn.Linear(40, 8), torch.nn.ReLU()).to(device, dtype)
    names = {"a": a, "b": b, "c": c, "x": a, "weight": weight, "bias": bias, "gate_and_up": gate_and_up, "model": model}
    product = a.double() @ b.double()
    activated = torch.nn.functional.gelu(product + bias.double())
    left, right = product.chunk(2, -1)
    for line in block[1].splitlines():
        before = c.clone()
        exec(line, names)
        if "matmul" in line:
            assert_close(c if "out=" in line else names["c"], product, 40)
            names["c"] = c
        elif "addmm" in line:
            assert_close(c, 0.5 * before.double() + 2 * product, 40, steps=2)
        elif '"gelu"' in line:
            assert_close(names["y"], activated, 40, steps=2)
        elif "swiglu" in line:
            assert_close(names["y"], torch.nn.functional.silu(left) * right, 40, steps=4)
        elif "rungemm.gemm" in line:
            assert_close(names["y"], 2 * (0.5 * product + c.double() + bias.double()).relu(), 40, steps=4)
        elif "patch" in line:
            assert type(model[0]).__name__ == "PatchedLinear"
    rungemm.unpatch(model)
