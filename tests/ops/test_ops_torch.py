"""torch's own demands: operators with honest stand-ins, torch.compile, vmap, transforms, autocast, modes."""

from __future__ import annotations

import shutil

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from ops_checks import FLOATS, assert_close, normal  # noqa: E402

import rungemm  # noqa: E402
from rungemm.ops import custom  # noqa: E402

PLAIN = (1.0, 0.0, "default", "", "", False, 1.0)


def samples(rng, device):
    """Arguments of rungemm::gemm that between them use everything it has."""
    for dtype in FLOATS:
        a, b, c = (normal(rng, *s, dtype=dtype, device=device) for s in ((6, 8), (8, 10), (6, 10)))
        bias = normal(rng, 10, dtype=dtype, device=device)
        yield a, b, None, None, *PLAIN, dtype
        yield a.mT.contiguous().mT, b, c[:1].expand(6, 10), bias, 0.5, 2.0, "ieee", "row", "gelu", False, 2.0, dtype
        yield a.expand(3, 6, 8), b.expand(3, 8, 10), None, None, *PLAIN, torch.float32
        yield a, b, None, bias, 1.0, 0.0, "default", "row", "silu", True, 1.0, dtype
    yield a[:0], b, None, None, *PLAIN, dtype


def test_opcheck(rng, device) -> None:
    for arguments in samples(rng, device):
        torch.library.opcheck(custom.gemm.default, arguments)
        graded = [x.detach().clone().requires_grad_() if isinstance(x, torch.Tensor) else x for x in arguments]
        torch.library.opcheck(custom.gemm.default, tuple(graded))
        a, b, c, bias, *rest = arguments
        shape = custom.result_shape(a, b, rest[5])
        out = torch.empty(shape, dtype=rest[7], device=device)
        torch.library.opcheck(custom.gemm_out.default, (a, b, c, bias, out, *rest))


def test_stand_ins_have_the_real_strides(rng, device) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    for arguments in samples(rng, device):
        real = custom.gemm(*arguments)
        with FakeTensorMode() as mode:
            fake = custom.gemm(*(mode.from_tensor(x) if isinstance(x, torch.Tensor) else x for x in arguments))
        assert (real.shape, real.stride(), real.dtype, real.device.type) == (
            fake.shape, fake.stride(), fake.dtype, fake.device.type,
        )  # fmt: skip


def backend_for(device: str) -> str:
    """Inductor builds its launchers with a C compiler, which not every machine with a card has."""
    return "inductor" if device != "cpu" and (shutil.which("cc") or shutil.which("gcc")) else "aot_eager"


def test_compile_whole_graphs(rng, device) -> None:
    w, bias = normal(rng, 24, 16, device=device).requires_grad_(), normal(rng, 24, device=device)

    def block(x, w, bias):
        y = rungemm.linear(x, w, bias, "gelu")
        z = rungemm.matmul(y, y.mT)
        return rungemm.gemm(z, z, z, beta=0.5, epilogue=rungemm.Epilogue(activation="relu")).sum() + y.sum()

    torch._dynamo.reset()
    compiled = torch.compile(block, fullgraph=True, backend=backend_for(device))
    for rows in (5, 5, 9, 13):
        x = normal(rng, rows, 16, device=device).requires_grad_()
        got, want = compiled(x, w, bias), block(x.double(), w.double(), bias.double())
        assert_close(got, want, 24, steps=40)
        mine, theirs = torch.autograd.grad(got, (x, w)), torch.autograd.grad(want, (x, w))
        for one, other in zip(mine, theirs, strict=True):
            assert_close(one, other, 24, steps=200)


def test_compile_with_out(rng, device) -> None:
    torch._dynamo.reset()

    def step(a, b, out):
        rungemm.matmul(a, b, out=out)
        return out + 1

    a, b = normal(rng, 6, 5, device=device), normal(rng, 5, 7, device=device)
    out = torch.zeros(6, 7, device=device)
    got = torch.compile(step, fullgraph=True, backend=backend_for(device))(a, b, out)
    want = a.double() @ b.double()
    assert_close(out, want, 5)
    assert_close(got, want + 1, 5, steps=2)


def test_vmap(rng, device) -> None:
    a, b = normal(rng, 3, 4, 5, device=device), normal(rng, 3, 5, 6, device=device)
    want = a.double() @ b.double()
    assert_close(torch.vmap(rungemm.matmul)(a, b), want, 5)
    assert_close(torch.vmap(rungemm.matmul, in_dims=(0, None))(a, b[0]), a.double() @ b[0].double(), 5)
    assert_close(torch.vmap(rungemm.matmul, in_dims=(None, 2))(a[0], b.movedim(0, 2)), a[0].double() @ b.double(), 5)
    nested = torch.vmap(torch.vmap(rungemm.matmul, in_dims=(None, 0)), in_dims=(0, None))(a, b)
    assert_close(nested, a.double()[:, None] @ b.double(), 5)
    batched = torch.vmap(rungemm.bmm, in_dims=(1, None))(a[:, None].expand(3, 7, 4, 5), b)
    assert_close(batched, want.expand(7, 3, 4, 6), 5)


