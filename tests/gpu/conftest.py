"""What runs on a card: skipped whole where there is none. ``pytest tests/gpu`` (plain ``pytest`` leaves it out)."""

from __future__ import annotations

from pathlib import Path

import pytest
from seeding import SEED

from rungemm.hardware import Gpu, detect_gpu

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
