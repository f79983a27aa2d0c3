"""The way to the card without a card: choices, plans, addresses and caches are real, the launch itself is a stand-in.

The stand-in computes what the plan's problem says from bare addresses, so a wrong role, stride, alignment or scalar
shows. All of the CPU's tests run again this way, with our kernels chosen wherever one takes the problem.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
from dataclasses import replace
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from ops_checks import assert_close, normal, poisoned  # noqa: E402
from test_ops_autograd import *  # noqa: E402,F403
from test_ops_gemm import *  # noqa: E402,F403
from test_ops_matmul import *  # noqa: E402,F403
from test_ops_patching import *  # noqa: E402,F403
from test_ops_torch import *  # noqa: E402,F403

import rungemm  # noqa: E402
from rungemm.hardware import DEFAULT_GPU  # noqa: E402
from rungemm.kernels.cuda_core.champion import ChampionFp32  # noqa: E402
from rungemm.kernels.cuda_core.simt import SimtKernel  # noqa: E402
from rungemm.ops import api, dispatch, execute, fallback, front, guards, launch, rows  # noqa: E402
from rungemm.ops.table import Table  # noqa: E402
from rungemm.problem import Matrix  # noqa: E402


def memory(address: int, matrix: Matrix, batch: int) -> torch.Tensor:
    """The tensor that a kernel would see at an address."""
    assert address % matrix.alignment == 0, "aligned worse than the plan was made for"
    dtype = getattr(torch, matrix.dtype.torch)
    reach = (matrix.furthest_offset(batch) + 1) * matrix.dtype.bytes
    flat = torch.frombuffer((ctypes.c_byte * reach).from_address(address), dtype=dtype)
    strides = (matrix.batch_stride, matrix.row_stride, matrix.col_stride)
    return torch.as_strided(flat, (batch, matrix.rows, matrix.cols), strides)


class Card:
    """What stands in for a card, and what it was asked."""

    def __init__(self) -> None:
        self.decisions: list[dispatch.Decision] = []
        self.launched: list[str] = []
        self._options: dict[int, dispatch.Option] = {}

    def decide(self, problem, gpu, **_):
        decision = dispatch.decide(problem, gpu, table=Table(), all_rungs=False)
        ours = [option for option in decision.options if option.is_ours]
        if ours:
            decision = replace(decision, chosen=ours[0])
            self._options[id(ours[0].plan)] = ours[0]
        self.decisions.append(decision)
        return decision

    def prepare(self, plan, device):
        def run(addresses):
            self.run(self._options[id(plan)], addresses)

        def launcher(roles):
            return lambda *addresses: run({role: at for role, at in zip(roles, addresses, strict=True) if at})

        return SimpleNamespace(run_addresses=run, launcher=launcher)

    def run(self, option, addresses) -> None:
        p = option.problem
        arguments = [argument for one in option.plan.launches for _, argument in one.arguments]
        roles = {argument.role for argument in arguments if hasattr(argument, "role")}
        spaces = {space.name for space in option.plan.workspaces}
        assert roles - spaces <= set(addresses), f"the plan reads {roles - spaces - set(addresses)}"
        self.launched.append(option.name)
        # A kernel writes D while others still read: only C may be D itself, element for element.
        for role, matrix in (("A", p.a), ("B", p.b), ("C", p.c if p.reads_c else None)):
            if matrix is not None and not (role == "C" and p.c == p.d and addresses["C"] == addresses["D"]):
                first, last = addresses[role], addresses[role] + matrix.furthest_offset(p.batch) * matrix.dtype.bytes
                end = addresses["D"] + p.d.furthest_offset(p.batch) * p.d.dtype.bytes
                assert last < addresses["D"] or end < first, f"D is written while {role} is read"
        a, b = (memory(addresses[role], matrix, p.batch).double() for role, matrix in (("A", p.a), ("B", p.b)))
        value = p.alpha * (a @ b)
        if p.reads_c:
            value += p.beta * memory(addresses["C"], p.c, p.batch).double()
        if p.epilogue is not None:
            bias = None
            if p.epilogue.bias is not None:
                length = p.n if p.epilogue.bias == "row" else p.m
                vector = Matrix(1, length, p.bias_type, length, 1, 0, p.bias_alignment)
                bias = memory(addresses["bias"], vector, 1)[0, 0].double()
            value = fallback.apply_epilogue(value, bias, p.epilogue)
        memory(addresses["D"], p.d, p.batch).copy_(value)


@pytest.fixture(autouse=True)
def card(monkeypatch):
    card = Card()
    rungemm.forget()
    monkeypatch.setattr(launch, "on_gpu", lambda tensor: tensor.device.type == "cpu")
    monkeypatch.setattr(launch, "gpu_of", lambda device: DEFAULT_GPU)
    monkeypatch.setattr(launch, "decide", card.decide)
    monkeypatch.setattr(launch, "prepare", card.prepare)
    # A CUDA build of torch would look for a driver.
    monkeypatch.setattr(front, "_stream", lambda device: 1)
    monkeypatch.setattr(launch, "capturing", lambda: False)
    # Products of this size would not be worth a derivative in Python.
    monkeypatch.setattr(rows, "HOST_S", -math.inf)
    monkeypatch.setattr(launch, "driver", lambda: SimpleNamespace(relaxed_capture=contextlib.nullcontext))
    yield card
    rungemm.forget()


def test_a_warm_call_decides_nothing(card, rng, device) -> None:
    a, b = normal(rng, 64, 32, device=device), normal(rng, 32, 48, device=device)
    out = poisoned(64, 48, dtype=torch.float32, device=device)
    for _ in range(3):
        rungemm.matmul(a, b, out=out)
        rungemm.matmul(a, b)
    assert len(card.decisions) == 1 and card.launched == ["champion_fp32"] * 6
    assert len(front.fronts) == 2
    rungemm.forget()
    rungemm.matmul(a, b, out=out)
    assert len(card.decisions) == 2


def test_short_products_are_launched_and_in_a_capture_left_to_cublas(card, rng, device, monkeypatch) -> None:
    """The call takes longer than the product: then the way that is quicker to call runs, but not in a capture."""
    in_a_capture = [False]

    def decide(problem, gpu, **_):
        decision = dispatch.decide(problem, gpu, table=Table(), all_rungs=False)
        assert decision.chosen.name == "cublas" and decision.eager is not None
        card._options[id(decision.eager.plan)] = decision.eager
        return decision

    monkeypatch.setattr(launch, "decide", decide)
    monkeypatch.setattr(launch, "capturing", lambda: in_a_capture[0])
    a, b = (normal(rng, 64, 64, dtype=torch.bfloat16, device=device) for _ in range(2))
    out = torch.empty(64, 64, dtype=torch.bfloat16, device=device)
    calls = (
        lambda: rungemm.matmul(a, b, out=out), lambda: rungemm.matmul(a, b), lambda: rungemm.linear(a, b.mT),
        lambda: rungemm.bmm(a[None], b[None])[0], lambda: rungemm.matmul(a, b, out=a.clone()),
    )  # fmt: skip
    for call in calls:
        for captured, launched in ((False, 1), (False, 1), (True, 0), (False, 1)):
            in_a_capture[0] = captured
            before = len(card.launched)
            assert_close(call(), a.double() @ b.double(), 64)
            assert len(card.launched) - before == launched
    same = a.clone()
    assert_close(rungemm.matmul(same, b, out=same), a.double() @ b.double(), 64)
    rungemm.forget()
    in_a_capture[0] = True
    monkeypatch.setattr(launch, "prepare", None)  # nothing is compiled in a capture for a product that cuBLAS computes
    before = len(card.launched)
    for in_a_capture[0] in (True, False):
        assert_close(rungemm.matmul(a, b, out=out), a.double() @ b.double(), 64)
    assert len(card.launched) == before


def test_the_short_way_is_only_for_what_it_knows(card, rng, device, monkeypatch) -> None:
    """Each of these looks like the warm call but is another question."""
    a, b = normal(rng, 16, 16, device=device), normal(rng, 16, 16, device=device)
    out = torch.zeros(16, 16, device=device)
    rungemm.matmul(a, b, out=out)
    general = []
    real = api.general
    monkeypatch.setattr(api, "general", lambda *x, **kw: general.append(1) or real(*x, **kw))
    rungemm.matmul(a, b, out=out)
    assert not general
    rungemm.matmul(a, b, out=a)
    rungemm.matmul(a.mT, b, out=out)
    rungemm.matmul(a, b, out=out, precision="tf32")
    rungemm.matmul(a.half(), b.half(), out=out)
    with torch.no_grad():
        rungemm.matmul(a.clone().requires_grad_(), b, out=out)
    assert len(general) == 4
    with pytest.raises(RuntimeError, match="automatic differentiation"):
        rungemm.matmul(a.clone().requires_grad_(), b, out=out)


def test_torchs_setting_decides_the_precision(card, rng, device) -> None:
    a, b = normal(rng, 16, 16, device=device), normal(rng, 16, 16, device=device)
    out = torch.empty(16, 16, device=device)
    try:
        for word, kind in (("high", "tf32"), ("highest", "ieee")):
            torch.set_float32_matmul_precision(word)
            rungemm.matmul(a, b)
            rungemm.matmul(a, b, out=out)
            assert card.decisions[-1].problem.precision == kind
    finally:
        torch.set_float32_matmul_precision("highest")
    assert card.launched == ["champion_hopper"] * 2 + ["champion_fp32"] * 2


def test_an_unfused_bias_goes_in_as_c(card, rng, device, monkeypatch) -> None:
    monkeypatch.setattr(ChampionFp32, "rejects_epilogue", SimtKernel.rejects_epilogue)
    x, w, bias = normal(rng, 8, 16, device=device), normal(rng, 24, 16, device=device), normal(rng, 24, device=device)
    assert_close(rungemm.linear(x, w, bias), x.double() @ w.double().mT + bias.double(), 16)
    chosen = card.decisions[-1].chosen
    assert chosen.bias_is_c and chosen.after is None and chosen.problem.c.row_stride == 0


def test_an_epilogue_is_one_launch_of_the_hopper_champion(card, rng, device) -> None:
    x, w = (normal(rng, *shape, dtype=torch.bfloat16, device=device) for shape in ((40, 72), (48, 72)))
    bias = normal(rng, 49, dtype=torch.bfloat16, device=device)[1:]  # two bytes off a multiple of 16
    value = x.double() @ w.double().mT + bias.double()
    for _ in range(3):
        got = rungemm.linear(x, w, bias, "gelu")
        assert_close(got, torch.nn.functional.gelu(value), 72)
    chosen = card.decisions[-1].chosen
    assert chosen.problem.epilogue == rungemm.Epilogue("row", "gelu") and chosen.after is None
    assert chosen.problem.bias_alignment == 2 and not chosen.bias_is_c
    assert len(card.decisions) == 1 and card.launched == ["champion_hopper"] * 3
    got = rungemm.linear(x, w, bias, "swiglu")
    left, right = value.chunk(2, -1)
    assert_close(got, torch.nn.functional.silu(left) * right, 72, steps=4)
    chosen = card.decisions[-1].chosen
    assert chosen.problem.epilogue == rungemm.Epilogue("row"), "the bias is fused, the gate follows"
    assert chosen.after == rungemm.Epilogue(None, "silu", True)
    column = normal(rng, 40, dtype=torch.float32, device=device)
    got = rungemm.gemm(x, w.mT, normal(rng, 40, 48, dtype=torch.bfloat16, device=device), beta=0.0, bias=column,
                       epilogue=rungemm.Epilogue("col", "silu", scale=2.0))  # fmt: skip
    assert_close(got, 2 * torch.nn.functional.silu(x.double() @ w.double().mT + column.double()[:, None]), 72)
    assert card.decisions[-1].chosen.problem.bias_dtype.name == "fp32" and card.launched[-1] == "champion_hopper"


def test_the_cache_of_choices_does_not_grow_without_end(card, rng, device, monkeypatch) -> None:
    for module in (execute, front, launch):
        monkeypatch.setattr(module, "ENTRIES_KEPT", 4)
    for m in range(1, 12):
        a, b = normal(rng, m, 8, device=device), normal(rng, 8, 4, device=device)
        assert_close(rungemm.matmul(a, b, out=torch.empty(m, 4, device=device)), a.double() @ b.double(), 8)
    assert max(len(execute.entries), len(front.fronts), len(launch._by_problem)) <= 4


@pytest.mark.parametrize("call", ["ours", "torch"])
def test_training_takes_a_short_way_of_its_own(call, card, rng, device, monkeypatch) -> None:
    def cublas(problem, gpu, **_):
        decision = dispatch.decide(problem, gpu, table=Table(), all_rungs=False)
        chosen = next(option for option in decision.options if option.name == "cublas")
        return replace(decision, chosen=chosen, eager=None)

    if call == "torch":
        monkeypatch.setattr(launch, "decide", cublas)
    weight, bias = normal(rng, 24, 16, device=device).requires_grad_(), normal(rng, 24, device=device).requires_grad_()
    general = []
    real = api.general
    monkeypatch.setattr(api, "general", lambda *x, **kw: general.append(1) or real(*x, **kw))
    for activation in (None, "gelu", "swiglu"):
        for turn in range(3):
            x = normal(rng, 2, 5, 16, device=device).requires_grad_()
            got = rungemm.linear(x, weight, bias, activation)
            value = torch.nn.functional.linear(x.double(), weight.double(), bias.double())
            left, right = value.chunk(2, -1)
            gated = torch.nn.functional.silu(left) * right
            want = {None: value, "gelu": torch.nn.functional.gelu(value), "swiglu": gated}[activation]
            assert_close(got, want, 16, steps=8)
            seed = normal(rng, *want.shape, device=device)
            mine = torch.autograd.grad((got * seed).sum(), (x, weight, bias), create_graph=turn == 2)
            theirs = torch.autograd.grad((want * seed.double()).sum(), (x, weight, bias), create_graph=turn == 2)
            for one, other in zip(mine, theirs, strict=True):
                assert_close(one, other, 24, steps=40)
            if turn == 2:
                again = torch.autograd.grad(sum(g.square().sum() for g in mine), (x, weight))
                want_again = torch.autograd.grad(sum(g.square().sum() for g in theirs), (x, weight))
                for one, other in zip(again, want_again, strict=True):
                    assert_close(one, other, 24, steps=200)
        assert len(general) == 1, "only the first call goes the long way"
        general.clear()
    a = normal(rng, 6, 16, device=device).requires_grad_()
    for _ in range(3):
        got = rungemm.matmul(a, weight.mT)
        assert_close(torch.autograd.grad(got.sum(), a)[0], weight.double().sum(0).expand(6, 16), 24, steps=8)


@pytest.mark.parametrize("name", ["linear", "matmul"])
def test_gradients_of_dense_halves_are_launched_at_once(name, card, rng, device, monkeypatch) -> None:
    """What is not dense, begins off a multiple of 16 bytes or is derived again goes the checked way."""
    checked = []
    real = rows.product
    monkeypatch.setattr(rows, "product", lambda *x, **kw: checked.append(1) or real(*x, **kw))
    x = normal(rng, 3, 8, 16, dtype=torch.bfloat16, device=device).requires_grad_()
    w = normal(rng, *((24, 16) if name == "linear" else (16, 24)), dtype=torch.bfloat16, device=device).requires_grad_()
    dense = normal(rng, 3, 8, 24, dtype=torch.bfloat16, device=device)
    shifted = normal(rng, 3 * 8 * 24 + 1, dtype=torch.bfloat16, device=device)[1:].view(3, 8, 24)
    cases = (
        (dense, False, 0), (dense.transpose(0, 1).contiguous().transpose(0, 1), False, 0),
        (dense[..., :1].expand(3, 8, 24), False, 2), (shifted, False, 2), (dense, True, 2),
        (torch._neg_view(dense), False, 2), (dense, False, 0),
    )  # fmt: skip
    for number, (seed, again, most) in enumerate(cases):
        got = rungemm.linear(x, w) if name == "linear" else rungemm.matmul(x, w)
        want = x.double() @ (w.double().mT if name == "linear" else w.double())
        checked.clear()
        before = len(card.launched)
        mine = torch.autograd.grad(got, (x, w), seed, create_graph=again)
        theirs = torch.autograd.grad(want, (x, w), seed.double())
        for one, other in zip(mine, theirs, strict=True):
            assert_close(one, other, 24, steps=2)
            assert one.is_contiguous()
        assert len(checked) == most and (again or len(card.launched) == before + 2), number


def test_a_call_like_one_before_is_known_by_torchs_guards(card, rng, device, monkeypatch) -> None:
    """And one that differs in anything, also where the very same object changed under way, is not."""
    if guards._Guards is None:
        pytest.skip("this torch has no guards for tensors")
    asked = []
    real = front.key_of
    monkeypatch.setattr(front, "key_of", lambda *x, **kw: asked.append(1) or real(*x, **kw))

    def known(call, *operands) -> bool:
        asked.clear()
        call(*operands)
        return not asked

    def fresh(*shape: int) -> torch.Tensor:
        return normal(rng, *shape, dtype=torch.bfloat16, device=device)

    a, b, bias = fresh(16, 32), fresh(32, 24), fresh(24)
    c, out, w = fresh(16, 24), torch.empty(16, 24, dtype=torch.bfloat16, device=device), fresh(24, 32)
    calls = {
        "matmul": lambda: rungemm.matmul(a, b), "out": lambda: rungemm.matmul(a, b, out=out),
        "linear": lambda: rungemm.linear(a, w), "bias": lambda: rungemm.linear(a, w, bias, "gelu"),
        "addmm": lambda: rungemm.addmm(c, a, b, alpha=0.5, out=out), "bmm": lambda: rungemm.bmm(a[None], b[None]),
        "gemm": lambda: rungemm.gemm(a, b, c, beta=0.5, bias=bias, epilogue="silu"),
    }  # fmt: skip
    for name, call in calls.items():
        assert [known(call) for _ in range(4)] == [False, False, True, True], name
    for name, call in calls.items():
        assert known(call), name
    with torch.autocast(device, dtype=torch.bfloat16):
        assert not known(calls["matmul"])
    with torch.inference_mode():
        assert not known(calls["matmul"])
    assert torch.vmap(lambda x: rungemm.matmul(x, b))(torch.stack([a, a])).shape == (2, 16, 24)
    changes = (
        ("stride", lambda x: x.as_strided_((16, 32), (1, 16))),
        ("address", lambda x: x.set_(fresh(600)[1:513].view(16, 32))),
        ("shape", lambda x: x.resize_(8, 32)), ("gradient", lambda x: x.requires_grad_()),
        ("type", lambda x: setattr(x, "data", x.data.half())), ("sign", None),
    )  # fmt: skip
    for what, change in changes:
        x = fresh(16, 32)
        for _ in range(3):
            rungemm.matmul(x, b)
        assert known(rungemm.matmul, x, b), what
        other = b
        if change is None:
            x = torch._neg_view(x)
        else:
            change(x)
            other = b.to(x.dtype)
        assert not known(rungemm.matmul, x, other), what
        assert_close(rungemm.matmul(x, other), x.detach().double() @ other.double(), 32, steps=2)
    # The same operands with gradients recorded and not.
    x = fresh(16, 32).requires_grad_()
    for _ in range(3):
        assert rungemm.matmul(x, b).requires_grad
        with torch.no_grad():
            assert not rungemm.matmul(x, b).requires_grad
    assert known(rungemm.matmul, x, b)
    y = fresh(24, 32).requires_grad_()
    with torch.no_grad():
        for _ in range(3):
            rungemm.matmul(y, b)
    assert rungemm.matmul(y, b).requires_grad, "what was noted without gradients is not for a call with them"
    # torch's own setting for fp32.
    p, q = normal(rng, 16, 16, device=device), normal(rng, 16, 16, device=device)
    try:
        for word, kind in (("high", "tf32"), ("highest", "ieee"), ("high", "tf32")):
            torch.set_float32_matmul_precision(word)
            for _ in range(3):
                card.launched.clear()
                rungemm.matmul(p, q)
                assert card.launched == ["champion_hopper" if kind == "tf32" else "champion_fp32"]
    finally:
        torch.set_float32_matmul_precision("highest")


def test_training_is_torchs_where_a_derivative_in_python_costs_more_than_it_saves(rng, device, monkeypatch) -> None:
    x, w = normal(rng, 32, 24, device=device), normal(rng, 40, 24, device=device).requires_grad_()

    def way() -> str:
        rungemm.forget()
        names = [type(rungemm.linear(x, w).grad_fn).__name__ for _ in range(2)]
        assert names[0] == names[1]
        return names[0]

    assert way() == "_RowsBackward"
    monkeypatch.setattr(rows, "HOST_S", 1.0)
    assert way() == "MmBackward0"
    # Long products keep the card busy whatever the host does; then a clear gain is enough.
    monkeypatch.setattr(rows, "BUSY_S", 0.0)
    monkeypatch.setattr(rows, "CLEAR", -math.inf)
    assert way() == "_RowsBackward"
    monkeypatch.setattr(rows, "CLEAR", math.inf)
    assert way() == "MmBackward0"
