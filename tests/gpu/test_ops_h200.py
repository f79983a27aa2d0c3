"""The library at sizes where only a card shows a fault: neighbouring memory, odd offsets, far addresses, error, bits,
graphs. ``test_ops_ours.py`` runs all of it again with our kernels wherever one takes the problem.
"""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parents[1] / "ops"))

import torch.nn.functional as F  # noqa: E402
from ops_checks import FLOATS, assert_close  # noqa: E402

import rungemm  # noqa: E402
from rungemm.ops import front, guards, launch  # noqa: E402
from rungemm.tune.database import TuningDatabase  # noqa: E402

LAYOUTS = ("NN", "NT", "TN", "TT")
RAGGED = ((200, 136, 72), (129, 257, 65), (1, 512, 384), (512, 1, 384), (511, 511, 511), (200, 136, 72))
MARGINS = (8, 3, 8, 8, 3, 3)
"""Elements around each operand: 8 leave rows and addresses as aligned as they are, 3 do not."""

ODD = ((), ("x",), ("w",), ("bias",), ("c",), ("out",), ("x", "w", "bias", "c", "out"), ())
OFFSETS = (1, 8)
BUG_E = (512, 256, 384)


def cuda_normal(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(shape, device="cuda").to(dtype)


def inside(values: torch.Tensor, sea: float, margin: int, transposed: bool = False) -> tuple[Any, Any]:
    """The values as a view into a larger matrix filled with ``sea``: (view, the whole)."""
    rows, cols = values.shape[::-1] if transposed else values.shape
    whole = torch.full((rows + 2 * margin, cols + 2 * margin), sea, dtype=values.dtype, device="cuda")
    view = whole[margin : margin + rows, margin : margin + cols]
    view = view.mT if transposed else view
    view.copy_(values)
    return view, whole


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_nothing_bleeds_in_or_out(layout, dtype) -> None:
    """NaN on all sides of A and B, and a result among numbers that must not move."""
    for (m, n, k), margin in zip(RAGGED, MARGINS, strict=True):
        x, y = cuda_normal(m, k, dtype=dtype), cuda_normal(k, n, dtype=dtype)
        a, _ = inside(x, float("nan"), margin, layout[0] == "T")
        b, _ = inside(y, float("nan"), margin, layout[1] == "T")
        out, whole = inside(torch.full((m, n), float("nan"), device="cuda", dtype=dtype), 5.0, margin)
        rungemm.matmul(a, b, out=out)
        assert_close(out, x.double() @ y.double(), k)
        out.fill_(5.0)
        assert bool((whole == 5.0).all()), f"{m}x{n}x{k}: written beyond the result"


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_bug_e_odd_offsets_after_an_aligned_call(dtype) -> None:
    """(e): same shapes and strides, only the addresses differ, one operand at a time and all at once."""
    m, n, k = BUG_E

    def at(offset: int, values: torch.Tensor) -> torch.Tensor:
        flat = torch.full((values.numel() + 16,), float("nan"), dtype=dtype, device="cuda")
        view = flat[offset : offset + values.numel()].view(values.shape)
        return view.copy_(values)

    x, w, bias, c = (cuda_normal(*s, dtype=dtype) for s in ((m, k), (n, k), (n,), (m, n)))
    product = x.double() @ w.double().mT
    for names in ODD:
        for offset in OFFSETS:
            at_x, at_w, at_bias, at_c = (
                at(offset if name in names else 0, values)
                for name, values in (("x", x), ("w", w), ("bias", bias), ("c", c))
            )
            out = at(offset if "out" in names else 0, torch.full_like(c, float("nan")))
            assert_close(rungemm.matmul(at_x, at_w.mT, out=out), product, k)
            got = rungemm.linear(at_x, at_w, at_bias, "gelu")
            assert_close(got, F.gelu(product + bias.double()), k, steps=4)
            rungemm.gemm(at_x, at_w.mT, at_c, bias=at_bias, out=out)
            assert_close(out, product + c.double() + bias.double(), k, steps=3)


def test_bug_h_an_empty_tuning_database(tmp_path, monkeypatch) -> None:
    """(h): nothing is tried out on the user's C: the first call equals the second on a fresh C."""
    monkeypatch.setattr(launch, "users_database", lambda: TuningDatabase(tmp_path))
    for dtype in FLOATS:
        a, b, c = (cuda_normal(*s, dtype=dtype) for s in ((300, 520), (520, 264), (300, 264)))
        rungemm.forget()
        results = [c.clone() for _ in range(3)]
        for result in results:
            rungemm.addmm(result, a, b, out=result)
        assert torch.equal(results[0], results[1]) and torch.equal(results[1], results[2])
        assert_close(results[0], a.double() @ b.double() + c.double(), 520, steps=2)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_far_batches_and_far_columns(dtype) -> None:
    """Offsets beyond 2^31 elements between batches, between columns, and inside B and C."""
    far = 2**31 + 64
    space = torch.empty(far + 300_000, dtype=dtype, device="cuda")
    near, beyond = space[:131_072], space[far : far + 131_072]
    for part in (near, beyond):
        part.normal_()
    batches = torch.as_strided(space, (2, 64, 128), (far, 128, 1))
    other = cuda_normal(128, 48, dtype=dtype)
    assert_close(rungemm.matmul(batches, other), batches.double() @ other.double(), 128)
    halves = torch.as_strided(space, (2, 1024), (far, 1))  # rows far apart: as A, as B, transposed, and as C
    wide = cuda_normal(1024, 40, dtype=dtype)
    assert_close(rungemm.matmul(halves, wide), halves.double() @ wide.double(), 1024)
    assert_close(rungemm.matmul(wide.mT, halves.mT), wide.double().mT @ halves.double().mT, 1024)
    pair = cuda_normal(56, 2, dtype=dtype)
    assert_close(rungemm.matmul(pair, halves), pair.double() @ halves.double(), 2)
    assert_close(rungemm.matmul(halves.mT, pair.mT), halves.double().mT @ pair.double().mT, 2)
    x, y = cuda_normal(2, 96, dtype=dtype), cuda_normal(96, 1024, dtype=dtype)
    want = x.double() @ y.double() + halves.double()
    assert_close(rungemm.addmm(halves, x, y), want, 96, steps=2)
    rungemm.addmm(halves, x, y, out=halves)
    assert_close(halves, want, 96, steps=2)


def error(got: torch.Tensor, want: torch.Tensor) -> float:
    return float((got.double() - want).norm() / want.norm())


def test_the_error_is_torchs_own_in_other_types_and_epilogues() -> None:
    """At most 1.1 times torch's error: tf32, fp8, C, a bias and gelu, batches; int8 is exact."""
    for m, n, k in ((512, 512, 512), (336, 784, 560), (64, 64, 16384)):
        a, b = torch.randn(m, k, device="cuda"), torch.randn(k, n, device="cuda")
        want = a.double() @ b.double()
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high")
        try:
            mine, theirs = rungemm.matmul(a, b), a @ b
        finally:
            torch.set_float32_matmul_precision(before)
        assert error(mine, want) > error(a @ b, want), "tf32 was asked for, and fp32 computed"
        assert error(mine, want) <= 1.1 * error(theirs, want), f"tf32 {m}x{n}x{k}"
        x, y = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn)
        one = torch.ones((), device="cuda")
        theirs = torch._scaled_mm(x, y.mT.contiguous().mT, one, one, out_dtype=torch.bfloat16)
        want = x.double() @ y.double()
        assert error(rungemm.matmul(x, y), want) <= 1.1 * error(theirs, want), f"fp8 {m}x{n}x{k}"
        left, right = (torch.randint(-128, 128, s, device="cuda", dtype=torch.int8) for s in ((m, k), (k, n)))
        assert torch.equal(rungemm.matmul(left, right).double(), left.double() @ right.double())
    for dtype in FLOATS:
        x, w, bias, c = (cuda_normal(*s, dtype=dtype) for s in ((512, 1024), (768, 1024), (768,), (512, 768)))
        w = w / 32
        exact = x.double() @ w.double().mT
        for words, mine, theirs, want in (
            ("addmm", rungemm.addmm(c, x, w.mT, alpha=0.5, beta=2), torch.addmm(c, x, w.mT, alpha=0.5, beta=2),
             0.5 * exact + 2 * c.double()),
            ("linear", rungemm.linear(x, w, bias), F.linear(x, w, bias), exact + bias.double()),
            ("gelu", rungemm.linear(x, w, bias, "gelu"), F.gelu(F.linear(x, w, bias)), F.gelu(exact + bias.double())),
            ("bmm", rungemm.bmm(x.view(8, 64, 1024), w.mT.expand(8, 1024, 768)), torch.bmm(x.view(8, 64, 1024),
             w.mT.expand(8, 1024, 768)), exact.view(8, 64, 768)),
        ):  # fmt: skip
            assert error(mine, want) <= 1.1 * error(theirs, want), f"{words} {dtype}"


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_the_same_bits_in_a_hundred_calls(dtype) -> None:
    """Split K, ragged edges and whole tiles, with other work before them and on another stream."""
    side = torch.cuda.Stream()
    for m, n, k in ((64, 64, 16384), (333, 777, 555), (1024, 1024, 1024), (4096, 24, 4096), (1, 4096, 4096)):
        a, w, bias = cuda_normal(m, k, dtype=dtype), cuda_normal(n, k, dtype=dtype), cuda_normal(n, dtype=dtype)
        first, second = rungemm.matmul(a, w.mT), rungemm.linear(a, w, bias, "gelu")
        torch.cuda.synchronize()
        wrong = torch.zeros((), dtype=torch.int64, device="cuda")
        for turn in range(100):
            torch.cuda._sleep(1000 * (turn % 7))
            out = torch.full_like(first, float("nan"))
            rungemm.matmul(a, w.mT, out=out)
            wrong += (out != first).any()
            if turn % 4 == 0:
                wrong += (rungemm.linear(a, w, bias, "gelu") != second).any()
            if turn % 10 == 0:
                side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(side):
                    elsewhere = (rungemm.matmul(a, w.mT) != first).any()
                torch.cuda.current_stream().wait_stream(side)
                wrong += elsewhere
        assert int(wrong) == 0, f"{m}x{n}x{k}"


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_a_warm_call_allocates_its_result_and_a_workspace_at_most(dtype) -> None:
    for m, n, k in ((256, 256, 256), (1024, 1024, 1024), (333, 777, 555), (64, 64, 16384)):
        a, b = cuda_normal(m, k, dtype=dtype), cuda_normal(k, n, dtype=dtype)
        out = torch.empty(m, n, dtype=dtype, device="cuda")
        for _ in range(3):
            rungemm.matmul(a, b, out=out)
        before = torch.cuda.memory_stats()["allocation.all.allocated"]
        for _ in range(10):
            rungemm.matmul(a, b, out=out)
        made = torch.cuda.memory_stats()["allocation.all.allocated"] - before
        # Split K may take partial sums, a copy of an odd A and one of an odd B from torch's allocator.
        assert made <= 30, f"{m}x{n}x{k}: {made / 10} allocations a call"


