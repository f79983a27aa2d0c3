"""What a hostile tester found: torch's own tracers, batched gradients, kept and traced methods, foreign operands.

Most goes wrong only in a call that is like one before, so each question is asked of cold and of warm calls. On the CPU
alone torch multiplies; ``test_hostile_launch.py`` runs the same tests over the stand-in card.
"""

from __future__ import annotations

import sys
import threading
import time
import warnings

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from ops_checks import assert_close, normal  # noqa: E402
from torch import nn  # noqa: E402
from torch._dynamo.testing import CompileCounter  # noqa: E402
from torch._subclasses import FakeTensor, FakeTensorMode  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch.nn.utils import parametrize  # noqa: E402

import rungemm  # noqa: E402
from rungemm.ops import front, patching  # noqa: E402
from rungemm.problem import ProblemError  # noqa: E402

WARM = 3


@pytest.fixture(autouse=True)
def forgotten():
    rungemm.forget()
    yield
    rungemm.forget()


def layer_and_rows(rng, device, warm=True, dtype=torch.float32):
    """A patched layer, 8 to 16 features, and five rows for it that it has seen, or not."""
    layer = nn.Linear(8, 16).to(device, dtype)
    with torch.no_grad():
        layer.weight.copy_(normal(rng, 16, 8))
    rungemm.patch(layer)
    x = normal(rng, 5, 8, dtype=dtype, device=device)
    if warm:
        for record in (True, False):
            with torch.set_grad_enabled(record):
                for _ in range(WARM):
                    layer(x)
    return layer, x


def exact(layer, x):
    """What a layer computes, in float64."""
    return F.linear(x.double(), layer.weight.double(), layer.bias.double()).detach()


def products(rng, device, dtype=torch.float32):
    """Calls of (x, w), of (5, 8) and (16, 8), and torch's own function for each."""
    bias, c = normal(rng, 16, dtype=dtype, device=device), normal(rng, 5, 16, dtype=dtype, device=device)
    scaled = rungemm.Epilogue(activation="silu", scale=2.0)
    return {
        "linear": (lambda x, w: rungemm.linear(x, w, bias), lambda x, w: F.linear(x, w, bias.to(x.dtype))),
        "activation": (lambda x, w: rungemm.linear(x, w, None, "gelu"), lambda x, w: F.gelu(F.linear(x, w))),
        "matmul": (lambda x, w: rungemm.matmul(x, w.mT), lambda x, w: x @ w.mT),
        "gemm": (
            lambda x, w: rungemm.gemm(x, w.mT, c, alpha=2.0, beta=0.5, bias=bias, epilogue=scaled),
            lambda x, w: 2 * F.silu(2 * x @ w.mT + 0.5 * c.to(x.dtype) + bias.to(x.dtype)),
        ),
    }


PRODUCTS = ("linear", "activation", "matmul", "gemm")


@pytest.mark.parametrize("name", PRODUCTS)
def test_make_fx_sees_a_warm_product(name, rng, device) -> None:
    call, want = products(rng, device)[name]
    x, w = normal(rng, 5, 8, device=device), normal(rng, 16, 8, device=device)
    other = normal(rng, 5, 8, device=device)
    for _ in range(WARM):
        call(x, w)
    for early in (False, True):
        graph = make_fx(lambda x: call(x, w), pre_dispatch=early)(x)
        assert_close(graph(other), want(other.double(), w.double()), 8, steps=4)
    with FakeTensorMode(allow_non_fake_inputs=True):
        made = call(x, w)
    assert isinstance(made, FakeTensor) and made.shape == (5, 16)


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("mode", ["real", "symbolic"])
def test_make_fx_sees_a_patched_layer(mode, warm, rng, device) -> None:
    layer, x = layer_and_rows(rng, device, warm)
    other = normal(rng, 5, 8, device=device)
    with torch.no_grad():
        graph = make_fx(layer, tracing_mode=mode, _allow_non_fake_inputs=True)(x)
    assert_close(graph(other), exact(layer, other), 8, steps=2)
    with torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True):
        made = layer(x)
    assert isinstance(made, FakeTensor) and made.shape == (5, 16)


