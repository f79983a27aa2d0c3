"""``patch(model)``: every nn.Linear of a model computes through the library, until ``unpatch(model)``."""

from __future__ import annotations

import threading
import warnings
import weakref
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from . import launch
from .api import linear
from .core import watched
from .execute import follow
from .front import fronts, key_of
from .general import TORCHS

__all__ = ["patch", "unpatch"]

ModuleT = TypeVar("ModuleT", bound=nn.Module)


class _Layers:
    """Layers that know an answer, which is taken back when choices are forgotten."""

    def __init__(self) -> None:
        self._layers: weakref.WeakSet[PatchedLinear] = weakref.WeakSet()
        self._lock = threading.Lock()

    def add(self, layer: PatchedLinear) -> None:
        with self._lock:
            self._layers.add(layer)

    def clear(self) -> None:
        with self._lock:
            for layer in self._layers:
                if isinstance(layer, PatchedLinear):  # it may have been unpatched since
                    layer.rungemm_shape = None
            self._layers.clear()


QUESTIONS_KEPT = 4096

_by_torch: dict[tuple[object, ...], bool] = {}
"""Whether torch's own linear runs for dense operands: by the input's shape, type and place, the width, and
whether a bias is added and gradients are recorded."""
_know = _Layers()
follow(_by_torch)
follow(_know)

_linear, _grad, _compiling = nn.functional.linear, torch.is_grad_enabled, torch.compiler.is_compiling
_tracer = torch._C._get_tracing_state


class PatchedLinear(nn.Linear):
    """An nn.Linear in everything (parameters, state, hooks, isinstance) but who multiplies.

    Where torch's own linear was chosen for an input's shape, it is called at once when that shape comes again: it is
    right whatever else has changed, and in a step of training, where this code runs cold, every further question would
    cost as much as what there is to gain.

    Attributes:
        rungemm_precision: of fp32 products.
        rungemm_shape: of inputs that torch's own linear multiplies, if that is known.
        rungemm_grad, rungemm_dtype: whether gradients were recorded then, and the input's type.
    """

    rungemm_precision: str | None = None
    rungemm_shape: torch.Size | None = None
    rungemm_grad: bool = False
    rungemm_dtype: torch.dtype | None = None

    def forward(self, input: Tensor) -> Tensor:
        # A compiler and a tracer must not take one shape, seen in eager mode, for a constant.
        if _compiling() or type(input) is not Tensor:
            return _chosen(self, input)
        try:
            # Where parameters are kept: as attributes they are found by nn.Module.__getattr__, a microsecond each.
            weight, bias = self._parameters["weight"], self._parameters["bias"]
            known = (
                input.shape == self.rungemm_shape
                and input.dtype is self.rungemm_dtype
                and _grad() is self.rungemm_grad
                and weight is not None
                # Pitches may be beyond torch's reach.
                and input.is_contiguous()
                and weight.is_contiguous()
            )
        except (AttributeError, KeyError, RuntimeError):  # a parameter that is none any more, a layer unpatched since
            return _chosen(self, input)
        return _linear(input, weight, bias) if known else _chosen(self, input)  # type: ignore[arg-type]

    def _slow_forward(self, *input: Any, **keywords: Any) -> Any:
        """What torch calls for a forward that torch.jit.trace records: sizes compared there would be recorded too."""
        self.rungemm_shape = None
        return super()._slow_forward(*input, **keywords)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Copies, and layers read from a file, ask anew."""
        super().__setstate__({**state, "rungemm_shape": None})


def _chosen(layer: nn.Linear, input: Tensor) -> Tensor:
    """The product by whoever is chosen for it; remembered where that is torch."""
    weight, bias = layer.weight, layer.bias
    if not isinstance(layer, PatchedLinear) or not isinstance(input, Tensor):
        # Somebody kept the method of a layer that was unpatched since; or a tracer's proxy.
        return _linear(input, weight, bias)
    precision = layer.rungemm_precision
    if precision is not None or _compiling():
        return linear(input, weight, bias, precision=precision)
    try:
        question = (input.shape, input.dtype, input.get_device(), layer.out_features, bias is None, _grad())
        known = _by_torch.get(question)
    except (RuntimeError, TypeError):  # a nested tensor has no shape, and one whose sizes are symbols no hash
        return linear(input, weight, bias)
    if known is False:
        return linear(input, weight, bias)
    if watched(input, weight, bias):
        # torch.jit.trace compares a second trace, made when an answer may be known: torch's own in both.
        return linear(input, weight, bias) if _tracer() is None else _linear(input, weight, bias)
    dense = _is_dense(input) and _is_dense(weight)
    if known and dense and weight.dtype == input.dtype:
        result = _linear(input, weight, bias)
    else:
        result = linear(input, weight, bias)
        if known is None:
            known = _is_torchs(input, weight, bias)
            if known is not None and len(_by_torch) < QUESTIONS_KEPT:
                _by_torch[question] = known
    if known and dense:
        layer.rungemm_shape, layer.rungemm_grad, layer.rungemm_dtype = input.shape, _grad(), input.dtype
        _know.add(layer)
    return result


def _is_dense(x: Tensor) -> bool:
    return x.layout is torch.strided and x.is_contiguous()


def _is_torchs(input: Tensor, weight: Tensor, bias: Tensor | None) -> bool | None:
    """Whether torch's own linear computes such a product, of dense operands; ``None`` where these tell nothing."""
    if not (_is_dense(input) and _is_dense(weight)):
        return None
    if not launch.on_gpu(input):
        return input.dtype in TORCHS
    key = key_of("linear", input, weight, None, bias, None, None, None)
    front = None if key is None else fronts.get(key)
    return None if front is None else front.by_torch


