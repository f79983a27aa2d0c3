"""gemm, addmm, linear: scalars that switch off, the order of the epilogue, results in other types, memory shared."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from ops_checks import FLOATS, assert_close, normal, poisoned  # noqa: E402

import rungemm  # noqa: E402
from rungemm import Epilogue  # noqa: E402

ACTIVATIONS = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    None: lambda x: x,
}


def test_bug_a_what_a_zero_switches_off_is_not_read(device) -> None:
    """(a): C all NaN with beta 0; A or B NaN with alpha 0."""
    nan = torch.full((4, 4), float("nan"), device=device)
    a, b, c = torch.ones(1, 4, device=device), torch.ones(4, 4, device=device), torch.ones(1, 4, device=device)
    for dtype in FLOATS:
        a, b, c, nan = (x.to(dtype) for x in (a, b, c, nan))
        assert torch.equal(rungemm.addmm(nan[:1], a, b, beta=0), torch.full_like(c, 4.0))
        assert torch.equal(rungemm.gemm(a, b, nan[:1], beta=0.0), torch.full_like(c, 4.0))
        assert torch.equal(rungemm.addmm(c, nan[:1], b, alpha=0), c)
        assert torch.equal(rungemm.addmm(c, a, nan, alpha=0, beta=2), 2 * c)
        assert torch.equal(rungemm.gemm(nan, nan, alpha=0.0), torch.zeros_like(nan))
        out = torch.full_like(c, float("nan"))
        assert torch.equal(rungemm.gemm(a, b, out, beta=0.0, out=out), torch.full_like(c, 4.0))
        assert torch.equal(rungemm.gemm(a, nan, c, alpha=0.0, epilogue="relu"), c)


def test_alpha_zero_in_types_of_torchs_own(device) -> None:
    nan = torch.full((2, 2), float("nan"), dtype=torch.float64, device=device)
    one = torch.ones(2, 2, dtype=torch.float64, device=device)
    assert torch.equal(rungemm.addmm(one, nan, one, alpha=0), one)
    assert torch.equal(rungemm.addmm(nan, one, one, beta=0), 2 * one)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(("alpha", "beta"), [(1.0, 1.0), (2.5, 0.0), (-0.5, 1.5), (1.0, -1.0)])
def test_scalars(alpha, beta, dtype, rng, device) -> None:
    m, n, k = 31, 45, 29
    a, b, c = (normal(rng, *s, dtype=dtype, device=device) for s in ((m, k), (k, n), (m, n)))
    for c_like in (c, c[:1], c[:, :1], c[0], c.mT.contiguous().mT):
        got = rungemm.addmm(c_like, a, b, alpha=alpha, beta=beta)
        assert_close(got, alpha * (a.double() @ b.double()) + beta * c_like.double().expand(m, n), k, steps=2)
    batch = rungemm.gemm(a.expand(3, m, k), b, c.expand(3, m, n), alpha=alpha, beta=beta)
    assert_close(batch[2], alpha * (a.double() @ b.double()) + beta * c.double(), k, steps=2)


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
@pytest.mark.parametrize("kind", ["row", "col", None])
@pytest.mark.parametrize("gated", [False, True])
def test_epilogue_order(gated, kind, activation, rng, device) -> None:
    """alpha * A @ B, + beta * C, + bias, activation or gate, scale, cast: in this order."""
    m, n, k = 18, 12, 20
    for dtype in FLOATS:
        a, b, c = (normal(rng, *s, dtype=dtype, device=device) for s in ((m, k), (k, n), (m, n)))
        bias = normal(rng, n if kind == "row" else m, dtype=dtype, device=device) if kind else None
        value = 0.5 * (a.double() @ b.double()) + 2.0 * c.double()
        if bias is not None:
            value = value + (bias.double() if kind == "row" else bias.double()[:, None])
        act = ACTIVATIONS[activation]
        want = 3.0 * (act(value[:, :6]) * value[:, 6:] if gated else act(value))
        epilogue = Epilogue(kind, activation, gated, 3.0)
        got = rungemm.gemm(a, b, c, alpha=0.5, beta=2.0, bias=bias, epilogue=epilogue)
        assert got.dtype == dtype
        assert_close(got, want, k, steps=10)
        out = poisoned(*want.shape, dtype=torch.float32, device=device)
        rungemm.gemm(a, b, c, alpha=0.5, beta=2.0, bias=bias, epilogue=epilogue, out=out)
        assert_close(out, want, k, steps=10)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_linear(dtype, rng, device) -> None:
    weight, bias = normal(rng, 24, 40, dtype=dtype, device=device), normal(rng, 24, dtype=dtype, device=device)
    for shape in ((40,), (7, 40), (2, 3, 40), (2, 1, 3, 40), (0, 40)):
        x = normal(rng, *shape, dtype=dtype, device=device)
        want = F.linear(x.double(), weight.double(), bias.double())
        assert_close(rungemm.linear(x, weight, bias), want, 40)
        assert_close(rungemm.linear(x, weight), F.linear(x.double(), weight.double()), 40)
        assert_close(rungemm.linear(x, weight, bias, "gelu"), F.gelu(want), 40, steps=4)
        halves = want.chunk(2, -1)
        assert_close(rungemm.linear(x, weight, bias, "swiglu"), F.silu(halves[0]) * halves[1], 40, steps=8)
    assert_close(rungemm.linear(x := normal(rng, 5, 40, dtype=dtype, device=device), weight[0]),
                 x.double() @ weight[0].double(), 40)  # fmt: skip


def test_a_column_bias_of_a_batch(rng, device) -> None:
    a, b, bias = normal(rng, 3, 5, 4, device=device), normal(rng, 4, 6, device=device), normal(rng, 5, device=device)
    got = rungemm.gemm(a, b, bias=bias, epilogue=Epilogue("col"))
    assert_close(got, a.double() @ b.double() + bias.double()[:, None], 4)


def test_result_types(rng, device) -> None:
    for dtype in FLOATS:
        a, b = normal(rng, 9, 70, dtype=dtype, device=device), normal(rng, 70, 11, dtype=dtype, device=device)
        for wanted in FLOATS:
            got = rungemm.gemm(a, b, out_dtype=wanted)
            assert got.dtype == wanted
            assert_close(got, a.double() @ b.double(), 70, steps=2)
            out = poisoned(9, 11, dtype=wanted, device=device)
            assert_close(rungemm.matmul(a, b, out=out), a.double() @ b.double(), 70, steps=2)


def test_bug_h_the_first_call_equals_the_second(rng, device) -> None:
    """(h): nothing is tried out on the user's C."""
    rungemm.forget()
    a, b, c = normal(rng, 65, 33, device=device), normal(rng, 33, 67, device=device), normal(rng, 65, 67, device=device)
    first, second = c.clone(), c.clone()
    rungemm.addmm(first, a, b, out=first)
    rungemm.addmm(second, a, b, out=second)
    assert torch.equal(first, second)
    assert_close(first, a.double() @ b.double() + c.double(), 33)