@pytest.mark.parametrize("name", PRODUCTS)
def test_gradients_of_many_directions_at_once(name, rng, device) -> None:
    """torch.autograd's own batched gradients run backward under vmap's old machinery, which functorch does not see."""
    call, want = products(rng, device)[name]
    for _ in range(WARM):
        x, w = normal(rng, 5, 8, device=device).requires_grad_(), normal(rng, 16, 8, device=device).requires_grad_()
        directions = normal(rng, 4, 5, 16, device=device)
        got = torch.autograd.grad(call(x, w), (x, w), directions, is_grads_batched=True)
        for number, direction in enumerate(directions):
            single = torch.autograd.grad(call(x, w), (x, w), direction)
            pair = (x.detach().double().requires_grad_(), w.detach().double().requires_grad_())
            theirs = torch.autograd.grad(want(*pair), pair, direction.double())
            for mine, alone, right in zip(got, single, theirs, strict=True):
                assert_close(mine[number], right, 16, steps=40)
                assert_close(alone, right, 16, steps=40)


@pytest.mark.parametrize("name", PRODUCTS)
def test_vectorised_jacobians_and_hessians(name, rng, device) -> None:
    call, want = products(rng, device)[name]
    x, w = normal(rng, 5, 8, device=device), normal(rng, 16, 8, device=device)
    jacobian, hessian = torch.autograd.functional.jacobian, torch.autograd.functional.hessian
    for _ in range(WARM):
        right = jacobian(want, (x.double(), w.double()))
        for strategy in ("reverse-mode", "forward-mode"):
            for mine, theirs in zip(jacobian(call, (x, w), vectorize=True, strategy=strategy), right, strict=True):
                assert_close(mine, theirs, 16, steps=40)
        second = hessian(lambda x: want(x, w.double()).square().sum(), x.double())
        for vectorised in (True, False):
            assert_close(hessian(lambda x: call(x, w).square().sum(), x, vectorize=vectorised), second, 16, steps=200)


@pytest.mark.parametrize("warm", [False, True])
def test_a_patched_layer_compiles_and_exports_for_any_number_of_rows(warm, rng, device) -> None:
    layer, x = layer_and_rows(rng, device, warm)
    torch._dynamo.reset()
    marked = x.clone()
    torch._dynamo.mark_dynamic(marked, 0)
    compiled = torch.compile(layer, fullgraph=True, backend="eager")
    for rows in (marked, normal(rng, 9, 8, device=device)):
        assert_close(compiled(rows), exact(layer, rows), 8, steps=2)
    for strict in (False, True):
        batch = {"input": {0: torch.export.Dim("batch")}}
        exported = torch.export.export(layer, (x,), dynamic_shapes=batch, strict=strict).module()
        for m in (3, 11):
            rows = normal(rng, m, 8, device=device)
            assert_close(exported(rows), exact(layer, rows), 8, steps=2)


def test_eager_calls_of_a_compiled_layer_compile_nothing_anew(rng, device) -> None:
    layer, x = layer_and_rows(rng, device, warm=False)
    torch._dynamo.reset()
    counter = CompileCounter()
    compiled = torch.compile(layer, backend=counter)
    for turn in range(6):
        assert_close(compiled(x), exact(layer, x), 8, steps=2)
        layer(x if turn % 2 else x[:3])
    assert counter.frame_count == 1


def test_forgetting_beside_threads_that_make_and_call_layers(device) -> None:
    failed: list[BaseException] = []
    end = time.monotonic() + 1
    x = torch.ones(3, 8, device=device)

    def calling() -> None:
        try:
            while time.monotonic() < end:
                layer = rungemm.patch(nn.Linear(8, 16, device=device))
                layer(x)
                layer(x)
        except BaseException as error:
            failed.append(error)

    def forgetting() -> None:
        try:
            while time.monotonic() < end:
                rungemm.forget()
        except BaseException as error:
            failed.append(error)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=target) for target in [calling] * 4 + [forgetting] * 2]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not failed, repr(failed[:3])


