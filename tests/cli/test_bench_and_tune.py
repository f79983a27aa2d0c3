"""The commands of the laboratory where there is no GPU: what they refuse, what they can do all the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rungemm.bench.store import SCHEMA, VERSION
from rungemm.cli.main import main
from rungemm.cli.tune import merged, seconds_of
from rungemm.errors import UserError
from rungemm.hardware import ZOO


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rungemm.ladder.runners.gpu_is_usable", lambda: "there is no card")
    monkeypatch.setattr("rungemm.hardware.detect_gpu", lambda: None)


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 2
    captured = capsys.readouterr()
    lines = captured.err.strip().splitlines()
    assert captured.out == "" and len(lines) == 1 and "Traceback" not in lines[0]
    return lines[0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["bench"], "no shapes: give some"),
        (["bench", "64x64"], "'64x64' is not MxNxK"),
        (["bench", "0x4x4"], "nothing to multiply"),
        (["bench", "4x4x4x4x4"], "not MxNxK"),
        (["bench", "--suite", "squars"], "suite 'squars' is unknown"),
        (["bench", "64", "--dtype", "fp7"], "fp7"),
        (["bench", "64", "--layout", "NX"], "--layout is 'NX'"),
        (["bench", "64", "--precision", "exact"], "--precision is 'exact'"),
        (["bench", "--list", "--dtype", "bf17"], "--dtype: dtype bf17 is not supported"),
        (["bench", "--list", "--layout", "NX"], "--layout is 'NX'"),
        (["bench", "--list", "--precision", "exact"], "--precision is 'exact'"),
        (["bench", "64", "--data", "ones"], "--data is 'ones'"),
        (["bench", "--shapes", "nowhere.csv"], "nowhere.csv"),
        (["bench", "--from-model", "nowhere"], "module:callable"),
        (["bench", "--from-model", "nowhere.at_all:f"], "cannot import nowhere.at_all"),
        (["bench", "64"], "there is no card"),
        (["bench", "--compare", "nowhere.json"], "nowhere.json"),
        (["bench", "--new", "nowhere.json"], "--compare OLD.json"),
        (["tune", "64x64"], "not MxNxK"),
        (["tune", "64", "--rung", "vectorisd"], "'vectorisd' is unknown"),
        (["tune", "64", "--budget", "soon"], "--budget is 'soon'"),
        (["tune", "64", "--budget", "0s"], "--budget is '0s'"),
        (["tune", "64", "--layout", "QQ"], "layout 'QQ' is unknown"),
        (["tune", "64", "--rung", "vectorised"], "--dry-run"),
    ],
)
def test_refusals(capsys: pytest.CaptureFixture[str], arguments: list[str], words: str) -> None:
    assert words in refusal(capsys, *arguments)


def test_list_names_every_suite_with_its_shapes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--list", "--json"]) == 0
    suites = {suite["name"]: suite["shapes"] for suite in json.loads(capsys.readouterr().out)}
    assert len(suites["cross27"]) == 27 and "4097x4095x4093" in suites["ragged"]


def test_list_with_shapes_names_the_products(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "shapes.csv").write_text("m,n,k,dtype,layout\n16,32,48,bf16,NT\n")
    assert main(["bench", "--list", "64x32x16", "--shapes", str(tmp_path / "shapes.csv"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["problem"] for one in found] == ["64x32x16 fp32 NN", "16x32x48 bf16 NT"]
    assert found[0]["flops"] == 2 * 64 * 32 * 16
    assert main(["bench", "--list", "--suite", "batch"]) == 0
    assert "8x 1024x1024x1024 fp32 NN" in capsys.readouterr().out


def test_dry_run_compiles_and_says_what_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["tune", "256x256x64", "--rung", "vectorised", "--dry-run", "--json", "--gpu", "rtx4090"]
    assert main(arguments) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["gpu"] == "rtx4090" and record["kernel"] == "vectorised"
    (first, *_) = record["candidates"]
    assert first["registers"] > 0 and first["blocks_per_sm"] >= 1


def test_reasons_that_differ_in_numbers_are_one() -> None:
    reasons = [f"spills {n} bytes of registers (255 a thread)" for n in (96, 8, 40)]
    assert merged(reasons) == "spills 8 to 96 bytes of registers (255 a thread)"


def test_dry_run_fits_80_columns(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["tune", "256x256x64", "--rung", "vectorised", "--dry-run", "--show-pruned"]) == 0
    text = capsys.readouterr().out
    assert "registers" in text and max(map(len, text.splitlines())) <= 80


def test_tune_for_another_card_names_the_one_here(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rungemm.hardware.detect_gpu", lambda: ZOO["h200"])
    line = refusal(capsys, "tune", "64", "--gpu", "rtx4090")
    assert "the card here, NVIDIA H200, not on NVIDIA GeForce RTX 4090" in line


def run_file(path: Path, champion_us: float) -> str:
    def lane(us: float) -> dict[str, object]:
        return {"us": [us * (1 + 0.0005 * r) for r in range(20)], "failure": None}

    problem = {"m": 8, "n": 8, "k": 8, "batch": 1, "dtype": "fp32", "out_dtype": "fp32", "precision": "ieee"}
    measurement = {
        "problem": problem | {"layout": "NN", "alpha": 1.0, "beta": 0.0}, "data": "normal", "cold_l2": {"cold": True},
        "lanes": {"cublas": lane(100.0), "champion": lane(champion_us)},
    }  # fmt: skip
    path.write_text(json.dumps({"schema": SCHEMA, "version": VERSION, "measurements": [measurement]}))
    return str(path)


def test_compare_of_two_files_exits_with_1_for_a_regression_only(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    old = run_file(tmp_path / "old.json", 90.0)
    assert main(["bench", "--compare", old, "--new", run_file(tmp_path / "same.json", 90.0)]) == 0
    assert "0 slower" in capsys.readouterr().out
    assert main(["bench", "--compare", old, "--new", run_file(tmp_path / "slow.json", 99.0)]) == 1
    text = capsys.readouterr().out
    assert "slower  champion on 8x8x8 fp32 NN ieee: -9.1%" in text and "1 slower" in text
    assert main(["bench", "--compare", old, "--new", str(tmp_path / "slow.json"), "--json"]) == 1
    (change,) = json.loads(capsys.readouterr().out)
    assert change["verdict"] == "slower" and change["low"] <= change["change"] <= change["high"] < 0.97


def test_times() -> None:
    assert [seconds_of("--budget", text) for text in ("90", "60s", "1.5m", "1h")] == [90, 60, 90, 3600]
    with pytest.raises(UserError):
        seconds_of("--budget", "-5s")
