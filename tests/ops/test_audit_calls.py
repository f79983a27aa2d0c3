"""Faults that an audit found, each asked three times over: the first call goes the long way, the next ones the short.

Run on the CPU here, on the stand-in card by ``test_audit_launch.py`` and on a card by ``tests/gpu/test_ops.py``.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from audit_storm import storm  # noqa: E402
from ops_checks import assert_close, normal, poisoned, size_of  # noqa: E402

import rungemm  # noqa: E402
from rungemm import Epilogue  # noqa: E402

CALLS = 3
QUESTIONS = 40


def test_random_calls_in_every_state(rng, device) -> None:
    storm(rng, device, QUESTIONS)


def test_a_strided_bias(rng, device) -> None:
    x, w = normal(rng, 8, 16, device=device), normal(rng, 24, 16, device=device)
    for bias in (normal(rng, 48, device=device)[::2], normal(rng, 1, device=device).expand(24)):
        want = x.double() @ w.double().mT + bias.double()
        for _ in range(CALLS):
            assert_close(rungemm.linear(x, w, bias), want, 16)
            assert_close(rungemm.linear(x, w.clone().requires_grad_(), bias), want, 16)
            assert_close(rungemm.gemm(x, w.mT, bias=bias), want, 16)


def test_an_empty_out(rng, device) -> None:
    a, b = normal(rng, 8, 16, device=device), normal(rng, 16, 24, device=device)
    for _ in range(CALLS):
        out = torch.empty(0, device=device)
        rungemm.matmul(a, b, out=out)
        assert_close(out, a.double() @ b.double(), 16)


def test_lazily_negated_operands_and_gradients(rng, device) -> None:
    """A kernel sees the memory, not the bit that says it is to be negated."""
    a, b, c = (normal(rng, 8, 8, device=device) for _ in range(3))
    bias = normal(rng, 8, device=device)
    for _ in range(CALLS):
        assert_close(rungemm.addmm(torch._neg_view(c), a, b), a.double() @ b.double() - c.double(), 8)
        assert_close(rungemm.gemm(a, b, bias=torch._neg_view(bias)), a.double() @ b.double() - bias.double(), 8)
        x, y = a.clone().requires_grad_(), b.clone().requires_grad_()
        first, second = torch.autograd.grad(rungemm.matmul(x, y), (x, y), torch._neg_view(c))
        assert_close(first, -c.double() @ b.double().mT, 8)
        assert_close(second, -a.double().mT @ c.double(), 8)


@pytest.mark.parametrize("shapes", [((2, 5, 4), (1, 4, 6)), ((5, 4), (1, 4, 6)), ((1, 5, 4), (1, 1, 4, 6))], ids=str)
def test_training_with_a_batch_of_one_matrix(shapes, rng, device) -> None:
    a, b = (normal(rng, *shape, device=device).requires_grad_() for shape in shapes)
    x, y = (t.detach().double().requires_grad_() for t in (a, b))
    want = torch.autograd.grad((x @ y).square().sum(), (x, y))
    for _ in range(CALLS):
        got = torch.autograd.grad(rungemm.matmul(a, b).square().sum(), (a, b))
        for mine, theirs in zip(got, want, strict=True):
            assert_close(mine, theirs, 24, steps=8)


def test_types_that_differ(rng, device) -> None:
    """C and the bias may be of any floating type, which torch's own functions would not have."""
    a, b = (normal(rng, *s, dtype=torch.bfloat16, device=device) for s in ((8, 16), (16, 24)))
    c, bias = normal(rng, 8, 24, device=device), normal(rng, 24, device=device)
    product = a.double() @ b.double()
    graded = a.clone().requires_grad_()
    for _ in range(CALLS):
        assert_close(rungemm.addmm(c, a, b), product + c.double(), 16, steps=2)
        assert_close(rungemm.gemm(a, b, c, out_dtype=torch.float32), product + c.double(), 16, steps=2)
        assert_close(rungemm.linear(a, b.mT, bias), product + bias.double(), 16, steps=2)
        assert_close(rungemm.linear(graded, b.mT, bias), product + bias.double(), 16, steps=2)
        # beta of 0 reads no C, so its shape and type say nothing.
        assert_close(rungemm.addmm(c[:3, :5].half(), a, b, beta=0), product, 16)
        assert_close(rungemm.addmm(c[:3, :5], a, b, alpha=2, beta=0), 2 * product, 16)