@pytest.mark.filterwarnings("ignore:.*jit.trace.*:DeprecationWarning", "ignore:.*torch.jit.*:FutureWarning")
@pytest.mark.parametrize("precision", [None, "ieee"])
@pytest.mark.parametrize("warm", [False, True])
def test_jit_trace_of_a_patched_model(warm, precision, rng, device) -> None:
    model = rungemm.patch(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)).to(device), precision=precision)
    x, other = normal(rng, 5, 8, device=device), normal(rng, 5, 8, device=device)
    if warm:
        for _ in range(WARM):
            model(x)
    traced = torch.jit.trace(model, x)
    assert_close(traced(other), model.double()(other.double()), 16, steps=4)


@pytest.mark.parametrize("warm", [False, True])
def test_a_method_kept_beyond_unpatch_stays_right(warm, rng, device) -> None:
    layer, x = layer_and_rows(rng, device, warm)
    kept = layer.forward
    rungemm.unpatch(layer)
    for _ in range(WARM):
        assert_close(kept(x), exact(layer, x), 8, steps=2)
    rungemm.patch(layer)
    assert_close(kept(x), exact(layer, x), 8, steps=2)


class OnlyLinear(torch.Tensor):
    """A weight, as quantised ones are, that stands for twice what it holds and knows torch's linear alone."""

    @staticmethod
    def __new__(cls, held):
        return torch.Tensor._make_wrapper_subclass(cls, held.shape, dtype=held.dtype, device=held.device)

    def __init__(self, held):
        self.held = held

    def __tensor_flatten__(self):
        return ["held"], None

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function is F.linear:
            x, weight, *rest = args
            return F.linear(x, 2 * weight.held, *rest)
        return super().__torch_function__(function, types, args, kwargs or {})

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        if function is torch.ops.aten.detach.default:
            return cls(args[0].held)
        raise NotImplementedError(str(function))


@pytest.mark.parametrize("warm", [False, True])
def test_a_weight_that_knows_torchs_linear_alone(warm, rng, device) -> None:
    layer, x = layer_and_rows(rng, device, warm)
    held, bias = layer.weight.detach(), layer.bias.detach()
    weight = OnlyLinear(held)
    want = F.linear(x.double(), 2 * held.double(), bias.double())
    layer.weight = nn.Parameter(weight, requires_grad=False)
    for _ in range(WARM):
        if warm:
            rungemm.linear(x, held, bias)
        assert_close(layer(x), want, 8, steps=2)
        assert_close(rungemm.linear(x, weight, bias), want, 8, steps=2)
        assert_close(rungemm.linear(x, weight, bias, "relu"), want.relu(), 8, steps=2)
        gated = F.silu(want[:, :8]) * want[:, 8:]
        assert_close(rungemm.linear(x, weight, bias, "swiglu"), gated, 8, steps=8)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged], ids=str)
def test_nested_inputs(layout, rng, device) -> None:
    layer, _ = layer_and_rows(rng, device)
    parts = [normal(rng, rows, 8, device=device) for rows in (3, 5)]
    nested = torch.nested.nested_tensor(parts, layout=layout)
    calls = (
        (lambda: layer(nested), lambda v: v),
        (lambda: rungemm.linear(nested, layer.weight, layer.bias), lambda v: v),
        (lambda: rungemm.linear(nested, layer.weight, layer.bias, "gelu"), F.gelu),
    )
    for _ in range(WARM):
        for call, after in calls:
            got = call()
            assert got.is_nested
            for mine, part in zip(got.unbind(), parts, strict=True):
                assert_close(mine, after(exact(layer, part)), 8, steps=4)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta:UserWarning")
