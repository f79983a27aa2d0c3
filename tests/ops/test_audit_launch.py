"""The audit's calls on the stand-in card: with our kernels wherever one takes the problem, with cuBLAS, and with cuBLAS
chosen but ours launched because it is quicker to call."""

from __future__ import annotations

import ctypes
import struct
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from ops_checks import normal  # noqa: E402
from test_audit_calls import *  # noqa: E402,F403
from test_ops_launch import Card, card  # noqa: E402,F401

import rungemm  # noqa: E402
from rungemm.gpu.parameters import fields_of  # noqa: E402
from rungemm.hardware import DEFAULT_GPU  # noqa: E402
from rungemm.kernels import find_kernel  # noqa: E402
from rungemm.ops import dispatch, execute, front, launch  # noqa: E402
from rungemm.ops.table import Table  # noqa: E402
from rungemm.problem import Problem  # noqa: E402

# Finite differences of float64 go by the CPU alone: no kernel takes float64.
del test_first_and_second_derivatives_of_every_epilogue  # noqa: F821


@pytest.fixture(autouse=True, params=["ours", "cublas", "eager"])
def way(request, monkeypatch, card) -> str:  # noqa: F811
    def by_cublas(problem, gpu, **_):
        decision = dispatch.decide(problem, gpu, table=Table(), all_rungs=False)
        chosen = [option for option in decision.options if option.name == "cublas"]
        if not chosen:
            return decision
        short = [o for o in decision.options if o.plan and not o.after and len(o.plan.launches) == 1]
        eager = short[0] if short and request.param == "eager" else None
        if eager is not None:
            card._options[id(eager.plan)] = eager
        return replace(decision, chosen=chosen[0], eager=eager)

    if request.param != "ours":
        monkeypatch.setattr(launch, "decide", by_cublas)
    return request.param


def base(dtype=torch.float32, shift=0, pitch=24) -> torch.Tensor:
    flat = torch.zeros(16 * pitch + 16, dtype=dtype)
    return torch.as_strided(flat, (16, 24), (pitch, 1), shift)


def assert_each_is_decided_once(call, changes, monkeypatch) -> None:
    """Whatever is changed about a warm call, another launch is looked up; what is not changed, is not."""
    asked: list[object] = []
    real = launch.entry_for
    monkeypatch.setattr(execute, "entry_for", lambda *a: asked.append(1) or real(*a))
    for number, change in enumerate(changes):
        words = f"change {number} ({', '.join(change)})"
        asked.clear()
        call(**change)
        assert asked, f"{words} took what was made for another call"
        call(**change)
        asked.clear()
        call(**change)
        assert not asked, f"{words} is looked up anew in every call"
    assert len(front.fronts) + len(front.long_ways) >= len(changes)


def test_every_fact_of_a_gemm_is_in_its_key(monkeypatch) -> None:
    def call(a=None, b=None, c=None, **rest):
        rungemm.gemm(base()[:, :16] if a is None else a, base() if b is None else b, c, **rest)

    changes = [
        {}, {"a": base(shift=1)[:, :16]}, {"b": base(shift=2)}, {"a": base(pitch=25)[:, :16]}, {"b": base(pitch=32)},
        {"a": base()[:8, :16]}, {"b": base()[:, :20]}, {"c": base()}, {"c": base(shift=1)}, {"c": base(pitch=25)},
        {"c": base(torch.float16)}, {"c": base()[:1]}, {"c": base(), "beta": 2.0}, {"c": base(), "alpha": 2.0},
        {"bias": base()[0]}, {"bias": base(shift=1)[0]}, {"bias": base(torch.float16)[0]}, {"epilogue": "relu"},
        {"epilogue": "gelu"}, {"epilogue": "swiglu"}, {"epilogue": rungemm.Epilogue(scale=2.0)}, {"alpha": 0.5},
        {"out_dtype": torch.float16}, {"out": base()}, {"out": base(shift=1)}, {"out": base(pitch=25)},
        {"out": base(torch.bfloat16)}, {"precision": "tf32"}, {"precision": "tf32x3"},
    ]  # fmt: skip
    assert_each_is_decided_once(call, changes, monkeypatch)


