"""The library's tests run on the CPU here; ``tests/gpu/test_ops.py`` runs the very same ones on a card."""

from __future__ import annotations

import pytest


@pytest.fixture
def device() -> str:
    return "cpu"
