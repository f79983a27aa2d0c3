"""``patch(model)``: every nn.Linear of a model computes through the library, until ``unpatch(model)``."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor, nn

from .api import linear

__all__ = ["patch", "unpatch"]

ModuleT = TypeVar("ModuleT", bound=nn.Module)


class PatchedLinear(nn.Linear):
    """An nn.Linear in everything (parameters, state, hooks, isinstance) but who multiplies."""

    rungemm_precision: str | None = None

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias, precision=self.rungemm_precision)


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
