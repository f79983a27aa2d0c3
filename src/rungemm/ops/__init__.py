"""The library: products of torch tensors, each by whichever kernel is fastest for it, cuBLAS among them.

Choosing (:mod:`.dispatch`) needs no torch, so it can be explained on any machine; torch is imported when one of the
names below that compute is first asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ..errors import INSTALL_TORCH

if TYPE_CHECKING:
    from .api import addmm, bmm, gemm, linear, matmul
    from .dispatch import Decision, Option, decide
    from .execute import forget
    from .explain import explain_dispatch
    from .patching import patch, unpatch

__all__ = [
    "Decision",
    "Option",
    "addmm",
    "bmm",
    "decide",
    "explain_dispatch",
    "forget",
    "gemm",
    "linear",
    "matmul",
    "patch",
    "unpatch",
]

HOMES = {
    "addmm": "api",
    "bmm": "api",
    "gemm": "api",
    "linear": "api",
    "matmul": "api",
    "Decision": "dispatch",
    "Option": "dispatch",
    "forget": "execute",
    "decide": "dispatch",
    "explain_dispatch": "explain",
    "patch": "patching",
    "unpatch": "patching",
}
"""In which module of this package each public name lives."""


def __getattr__(name: str) -> Any:
    home = HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(importlib.import_module(f".{home}", __name__), name)
    except ModuleNotFoundError as error:
        if error.name == "torch":
            remedy = f"rungemm.{name} needs torch: {INSTALL_TORCH}"
            raise ModuleNotFoundError(remedy, name="torch") from None
        raise
    globals()[name] = value  # found at once the next time
    return value