@pytest.mark.parametrize("record", [False, True])
def test_sparse_rows_and_weights_of_a_patched_layer(record, rng, device) -> None:
    """Also where a dense layer has had the same question answered before."""
    layer, x = layer_and_rows(rng, device)
    sparse, _ = layer_and_rows(rng, device, warm=False)
    want, weight = exact(layer, x), sparse.weight.detach()
    other = exact(sparse, x)
    sparse.weight = nn.Parameter(weight.to_sparse_csr(), requires_grad=False)
    sparse.bias.requires_grad_(False)
    with torch.set_grad_enabled(record):
        for _ in range(WARM):
            for one, rows, expected in ((sparse, x, other), (layer, x.to_sparse_csr(), want), (layer, x, want)):
                try:
                    torch.matmul(rows, one.weight.mT)
                except (NotImplementedError, RuntimeError) as error:  # on some devices torch has no such product
                    with pytest.raises(type(error)):
                        one(rows)
                else:
                    assert_close(one(rows), expected, 8, steps=2)


@pytest.mark.parametrize("name", PRODUCTS)
def test_zeros_without_memory(name, rng, device) -> None:
    """Such tensors come as gradients that are known to be zero; their address is none."""
    call, want = products(rng, device)[name]
    x, w = normal(rng, 5, 8, device=device), normal(rng, 16, 8, device=device)
    none_x, none_w = (torch._efficientzerotensor(t.shape, dtype=t.dtype, device=device) for t in (x, w))
    for turn in range(WARM):
        for pair in ((none_x, w), (x, none_w), (none_x, none_w)):
            zeros = [p.double().clone() if not p._is_zerotensor() else torch.zeros_like(p).double() for p in pair]
            assert_close(call(*pair), want(*zeros), 8, steps=4)
        for _ in range(turn):
            assert_close(call(x, w), want(x.double(), w.double()), 8, steps=4)


def test_zeros_without_memory_as_c_and_bias(rng, device) -> None:
    a, b = normal(rng, 5, 8, device=device), normal(rng, 8, 16, device=device)
    c, bias = normal(rng, 5, 16, device=device), normal(rng, 16, device=device)
    none_c, none_bias = (torch._efficientzerotensor(t.shape, dtype=t.dtype, device=device) for t in (c, bias))
    product = a.double() @ b.double()
    for _ in range(WARM):
        assert_close(rungemm.gemm(a, b, c, bias=bias), product + c.double() + bias.double(), 8, steps=2)
        assert_close(rungemm.gemm(a, b, none_c, bias=bias), product + bias.double(), 8, steps=2)
        assert_close(rungemm.gemm(a, b, c, bias=none_bias), product + c.double(), 8, steps=2)


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("back", [torch.bfloat16, torch.float32, torch.float16], ids=str)
def test_what_hooks_make_of_saved_tensors_is_not_taken_for_what_was_saved(back, name, rng, device) -> None:
    """Saved as fp32 and cast back: right. Handed out in another type: right, or an error."""
    call, want = products(rng, device, torch.bfloat16)[name]
    for _ in range(WARM):
        x, w = (normal(rng, m, 8, dtype=torch.bfloat16, device=device).requires_grad_() for m in (5, 16))
        direction = normal(rng, 5, 16, dtype=torch.bfloat16, device=device)
        pair = (x.detach().double().requires_grad_(), w.detach().double().requires_grad_())
        theirs = torch.autograd.grad(want(*pair), pair, direction.double())
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.float(), lambda t: t.to(back)):
            value = call(x, w)
        try:
            mine = torch.autograd.grad(value, (x, w), direction)
        except (RuntimeError, ValueError):
            assert back != torch.bfloat16
            continue
        for one, other in zip(mine, theirs, strict=True):
            assert_close(one, other, 16, steps=8)


