"""patch(model): nn.Linear computes through the library, nothing else changes, and unpatch puts it back."""

from __future__ import annotations

import copy
import io
import pickle

import pytest

torch = pytest.importorskip("torch")

from ops_checks import assert_close, normal  # noqa: E402
from torch import nn  # noqa: E402

import rungemm  # noqa: E402
from rungemm.ops import patching  # noqa: E402
from rungemm.ops.memory import allocator  # noqa: E402
from rungemm.ops.shapes import dense_strides  # noqa: E402
from rungemm.problem import ProblemError  # noqa: E402


class Doubled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


def model(device):
    last = nn.Sequential(nn.Linear(4, 3, bias=False))
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), Doubled(16, 4), last).to(device)


def test_patch_and_unpatch(rng, device) -> None:
    plain = model(device)
    state, parameters = copy.deepcopy(plain.state_dict()), list(plain.parameters())
    x = normal(rng, 5, 8, device=device)
    want = plain(x)
    calls = []
    hook = plain[0].register_forward_hook(lambda *_: calls.append(1))
    assert rungemm.patch(plain) is plain and rungemm.patch(plain) is plain
    assert isinstance(plain[0], nn.Linear) and type(plain[2]) is Doubled and type(plain[3][0]) is patching.PatchedLinear
    assert all(x is y for x, y in zip(plain.parameters(), parameters, strict=True))
    assert plain.state_dict().keys() == state.keys()
    assert_close(plain(x), want.double(), 16, steps=4)
    assert calls == [1]
    rungemm.unpatch(plain)
    assert type(plain[0]) is type(plain[3][0]) is nn.Linear and "rungemm_precision" not in vars(plain[0])
    assert torch.equal(plain(x), want) and calls == [1, 1]
    hook.remove()


def test_a_patched_model_multiplies_through_the_library(rng, device, monkeypatch) -> None:
    seen = []
    monkeypatch.setattr(patching, "linear", lambda *a, **kw: seen.append(kw["precision"]) or rungemm.linear(*a, **kw))
    rungemm.patch(model(device), precision="ieee")(normal(rng, 5, 8, device=device))
    assert seen == ["ieee", "ieee"]


def test_training_is_the_same(rng, device) -> None:
    mine, theirs = model(device), None
    theirs = copy.deepcopy(mine).double()
    rungemm.patch(mine)
    optimisers = [torch.optim.SGD(m.parameters(), lr=0.05) for m in (mine, theirs)]
    for _ in range(5):
        x = normal(rng, 6, 8, device=device)
        losses = []
        for m, optimiser, data in zip((mine, theirs), optimisers, (x, x.double()), strict=True):
            optimiser.zero_grad()
            loss = m(data).square().mean()
            loss.backward()
            optimiser.step()
            losses.append(float(loss))
        assert losses[0] == pytest.approx(losses[1], rel=1e-4)


def test_copies_pickles_and_compiled_models_stay_patched(rng, device) -> None:
    patched = rungemm.patch(model(device)[0:2])
    x = normal(rng, 5, 8, device=device)
    want = patched(x)
    for other in (copy.deepcopy(patched), pickle.loads(pickle.dumps(patched))):
        assert type(other[0]) is patching.PatchedLinear and torch.equal(other(x), want)
    buffer = io.BytesIO()
    torch.save(patched.state_dict(), buffer)
    buffer.seek(0)
    fresh = nn.Sequential(nn.Linear(8, 16), nn.GELU()).to(device)
    fresh.load_state_dict(torch.load(buffer))
    assert_close(fresh(x), want.double(), 8, steps=4)
    torch._dynamo.reset()
    compiled = torch.compile(patched, fullgraph=True, backend="aot_eager")
    assert_close(compiled(x), want.double(), 8, steps=4)


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(TypeError, match=r"pass a torch\.nn\.Module"):
        rungemm.patch(torch.ones(3))


def test_a_layer_that_torch_computes_is_not_asked_again(rng, device, monkeypatch) -> None:
    """Another shape is another question; a parameter that is none any more, or another type, is computed right."""
    layer, x = rungemm.patch(nn.Linear(8, 16).to(device)), normal(rng, 5, 8, device=device)
    want, seen = nn.functional.linear(x, layer.weight, layer.bias), []
    monkeypatch.setattr(patching, "linear", lambda *a, **kw: seen.append(1) or rungemm.linear(*a, **kw))
    layer.rungemm_shape, layer.rungemm_grad, layer.rungemm_dtype = x.shape, True, x.dtype
    patching._know.add(layer)
    assert torch.equal(layer(x), want) and not seen
    with torch.no_grad():
        assert_close(layer(x), want.detach().double(), 8)
    assert seen == [1], "without a gradient it is another question"
    layer.rungemm_shape, layer.rungemm_grad, layer.rungemm_dtype = x.shape, True, x.dtype
    assert_close(layer(x[:3]), want[:3].detach().double(), 8)
    assert_close(layer(x.mT.contiguous().mT), want.detach().double(), 8)
    for twin in (pickle.loads(pickle.dumps(layer)), copy.deepcopy(layer)):
        assert twin.rungemm_shape is None, "copies ask anew"
        assert_close(twin(x), want.detach().double(), 8)
    layer.rungemm_shape, layer.rungemm_grad, layer.rungemm_dtype = x.shape, True, x.dtype
    weight = layer.weight.detach().clone()
    del layer.weight
    layer.weight = 2 * weight
    assert_close(layer(x), 2 * want.detach().double() - layer.bias.detach().double(), 8, steps=2)
    layer.rungemm_shape, layer.rungemm_grad, layer.rungemm_dtype = x.shape, True, x.dtype
    with pytest.raises(ProblemError, match=r"A is torch\.float64"):
        layer(x.double())
    rungemm.forget()
    assert layer.rungemm_shape is None
    rungemm.unpatch(layer)
    assert type(layer) is nn.Linear and not [name for name in vars(layer) if "rungemm" in name]


def test_new_results_are_as_torch_makes_them(device) -> None:
    for shape in ((), (3,), (4, 5), (2, 0, 3), (2, 3, 4)):
        for dtype in (torch.float32, torch.bfloat16):
            place = torch.device(device)
            mine, theirs = allocator(place)(shape, dense_strides(shape), dtype), torch.empty(shape, dtype=dtype)
            assert (mine.shape, mine.stride(), mine.dtype) == (theirs.shape, theirs.stride(), dtype)
            assert mine.device.type == place.type and not mine.requires_grad