def test_bug_i_a_poisoned_output_fails_the_check(rng) -> None:
    """(i): the tests' own comparison refuses an output that was never written."""
    with pytest.raises(AssertionError, match="20 positions differ in isnan"):
        assert_close(poisoned(4, 5, dtype=torch.float32, device="cpu"), torch.ones(4, 5), 1)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_out_may_share_memory_with_any_operand(dtype, rng, device) -> None:
    n = 40
    made = {name: normal(rng, n, n, dtype=dtype, device=device) for name in "abc"}
    bias = normal(rng, n, dtype=dtype, device=device)
    for name in "abc":
        operands = {key: value.clone() for key, value in made.items()}
        want = made["a"].double() @ made["b"].double() + made["c"].double() + bias.double()
        out = operands[name]
        rungemm.gemm(operands["a"], operands["b"], operands["c"], bias=bias, out=out)
        assert_close(out, want, n, steps=3)
    for name in "ab":
        operands = {key: value.clone() for key, value in made.items()}
        rungemm.matmul(operands["a"], operands["b"], out=operands[name])
        assert_close(operands[name], made["a"].double() @ made["b"].double(), n)
    a = made["a"].clone()
    rungemm.matmul(a, made["b"], out=a.mT)
    assert_close(a.mT, made["a"].double() @ made["b"].double(), n)
    shifted = normal(rng, 2 * n, n, dtype=dtype, device=device)
    before = shifted.clone()
    rungemm.addmm(shifted[:n], made["a"], made["b"], out=shifted[1 : n + 1])
    assert_close(shifted[1 : n + 1], before[:n].double() + made["a"].double() @ made["b"].double(), n, steps=2)
    assert torch.equal(shifted[n + 1 :], before[n + 1 :]) and torch.equal(shifted[0], before[0])
    lone = made["a"][:, 0].clone()
    want = made["a"].double() @ made["b"].double() + lone.double()
    square = lone.repeat(n, 1)
    rungemm.gemm(made["a"], made["b"], bias=square[0], out=square)
    assert_close(square, want, n, steps=2)