@pytest.mark.parametrize("warm", [False, True])
def test_fx_trace_of_a_patched_model(warm, rng, device) -> None:
    """The tracer looks into whatever is no module of torch's own."""
    model = rungemm.patch(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)).to(device))
    x, other = normal(rng, 5, 8, device=device), normal(rng, 7, 8, device=device)
    if warm:
        for _ in range(WARM):
            model(x)
    traced = torch.fx.symbolic_trace(model)
    for rows in (x, other):
        assert_close(traced(rows), model(rows).double(), 16, steps=4)


def test_alternating_shapes_of_a_patched_layer_ask_nothing(rng, device, monkeypatch) -> None:
    layer, x = layer_and_rows(rng, device, warm=False)
    asked: list[object] = []
    for module in (front, patching):
        real = module.key_of
        monkeypatch.setattr(module, "key_of", lambda *a, real=real, **kw: asked.append(1) or real(*a, **kw))
    long, short = x, normal(rng, 3, 8, device=device)
    for record in (True, False):
        with torch.set_grad_enabled(record):
            for turn in range(6):
                if turn == 2:
                    asked.clear()
                for rows in (long, short):
                    assert_close(layer(rows), exact(layer, rows), 8, steps=2)
            assert not asked, f"asked {len(asked)} times from the third round on, gradients {record}"


def test_one_answer_for_many_layers_is_none_for_other_types(rng, device) -> None:
    """Layers share answers by the input; another layer's weight may be of a type that does not go with it."""
    layer, x = layer_and_rows(rng, device)
    half, _ = layer_and_rows(rng, device, warm=False, dtype=torch.bfloat16)
    for _ in range(WARM):
        layer(x)
        with pytest.raises(ProblemError, match=r"A is torch\.float32 and B is torch\.bfloat16: convert one"):
            half(x)


def test_unpatch_names_layers_that_were_parametrized_since(rng, device) -> None:
    class Twice(nn.Module):
        def forward(self, weight):
            return 2 * weight

    model = rungemm.patch(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)).to(device))
    for index in (0, 2):
        parametrize.register_parametrization(model[index], "weight", Twice())
    with pytest.warns(UserWarning, match=r"still patched.*: 0, 2; remove the parametrization first") as seen:
        rungemm.unpatch(model)
    assert len(seen) == 1 and seen[0].filename == __file__
    assert type(model[1]) is nn.Linear and isinstance(model[0], patching.PatchedLinear)
    x = normal(rng, 5, 8, device=device)
    assert_close(model[0](x), exact(model[0], x), 8, steps=2)
    with pytest.warns(UserWarning, match="the model itself"):
        rungemm.unpatch(model[0])
    for index in (0, 2):
        parametrize.remove_parametrizations(model[index], "weight")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rungemm.unpatch(model)
    assert [type(module) for module in model] == [nn.Linear] * 3


def test_explanations_of_what_there_is_no_choice_for() -> None:
    for shape, dtype, words in (
        ((64, 64, 64), "fp64", r"^fp64 is always computed by torch, so there is no choice: ask for one of fp32, "),
        ((1.5, 2, 3), "fp32", r"^shape \(1\.5, 2, 3\) is not made of whole numbers: pass \(M, N, K\) or"),
        ((3, 4), "fp32", r"^shape \(3, 4\) is not \(M, N, K\)"),
    ):
        with pytest.raises(ProblemError, match=words):
            rungemm.explain_dispatch(shape, dtype=dtype, gpu="h200")


def test_a_saved_tensor_of_another_shape_is_an_error(rng, device) -> None:
    x = normal(rng, 8, 16, dtype=torch.bfloat16, device=device).requires_grad_()
    w = normal(rng, 24, 16, dtype=torch.bfloat16, device=device).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t[:, :8].contiguous()):
        for _ in range(WARM):
            with pytest.raises((RuntimeError, ProblemError)):
                rungemm.linear(x, w).backward(torch.ones(8, 24, dtype=torch.bfloat16, device=device))


