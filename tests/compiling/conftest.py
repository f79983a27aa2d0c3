"""A compile cache of its own for each test, and modules of kernels written to files."""

from __future__ import annotations

import importlib
import sys
import textwrap
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "cache"
    monkeypatch.setenv("RUNGEMM_CACHE_DIR", str(root))
    return root


@pytest.fixture
def write_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., ModuleType]]:
    """``write_module(text)`` imports the text as a module from a file; ``name=`` writes over an earlier one."""
    monkeypatch.syspath_prepend(str(tmp_path))
    # Files of one test may have the same size and time stamp: never trust bytecode.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    names: list[str] = []

    def write(text: str, name: str | None = None) -> ModuleType:
        name = name or f"kernels_{uuid.uuid4().hex[:8]}"
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(text))
        sys.modules.pop(name, None)
        importlib.invalidate_caches()
        names.append(name)
        return importlib.import_module(name)

    yield write
    for name in names:
        sys.modules.pop(name, None)
