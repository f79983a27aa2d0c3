from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rungemm.bench.compare import agreement, compare
from rungemm.bench.store import SCHEMA, VERSION, StoreError, load_raw, summarise, write_json


def lane(us: list[float], **more: Any) -> dict[str, Any]:
    base = {"us": us, "launches": 1, "graph": False, "tflops": 1.0, "peak_share": 0.1, "error": 1e-7, "mismatched": 0}
    return base | {"tolerance": 1e-6, "host_us": 5.0, "failure": None} | more


def document(
    rng: np.random.Generator, slowdown: float = 1.0, date: str = "2026-01-01", rounds: int = 25
) -> dict[str, Any]:
    """A run with cuBLAS at 100 us and a champion at 95 us times ``slowdown``, on a card with a clock of its own."""
    clock = float(np.exp(0.15 * rng.standard_normal()))

    def samples(us: float) -> list[float]:
        return [float(us * clock * np.exp(0.005 * rng.standard_normal())) for _ in range(rounds)]

    problem = {
        "m": 64, "n": 32, "k": 16, "batch": 1, "dtype": "fp32", "out_dtype": "fp32", "precision": "ieee",
        "layout": "NN", "alpha": 1.0, "beta": 0.0,
    }  # fmt: skip
    measurement = {
        "suite": "t", "problem": problem, "data": "normal", "cold_l2": {"cold": True},
        "lanes": {
            "cublas": lane(samples(100), error=2e-7),
            "champion": lane(samples(95 * slowdown), kernel="champion", config={"num_warps": 8}),
            "broken": lane(samples(10), failure="wrong result"),
        },
    }  # fmt: skip
    environment = {"date": date, "commit": "abc"}
    return {"schema": SCHEMA, "version": VERSION, "environment": environment, "measurements": [measurement]}


def test_compare_flags_ten_percent_and_not_nothing_in_twenty_trials_each(rng: np.random.Generator) -> None:
    for slowdown, expected in ((1.10, "slower"), (1.0, "same"), (1 / 1.10, "faster")):
        for _ in range(20):
            (change,) = compare(document(rng), document(rng, slowdown))
            assert change.contender == "champion" and not change.absolute
            assert change.verdict == expected, (slowdown, str(change))


def test_two_runs_agree_on_the_ratio_though_their_clocks_differ(rng: np.random.Generator) -> None:
    first, second = document(rng), document(rng)
    (pair,) = agreement(first, second)
    assert pair.contender == "champion" and abs(pair.change - 1) < 0.02
    (pair,) = agreement(first, document(rng, slowdown=1.05))
    assert pair.change < 0.98


def test_what_is_over_the_peak_is_never_summarised(rng: np.random.Generator, tmp_path: Path) -> None:
    made = document(rng)
    made["measurements"][0]["lanes"]["champion"] |= {"peak_share": 1.01, "tflops": 67.5}
    write_json(tmp_path / "raw" / "a.json", made)
    with pytest.raises(StoreError, match=r"raw/a.json: champion on 64x32x16 has 67.5 TFLOPS, over"):
        summarise(tmp_path)
    # A contender that failed has no figure, whatever its samples say.
    made["measurements"][0]["lanes"]["champion"]["failure"] = "wrong result"
    write_json(tmp_path / "raw" / "a.json", made)
    assert {record["kernel"] for record in summarise(tmp_path)} == {"cublas"}


def test_compare_by_time_says_so(rng: np.random.Generator) -> None:
    old, new = document(rng), document(rng)
    for run in (old, new):
        del run["measurements"][0]["lanes"]["cublas"]
    (change,) = compare(old, new)
    assert change.absolute and "by time" in str(change)


def test_compare_takes_only_what_both_runs_measured(rng: np.random.Generator) -> None:
    old, new = document(rng), document(rng)
    new["measurements"][0]["problem"]["layout"] = "NT"
    assert compare(old, new) == []
    with pytest.raises(ValueError, match="between 0 and 1"):
        compare(old, old, threshold=3)


def test_summary_is_made_from_raw_files_and_the_newest_wins(rng: np.random.Generator, tmp_path: Path) -> None:
    write_json(tmp_path / "raw" / "b-old.json", document(rng, 2.0, "2026-01-01"))
    write_json(tmp_path / "raw" / "a-new.json", document(rng, 1.0, "2026-02-01"))
    records = summarise(tmp_path)
    assert json.loads((tmp_path / "summary.json").read_text()) == records
    by_kernel = {record["kernel"]: record for record in records}
    assert set(by_kernel) == {"champion", "cublas"}, "a failed contender has no record"
    champion = by_kernel["champion"]
    assert champion["raw"] == "raw/a-new.json" and champion["config"] == {"num_warps": 8}
    assert champion["ratio"] == pytest.approx(100 / 95, rel=0.01)
    assert champion["ratio_low"] <= champion["ratio"] <= champion["ratio_high"]
    assert (champion["error"], champion["contender_error"]) == (1e-7, 2e-7)
    design = (
        "kernel config suite dtype precision layout batch m n k tflops peak_share contender ratio ratio_low ratio_high "
        "error contender_error host_us rounds cold_l2 commit date raw"
    )
    assert set(design.split()) <= set(champion)
    assert summarise(tmp_path) == records, "summarising is repeatable"


def test_written_json_is_compact_in_its_samples_and_atomic(rng: np.random.Generator, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "x.json"
    run = document(rng)
    write_json(path, run)
    assert load_raw(path) == run and len(path.read_text().splitlines()) < 100
    with pytest.raises(ValueError):
        write_json(path, {"x": float("nan")})
    assert load_raw(path) == run and [p.name for p in path.parent.iterdir()] == ["x.json"]


@pytest.mark.parametrize(
    ("text", "words"),
    [("{", "not JSON"), ("[]", "no rungemm.bench file"), ('{"schema": "x"}', "no rungemm.bench file"),
     ('{"schema": "rungemm.bench", "version": 99}', "upgrade rungemm")],
)  # fmt: skip
def test_broken_files_are_named(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(StoreError, match=words):
        load_raw(path)
    with pytest.raises(StoreError, match=r"gone\.json"):
        load_raw(tmp_path / "gone.json")
