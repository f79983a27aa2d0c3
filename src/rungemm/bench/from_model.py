"""The matrix products that a torch model runs, as shapes to time.

The user's callable is run once under a dispatch mode that sees every operation below autograd and records the
products among them. It may return a module and its arguments, which are then run, or run the model itself.
"""

from __future__ import annotations

import importlib
from typing import Any

from ..dtypes import DTYPES, dtype_named
from ..inputs import InputError
from .suites import Shape

__all__ = ["shapes_of_model"]


def shapes_of_model(target: str) -> list[Shape]:
    """The distinct products of ``module:callable``, the largest first; the label says how often each ran.

    Raises:
        InputError: it cannot be imported or run, or it multiplies nothing of a supported type.
    """
    module_name, _, attribute = target.partition(":")
    if not module_name or not attribute:
        raise InputError(f"--from-model {target!r} is not module:callable, like mymodels:llama_block")
    try:
        function = getattr(importlib.import_module(module_name), attribute)
    except ImportError as error:
        raise InputError(
            f"--from-model {target}: cannot import {module_name} ({error}): is it on PYTHONPATH?"
        ) from None
    except AttributeError:
        raise InputError(f"--from-model {target}: {module_name} has no {attribute}") from None
    counts = _record(target, function)
    if not counts:
        raise InputError(f"--from-model {target}: it ran no matrix product of a type in {', '.join(DTYPES)}")
    ranked = sorted(counts.items(), key=lambda item: -(item[0].m * item[0].n * item[0].k * item[0].batch))
    return [Shape(s.m, s.n, s.k, s.batch, s.layout, s.dtype, label=f"{target}, {count} times") for s, count in ranked]


def _record(target: str, function: Any) -> dict[Shape, int]:
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    counts: dict[Shape, int] = {}
    aten = torch.ops.aten
    operands_of = {
        aten.mm.default: (0, 1),
        aten.addmm.default: (1, 2),
        aten.bmm.default: (0, 1),
        aten.baddbmm.default: (1, 2),
    }

    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            places = operands_of.get(op)
            if places is not None:
                shape = _shape(args[places[0]], args[places[1]])
                if shape is not None:
                    counts[shape] = counts.get(shape, 0) + 1
            return op(*args, **(kwargs or {}))

    try:
        with Recorder():
            made = function()
            if isinstance(made, torch.nn.Module):
                raise InputError(f"--from-model {target} returned a module alone: return (module, *arguments)")
            if isinstance(made, tuple) and made and isinstance(made[0], torch.nn.Module):
                made[0](*made[1:])
    except InputError:
        raise
    except Exception as error:
        words = " ".join(str(error).split())[:150]
        raise InputError(f"--from-model {target} failed: {type(error).__name__}: {words}") from None
    return counts


def _shape(a: Any, b: Any) -> Shape | None:
    """The shape of a product, or ``None`` for an empty one or a type that is not ours."""
    try:
        dtype = dtype_named(a.dtype)
    except ValueError:
        return None
    if min(*a.shape, *b.shape) == 0 or a.dtype != b.dtype:
        return None

    def letter(x: Any) -> str:
        return "T" if x.stride(-1) != 1 and x.stride(-2) == 1 else "N"

    batch = a.shape[0] if a.dim() == 3 else 1
    return Shape(a.shape[-2], b.shape[-1], a.shape[-1], batch, letter(a) + letter(b), dtype)