def test_warm_calls_are_known_by_torchs_guards(monkeypatch) -> None:
    """From the third on; on any stream, in a capture, and with a gradient wanted."""
    assert guards._Guards is not None, "this torch has none: warm calls take the longer of the short ways"
    asked: list[str] = []
    real = front.key_of
    monkeypatch.setattr(front, "key_of", lambda *x, **kw: asked.append(x[0]) or real(*x, **kw))
    m, n, k = BUG_E
    for dtype in FLOATS:
        a, b, w = (cuda_normal(*shape, dtype=dtype) for shape in ((m, k), (k, n), (n, k)))
        bias, out, trained = cuda_normal(n, dtype=dtype), torch.empty(m, n, device="cuda", dtype=dtype), w.clone()
        trained.requires_grad_()
        calls = {
            "new": lambda a=a, b=b: rungemm.matmul(a, b),
            "out": lambda a=a, b=b, out=out: rungemm.matmul(a, b, out=out),
            "linear": lambda a=a, w=w, bias=bias: rungemm.linear(a, w, bias, "gelu"),
            "training": lambda a=a, w=trained: rungemm.linear(a, w),
        }
        for name, call in calls.items():
            want = call().detach().clone()
            call()
            asked.clear()
            side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                got = call()
            torch.cuda.current_stream().wait_stream(side)
            assert torch.equal(got, want), (name, dtype)
            with torch.cuda.graph(graph):
                got = call()
            assert not asked, (name, dtype)
            got.detach().fill_(float("nan"))
            graph.replay()
            # A captured product may be cuBLAS's where an eager one is ours.
            assert_close(got.detach(), want.double(), k, steps=2), (name, dtype)