def test_backward_within_autocast_is_in_the_types_of_forward(rng, device) -> None:
    x = normal(rng, 8, 16, dtype=torch.bfloat16, device=device).requires_grad_()
    w = normal(rng, 24, 16, dtype=torch.bfloat16, device=device).requires_grad_()
    large = torch.full((8, 24), 1e5, dtype=torch.bfloat16, device=device)  # beyond fp16
    wants = 0.5 * large.double() @ w.double(), 0.5 * large.double().mT @ x.double()
    for _ in range(WARM):
        got = rungemm.gemm(x, w.mT, alpha=0.5)
        with torch.autocast(device, dtype=torch.float16):
            mine = torch.autograd.grad(got, (x, w), large)
        for one, other in zip(mine, wants, strict=True):
            assert_close(one, other, 24)


@pytest.mark.parametrize("warm", [False, True])
def test_a_symbolic_trace_of_a_patched_layer_adds_no_guards(warm, rng, device) -> None:
    layer, x = layer_and_rows(rng, device, warm)
    traced = make_fx(lambda rows: layer(rows), tracing_mode="symbolic", _allow_non_fake_inputs=True)(x)
    more = normal(rng, 9, 8, device=device)
    assert_close(traced(more), exact(layer, more), 8)
    guards = " ".join(str(guard.expr) for guard in traced.shape_env.guards)
    assert f", {x.shape[0]})" not in guards, guards


def test_what_a_hook_raises_is_raised_once(rng, device) -> None:
    layer, x = layer_and_rows(rng, device)
    raised = []

    def pack(t):
        raised.append(1)
        raise RuntimeError("no room")

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t), pytest.raises(RuntimeError, match="no room"):
        layer(x)
    assert raised == [1]


def test_a_gradient_is_derived_forward(rng, device) -> None:
    from torch.autograd import forward_ad

    x, w = normal(rng, 5, 8, device=device).requires_grad_(), normal(rng, 16, 8, device=device)
    seed, tangent = normal(rng, 5, 16, device=device), normal(rng, 5, 16, device=device)
    for _ in range(WARM):
        out = rungemm.linear(x, w)
        with forward_ad.dual_level():
            (grad,) = torch.autograd.grad(out, x, forward_ad.make_dual(seed, tangent))
            primal, derived = forward_ad.unpack_dual(grad)
        assert derived is not None
        assert_close(primal, seed.double() @ w.double(), 16)
        assert_close(derived, tangent.double() @ w.double(), 16)


def test_forgetting_leaves_unpatched_layers_alone(rng, device) -> None:
    layer, x = layer_and_rows(rng, device)
    layer(x)
    rungemm.unpatch(layer)
    rungemm.forget()
    assert not [name for name in vars(layer) if "rungemm" in name]


def test_torchs_setting_changed_by_another_thread_meanwhile(rng, device, monkeypatch) -> None:
    """Whatever is asked when, what was chosen for one setting is not kept for the other."""
    from rungemm.ops import fallback, guards

    a, b = normal(rng, 16, 16, device=device), normal(rng, 16, 16, device=device)
    answers = iter(())
    real = fallback.current_precision
    for module in (fallback, front):
        monkeypatch.setattr(module, "current_precision", lambda: next(answers, real()))
    for flips in (["ieee", "tf32"] * 4, ["ieee", "ieee", "tf32"] * 4, ["ieee"] * 3 + ["tf32"] * 9):
        rungemm.forget()
        for _ in range(WARM):
            answers = iter(flips)
            rungemm.matmul(a, b)
        for cheap, kept in guards.calls.items():
            for seen in kept:
                for one in seen.fronts.values():
                    decision = one.entry.decision
                    assert decision is None or decision.problem.precision == cheap[3], (flips, cheap)
        answers = iter(())
        for _ in range(WARM):
            assert_close(rungemm.matmul(a, b), a.double() @ b.double(), 16)
