"""The library on a card, with the kernels it chooses: all that runs on the CPU too, and what only a card can show."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

sys.path.insert(0, str(Path(__file__).parents[1] / "ops"))

import test_audit_calls  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from ops_checks import FLOATS, assert_close, poisoned  # noqa: E402
from test_audit_calls import *  # noqa: E402,F403
from test_ops_autograd import *  # noqa: E402,F403
from test_ops_foreign import *  # noqa: E402,F403
from test_ops_gemm import *  # noqa: E402,F403
from test_ops_hostile import *  # noqa: E402,F403
from test_ops_matmul import *  # noqa: E402,F403
from test_ops_patching import *  # noqa: E402,F403
from test_ops_torch import *  # noqa: E402,F403

import rungemm  # noqa: E402

# Each of the storm's problems may need a kernel of its own; precompile_ops.py compiles for as many.
test_audit_calls.QUESTIONS = 10


@pytest.fixture
def device() -> str:
    return "cuda"


@pytest.fixture(autouse=True)
def seeded(seed: int) -> None:
    torch.manual_seed(seed)


def cuda_normal(*shape: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(shape, device="cuda").to(dtype)


@pytest.mark.parametrize(("batch", "m", "n", "k"), [(65536, 8, 8, 64), (65536, 225, 1, 4), (70001, 3, 5, 2)])
def test_bug_g_more_batches_than_a_grid_is_high(batch, m, n, k) -> None:
    """(g): the last batch is right too."""
    a, b = cuda_normal(batch, m, k, dtype=torch.float16), cuda_normal(batch, k, n, dtype=torch.float16)
    out = poisoned(batch, m, n, dtype=torch.float16, device="cuda")
    rungemm.bmm(a, b, out=out)
    for index in (0, 1, 65534, 65535, batch - 1):
        assert_close(out[index], a[index].double() @ b[index].double(), k)
    assert_close(out, a.double() @ b.double(), k)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_operands_beyond_two_to_the_31_elements(dtype) -> None:
    """A long A, a D with more than 2^31 elements, and a view whose strides reach beyond."""
    rows, k, n = 66_000, 33_000, 24
    a, b = torch.empty(rows, k, dtype=dtype, device="cuda").normal_(), cuda_normal(k, n, dtype=dtype)
    assert a.numel() > 2**31
    got = rungemm.matmul(a, b)
    for part in (slice(0, 64), slice(rows - 64, rows)):
        assert_close(got[part], a[part].double() @ b.double(), k)
    steps = a[::1000]  # 66 rows, 33 million elements apart
    assert_close(rungemm.matmul(steps, b), steps.double() @ b.double(), k)
    del a, got
    x, y = cuda_normal(rows, 16, dtype=dtype), cuda_normal(16, 33_000, dtype=dtype)
    wide = poisoned(rows, 33_000, dtype=dtype, device="cuda")
    rungemm.matmul(x, y, out=wide)
    for part in (slice(0, 64), slice(rows - 64, rows)):
        assert_close(wide[part], x[part].double() @ y.double(), 16)
    assert not bool(wide[:: 97].isnan().any())


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_the_error_is_torchs_own(dtype) -> None:
    for m, n, k in ((512, 512, 512), (1024, 768, 4096), (333, 777, 555), (64, 64, 16384)):
        a, b = cuda_normal(m, k, dtype=dtype), cuda_normal(k, n, dtype=dtype)
        want = a.double() @ b.double()
        mine, theirs = (float((x.double() - want).norm() / want.norm()) for x in (rungemm.matmul(a, b), a @ b))
        assert mine <= 1.1 * theirs, f"{m}x{n}x{k}: {mine:.3g}, torch {theirs:.3g}"


def test_a_side_stream_has_its_own_order() -> None:
    side = torch.cuda.Stream()
    for dtype in FLOATS:
        a, b = cuda_normal(2048, 2048, dtype=dtype), cuda_normal(2048, 2048, dtype=dtype)
        want = a.double() @ b.double()
        rungemm.matmul(a, b)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(20_000_000)  # what follows must wait for it, and the other stream must not
            late = torch.zeros_like(a).copy_(a)
            got = rungemm.matmul(late, b)
            finished = torch.cuda.Event()
            finished.record()
        assert not finished.query()
        torch.cuda.current_stream().wait_stream(side)
        assert_close(got, want, 2048)


def test_two_streams_at_once_do_not_share_a_workspace() -> None:
    """Split K, copies and counters have memory of their own on each stream."""
    a, b = cuda_normal(255, 4099, dtype=torch.bfloat16), cuda_normal(4099, 257, dtype=torch.bfloat16)
    want = rungemm.matmul(a, b)
    streams, results = [torch.cuda.Stream() for _ in range(4)], []
    torch.cuda.synchronize()
    for turn in range(20):
        with torch.cuda.stream(streams[turn % 4]):
            results.append(rungemm.matmul(a, b))
    torch.cuda.synchronize()
    assert all(torch.equal(result, want) for result in results)


def test_threads() -> None:
    failures = []

    def work(number: int) -> None:
        try:
            generator = torch.Generator("cuda").manual_seed(number)
            with torch.cuda.stream(torch.cuda.Stream()):
                a = torch.randn(200 + number, 300, device="cuda", generator=generator).half()
                b = torch.randn(300, 170, device="cuda", generator=generator).half()
                for _ in range(50):
                    out = torch.empty(200 + number, 170, device="cuda", dtype=torch.half)
                    rungemm.matmul(a, b, out=out)
                assert_close(out, a.double() @ b.double(), 300)
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures, failures


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_graph_capture_of_a_shape_never_seen(dtype, rng) -> None:
    """The choice, the compilation and the load happen inside the capture; replays read new values."""
    rungemm.forget()
    m, n, k = 300 + int(rng.integers(100)), 264, 520
    x, w, bias = cuda_normal(m, k, dtype=dtype), cuda_normal(n, k, dtype=dtype), cuda_normal(n, dtype=dtype)
    warm = torch.cuda.Stream()
    warm.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(warm):
        torch.mm(x, w.mT)  # cuBLAS makes its handle and workspace outside of captures only
    torch.cuda.current_stream().wait_stream(warm)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = rungemm.linear(x, w, bias, "gelu")
        out = rungemm.matmul(x, w.mT)
    for _ in range(3):
        x.normal_()
        graph.replay()
        torch.cuda.synchronize()
        want = x.double() @ w.double().mT
        assert_close(out, want, k)
        assert_close(result, F.gelu(want + bias.double()), k, steps=4)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_a_warm_call_neither_waits_nor_allocates(dtype) -> None:
    for m, n, k in ((256, 256, 256), (1024, 1024, 1024), (333, 777, 555)):
        a, b = cuda_normal(m, k, dtype=dtype), cuda_normal(k, n, dtype=dtype)
        out = torch.empty(m, n, dtype=dtype, device="cuda")
        for _ in range(3):
            rungemm.matmul(a, b, out=out)
            rungemm.matmul(a, b)
        torch.cuda.synchronize()
        reserved = torch.cuda.memory_reserved()
        torch.cuda.set_sync_debug_mode("error")
        try:
            for _ in range(20):
                rungemm.matmul(a, b, out=out)
                rungemm.matmul(a, b)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        assert torch.cuda.memory_reserved() == reserved


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two cards")
def test_the_tensors_card_is_used_whichever_is_current() -> None:
    with torch.cuda.device(0):
        a = torch.randn(130, 70, device="cuda:1")
        b = torch.randn(70, 90, device="cuda:1")
        got = rungemm.matmul(a, b, out=torch.empty(130, 90, device="cuda:1"))
        assert torch.cuda.current_device() == 0 and got.device.index == 1
        assert_close(got, a.double() @ b.double(), 70)
        with pytest.raises(ValueError, match=r"A is on cuda:1 and B on cuda:0: move them to one device"):
            rungemm.matmul(a, b.to("cuda:0"))


def test_operands_on_two_devices_are_refused() -> None:
    with pytest.raises(ValueError, match=r"A is on cuda:0 and B on cpu: move them to one device"):
        rungemm.matmul(torch.ones(4, 4, device="cuda"), torch.ones(4, 4))


def test_every_choice_is_explained() -> None:
    decision = rungemm.explain_dispatch((4096, 4096, 4096), dtype="bf16", layout="NT")
    assert decision.chosen in decision.options and decision.why
