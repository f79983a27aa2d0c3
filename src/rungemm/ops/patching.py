"""``patch(model)``: every nn.Linear of a model computes through the library, until ``unpatch(model)``."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor, nn

from .api import linear
from .execute import follow
from .front import fronts, key_of

__all__ = ["patch", "unpatch"]

ModuleT = TypeVar("ModuleT", bound=nn.Module)


QUESTIONS_KEPT = 4096

_by_torch: dict[tuple[object, ...], bool] = {}
"""Whether torch's own linear runs for dense operands of a shape and type, with gradients or without. Then it is right
whatever else the tensors are, so that nothing else need be asked of them: the questions of the short way would cost as
much as the call itself."""
follow(_by_torch)

_linear, _grad, _compiling = nn.functional.linear, torch.is_grad_enabled, torch.compiler.is_compiling


class PatchedLinear(nn.Linear):
    """An nn.Linear in everything (parameters, state, hooks, isinstance) but who multiplies."""

    rungemm_precision: str | None = None

    def forward(self, input: Tensor) -> Tensor:
        precision = self.rungemm_precision
        if precision is not None or _compiling():
            return linear(input, self.weight, self.bias, precision=precision)
        # Where parameters are kept: as attributes they are found by nn.Module.__getattr__, a microsecond each.
        own = self._parameters
        weight, bias = own.get("weight"), own.get("bias")
        if weight is None or (bias is None and "bias" not in own):
            weight, bias = self.weight, self.bias
        question = (input.shape, input.dtype, self.out_features, _grad())
        known = _by_torch.get(question)
        if known and input.is_contiguous() and weight.is_contiguous():
            return _linear(input, weight, bias)
        result = linear(input, weight, bias)
        if known is None and len(_by_torch) < QUESTIONS_KEPT:
            key = key_of("linear", input, weight, None, bias, None, None, None)
            front = None if key is None else fronts.get(key)
            if front is not None:
                _by_torch[question] = front.by_torch and input.is_contiguous() and weight.is_contiguous()
        return result


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
            module.rungemm_precision = precision
    return model


def unpatch(model: ModuleT) -> ModuleT:
    """Undo :func:`patch`; a model that was not patched is left as it is. Returns ``model``."""
    for module in model.modules():
        if type(module) is PatchedLinear:
            module.__class__ = nn.Linear
            module.__dict__.pop("rungemm_precision", None)
    return model


torch.serialization.add_safe_globals([PatchedLinear])
