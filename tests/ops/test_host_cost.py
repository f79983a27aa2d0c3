"""What benchmarks/host_cost.py puts in place of a choice is what a warm call runs, whichever memory it is found in."""

from __future__ import annotations

import copy
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import host_cost  # noqa: E402

import rungemm  # noqa: E402
from rungemm.ops import front, launch  # noqa: E402


@pytest.fixture
def call(monkeypatch):
    """A product that the short ways remember: as on a card that the library does not know, so that torch computes."""
    monkeypatch.setattr(launch, "on_gpu", lambda tensor: True)
    monkeypatch.setattr(launch, "gpu_of", lambda device: None)
    a, b, out = torch.randn(8, 8), torch.randn(8, 8), torch.empty(8, 8)
    yield lambda: rungemm.matmul(a, b, out=out)
    rungemm.forget()


def test_a_front_can_be_exchanged_between_warm_calls(call):
    live = host_cost.front_of(call)
    chosen, other, ran = copy.copy(live), copy.copy(live), []

    def instead(*operands):
        ran.append(operands)
        return operands[-1]

    other.call = instead
    for swaps in (1, 2):
        host_cost.become(live, other)
        call()
        assert len(ran) == swaps
        host_cost.become(live, chosen)
        assert call().shape == (8, 8) and len(ran) == swaps


def test_a_library_that_keeps_copies_is_noticed(call, monkeypatch):
    note = front.note
    monkeypatch.setattr(
        front, "note", lambda cheap, given, bits, kept: note(cheap, given, bits, copy.copy(kept))
    )
    with pytest.raises(RuntimeError, match="does not change a call"):
        host_cost.front_of(call)
