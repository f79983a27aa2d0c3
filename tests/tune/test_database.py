from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from rungemm.hardware import ZOO
from rungemm.kernels import find_kernel
from rungemm.problem import Problem
from rungemm.tune import database as module
from rungemm.tune.database import Tuned, TuningDatabase, problem_class

H200 = ZOO["h200"]
KERNEL = find_kernel("vectorised")
PROBLEM = Problem.dense(256, 256, 64)
CONFIG = replace(KERNEL.default_config(PROBLEM, H200), group_m=4)
TUNED = Tuned(
    CONFIG, 1e-3, 1.02, 1e-7, [{"config": CONFIG.to_dict(), "us": 1000.0, "rounds": 3, "dropped": None}], "now"
)


def test_what_is_saved_is_loaded_and_only_for_the_same_question(tmp_path: Path) -> None:
    base = TuningDatabase(tmp_path)
    assert base.load(KERNEL, PROBLEM, H200) is None
    base.save(KERNEL, PROBLEM, H200, TUNED)
    assert TuningDatabase(tmp_path).load(KERNEL, PROBLEM, H200) == TUNED
    assert base.load(KERNEL, PROBLEM, replace(H200, sms=114)) is None, "another card"
    assert base.load(KERNEL, PROBLEM, ZOO["a100-80"]) is None
    assert base.load(KERNEL, Problem.dense(256, 256, 128), H200) is None
    assert base.load(KERNEL, Problem.dense(256, 256, 64, layout="TN"), H200) is None
    assert base.load(find_kernel("thread_tile_2d"), PROBLEM, H200) is None


def test_another_triton_is_another_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = TuningDatabase(tmp_path)
    base.save(KERNEL, PROBLEM, H200, TUNED)
    monkeypatch.setattr(module, "TRITON_VERSION", "99.0.0")
    assert base.load(KERNEL, PROBLEM, H200) is None


def test_a_changed_kernel_makes_it_stale_with_a_notice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    base = TuningDatabase(tmp_path)
    base.save(KERNEL, PROBLEM, H200, TUNED)
    monkeypatch.setattr(module, "fingerprint", lambda function: "edited")
    with caplog.at_level(logging.WARNING, logger="rungemm"):
        assert base.load(KERNEL, PROBLEM, H200) is None
    assert "source changed" in caplog.text and "rungemm tune" in caplog.text


@pytest.mark.parametrize("damage", ["truncate", "garbage", "edit"])
def test_a_damaged_entry_is_ignored_with_a_notice(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    base = TuningDatabase(tmp_path)
    base.save(KERNEL, PROBLEM, H200, TUNED)
    (path,) = (tmp_path / "tuned").glob("*.json")
    text = path.read_text()
    path.write_text(
        {"truncate": text[: len(text) // 2], "garbage": "not json", "edit": text.replace("1000.0", "1.0")}[damage]
    )
    with caplog.at_level(logging.WARNING, logger="rungemm"):
        assert base.load(KERNEL, PROBLEM, H200) is None
    assert "ignored" in caplog.text
    base.save(KERNEL, PROBLEM, H200, TUNED)
    assert base.load(KERNEL, PROBLEM, H200) == TUNED


def test_alignment_is_part_of_the_class() -> None:
    odd = Problem.dense(256, 255, 64)
    assert problem_class(PROBLEM)["aligned"] == [True, True, True]
    assert problem_class(odd)["aligned"] == [True, False, False]
    shifted = PROBLEM.with_(a=replace(PROBLEM.a, alignment=4))
    assert problem_class(shifted) != problem_class(PROBLEM)
