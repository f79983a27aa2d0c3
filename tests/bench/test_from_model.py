from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from rungemm.bench.from_model import shapes_of_model  # noqa: E402
from rungemm.bench.suites import Shape  # noqa: E402
from rungemm.dtypes import BF16, FP32  # noqa: E402
from rungemm.errors import UserError  # noqa: E402


def block() -> Any:
    """Two linears with bias on 6 tokens, the first of them twice."""
    first, second = torch.nn.Linear(16, 32), torch.nn.Linear(32, 16, bias=False)
    return torch.nn.Sequential(first, second, first, second).bfloat16(), torch.zeros(6, 16, dtype=torch.bfloat16)


def attention() -> None:
    """Runs by itself: a batched product with a transposed operand."""
    q, k = torch.zeros(3, 5, 8), torch.zeros(3, 7, 8)
    torch.bmm(q, k.transpose(1, 2))


def module_alone() -> Any:
    return torch.nn.Linear(2, 2)


def fails() -> None:
    raise RuntimeError("out of\nluck")


def multiplies_nothing() -> None:
    torch.zeros(3) + 1


def test_a_module_and_its_arguments() -> None:
    shapes = shapes_of_model(f"{__name__}:block")
    assert {(s.m, s.n, s.k, s.layout, s.dtype) for s in shapes} == {(6, 32, 16, "NT", BF16), (6, 16, 32, "NT", BF16)}
    assert all(s.label.endswith("2 times") for s in shapes)


def test_a_batched_product() -> None:
    (shape,) = shapes_of_model(f"{__name__}:attention")
    assert shape == Shape(5, 7, 8, 3, "NT", FP32, label=shape.label)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("module_alone", r"return \(module"),
        ("fails", "RuntimeError: out of luck"),
        ("multiplies_nothing", "no matrix product"),
        ("missing", "has no missing"),
    ],
)
def test_refusals(name: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        shapes_of_model(f"{__name__}:{name}")