def test_out_is_resized_if_empty_and_written_whatever_its_strides(rng, device) -> None:
    a, b = normal(rng, 2, 4, 3, device=device), normal(rng, 3, 5, device=device)
    want = a.double() @ b.double()
    empty = torch.empty(0, device=device)
    assert rungemm.matmul(a, b, out=empty) is empty
    assert_close(empty, want, 3)
    for out in (
        poisoned(5, 4, 2, dtype=torch.float32, device=device).permute(2, 1, 0),
        poisoned(2, 4, 10, dtype=torch.float32, device=device)[..., ::2],
        poisoned(4, 2, 5, dtype=torch.float32, device=device).transpose(0, 1),
    ):
        assert rungemm.matmul(a, b, out=out) is out
        assert_close(out, want, 3)


def test_writing_out_is_seen_by_autograd(rng, device) -> None:
    a, b = normal(rng, 4, 4, device=device), normal(rng, 4, 4, device=device)
    out = torch.ones(4, 4, device=device)
    leaf = torch.ones(4, 4, device=device, requires_grad=True)
    kept = leaf * out
    for _ in range(3):
        version = out._version
        rungemm.matmul(a, b, out=out)
        assert out._version > version
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        kept.sum().backward()


def test_out_and_gradients_are_refused_as_torch_refuses_them(rng, device) -> None:
    a, b = normal(rng, 4, 4, device=device).requires_grad_(), normal(rng, 4, 4, device=device)
    out = torch.empty(4, 4, device=device)
    for call in (rungemm.matmul, torch.matmul):
        with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
            call(a, b, out=out)
    with torch.no_grad():
        assert_close(rungemm.matmul(a, b, out=out), a.double() @ b.double(), 4)


def test_the_same_bits_in_every_call(rng, device) -> None:
    for dtype in FLOATS:
        a, b = normal(rng, 130, 500, dtype=dtype, device=device), normal(rng, 500, 70, dtype=dtype, device=device)
        first = rungemm.matmul(a, b)
        for _ in range(100 if device != "cpu" else 5):
            assert torch.equal(rungemm.matmul(a, b), first)


def test_inputs_are_never_changed(rng, device) -> None:
    for dtype in FLOATS:
        a, b, c = (normal(rng, 33, 33, dtype=dtype, device=device) for _ in range(3))
        kept = [x.clone() for x in (a, b, c)]
        for precision in ("ieee", "tf32", "tf32x3"):
            rungemm.gemm(a, b, c, beta=0.5, epilogue="gelu", precision=precision)
        assert all(torch.equal(x, y) for x, y in zip((a, b, c), kept, strict=True))
