"""Gradients, and gradients of gradients, against those of torch's own operators in float64."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from ops_checks import assert_close, normal  # noqa: E402

import rungemm  # noqa: E402
from rungemm import Epilogue  # noqa: E402

ACTIVATIONS = {None: lambda x: x, "relu": F.relu, "gelu": F.gelu, "silu": F.silu,
               "gelu_tanh": lambda x: F.gelu(x, approximate="tanh")}  # fmt: skip
SHAPES = [((5, 4), (4, 6)), ((2, 5, 4), (4, 6)), ((2, 5, 4), (2, 4, 6)), ((1, 5, 4), (3, 4, 6)), ((4,), (4, 6)),
          ((2, 5, 4), (4,)), ((5, 4), (3, 4, 6)), ((0, 4), (4, 6)), ((5, 0), (0, 6))]  # fmt: skip


def gradients(call, operands, seed):
    """The gradients of ``call``'s weighted sum for every operand."""
    operands = [x.detach().clone().requires_grad_() for x in operands]
    result = call(*operands)
    return result, torch.autograd.grad((result * seed.to(result.dtype)).sum(), operands)


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_matmul(shapes, rng, device) -> None:
    operands = [normal(rng, *shape, device=device) for shape in shapes]
    seed = normal(rng, *torch.matmul(*operands).shape, device=device)
    _, want = gradients(torch.matmul, [x.double() for x in operands], seed)
    result, got = gradients(rungemm.matmul, operands, seed)
    assert result.grad_fn is not None
    for mine, theirs in zip(got, want, strict=True):
        assert mine.dtype == torch.float32
        assert_close(mine, theirs, 30)


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
@pytest.mark.parametrize("kind", ["row", "col"])
@pytest.mark.parametrize("gated", [False, True])
def test_everything_at_once(gated, kind, activation, rng, device) -> None:
    m, n, k = 6, 8, 5
    shapes = ((m, k), (k, n), (n,), ((n,) if kind == "row" else (m,)))
    operands = [normal(rng, *shape, device=device) for shape in shapes]
    seed = normal(rng, m, n // 2 if gated else n, device=device)

    def ours(a, b, c, bias):
        return rungemm.gemm(a, b, c, alpha=0.7, beta=-1.3, bias=bias, epilogue=Epilogue(kind, activation, gated, 2.0))

    def theirs(a, b, c, bias):
        value = 0.7 * (a @ b) - 1.3 * c + (bias if kind == "row" else bias[:, None])
        act = ACTIVATIONS[activation]
        return 2.0 * (act(value[:, : n // 2]) * value[:, n // 2 :] if gated else act(value))

    _, want = gradients(theirs, [x.double() for x in operands], seed)
    _, got = gradients(ours, operands, seed)
    for mine, reference in zip(got, want, strict=True):
        assert_close(mine, reference, k, steps=20)
    # The same through the operator, whose own backward computes V again.
    def as_operator(a, b, c, bias):
        values = (0.7, -1.3, "default", kind, activation or "", gated, 2.0, torch.float32)
        return torch.ops.rungemm.gemm(a, b, c.expand(m, n), bias, *values)

    _, got = gradients(as_operator, operands, seed)
    for mine, reference in zip(got, want, strict=True):
        assert_close(mine, reference, k, steps=20)


def test_second_derivatives(rng, device) -> None:
    x, w = normal(rng, 4, 3, device=device), normal(rng, 5, 3, device=device)

    def penalty(linear, x, w):
        x, w = x.clone().requires_grad_(), w.clone().requires_grad_()
        first = torch.autograd.grad(linear(x, w).square().sum(), (x, w), create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first), (x, w))

    want = penalty(F.linear, x.double(), w.double())
    for mine, theirs in zip(penalty(rungemm.linear, x, w), want, strict=True):
        assert_close(mine, theirs, 5, steps=40)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_types(dtype, rng, device) -> None:
    x, w, b = (normal(rng, *s, dtype=dtype, device=device) for s in ((7, 16), (9, 16), (9,)))
    seed = normal(rng, 7, 9, dtype=dtype, device=device)
    _, want = gradients(F.linear, [t.double() for t in (x, w, b)], seed)
    _, got = gradients(rungemm.linear, (x, w, b), seed)
    for mine, theirs in zip(got, want, strict=True):
        assert mine.dtype == dtype
        assert_close(mine, theirs, 16, steps=2)


def test_only_what_is_needed_is_computed(rng, device, monkeypatch) -> None:
    from rungemm.ops import core

    x, w = normal(rng, 4, 3, device=device), normal(rng, 5, 3, device=device).requires_grad_()
    result = rungemm.linear(x, w)
    calls = []
    monkeypatch.setattr(core, "execute", lambda *a, _real=core.execute: calls.append(1) or _real(*a))
    result.sum().backward()
    # Where cuBLAS is chosen on a card, torch's own linear was called, and its derivative is torch's too.
    assert len(calls) == (0 if type(result.grad_fn).__name__ == "MmBackward0" else 1)
    assert x.grad is None
    assert_close(w.grad, x.double().sum(0).expand(5, 3), 4)


def test_a_result_of_another_type_has_gradients_of_the_operands_types(rng, device) -> None:
    a = normal(rng, 6, 8, dtype=torch.bfloat16, device=device).requires_grad_()
    b = normal(rng, 8, 4, dtype=torch.bfloat16, device=device).requires_grad_()
    result = rungemm.gemm(a, b, out_dtype=torch.float32)
    result.sum().backward()
    assert result.dtype == torch.float32 and a.grad.dtype == b.grad.dtype == torch.bfloat16


def test_fp8_has_no_gradient(device) -> None:
    a = torch.ones(4, 4, device=device).to(torch.float8_e4m3fn).requires_grad_()
    with pytest.raises(ValueError, match=r"no gradient here: detach it"):
        rungemm.matmul(a, a)