def patch(model: ModuleT, *, precision: str | None = None) -> ModuleT:
    """Swap every nn.Linear of ``model`` in place; parameters, state dict, hooks and training mode stay as they are.

    What is not exactly nn.Linear stays as it is, for it may compute something else: subclasses, layers that are
    parametrized (:mod:`torch.nn.utils.parametrize` makes a class of its own for each), and lazy layers before their
    first call. Patch such a model again once they have become nn.Linear. A layer may be parametrized after it was
    patched; it then stays patched. torch.jit.trace records torch's own linear unless ``precision`` is given.

    Args:
        model: any module, an nn.Linear itself too.
        precision: for fp32 products, as for :func:`rungemm.matmul`.

    Returns:
        ``model``.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model is a {type(model).__name__}: pass a torch.nn.Module")
    for module in model.modules():
        if type(module) is nn.Linear or type(module) is PatchedLinear:
            # The class is all that changes, so there is nothing to copy and nothing to lose.
            module.__class__ = PatchedLinear
            module.rungemm_precision, module.rungemm_shape = precision, None
    return model


def unpatch(model: ModuleT) -> ModuleT:
    """Undo :func:`patch`; a model that was not patched is left as it is. Returns ``model``.

    A layer that was parametrized after it was patched has a class made from the patched one and stays: it
    keeps computing through the library, and a warning names it and says what to do.
    """
    left = []
    for name, module in model.named_modules():
        if type(module) is PatchedLinear:
            module.__class__ = nn.Linear
            for attribute in ("rungemm_precision", "rungemm_shape", "rungemm_grad", "rungemm_dtype"):
                module.__dict__.pop(attribute, None)
        elif isinstance(module, PatchedLinear):
            left.append(name or "the model itself")
    if left:
        warnings.warn(
            f"still patched, for parametrized since: {', '.join(left)}; remove the parametrization first, with "
            "torch.nn.utils.parametrize.remove_parametrizations, and call unpatch again",
            stacklevel=2,
        )
    return model


torch.serialization.add_safe_globals([PatchedLinear])
