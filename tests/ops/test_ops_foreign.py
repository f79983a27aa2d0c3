"""What is not ours obeys the library's rules all the same: aliasing, shapes, scalars and errors as everywhere."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from ops_checks import assert_close, normal  # noqa: E402

import rungemm  # noqa: E402
from rungemm.problem import ProblemError  # noqa: E402

FOREIGN = (torch.float64, torch.complex64)


def operands(rng, device, dtype, *shapes):
    return [normal(rng, *shape, dtype=torch.float64, device=device).to(dtype) for shape in shapes]


@pytest.mark.parametrize("dtype", FOREIGN, ids=str)
@pytest.mark.parametrize("batch", [(), (3,)], ids=str)
def test_out_may_be_an_operand(dtype, batch, rng, device) -> None:
    """torch.matmul itself writes it while it reads, and returns something else without a word."""
    for place in (0, 1):
        pair = operands(rng, device, dtype, (*batch, 24, 24), (*batch, 24, 24))
        want = torch.matmul(pair[0].clone(), pair[1].clone())
        version = pair[place]._version
        got = rungemm.matmul(*pair, out=pair[place])
        assert got is pair[place] and got._version > version
        torch.testing.assert_close(got, want)
    flat, b = operands(rng, device, dtype, (600 * 3,), (*batch, 24, 24))
    a = flat[: b.numel()].view(b.shape)
    want = torch.matmul(a.clone(), b)
    if not batch:
        torch.testing.assert_close(rungemm.matmul(a, b, out=flat[300:876].view(24, 24)), want)
    apart = torch.full_like(want, math.nan)
    torch.testing.assert_close(rungemm.matmul(a.clone(), b, out=apart), torch.matmul(a.clone(), b))


@pytest.mark.filterwarnings("error")
def test_vectors_into_out_warn_of_nothing(rng, device) -> None:
    torch.set_warn_always(True)
    try:
        for shapes in (((16,), (16, 8)), ((8, 16), (16,)), ((16,), (2, 16, 8)), ((16,), (16,))):
            a, b = operands(rng, device, torch.float64, *shapes)
            out = torch.full_like(a @ b, math.nan)
            torch.testing.assert_close(rungemm.matmul(a, b, out=out), a @ b)
    finally:
        torch.set_warn_always(False)


def test_out_in_a_compiled_graph(rng, device) -> None:
    a, b, c = operands(rng, device, torch.float64, (8, 8), (8, 8), (8, 8))
    torch._dynamo.reset()

    @torch.compile(fullgraph=True, backend="aot_eager")
    def call(a, b, c):
        rungemm.matmul(a, b, out=a)
        return rungemm.addmm(c, a, b, alpha=2, out=c)

    first = a @ b
    want = c + 2 * first @ b
    torch.testing.assert_close(call(a, b, c), want)
    torch.testing.assert_close(a, first)


def test_c_is_broadcast_to_the_product_and_not_the_product_to_c(rng, device) -> None:
    a, b = operands(rng, device, torch.float64, (1, 8), (8, 6))
    for c in (torch.ones(4, 6), torch.ones(3, 1, 6), torch.ones(1, 1, 1)):
        for kind in (torch.float64, torch.float32):
            with pytest.raises(ProblemError, match=r"^C is [^\n]* and A @ B 1x6: pass C with that shape$"):
                rungemm.gemm(a.to(kind), b.to(kind), c.to(device, kind))
    with pytest.raises(ProblemError, match=r"C is torch.complex128"):
        rungemm.gemm(a, b, torch.ones(6, dtype=torch.complex128, device=device))
    for c in (torch.ones(1, 6), torch.ones(6), torch.ones(())):
        torch.testing.assert_close(rungemm.gemm(a, b, c.double().to(device)), a @ b + 1)


def test_errors_of_shapes_are_the_librarys(device) -> None:
    a, b = torch.ones(4, 8, dtype=torch.float64, device=device), torch.ones(8, 6, dtype=torch.float64, device=device)
    for call, words in (
        (lambda: rungemm.matmul(a, a), r"A is 4x8 and B is 4x8: K differs"),
        (lambda: rungemm.matmul(a[0, 0], b), r"A is a scalar"),
        (lambda: rungemm.matmul(a.expand(2, 4, 8), b.expand(3, 8, 6)), r"batches of 2 and 3 do not broadcast"),
        (lambda: rungemm.matmul(a, b, out=a), r"out is 4x8 and the result 4x6: pass that shape"),
        (lambda: rungemm.gemm(a, b, epilogue="relu", out=a), r"out is 4x8 and the result 4x6: pass that shape"),
        (lambda: rungemm.matmul(a, b, out=b[0, 0].expand(4, 6)), r"its elements share memory"),
        (lambda: rungemm.matmul(a + 0j, b + 0j, out=b[:4]), r"out is torch.float64 and the result torch.complex128"),
        (lambda: rungemm.matmul(a, None), r"^B is a NoneType: pass a torch.Tensor$"),
        (lambda: rungemm.matmul(None, b), r"^A is a NoneType: pass a torch.Tensor$"),
        (lambda: rungemm.linear(a, None), r"^weight is a NoneType: pass a torch.Tensor$"),
        (lambda: rungemm.gemm(a.float(), b.float(), a.float()[:, :6].to_sparse()), r"^C is torch.sparse_coo: pass a"),
        (lambda: rungemm.linear(a.float(), a.float(), a.float()[0, :4].to_sparse()), r"^bias is torch.sparse_coo"),
        (lambda: rungemm.matmul(a.float(), b.float(), out=a.float()[:, :6].to_sparse()), r"^out is torch.sparse_coo"),
        (lambda: rungemm.gemm(a.float(), b.float(), a[:, :6].to(torch.float8_e5m2)), r"^C is torch.float8_e5m2: conv"),
    ):  # fmt: skip
        with pytest.raises(ProblemError, match=words):
            call()


def test_an_empty_out_is_resized(rng, device) -> None:
    a, b, c = operands(rng, device, torch.float64, (4, 8), (8, 6), (4, 6))
    for kind in (torch.float64, torch.float32):
        out = torch.empty(0, dtype=kind, device=device)
        assert rungemm.addmm(c, a, b, out=out) is out
        torch.testing.assert_close(out, (c + a @ b).to(kind))


def test_scalars_that_whole_numbers_cannot_take(rng, device) -> None:
    if device != "cpu":
        pytest.skip("torch multiplies int64 on the CPU only")
    whole = torch.arange(16, device=device).view(4, 4)
    small, sums = whole.to(torch.int8), whole.to(torch.int32)
    for value in (math.inf, -math.inf, math.nan, 2.5):
        for who in ("alpha", "beta"):
            with pytest.raises(ProblemError, match=rf"{who} is {value} and the product torch.int64: pass a whole"):
                rungemm.addmm(whole, whole, whole, **{who: value})
        with pytest.raises(ProblemError, match=r"a whole beta"):
            rungemm.gemm(small, small, sums, beta=value)
    assert torch.equal(rungemm.addmm(whole, whole, whole, alpha=True, beta=-2), whole @ whole - 2 * whole)
    with pytest.raises(ProblemError, match=r"^alpha is beyond float64's range"):
        rungemm.addmm(whole.float(), whole.float(), whole.float(), alpha=10**400)


def test_sparse_operands_on_either_side(rng, device) -> None:
    x, w, bias = normal(rng, 5, 16, device=device), normal(rng, 8, 16, device=device), normal(rng, 8, device=device)
    want = x.double() @ w.double().mT
    for sparse in (torch.Tensor.to_sparse, torch.Tensor.to_sparse_csr):
        weight, rows = sparse(w), sparse(x)
        calls = (
            (rungemm.linear, lambda x, w: torch.matmul(x, w.mT), (x, weight), want),
            (rungemm.linear, lambda x, w, bias: torch.matmul(x, w.mT) + bias, (x, weight, bias), want + bias.double()),
            (rungemm.matmul, torch.matmul, (rows, w.mT), want),
            (rungemm.matmul, torch.matmul, (x, weight.mT), want),
        )
        for ours, torchs, operands, expected in calls:
            try:
                torchs(*operands)
            except (NotImplementedError, RuntimeError) as error:  # on some devices torch has no such product
                with pytest.raises(type(error)):
                    ours(*operands)
            else:
                assert_close(ours(*operands), expected, 16, steps=2)


def test_a_bias_or_c_of_another_class_goes_to_torch(rng, device) -> None:
    two_tensor = pytest.importorskip("torch.testing._internal.two_tensor")
    from torch.utils._python_dispatch import TorchDispatchMode

    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            assert "rungemm" not in str(func)
            return func(*args, **(kwargs or {}))

    x, w, bias = normal(rng, 5, 16, device=device), normal(rng, 8, 16, device=device), normal(rng, 8, device=device)
    want = x.double() @ w.double().mT
    with Recorder():
        as_bias = rungemm.linear(x, w, two_tensor.TwoTensor(bias, 2 * bias))
        as_c = rungemm.gemm(x, w.mT, two_tensor.TwoTensor(bias, 2 * bias))
    assert_close(as_bias.b, want + 2 * bias.double(), 16, steps=2)
    assert_close(as_c.a, want + bias.double(), 16, steps=2)


def test_scaled_products_obey_the_rules_of_all(device) -> None:
    ones = torch.ones(8, 8, device=device).to(torch.float8_e4m3fn)
    vector = ones[0]
    for scale in (torch.tensor(2.0, device=device), torch.full((1,), 2.0, device=device), 2.0):
        got = rungemm.gemm(vector, ones, scale_a=scale, scale_b=scale)
        assert torch.equal(got, torch.full((8,), 32.0, dtype=torch.bfloat16, device=device))
    with pytest.raises(ProblemError, match=r"^scale_a is 8x1: pass one element$"):
        rungemm.gemm(vector, ones, scale_a=torch.ones(8, 1, device=device))
    with pytest.raises(ProblemError, match=r"^B is a scalar"):
        rungemm.gemm(ones, ones[0, 0], scale_b=torch.ones(1, device=device))
    wanted = torch.ones(8, 8, device=device, requires_grad=True)
    out = torch.zeros(8, 8, device=device)
    for more in ({"c": wanted, "scale_a": 2.0}, {"scale_a": wanted[:1, :1]}, {"bias": wanted[0], "scale_b": 2.0}):
        with pytest.raises(RuntimeError, match=r"^gemm\(\): functions with out=... arguments don't support automatic"):
            rungemm.gemm(ones, ones, **more, out=out)
        with torch.no_grad():
            assert not rungemm.gemm(ones, ones, **more, out=out).requires_grad
    for more, words in (
        ({"out_dtype": torch.int8}, r"^a scaled result would be torch.int8: ask for"),
        ({"out": torch.ones(8, 8, dtype=torch.int64, device=device)}, r"^a scaled result would be torch.int64"),
        ({"out": out, "out_dtype": torch.bfloat16}, r"^out is torch.float32 and out_dtype torch.bfloat16"),
        ({"c": out + 0j}, r"^C is torch.complex64"),
        ({"scale_a": torch.tensor(1j, device=device)}, r"^scale_a is torch.complex64: pass real numbers$"),
    ):
        with pytest.raises(ProblemError, match=words):
            rungemm.gemm(ones, ones, **{"scale_a": 2.0, **more})


def test_meta_tensors_under_autocast() -> None:
    """As when a model's shapes are looked up under the autocast it will train in."""
    a, b = torch.ones(4, 8, device="meta"), torch.ones(8, 6, device="meta")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert rungemm.matmul(a, b).shape == torch.matmul(a, b).shape


def test_nan_scalars_are_one_question(rng, device) -> None:
    from rungemm.ops.arguments import number

    assert len({number("alpha", float("nan")) for _ in range(5)}) == 1
