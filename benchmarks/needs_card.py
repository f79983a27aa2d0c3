"""A benchmark's first question: is there a card, and torch? Where not, one line and exit code 2, not a traceback."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import NoReturn

from rungemm.errors import INSTALL_TORCH
from rungemm.hardware import detect_gpu
from rungemm.ladder.runners import gpu_is_usable


def need_torch() -> None:
    """Before a script's ``import torch``; ``--help`` is answered with the script's own text, for nothing else is read.

    Raises:
        SystemExit: torch is not installed.
    """
    if importlib.util.find_spec("torch") is not None:
        return
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(sys.modules["__main__"].__doc__)
        raise SystemExit(0)
    _refuse(f"this needs torch, which is not installed: {INSTALL_TORCH}")


def need_card() -> None:
    """Before anything is compiled for a run that would end without a card.

    torch is loaded only where nvidia-smi names no card: what forks later is not to inherit its threads.

    Raises:
        SystemExit: nothing can be launched here.
    """
    if detect_gpu() is not None and importlib.util.find_spec("torch") is not None:
        return
    why = gpu_is_usable()
    if why is not None:
        _refuse(f"this runs on a GPU, and there is none to use: {why}")


def _refuse(why: str) -> NoReturn:
    print(f"{Path(sys.argv[0]).name}: {why}", file=sys.stderr)
    raise SystemExit(2)
