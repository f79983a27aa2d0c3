"""A run over many products: what a contender does not take is its own failure, and a run can end early."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from rungemm.bench.contenders import NoKernelError  # noqa: E402
from rungemm.bench.device import HostDevice  # noqa: E402
from rungemm.bench.interleaved import StopRule  # noqa: E402
from rungemm.bench.measurement import Settings  # noqa: E402
from rungemm.bench.session import Job, run_session  # noqa: E402
from rungemm.bench.store import load_raw  # noqa: E402
from rungemm.hardware import ZOO, Gpu  # noqa: E402
from rungemm.problem import Problem  # noqa: E402

H200 = ZOO["h200"]
QUICK = Settings(rule=StopRule(3, 4, 1.0), warm_up_s=0.02, host_time=False)


def test_a_product_that_no_rung_takes_is_the_champions_failure_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(problem: Problem, gpu: Gpu) -> None:
        raise NoKernelError(f"no rung takes {problem} on {gpu.title}: one is enough")

    monkeypatch.setattr("rungemm.bench.contenders.champion_for", none)
    jobs = [Job("batch", Problem.dense(16, 24, 8, batch=3)), Job("batch", Problem.dense(16, 24, 8, batch=5))]
    done = []
    document = run_session(
        jobs, ["cublas", "champion"], H200, settings=QUICK, device=HostDevice(1 << 10), out=tmp_path / "raw.json",
        on_done=done.append,
    )  # fmt: skip
    assert len(done) == 2 and load_raw(tmp_path / "raw.json") == document
    for measurement in document["measurements"]:
        lanes = measurement["lanes"]
        assert lanes["cublas"]["failure"] is None and lanes["cublas"]["us"]
        assert "no rung takes" in lanes["champion"]["failure"] and not lanes["champion"]["us"]


def test_a_run_that_ends_early_names_what_is_left(tmp_path: Path) -> None:
    jobs = [Job("t", Problem.dense(size, size, size)) for size in (16, 20, 24, 28)]
    asked = []

    def go_on() -> bool:
        asked.append(1)
        return len(asked) <= 2

    document = run_session(
        jobs, ["cublas"], H200, settings=QUICK, device=HostDevice(1 << 10), out=tmp_path / "raw.json", go_on=go_on
    )
    assert [one["problem"]["m"] for one in document["measurements"]] == [16, 20]
    assert document["left_out"] == ["t 24x24x24 fp32 NN", "t 28x28x28 fp32 NN"]
    assert load_raw(tmp_path / "raw.json")["left_out"] == document["left_out"]
