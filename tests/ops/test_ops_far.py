"""Beyond cuBLAS's 32-bit limits: who computes instead, and that dense copies and pieces give the same product."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from ops_checks import assert_close, normal  # noqa: E402
from test_ops_launch import card  # noqa: E402, F401

import rungemm  # noqa: E402
from rungemm.dtypes import BF16, FP16, FP32, dtype_named  # noqa: E402
from rungemm.hardware import DEFAULT_GPU  # noqa: E402
from rungemm.ops import dispatch, execute, far, launch, limits, rows  # noqa: E402
from rungemm.ops.explain import describe  # noqa: E402
from rungemm.ops.limits import cublas_refuses  # noqa: E402
from rungemm.ops.table import Table  # noqa: E402
from rungemm.problem import Epilogue, Matrix, Problem  # noqa: E402

FAR = 2**31 + 64


def far_problems(dtype, out):
    dense = Matrix.dense
    return {
        "A": Problem(Matrix(2, 1024, dtype, FAR, 1), dense(1024, 40, dtype), None, dense(2, 40, out)),
        "B": Problem(dense(56, 2, dtype), Matrix(2, 1024, dtype, FAR, 1), None, dense(56, 1024, out)),
        "A transposed": Problem(Matrix(1024, 2, dtype, 1, FAR), dense(2, 56, dtype), None, dense(1024, 56, out)),
        "D": Problem(dense(2, 96, dtype), dense(96, 1024, dtype), None, Matrix(2, 1024, out, FAR, 1)),
    }


@pytest.mark.parametrize("dtype", [FP32, FP16, BF16], ids=str)
def test_a_far_pitch_goes_to_a_champion(dtype) -> None:
    for name, problem in far_problems(dtype, dtype).items():
        for asked in (problem, replace(problem, epilogue=Epilogue("row", "gelu"))):
            decision = dispatch.decide(asked, DEFAULT_GPU, all_rungs=False)
            assert decision.chosen.name in dispatch.CHAMPIONS, name
            reason = dict(decision.rejected)["cublas"]
            assert f"the pitch of {name[0]} is {FAR}" in reason and reason in decision.why
            assert any(line.startswith("rejected  cublas: the pitch") for line in describe(decision))


def test_what_no_kernel_of_ours_takes_gets_copies_or_pieces() -> None:
    wide = Matrix.dense(4, 2**31 + 8, BF16)
    asked = [Problem(Matrix.dense(4, 8, BF16), Matrix.dense(8, 2**31 + 8, BF16), None, wide)]
    for name, out in (("fp8e4m3", BF16), ("int8", dtype_named("int32"))):
        asked += far_problems(dtype_named(name), out).values()
    for problem in asked:
        decision = dispatch.decide(problem, DEFAULT_GPU, all_rungs=False)
        assert decision.chosen.name == "cublas" and decision.chosen.realigned and decision.eager is None
        assert any(line.startswith("operands  dense copies") for line in describe(decision))


def test_what_torch_hands_to_cublas_as_it_is() -> None:
    """One line has no pitch; C is copied; batches may be far apart; what no stride makes neighbours torch copies."""
    dense = Matrix.dense
    near = (
        Problem(Matrix(1, 64, BF16, FAR, 1), dense(64, 8, BF16), None, dense(1, 8, BF16)),
        Problem(dense(2, 64, BF16), dense(64, 8, BF16), Matrix(2, 8, BF16, FAR, 1), dense(2, 8, BF16), beta=1.0),
        Problem(Matrix(2, 64, BF16, 64, 1, FAR), dense(64, 8, BF16), None, dense(2, 8, BF16), batch=2),
        Problem(Matrix(2, 64, BF16, FAR, 2), dense(64, 8, BF16), None, dense(2, 8, BF16)),
    )
    assert [cublas_refuses(problem) for problem in near] == [None] * 4
    assert "K is" in (cublas_refuses(Problem.dense(1, 1, 2**31, dtype=BF16)) or "")
    assert cublas_refuses(Problem.dense(1, 1, 2**31, dtype=BF16, alpha=0.0)) is None


@pytest.fixture
def short(monkeypatch):
    """All that is beyond 2^31 begins at 20."""
    monkeypatch.setattr(far, "LONGEST", 20)
    return monkeypatch


@pytest.mark.parametrize("shape", [(50, 8, 8), (8, 50, 8), (8, 8, 70), (45, 62, 33)])
@pytest.mark.parametrize("epilogue", [None, Epilogue("row", "gelu"), Epilogue("col", "relu", scale=2.0),
                                      Epilogue("row", "silu", True)], ids=str)  # fmt: skip
def test_pieces_give_the_whole(shape, epilogue, short, rng, device) -> None:
    m, n, k = shape
    for batch in ((), (3,), (41,)):
        a, b, c = (normal(rng, *batch, *s, device=device) for s in ((m, k), (k, n), (m, n)))
        bias = None
        if epilogue is not None:
            bias = normal(rng, n if epilogue.bias == "row" else m, device=device)
        gated = epilogue is not None and epilogue.gated
        out = torch.full((*batch, m, n // 2 if gated else n), math.nan, device=device)
        far.compute_far(a, b, c, bias, out, 0.5, 2.0, epilogue, None)
        want = 0.5 * (a.double() @ b.double()) + 2 * c.double()
        if epilogue is not None:
            want = execute.fallback.apply_epilogue(want, bias.double(), epilogue)
        assert_close(out, want, k, steps=8)


def test_whole_numbers_stay_exact_in_pieces(short, rng, device) -> None:
    a, b = (torch.from_numpy(rng.integers(-128, 128, s, dtype="int8")) for s in ((30, 70), (70, 25)))
    out = torch.full((30, 25), -1, dtype=torch.int32, device=device)
    far.compute_far(a, b, None, None, out, 1.0, 0.0, None, None)
    assert torch.equal(out.double(), a.double() @ b.double())


def test_a_far_operand_is_copied_and_no_other(short, rng, device) -> None:
    whole = normal(rng, 8, 100, device=device)
    assert far.near(whole[:, :20]).is_contiguous() and far.near(whole[:1]).data_ptr() == whole.data_ptr()
    dense = whole[:, :10].contiguous()
    assert far.near(dense) is dense and far.near(dense.mT).data_ptr() == dense.data_ptr()


@pytest.fixture
def limited(monkeypatch, card):  # noqa: F811
    """A card whose cuBLAS takes pitches up to 40, and whose torch calls raise beyond them as on a card."""
    monkeypatch.setattr(limits, "INT32_MAX", 40)
    monkeypatch.setattr(far, "LONGEST", 40)

    def decide(problem, gpu, **_):
        decision = dispatch.decide(problem, gpu, table=Table(), all_rungs=False)
        card.decisions.append(decision)
        if decision.chosen.plan is not None:
            card._options[id(decision.chosen.plan)] = decision.chosen
        return replace(decision, eager=None)

    monkeypatch.setattr(launch, "decide", decide)
    for name in ("mm", "bmm", "addmm", "baddbmm", "matmul"):
        monkeypatch.setattr(torch, name, checked(getattr(torch, name)))
    monkeypatch.setattr(torch.nn.functional, "linear", checked(torch.nn.functional.linear))
    return card


def checked(function):
    def call(*operands, **keywords):
        matrices = [x for x in (*operands, keywords.get("out")) if isinstance(x, torch.Tensor) and x.dim() > 1]
        for x in matrices[-2:] if "out" not in keywords else matrices[-3:]:
            for stride, extent in zip(x.stride()[-2:], x.shape[-2:], strict=True):
                assert extent == 1 or stride <= 40, f"{function.__name__}: ld must be positive and less than 41"
        return function(*operands, **keywords)

    return call


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_no_legal_call_raises(dtype, limited, rng, device, monkeypatch) -> None:
    """Every public function, warm and cold, patched and training, with operands beyond what torch's calls take."""
    space = normal(rng, 6, 4096, dtype=dtype, device=device)
    x, w = space[:, :32], normal(rng, 4096, 24, dtype=dtype, device=device).mT[:, 64:96]
    bias = normal(rng, 24, dtype=dtype, device=device)
    linear = torch.nn.Linear(32, 24, dtype=dtype, device=device)
    rungemm.patch(linear)
    for cost in (1.0, -math.inf):
        monkeypatch.setattr(rows, "HOST_S", cost)
        rungemm.forget()
        want = x.double() @ w.double().mT
        own = x.double() @ linear.weight.double().mT + linear.bias.double()
        for _ in range(3):
            assert_close(rungemm.matmul(x, w.mT), want, 32)
            assert_close(rungemm.linear(x, w, bias), want + bias.double(), 32)
            assert_close(rungemm.linear(x, w, bias, "gelu"), torch.nn.functional.gelu(want + bias.double()), 32)
            assert_close(rungemm.bmm(x[None], w.mT[None])[0], want, 32)
            out = torch.zeros(6, 4096, dtype=dtype, device=device)[:, 8:32]
            assert_close(rungemm.addmm(out.clone(), x, w.mT, out=out), want, 32)
            parameter = w.detach().requires_grad_()
            value = rungemm.linear(x.detach().requires_grad_(), parameter)
            assert_close(torch.autograd.grad(value.sum(), parameter)[0], x.double().sum(0).expand(24, 32), 6, steps=9)
            assert_close(linear(x.contiguous()), own, 32, steps=2)
            assert_close(linear(x), own, 32, steps=2)
            with torch.no_grad():
                assert_close(linear(x.contiguous()), own, 32, steps=2)
                assert_close(linear(x), own, 32, steps=2)
