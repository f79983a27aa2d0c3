"""Launching plans on a GPU through torch: the only layer that touches the CUDA driver.

torch is imported when one of these names is first asked for, so that the parts that need none can be tested anywhere.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ..errors import INSTALL_TORCH

if TYPE_CHECKING:
    from .driver import CudaError
    from .problems import matrix_of, problem_of
    from .runner import Prepared, prepare, run_plan

__all__ = ["CudaError", "Prepared", "matrix_of", "prepare", "problem_of", "run_plan"]

_HOMES = {
    "CudaError": "driver",
    "Prepared": "runner",
    "matrix_of": "problems",
    "prepare": "runner",
    "problem_of": "problems",
    "run_plan": "runner",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f".{home}", __name__), name)
    except ModuleNotFoundError as error:
        if error.name == "torch":
            remedy = f"launching on a GPU needs torch: {INSTALL_TORCH}"
            raise ModuleNotFoundError(remedy, name="torch") from None
        raise
