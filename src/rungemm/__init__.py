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
        try:
            value = getattr(importlib.import_module(".ops", __name__), name)
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            return _without_torch(name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value  # found at once the next time
    return value


def _without_torch(name: str) -> Any:
    """A function of that name with its documentation, which says that torch is missing only when it is called: asking
    for the name (``hasattr``, ``help``, ``from rungemm import *``) is no use of it."""
    import ast
    from pathlib import Path

    from .ops import HOMES

    def needs_torch(*args: Any, **kwargs: Any) -> Any:
        return getattr(importlib.import_module(".ops", __name__), name)(*args, **kwargs)

    # The docstring comes from the source's text: the module cannot be imported.
    source = (Path(__file__).parent / "ops" / f"{HOMES[name]}.py").read_text(encoding="utf-8")
    found = (node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef) and node.name == name)
    needs_torch.__name__ = needs_torch.__qualname__ = name
    needs_torch.__doc__ = next((ast.get_docstring(node) for node in found), None)
    needs_torch.__module__ = __name__
    return needs_torch


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