def test_a_transposed_out_of_a_batch(rng, device) -> None:
    """torch.matmul itself fails here (2.13), so it cannot be what is called."""
    a, b = normal(rng, 16, device=device), normal(rng, 2, 16, 8, device=device)
    for _ in range(CALLS):
        out = poisoned(8, 2, dtype=torch.float32, device=device).mT
        rungemm.matmul(a, b, out=out)
        assert_close(out, a.double() @ b.double(), 16)


@pytest.mark.filterwarnings("error")
def test_vectors_into_out_warn_of_nothing(rng, device) -> None:
    """torch.matmul itself says of a vector times a matrix that it resized ``out`` (2.13)."""
    torch.set_warn_always(True)
    try:
        for shapes in (((16,), (16, 8)), ((8, 16), (16,)), ((16,), (2, 16, 8)), ((2, 8, 16), (16,)), ((16,), (16,))):
            a, b = (normal(rng, *shape, device=device) for shape in shapes)
            want = a.double() @ b.double()
            for _ in range(CALLS):
                out = poisoned(*want.shape, dtype=torch.float32, device=device)
                version = out._version
                assert rungemm.matmul(a, b, out=out) is out and out._version > version
                assert_close(out, want, 16, size=size_of(a, b))  # one product may cancel
    finally:
        torch.set_warn_always(False)


def test_out_shares_memory_with_an_operand_of_a_warm_call(rng, device) -> None:
    """Strides and types are those of the call before; only the addresses say that out is read, too."""
    n = 24
    kept = normal(rng, 4, n, n, device=device)
    for name in "abc":
        for _ in range(CALLS):
            a, b, c, out = kept.clone()
            for where in (out, {"a": a, "b": b, "c": c}[name]):
                rungemm.matmul(a, b, out=where) if name != "c" else rungemm.addmm(c, a, b, out=where)
                want = kept[0].double() @ kept[1].double() + (kept[2].double() if name == "c" else 0)
                assert_close(where, want, n, steps=2)
        for _ in range(CALLS):  # half over an operand
            flat = torch.cat((kept[0].flatten(), kept[1].flatten(), kept[2].flatten(), kept[3].flatten()))
            a, b = flat[: n * n].view(n, n), flat[n * n : 2 * n * n].view(n, n)
            out = flat[n * n // 2 : n * n // 2 + n * n].view(n, n)
            rungemm.matmul(a, b, out=out)
            assert_close(out, kept[0].double() @ kept[1].double(), n)


def test_an_out_that_overlaps_itself_is_refused(rng, device) -> None:
    a, b = normal(rng, 4, 8, device=device), normal(rng, 8, 6, device=device)
    flat = torch.zeros(100, device=device)
    for strides in ((1, 1), (5, 1), (3, 2), (0, 1), (2, 10)):
        distinct = len({i * strides[0] + j * strides[1] for i in range(4) for j in range(6)}) == 24
        out = torch.as_strided(flat, (4, 6), strides)
        if distinct:
            assert_close(rungemm.matmul(a, b, out=out), a.double() @ b.double(), 8)
        else:
            with pytest.raises(ValueError, match=r"its elements share memory; pass a dense one"):
                rungemm.matmul(a, b, out=out)


def test_a_default_device_changes_nothing(rng, device) -> None:
    """A mode that watches torch's functions is on then, which once sent every call to torch: int8 would stay int8."""
    a, b = (torch.from_numpy(rng.integers(-128, 128, (24, 24))).to(torch.int8).to(device) for _ in range(2))
    with torch.device(device):
        for _ in range(CALLS):
            got = rungemm.matmul(a, b)
            assert got.dtype == torch.int32 and torch.equal(got.cpu().long(), a.cpu().long() @ b.cpu().long())
            assert rungemm.matmul(a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn)).dtype == torch.bfloat16


