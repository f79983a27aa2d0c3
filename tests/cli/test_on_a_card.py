"""What the command line does where there is a GPU, played on the CPU: torch's tensors, the simulator as the card.

The launches themselves are tested on a card, in tests/gpu.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

from rungemm.cli import main
from rungemm.hardware import ZOO

torch = pytest.importorskip("torch")


@pytest.fixture
def card(monkeypatch):
    """An H200 at hand: ``.cuda()`` copies, and plans are run by the simulator on the tensors' memory."""
    import rungemm.gpu
    from rungemm.sim import simulate

    launched = []

    def run_plan(plan, operands):
        launched.append(plan.kernel)
        simulate(plan, {role: tensor.numpy() for role, tensor in operands.items()}, count=False)

    monkeypatch.setattr(rungemm.gpu, "run_plan", run_plan)
    monkeypatch.setattr(torch.Tensor, "cuda", lambda self: self.clone(memory_format=torch.preserve_format))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr("rungemm.hardware.detect_gpu", lambda: ZOO["h200"])
    return launched


def test_check_sends_views_with_their_strides_and_brings_them_back(card, capsys, monkeypatch):
    compiled = []
    monkeypatch.setattr("rungemm.compiling.compile_many", lambda jobs, **_: compiled.extend(plan for plan, _ in jobs))
    assert main(["check", "--rungs", "naive,vectorised", "--quick", "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    assert all(result["ok"] is not False for result in results)
    assert {"layout TN", "rows with a gap"} <= {result["case"] for result in results if result["ok"]}
    assert len(card) > len(results) / 2
    # Everything that runs was compiled before, all at once.
    assert sorted(card) == sorted(plan.kernel for plan in compiled)


def test_the_ladder_runs_on_the_card_counts_one_tile_and_times(card, capsys, monkeypatch):
    from rungemm.ladder import record

    timed = []

    def time_rungs(kernels, task, gpu, *, on_stage=None):
        timed.extend(kernel.name for kernel in kernels)
        return {name: record.Speed(8.25, 50.0, 0.165, 0.16, 0.17, 0.12, 20) for name in timed}, []

    monkeypatch.setattr("rungemm.ladder.timing.time_rungs", time_rungs)
    arguments = ["ladder", "--rungs", "shared_tile,thread_tile_1d", "--shape", "96x70x40"]
    assert main([*arguments, "--json"]) == 0
    records = json.loads(capsys.readouterr().out)
    assert card == timed == ["shared_tile", "thread_tile_1d"]
    for found, tile in zip(records, ("32x32x40", "64x64x40"), strict=True):
        assert found["correct"] is True and found["ran_on"] == "NVIDIA H200"
        assert found["counts"]["counted_on"] == f"one tile, {tile}"
        assert found["speed"]["tflops"] == 8.25
    monkeypatch.setenv("COLUMNS", "100")
    assert main(arguments) == 0
    text = capsys.readouterr().out
    for words in ("On the NVIDIA H200 here", "TFLOPS", "16.5% of cuBLAS", "12.0% of peak", "counted on one tile"):
        assert words in text
    assert max(len(line) for line in text.splitlines()) <= 100


def test_column_major_operands_stay_so_on_the_card(card, capsys, monkeypatch, tmp_path, rng):
    np.save(tmp_path / "a.npy", np.asfortranarray(rng.standard_normal((33, 20), dtype=np.float32)))
    np.save(tmp_path / "b.npy", rng.standard_normal((20, 35), dtype=np.float32))
    monkeypatch.setattr("rungemm.ladder.timing.time_rungs", lambda *_, **__: ({}, []))
    capsys.readouterr()
    arguments = ["ladder", "--a", str(tmp_path / "a.npy"), "--b", str(tmp_path / "b.npy"), "--rungs", "coalesced"]
    assert main([*arguments, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["correct"] is True and found["layout"] == "TN"


def test_another_card_is_simulated(card, capsys):
    assert main(["ladder", "--gpu", "rtx4090", "--rungs", "naive", "--shape", "32", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["ran_on"] == "simulator" and found["resources"]["card"] == "rtx4090" and card == []


def test_a_launch_that_fails_is_that_rungs_outcome(card, capsys, monkeypatch):
    def fails(plan, operands):
        raise RuntimeError("CUDA error: an illegal memory access\nwas encountered")

    monkeypatch.setattr("rungemm.gpu.run_plan", fails)
    monkeypatch.setattr("rungemm.ladder.timing.time_rungs", lambda *_, **__: ({}, []))
    assert main(["ladder", "--rungs", "naive", "--shape", "32", "--json"]) == 1
    (found,) = json.loads(capsys.readouterr().out)
    assert found["correct"] is False and "illegal memory access was encountered" in found["why"]


def test_timing_through_the_benchs_own_method(monkeypatch):
    """torch on the CPU stands in for card and rungs: figures come back by name, with cuBLAS's beside them."""
    from rungemm.bench.contenders import Ours, TorchMatmul
    from rungemm.bench.device import HostDevice
    from rungemm.kernels import find_kernel
    from rungemm.ladder import Task
    from rungemm.ladder.timing import time_rungs

    def bind(self, problem, operands):
        if self.name == "coalesced":
            raise RuntimeError("no such luck")
        return TorchMatmul().bind(problem, operands)

    monkeypatch.setattr(Ours, "bind", bind)
    monkeypatch.setattr("rungemm.bench.measurement.CudaDevice", HostDevice)
    rungs = [find_kernel(name) for name in ("naive", "coalesced", "vectorised")]
    speeds, notes = time_rungs(rungs, Task.random(48, 40, 32, seed=1), ZOO["h200"])
    assert speeds.keys() == {"naive", "vectorised"}
    for speed in speeds.values():
        assert speed.tflops > 0 and speed.rounds >= 10
        assert speed.ratio_low <= speed.ratio <= speed.ratio_high
        assert speed.ratio == pytest.approx(speed.tflops / speed.cublas_tflops, rel=0.5)
    assert len(notes) == 1 and "coalesced" in notes[0] and "no such luck" in notes[0]

    def broken(*_args, **_kwargs):
        raise RuntimeError("CUDA out of memory")

    monkeypatch.setattr("rungemm.ladder.timing.measure", broken)
    speeds, notes = time_rungs(rungs[:1], Task.random(48, 40, 32, seed=1), ZOO["h200"])
    assert speeds == {} and "out of memory" in notes[0]
