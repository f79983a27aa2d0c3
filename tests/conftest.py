"""Fresh random data in every run, with the seed printed when a test fails."""

from __future__ import annotations

import os

import numpy as np
import pytest


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The seed of this test: RUNGEMM_SEED if set, else new in every run; pytest shows the print on failure."""
    value = int(os.environ.get("RUNGEMM_SEED", int.from_bytes(os.urandom(4), "little")))
    print(f"RUNGEMM_SEED={value}  ({request.node.nodeid})")
    return value


@pytest.fixture
def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)