def test_tensors_that_hold_tensors_go_to_torch(rng, device) -> None:
    """DTensor, quantised weights and their like know torch's operators, not ours."""
    two_tensor = pytest.importorskip("torch.testing._internal.two_tensor")
    from torch.utils._python_dispatch import TorchDispatchMode

    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            assert "rungemm" not in str(func)
            return func(*args, **(kwargs or {}))

    x, w = normal(rng, 3, 4, device=device), normal(rng, 5, 4, device=device)
    with Recorder():
        got = rungemm.linear(two_tensor.TwoTensor(x, 2 * x), w, activation="gelu")
    assert_close(got.b, F.gelu(2 * x.double() @ w.double().mT), 4, steps=4)


def test_whole_numbers_stay_exact(rng, device) -> None:
    a, b = (torch.from_numpy(rng.integers(-128, 128, (24, 24))).to(torch.int8).to(device) for _ in range(2))
    c = torch.from_numpy(rng.integers(-(2**28), 2**28, (24, 24))).to(torch.int32).to(device)
    for _ in range(CALLS):
        got = rungemm.gemm(a, b, c, beta=3.0)
        assert torch.equal(got.cpu().long(), a.cpu().long() @ b.cpu().long() + 3 * c.cpu().long())
    with pytest.raises(ValueError, match=r"a whole beta"):
        rungemm.gemm(a, b, c, beta=0.5)


def test_whole_numbers_of_torchs_own(rng) -> None:
    a, b, c = (torch.from_numpy(rng.integers(-99, 99, (4, 4))) for _ in range(3))
    got = rungemm.addmm(c, a, b, alpha=2, beta=3)
    assert got.dtype == torch.int64 and torch.equal(got, torch.addmm(c, a, b, alpha=2, beta=3))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda a, b: rungemm.gemm(a, b, beta=1.0, scale_b=2.0), r"beta is 1.0 but no C was given"),
        (lambda a, b: rungemm.gemm(a, b[:, :5], epilogue="swiglu", scale_b=2.0), r"N is 5: a gated epilogue"),
        (lambda a, b: rungemm.gemm(a, b, bias=torch.ones(1, device=a.device), scale_b=2.0), r"a row bias has N = 8"),
        (lambda a, b: rungemm.gemm(a, b, epilogue=Epilogue("col"), scale_b=2.0), r"adds a col bias but none was given"),
        (lambda a, b: rungemm.gemm(a, b[:, 0], scale_b=torch.ones(1, 8, device=a.device)), r"1x8: pass one element"),
        (lambda a, b: rungemm.gemm(a, b, scale_a=torch.ones(3, 8, 1, device=a.device)), r"batches must be equal"),
        (lambda a, b: rungemm.gemm(a, b, torch.ones(9, 9, device=a.device), scale_a=2.0), r"C is 9x9 and A @ B 8x8"),
    ],
)  # fmt: skip
def test_scaled_products_check_all_that_others_do(call, words, device) -> None:
    a = torch.ones(8, 8, device=device).to(torch.float8_e4m3fn)
    with pytest.raises(ValueError, match=words):
        call(a, a)


@pytest.mark.parametrize("kind", [torch.float8_e4m3fn, torch.float64], ids=str)
def test_a_bias_of_a_vectors_product(kind, rng, device) -> None:
    """Beside a vector, M or N is 1, and the result has no axis for it."""
    a, b = normal(rng, 8, 4, device=device).to(kind), normal(rng, 4, 6, device=device).to(kind)
    rows, cols = normal(rng, 8, device=device), normal(rng, 6, device=device)
    more = {"scale_a": 0.5} if kind != torch.float64 else {"alpha": 0.5}
    for x, y, bias, kept in (
        (a, b[:, 0], rows, "col"), (a, b[:, 0], cols[:1], "row"), (a[0], b, cols, "row"), (a[0], b, rows[:1], "col"),
        (a[0], b[:, 0], rows[:1], "col"), (a, b, rows, "col"),
    ):  # fmt: skip
        want = 0.5 * (x.double() @ y.double())
        want = want + (bias.double()[:, None] if want.dim() == 2 else bias.double().reshape(-1 if want.dim() else ()))
        got = rungemm.gemm(x, y, bias=bias, epilogue=Epilogue(kept), out_dtype=torch.float32, **more)
        assert_close(got, want, 4, steps=2)


