"""The examples of docs/simulator.md do what they say."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from rungemm.sim import SimulationFault

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))


def test_transpose_is_right_and_the_swizzle_removes_the_conflicts(rng: np.random.Generator) -> None:
    from transpose import transpose

    x = rng.standard_normal((70, 45)).astype(np.float32)
    plain, plain_report = transpose(x, swizzled=False)
    swizzled, swizzled_report = transpose(x, swizzled=True)
    assert (plain == x.T).all() and (swizzled == x.T).all()
    # A column of 32 rows lies in one bank: 31 conflicts a read, 8 reads a warp, 4 warps, 6 tiles.
    assert plain_report.counters["bank_conflicts"] == 31 * 8 * 4 * 6
    assert swizzled_report.counters["bank_conflicts"] == 0


def test_softmax_is_right_and_needs_its_wait(rng: np.random.Generator) -> None:
    from softmax import softmax

    x = rng.standard_normal((11, 300)).astype(np.float32)
    exact = np.exp(x.astype(np.float64))
    np.testing.assert_allclose(softmax(x), exact / exact.sum(1, keepdims=True), rtol=1e-6)
    with pytest.raises(SimulationFault) as caught:
        softmax(x, wait=False)
    assert caught.value.kind == "read-before-arrival"
    assert "buffers.index(slot).load" in Path(caught.value.file).read_text().splitlines()[caught.value.line - 1]
