"""``rungemm bench`` and ``rungemm tune`` end to end: torch on the CPU stands in for the card and for the rungs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from rungemm.bench.contenders import Ours, TorchMatmul
from rungemm.bench.device import HostDevice
from rungemm.cli.main import main
from rungemm.hardware import ZOO
from rungemm.problem import Problem


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def bind(self: Ours, problem: Problem, operands: dict[str, Any]) -> Any:
        self.plan(problem)
        return TorchMatmul().bind(problem, operands)

    monkeypatch.setattr(Ours, "bind", bind)
    monkeypatch.setattr("rungemm.ladder.runners.gpu_is_usable", lambda: None)
    monkeypatch.setattr("rungemm.hardware.detect_gpu", lambda: ZOO["h200"])
    monkeypatch.setattr("rungemm.bench.measurement.CudaDevice", HostDevice)
    monkeypatch.setattr("rungemm.tune.tuner.CudaDevice", HostDevice)
    monkeypatch.setenv("RUNGEMM_CACHE_DIR", str(tmp_path / "cache"))


def test_bench_writes_samples_and_summary_and_compares(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw = tmp_path / "h200" / "raw" / "run.json"
    arguments = ["bench", "64x48x32", "-c", "vectorised", "--rounds", "3", "--budget", "1s", "--out", str(raw)]
    assert main(arguments) == 0
    text = capsys.readouterr().out
    assert "64x48x32 fp32 NN" in text and "cublas" in text and "vectorised" in text and "TFLOPS" in text
    document = json.loads(raw.read_text())
    (measurement,) = document["measurements"]
    assert set(measurement["lanes"]) == {"cublas", "vectorised"} and measurement["cold_l2"]["cold"]
    assert measurement["lanes"]["vectorised"]["resources"]["registers"] > 0
    assert len(json.loads((tmp_path / "h200" / "summary.json").read_text())) == 2
    assert main(["bench", "--compare", str(raw), "--rounds", "3", "--budget", "1s"]) in (0, 1)
    assert "1 compared" in capsys.readouterr().out


def test_a_contender_that_refuses_is_named_and_the_exit_code_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "64", "--dtype", "bf16", "-c", "vectorised", "--rounds", "3", "--budget", "1s"]) == 1
    text = capsys.readouterr().out
    assert "FAILED" in text and "vectorised takes fp32; A is bf16" in text and "cublas" in text


def test_tune_reports_and_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "tune.json"
    assert main(["tune", "64", "--rung", "vectorised", "--budget", "2s", "--out", str(out)]) == 0
    assert "registers" in capsys.readouterr().out
    (tuning,) = json.loads(out.read_text())["tunings"]
    assert tuning["kernel"] == "vectorised" and tuning["config"]["tile_m"] > 0 and tuning["timings"]
