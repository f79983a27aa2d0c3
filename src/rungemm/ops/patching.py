"""``patch(model)``: every nn.Linear of a model computes through the library, until ``unpatch(model)``."""

from __future__ import annotations

import weakref
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from . import launch
from .api import linear
from .core import PLAIN
from .execute import follow
from .front import fronts, key_of
from .general import TORCHS

__all__ = ["patch", "unpatch"]

ModuleT = TypeVar("ModuleT", bound=nn.Module)


class _Layers(weakref.WeakSet["PatchedLinear"]):
    """Layers that know an answer, which is taken back when choices are forgotten."""

    def clear(self) -> None:
        for layer in list(self):
            layer.rungemm_shape = None
        super().clear()


_know = _Layers()
follow(_know)

_linear, _grad = nn.functional.linear, torch.is_grad_enabled


class PatchedLinear(nn.Linear):
    """An nn.Linear in everything (parameters, state, hooks, isinstance) but who multiplies.

    Where torch's own linear was chosen for an input's shape, it is called at once when that shape comes again: it is
    right whatever else has changed, and in a step of training, where this code runs cold, every further question would
    cost as much as what there is to gain.

    Attributes:
        rungemm_precision: of fp32 products.
        rungemm_shape: of inputs that torch's own linear multiplies, if that is known.
        rungemm_grad: whether gradients were recorded then.
    """

    rungemm_precision: str | None = None
    rungemm_shape: torch.Size | None = None
    rungemm_grad: bool = False

    def forward(self, input: Tensor) -> Tensor:
        if input.shape == self.rungemm_shape and _grad() is self.rungemm_grad:
            # Where parameters are kept: as attributes they are found by nn.Module.__getattr__, a microsecond each.
            own = self._parameters
            try:
                return _linear(input, own["weight"], own["bias"])
            except (KeyError, RuntimeError):
                pass  # a parameter that is none any more, or a pitch that torch does not take
        return self._chosen(input)

    def _chosen(self, input: Tensor) -> Tensor:
        weight, bias, precision = self.weight, self.bias, self.rungemm_precision
        result = linear(input, weight, bias, precision=precision)
        if precision is None and not torch.compiler.is_compiling() and self._is_torchs(input, weight, bias):
            self.rungemm_shape, self.rungemm_grad = input.shape, _grad()
            _know.add(self)
        return result

    @staticmethod
    def _is_torchs(input: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
        """Whether torch's own linear computes such a product, of dense operands."""
        if type(input) in PLAIN and not launch.on_gpu(input):
            return input.dtype in TORCHS
        if not (input.is_contiguous() and weight.is_contiguous()):
            return False
        key = key_of("linear", input, weight, None, bias, None, None, None)
        front = None if key is None else fronts.get(key)
        return front is not None and front.by_torch

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Copies, and layers read from a file, ask anew."""
        super().__setstate__({**state, "rungemm_shape": None})


def patch(model: ModuleT, *, precision: str | None = None) -> ModuleT:
    """Swap every nn.Linear of ``model`` in place; parameters, state dict, hooks and training mode stay as they are.

    Subclasses of nn.Linear keep their own forward: they may compute something else.

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
    """Undo :func:`patch`; a model that was not patched is left as it is. Returns ``model``."""
    for module in model.modules():
        if type(module) is PatchedLinear:
            module.__class__ = nn.Linear
            for name in ("rungemm_precision", "rungemm_shape", "rungemm_grad"):
                module.__dict__.pop(name, None)
            _know.discard(module)
    return model


torch.serialization.add_safe_globals([PatchedLinear])
