"""The library on a card with OUR kernels wherever one takes the problem, so that cuBLAS cannot hide a fault of theirs.

Run ``python tests/gpu/precompile_ops.py`` first: it compiles on all cores what these tests would compile one by one.
"""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

sys.path.insert(0, str(Path(__file__).parents[1] / "ops"))

import test_ops_torch  # noqa: E402
from test_ops import *  # noqa: E402,F403
from test_ops_h200 import *  # noqa: E402,F403

import rungemm  # noqa: E402
from rungemm.ops import dispatch, launch, rows  # noqa: E402
from rungemm.ops.table import Table  # noqa: E402


def ours_if_any(problem, gpu, **_):
    decision = dispatch.decide(problem, gpu, table=Table(), all_rungs=False)
    ours = [option for option in decision.options if option.is_ours]
    return replace(decision, chosen=ours[0]) if ours else decision


@pytest.fixture(autouse=True)
def ours(monkeypatch):
    rungemm.forget()
    monkeypatch.setattr(launch, "decide", ours_if_any)
    monkeypatch.setattr(rows, "HOST_S", -math.inf)
    # Inductor takes half a minute and sees the same operator; test_ops.py has compiled through it.
    monkeypatch.setattr(test_ops_torch, "backend_for", lambda device: "aot_eager")
    yield
    rungemm.forget()
