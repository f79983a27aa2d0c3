"""What runs on a card: skipped whole where there is none. ``pytest tests/gpu`` (plain ``pytest`` leaves it out)."""

from __future__ import annotations

import importlib.util
import os
import tempfile
from pathlib import Path

import pytest
from seeding import SEED

from rungemm.hardware import Gpu, detect_gpu

if importlib.util.find_spec("platformdirs") is None:
    # A lent machine may have torch and Triton and little else; the cache then needs to be told where to be.
    os.environ.setdefault("RUNGEMM_CACHE_DIR", os.path.join(tempfile.gettempdir(), f"rungemm-cache-{os.getuid()}"))

HERE = Path(__file__).parent


def pytest_report_header() -> str:
    return f"RUNGEMM_SEED={SEED}"


def why_not() -> str | None:
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    return None if torch.cuda.is_available() else "torch sees no CUDA device"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = why_not()
    if reason is not None:
        for item in items:
            if HERE in item.path.parents:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def card() -> Gpu:
    found = detect_gpu()
    assert found is not None, "torch sees a card and nvidia-smi does not"
    return found
