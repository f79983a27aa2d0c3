"""rungemm: run GEMM, rung by rung.

``import rungemm`` loads neither torch nor triton; each name below is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .ops.api import addmm, bmm, gemm, linear, matmul
    from .ops.execute import forget
    from .ops.explain import explain_dispatch
    from .ops.patching import patch, unpatch
    from .problem import Epilogue, Problem

__version__ = "0.1.0"

__all__ = [
    "Epilogue",
    "Problem",
    "__version__",
    "addmm",
    "bmm",
    "explain_dispatch",
    "forget",
    "gemm",
    "linear",
    "matmul",
    "patch",
    "unpatch",
]

_PLAIN = {"Epilogue": "problem", "Problem": "problem"}


def __getattr__(name: str) -> Any:
    if name in _PLAIN:
        value = getattr(importlib.import_module(f".{_PLAIN[name]}", __name__), name)
    elif name in __all__:
        value = getattr(importlib.import_module(".ops", __name__), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value  # found at once the next time
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