def test_a_c_that_beta_switches_off_has_a_gradient_of_zero(rng, device) -> None:
    a, b = normal(rng, 4, 8, device=device), normal(rng, 8, 6, device=device)
    c = torch.full((4, 6), float("nan"), device=device).requires_grad_()
    for call in (rungemm.addmm, torch.addmm):
        got = call(c, a, b, beta=0)
        assert_close(got, a.double() @ b.double(), 8)
        assert torch.equal(torch.autograd.grad(got.sum(), c)[0], torch.zeros_like(c))


def test_only_what_a_gradient_needs_is_kept(rng, device) -> None:
    """A frozen weight's inputs are not held (as torch has it), nor a weight whose inputs want no gradient."""
    x, w = normal(rng, 5, 16, device=device), normal(rng, 8, 16, device=device)
    for inputs, weight in ((x.clone().requires_grad_(), w), (x, w.clone().requires_grad_())):
        for _ in range(CALLS):
            held: list[int] = []
            with torch.autograd.graph.saved_tensors_hooks(lambda t: held.append(t.data_ptr()) or t, lambda t: t):  # noqa: B023
                got = rungemm.linear(inputs, weight)
            assert held == [(weight if inputs.requires_grad else inputs).data_ptr()]
            with torch.no_grad():
                (inputs if inputs.requires_grad else weight).add_(1)
            got.sum().backward()


@pytest.mark.parametrize("activation", [None, "gelu", "swiglu"])
def test_checkpoints(activation, rng, device) -> None:
    """What is kept in the first forward pass and when it is computed again must be alike."""
    from torch.utils.checkpoint import checkpoint

    x, w, b = (normal(rng, *s, device=device).requires_grad_() for s in ((2, 5, 16), (8, 16), (8,)))

    def call(x, w, b):
        return rungemm.linear(x, w, b, activation)

    for _ in range(CALLS):
        got = torch.autograd.grad(checkpoint(call, x, w, b, use_reentrant=False).sum(), (x, w, b))
        want = torch.autograd.grad(call(x.double(), w.double(), b.double()).sum(), (x, w, b))
        for mine, theirs in zip(got, want, strict=True):
            assert_close(mine, theirs, 16, steps=8)


def test_forward_derivatives(rng, device) -> None:
    """Also where the same call was made before without a tangent."""
    from torch.autograd import forward_ad

    x, tangent, w = (normal(rng, 6, 6, device=device) for _ in range(3))
    rungemm.matmul(x, w)
    for _ in range(CALLS):
        with forward_ad.dual_level():
            got = forward_ad.unpack_dual(rungemm.matmul(forward_ad.make_dual(x, tangent), w)).tangent
        assert_close(got, tangent.double() @ w.double(), 6)

    def value(linear, x, w):
        return linear(x, w).square().sum()

    ours = torch.func.hessian(lambda x: value(rungemm.linear, x, w))(x)
    assert_close(ours, torch.func.hessian(lambda x: value(F.linear, x, w.double()))(x.double()), 6, steps=8)
    _, ours = torch.func.jvp(lambda x: rungemm.linear(x, w, activation="gelu"), (x,), (tangent,))
    _, want = torch.func.jvp(lambda x: F.gelu(F.linear(x, w.double())), (x.double(),), (tangent.double(),))
    assert_close(ours, want, 6, steps=8)


def test_tracers_see_the_operator(rng, device) -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    a, b = normal(rng, 3, 4, device=device), normal(rng, 4, 5, device=device)
    for _ in range(CALLS):
        traced = make_fx(lambda a, b: rungemm.matmul(a, b))(a, b)
        assert "rungemm.gemm" in traced.code
        assert_close(traced(2 * a, b), 2 * a.double() @ b.double(), 4)
        traced = make_fx(lambda a, b: torch.func.grad(lambda a: rungemm.matmul(a, b).square().sum())(a))(a, b)
        assert traced.code.count("rungemm.gemm") == 2
        x = (3 * a).double()
        assert_close(traced(3 * a, b), 2 * x @ b.double() @ b.double().mT, 20, steps=4)


