"""A ladder timed in two runs: each rung stays beside the cuBLAS of its own run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rungemm.bench.store import SCHEMA, VERSION, StoreError, load_raw, summarise, write_json
from rungemm.bench.suites import Shape
from rungemm.dtypes import FP32
from rungemm.report.sessions import in_their_sessions

from .synthetic import lane, measurement

SHAPE = Shape(4096, 4096, 4096)


def write_run(
    folder: Path, name: str, day: int, speeds: dict[str, float], suite: str = "ladder", shape: Shape = SHAPE
) -> None:
    """A raw file with a rung's lane for each name; "cublas" is the reference."""
    rng = np.random.default_rng(day)
    problem = shape.problem()
    lanes = {
        name: lane(rng, problem, speed, 0.002, **({} if name == "cublas" else {"kernel": name}))
        for name, speed in speeds.items()
    }
    write_json(folder / "raw" / name, {
        "schema": SCHEMA, "version": VERSION, "settings": {},
        "environment": {"commit": "abc", "date": f"2026-11-{day:02}T12:00:00", "gpu": "NVIDIA H200"},
        "measurements": [measurement(rng, suite, shape, FP32, lanes)],
    })  # fmt: skip


def by_kernel(records: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {record["kernel"]: record for record in records}


def test_one_run_is_left_as_it_is(tmp_path: Path) -> None:
    write_run(tmp_path, "a.json", 1, {"cublas": 50.0, "naive": 0.5, "coalesced": 6.0})
    records = summarise(tmp_path)
    assert in_their_sessions(records, tmp_path) == records
    assert all("apart" not in record for record in records)


def test_a_rung_timed_again_has_its_own_runs_cublas(tmp_path: Path) -> None:
    write_run(tmp_path, "a.json", 1, {"cublas": 50.0, "naive": 0.5, "coalesced": 6.0, "vectorised": 40.0})
    write_run(tmp_path, "b.json", 2, {"cublas": 53.0, "vectorised": 44.0})
    before = by_kernel(summarise(tmp_path))
    assert before["cublas"]["tflops"] == 53.0  # the newest, which is not that of most rungs
    after = by_kernel(in_their_sessions(list(before.values()), tmp_path))
    assert after["cublas"]["tflops"] == 50.0 and after["cublas"]["raw"] == "raw/a.json"
    assert after["vectorised"] == before["vectorised"] | {"apart": 53.0}
    # A ratio is of one run, so nobody's changes.
    assert after["vectorised"]["ratio"] == pytest.approx(44 / 53, rel=0.01)
    for kernel in ("naive", "coalesced"):
        assert after[kernel] == before[kernel] and "apart" not in after[kernel]


def test_a_run_without_cublas_says_so(tmp_path: Path) -> None:
    write_run(tmp_path, "a.json", 1, {"cublas": 50.0, "naive": 0.5, "coalesced": 6.0})
    write_run(tmp_path, "b.json", 2, {"vectorised": 44.0})
    records = by_kernel(in_their_sessions(summarise(tmp_path), tmp_path))
    assert records["vectorised"]["apart"] is None and records["vectorised"]["ratio"] is None
    assert records["cublas"]["tflops"] == 50.0


def test_cublas_is_of_the_same_product(tmp_path: Path) -> None:
    """The file of most rungs has cuBLAS for another shape as well, and another suite has this one."""
    write_run(tmp_path, "a.json", 1, {"cublas": 50.0, "naive": 0.5, "coalesced": 6.0})
    document = load_raw(tmp_path / "raw" / "a.json")
    rng, other = np.random.default_rng(9), Shape(512, 512, 512)
    document["measurements"].insert(
        0, measurement(rng, "ladder", other, FP32, {"cublas": lane(rng, other.problem(), 9.0, 0.002)})
    )
    document["measurements"].insert(
        0, measurement(rng, "squares", SHAPE, FP32, {"cublas": lane(rng, SHAPE.problem(), 49.0, 0.002)})
    )
    write_json(tmp_path / "raw" / "a.json", document)
    write_run(tmp_path, "b.json", 2, {"cublas": 53.0, "vectorised": 44.0})
    found = in_their_sessions(summarise(tmp_path), tmp_path)
    ladder = [r for r in found if r["kernel"] == "cublas" and r["suite"] == "ladder"]
    assert sorted((r["m"], r["tflops"]) for r in ladder) == [(512, 9.0), (4096, 50.0)]


def test_other_suites_are_left_alone(tmp_path: Path) -> None:
    write_run(tmp_path, "a.json", 1, {"cublas": 50.0, "naive": 0.5, "coalesced": 6.0}, suite="squares")
    write_run(tmp_path, "b.json", 2, {"cublas": 53.0, "vectorised": 44.0}, suite="squares")
    records = summarise(tmp_path)
    assert in_their_sessions(records, tmp_path) == records


def test_a_raw_file_that_is_gone_is_an_error(tmp_path: Path) -> None:
    write_run(tmp_path, "a.json", 1, {"cublas": 50.0, "naive": 0.5, "coalesced": 6.0})
    write_run(tmp_path, "b.json", 2, {"cublas": 53.0, "vectorised": 44.0})
    records = summarise(tmp_path)
    (tmp_path / "raw" / "a.json").unlink()
    with pytest.raises(StoreError, match=r"a\.json"):
        in_their_sessions(records, tmp_path)