def test_vmap_of_the_whole_epilogue(rng, device) -> None:
    x, w = normal(rng, 4, 5, 3, device=device), normal(rng, 4, 6, 3, device=device)
    bias, c = normal(rng, 4, 6, device=device), normal(rng, 4, 5, 6, device=device)
    want = F.silu(x.double() @ w.double().mT + bias.double()[:, None])
    assert_close(torch.vmap(lambda *t: rungemm.linear(*t, "silu"))(x, w, bias), want, 3, steps=4)
    got = torch.vmap(lambda x, bias: rungemm.linear(x, w[0], bias, "silu"))(x, bias)
    assert_close(got, F.silu(x.double() @ w[0].double().mT + bias.double()[:, None]), 3, steps=4)

    def column(x, c, bias):
        return rungemm.gemm(x, w[0].mT, c, beta=2.0, bias=bias, epilogue=rungemm.Epilogue("col"))

    column_bias = normal(rng, 4, 5, device=device)
    want = x.double() @ w[0].double().mT + 2 * c.double() + column_bias.double()[:, :, None]
    assert_close(torch.vmap(column)(x, c, column_bias), want, 3, steps=4)
    want = x.double() @ w[0].double().mT + 2 * c[0].double() + column_bias.double()[:, :, None]
    assert_close(torch.vmap(column, in_dims=(0, None, 0))(x, c[0], column_bias), want, 3, steps=4)


def test_functional_transforms(rng, device) -> None:
    w, x = normal(rng, 6, 3, device=device), normal(rng, 5, 3, device=device)

    def loss(linear, w, x):
        return linear(x, w).square().sum()

    ours = torch.func.vmap(torch.func.grad(lambda w, x: loss(rungemm.linear, w, x)), in_dims=(None, 0))(w, x)
    by_torch = torch.func.vmap(torch.func.grad(lambda w, x: loss(F.linear, w, x)), in_dims=(None, 0))
    want = by_torch(w.double(), x.double())
    assert_close(ours, want, 3, steps=8)
    hessian = torch.func.jacrev(torch.func.jacrev(lambda x: loss(rungemm.linear, w, x)))(x)
    want = torch.func.jacrev(torch.func.jacrev(lambda x: loss(F.linear, w.double(), x)))(x.double())
    assert_close(hessian, want, 6, steps=8)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_autocast(dtype, rng, device) -> None:
    a, b, bias = normal(rng, 6, 5, device=device), normal(rng, 5, 7, device=device), normal(rng, 7, device=device)
    out = torch.zeros(6, 7, device=device)
    with torch.autocast(torch.device(device).type, dtype=dtype):
        assert rungemm.matmul(a, b).dtype == torch.matmul(a, b).dtype == dtype
        assert rungemm.linear(a, b.mT, bias).dtype == F.linear(a, b.mT, bias).dtype == dtype
        assert rungemm.matmul(a.double(), b.double()).dtype == torch.float64
        rungemm.matmul(a, b, out=out)
        weight = b.mT.clone().requires_grad_()
        rungemm.linear(a, weight, bias).sum().backward()
        assert weight.grad.dtype == torch.float32
    assert_close(out, a.double() @ b.double(), 5)
    assert_close(rungemm.matmul(a.to(dtype), b.to(dtype)), a.to(dtype).double() @ b.to(dtype).double(), 5)


def test_dispatch_modes_see_an_operator(rng, device) -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Recorder(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[str] = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.seen.append(str(func))
            return func(*args, **(kwargs or {}))

    a, b = normal(rng, 3, 4, device=device), normal(rng, 4, 5, device=device)
    out = torch.empty(3, 5, device=device)
    with Recorder() as recorder:
        rungemm.matmul(a, b)
        rungemm.matmul(a, b, out=out)
    assert [name for name in recorder.seen if "rungemm" in name] == ["rungemm.gemm.default", "rungemm.gemm_out.default"]


def test_subclasses_keep_their_ways(rng, device) -> None:
    class Marked(torch.Tensor):
        pass

    a = normal(rng, 3, 4, device=device).as_subclass(Marked)
    b = normal(rng, 4, 5, device=device)
    got = rungemm.matmul(a, b)
    assert type(got) is Marked
    assert_close(got.as_subclass(torch.Tensor), a.as_subclass(torch.Tensor).double() @ b.double(), 4)


def test_meta_tensors(device) -> None:
    a, b = torch.empty(2, 3, 4, device="meta"), torch.empty(4, 5, device="meta")
    got = rungemm.matmul(a, b)
    assert got.device.type == "meta" and got.shape == (2, 3, 5)


def test_inference_mode(rng, device) -> None:
    with torch.inference_mode():
        a, b = normal(rng, 3, 4, device=device), normal(rng, 4, 5, device=device)
        out = torch.empty(3, 5, device=device)
        for _ in range(2):
            assert_close(rungemm.matmul(a, b, out=out), a.double() @ b.double(), 4)