def test_floating_point_operations_are_counted(rng, device) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    a, b = normal(rng, 2, 3, 4, device=device), normal(rng, 2, 4, 5, device=device)
    with FlopCounterMode(display=False) as counter:
        rungemm.matmul(a, b)
        rungemm.matmul(a, b, out=torch.empty(2, 3, 5, device=device))
    assert counter.get_total_flops() == 2 * (2 * 2 * 3 * 4 * 5)


@pytest.mark.parametrize("shapes", [((5,), (5, 6)), ((4, 5), (5,)), ((2, 4, 5), (5, 6)), ((4, 5), (2, 5, 6)),
                                    ((2, 1, 4, 5), (3, 5, 6)), ((5,), (5,))], ids=str)  # fmt: skip
def test_vmap_of_any_shapes(shapes, rng, device) -> None:
    for at in ((0, 0), (1, 0), (0, None), (None, -1), (-1, 1)):
        full = [shape if axis is None else (*shape, 3) for shape, axis in zip(shapes, at, strict=True)]
        a, b = (normal(rng, *shape, device=device) for shape in full)
        a, b = (x if axis is None else x.movedim(-1, axis) for x, axis in zip((a, b), at, strict=True))
        got = torch.vmap(rungemm.matmul, in_dims=at)(a, b)
        assert_close(got, torch.vmap(torch.matmul, in_dims=at)(a.double(), b.double()), 5)


def test_the_default_precision_is_torchs_and_explained() -> None:
    try:
        for word, kind in (("high", "tf32"), ("highest", "ieee")):
            torch.set_float32_matmul_precision(word)
            assert rungemm.explain_dispatch((64, 64, 64), gpu="h200").problem.precision == kind
            assert rungemm.explain_dispatch((64, 64, 64), gpu="h200", dtype="bf16").problem.precision == "ieee"
            said = rungemm.explain_dispatch((64, 64, 64), gpu="h200", precision="tf32x3")
            assert said.problem.precision == "tf32x3"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_modes_do_not_leak_into_each_other(rng, device) -> None:
    w, x = normal(rng, 8, 16, device=device).requires_grad_(), normal(rng, 5, 16, device=device)
    b, c = w.detach().mT.contiguous().requires_grad_(), normal(rng, 8, device=device)
    for _ in range(CALLS):
        for call in (rungemm.matmul, lambda x, b: rungemm.addmm(c, x, b), lambda x, b: rungemm.gemm(x, b, bias=c)):
            with torch.no_grad():
                assert not call(x, b).requires_grad
            assert call(x, b).requires_grad and not call(x, b.detach()).requires_grad
        assert rungemm.linear(x, w).requires_grad
        with torch.no_grad():
            assert not rungemm.linear(x, w).requires_grad
        with torch.inference_mode():
            assert rungemm.linear(x, w).is_inference()
        assert not rungemm.linear(x, w.detach()).requires_grad
        with torch.autocast(torch.device(device).type, dtype=torch.bfloat16):
            assert rungemm.linear(x, w).dtype == torch.bfloat16


@pytest.mark.parametrize("operator", [False, True])
@pytest.mark.parametrize("activation", [None, "gelu", "gelu_tanh", "silu"])
def test_first_and_second_derivatives_of_every_epilogue(activation, operator) -> None:
    """By finite differences in float64, which the operators take although the public functions leave it to torch."""
    from rungemm.ops import custom
    from rungemm.ops.core import product

    for kind in (None, "row", "col"):
        for gated in (False, True):
            epilogue = Epilogue(kind, activation, gated, 1.5)
            shapes = ((3, 4), (4, 6), (3, 6), *([(6,) if kind == "row" else (3,)] if kind else []))
            operands = tuple(torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes)

            def ours(a, b, c, bias=None, epilogue=epilogue):
                rest = 0.7, -1.3, "ieee"
                if operator:
                    return custom.gemm(a, b, c, bias, *rest, *custom.epilogue_values(epilogue), torch.float64)
                return product(a, b, c, bias, None, *rest, epilogue, torch.float64)

            assert torch.autograd.gradcheck(ours, operands, fast_mode=True)
            assert torch.autograd.gradgradcheck(ours, operands, fast_mode=True)
