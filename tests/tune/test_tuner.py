"""Tuning end to end on torch's CPU: a config "computes" torch's product, and takes as long as planted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from rungemm.bench.contenders import Ours, TorchMatmul  # noqa: E402
from rungemm.bench.device import HostDevice  # noqa: E402
from rungemm.bench.interleaved import StopRule  # noqa: E402
from rungemm.hardware import ZOO  # noqa: E402
from rungemm.kernels import find_kernel  # noqa: E402
from rungemm.problem import Problem  # noqa: E402
from rungemm.tune import TuningDatabase, TuningError, tune  # noqa: E402

H200 = ZOO["h200"]
KERNEL = find_kernel("vectorised")
PROBLEM = Problem.dense(64, 64, 32)


class Clock:
    """The device's time is a number that kernels move."""

    time = 0.0

    def lead_in(self) -> None:
        return None

    def mark(self) -> float:
        return self.time

    def synchronize(self) -> None:
        return None

    def seconds(self, start: float, end: float) -> float:
        return max(end - start, 1e-4)


CLOCK = Clock()
BASE = KERNEL.default_config(PROBLEM, H200)
CONFIGS = [replace(BASE, group_m=group) for group in (1, 2, 3, 4, 5)]
DELAY_S = {1: 3e-3, 2: 1.5e-3, 3: 0.3e-3, 4: 0.6e-3, 5: 0.1e-3}


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> dict[int, str]:
    """Faults by group_m: "wrong" or "raises"; a config's speed is DELAY_S."""
    faults: dict[int, str] = {}

    def bind(self: Ours, problem: Problem, operands: dict[str, Any]) -> Any:
        group = self.config.group_m  # type: ignore[union-attr]
        product = TorchMatmul().bind(problem, operands)

        def call() -> None:
            CLOCK.time += DELAY_S[group]
            product()
            if faults.get(group) == "wrong":
                operands["D"][0, 0] = float("nan")
            if faults.get(group) == "raises":
                raise RuntimeError("illegal instruction")

        return call

    monkeypatch.setattr(Ours, "bind", bind)
    return faults


def run(tmp_path: Path, **more: Any) -> Any:
    return tune(
        KERNEL, PROBLEM, H200, configs=CONFIGS, budget_s=6.0, finalists=2, final_rule=StopRule(3, 3, 5.0),
        database=TuningDatabase(tmp_path), device=HostDevice(clock=CLOCK), workers=1, **more,
    )  # fmt: skip


def test_the_fastest_wins_and_is_remembered(planted: dict[int, str], tmp_path: Path) -> None:
    said: list[str] = []
    result = run(tmp_path, say=said.append)
    assert result.best is not None and result.best.config.group_m == 5
    assert result.best.ratio is not None and result.best.error is not None and result.best.error < 1e-5
    assert TuningDatabase(tmp_path).load(KERNEL, PROBLEM, H200) == result.best
    slow = str(CONFIGS[0])
    assert slow in result.survey.dropped, "ten times slower than the best, and still in the final"
    assert any("compiled" in line for line in said) and any(" s left" in line for line in said)


def test_a_fast_wrong_config_cannot_win_nor_one_that_raises(planted: dict[int, str], tmp_path: Path) -> None:
    planted.update({5: "wrong", 3: "raises"})
    result = run(tmp_path)
    assert result.best is not None and result.best.config.group_m == 4
    assert "illegal instruction" in result.failures[str(CONFIGS[2])]
    assert "wrong result" in result.failures[str(CONFIGS[4])]


def test_nothing_right_is_an_error_and_saves_nothing(planted: dict[int, str], tmp_path: Path) -> None:
    planted.update(dict.fromkeys(DELAY_S, "wrong"))
    with pytest.raises(TuningError, match="wrong result"):
        run(tmp_path)
    assert TuningDatabase(tmp_path).load(KERNEL, PROBLEM, H200) is None


def test_nothing_legal_says_why() -> None:
    with pytest.raises(TuningError, match="power of two"):
        tune(KERNEL, PROBLEM, H200, configs=[replace(BASE, tile_m=48)], device=HostDevice())