def test_every_fact_of_a_matmul_is_in_its_key(monkeypatch) -> None:
    def call(a=None, b=None, **rest):
        rungemm.matmul(base()[:, :16] if a is None else a, base() if b is None else b, **rest)

    changes: list[dict[str, object]] = [
        {"a": base(shift=1)[:, :16]}, {"a": base(shift=2)[:, :16]}, {"a": base(pitch=25)[:, :16]},
        {"a": base()[:8, :16]}, {"a": base()[:, :16].contiguous().mT}, {"b": base()[:, :20]},
        {"b": base(pitch=32)}, {"precision": "tf32"}, {"precision": "tf32x3"},
        {"a": base(torch.bfloat16)[:, :16], "b": base(torch.bfloat16)},
    ]  # fmt: skip
    # Where a shift of A by one and of B by two would be one key if the bits were not kept apart.
    changes += [{"b": base(shift=1)}, {"b": base(shift=2)}, {"a": base(shift=1)[:, :16], "b": base(shift=1)}]
    changes += [{**change, "out": base(dtype, shift)} for dtype, shift in ((torch.float32, 0), (torch.float32, 1),
                (torch.float16, 0)) for change in ({}, {"b": base(shift=1)})]  # fmt: skip
    assert_each_is_decided_once(call, changes, monkeypatch)


def test_scalars_beyond_fp32_are_infinite() -> None:
    """What torch and BLAS make of them; packing them as fp32 once raised."""
    problem = Problem.dense(64, 64, 64, alpha=1e40)
    kernel = find_kernel("vectorised")
    plan = kernel.plan(problem, kernel.default_config(problem, DEFAULT_GPU), DEFAULT_GPU)
    values = [field.value for one in plan.launches for _, field in fields_of(one)]
    assert struct.pack("<f", float("inf")) in values
    assert ctypes.c_float(1e40).value == float("inf")


def test_no_tensor_is_held_by_what_is_remembered(way, rng, device) -> None:
    import gc
    import weakref

    x, w, b = normal(rng, 8, 16, device=device), normal(rng, 24, 16, device=device), normal(rng, 24, device=device)
    held = [weakref.ref(t) for t in (x, w, b)]
    for _ in range(3):
        rungemm.linear(x, w, b, "gelu")
        rungemm.linear(x.clone().requires_grad_(), w.clone().requires_grad_(), b).sum().backward()
        rungemm.gemm(x, w.mT, torch.zeros(8, 24, device=device), bias=b, out=torch.empty(8, 24, device=device))
    storages = {t.untyped_storage()._cdata for t in (x, w, b)}
    del x, w, b
    gc.collect()
    assert not any(ref() is not None for ref in held)
    kinds = (torch.Tensor, torch.nn.Parameter)
    tensors = [t for t in gc.get_objects() if type(t) in kinds and t.layout is torch.strided]
    alive = [t for t in tensors if t.untyped_storage()._cdata in storages]
    assert not alive


def test_a_patched_linear_goes_straight_to_torch_where_cublas_is_chosen(way, rng, device, monkeypatch) -> None:
    from rungemm.ops import patching

    layer = rungemm.patch(torch.nn.Linear(24, 40))
    x = normal(rng, 6, 24, device=device)
    want = torch.nn.functional.linear(x, layer.weight, layer.bias)
    asked = []
    real = patching.linear
    monkeypatch.setattr(patching, "linear", lambda *a, **kw: asked.append(1) or real(*a, **kw))
    for number in range(4):
        got = layer(x)
        torch.testing.assert_close(got, want)
        got.sum().backward()
        assert len(asked) == (number + 1 if way == "ours" else 1)
    torch.testing.assert_close(layer.bias.grad, torch.full((40,), 24.0))
    asked.clear()
    layer(x.double().float()[:5])  # another shape is another question
    rungemm.forget()
    layer(x)
    assert len(asked) == 2