def test_captured_training_steps() -> None:
    """Forward and backward of a patched model in CUDA graphs, replayed on new data, beside the same in eager mode."""
    torch.manual_seed(1)
    plain = torch.nn.Sequential(torch.nn.Linear(96, 160), torch.nn.GELU(), torch.nn.Linear(160, 40)).cuda().bfloat16()
    patched = rungemm.patch(copy.deepcopy(plain))
    example = torch.randn(77, 96, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    graphed = torch.cuda.make_graphed_callables(patched, (example,))
    for _ in range(3):
        x = torch.randn(77, 96, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        mine = torch.autograd.grad(graphed(x).float().square().sum(), (x, *patched.parameters()))
        reference = copy.deepcopy(plain).double()
        wide = x.detach().double().requires_grad_()
        want = torch.autograd.grad(reference(wide).square().sum(), (wide, *reference.parameters()))
        for one, other in zip(mine, want, strict=True):
            assert_close(one, other, 160, steps=8)


def test_a_captured_product_that_accumulates() -> None:
    """C is the result: every replay adds once more."""
    for dtype in (torch.float32, torch.bfloat16):
        a, b = cuda_normal(130, 70, dtype=dtype), cuda_normal(70, 90, dtype=dtype)
        total = torch.zeros(130, 90, dtype=dtype, device="cuda")
        rungemm.addmm(total, a, b, out=total)
        torch.cuda.synchronize()
        total.zero_()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            rungemm.addmm(total, a, b, out=total)
        for _ in range(4):
            graph.replay()
        torch.cuda.synchronize()
        assert_close(total, 4 * (a.double() @ b.double()), 70, steps=4)
