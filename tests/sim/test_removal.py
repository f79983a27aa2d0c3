"""The removal experiment: harmful removals are caught, and the runs without checks do go wrong where they should."""

from __future__ import annotations

import json

import numpy as np
import pytest

from rungemm.kernels.registry import find_kernel
from rungemm.sim import SimulationFault, TensorMap, run
from rungemm.sim.context import MACHINE
from rungemm.sim.removal import PHYSICAL, main, score_kernel

from .gallery import GALLERY, Exhibit

DATA_RACES = (
    "copy_not_waited", "copy_waited_short", "copy_not_committed", "overwrite_in_flight", "missing_fence",
    "load_not_waited", "wrong_phase", "partition_race", "mma_not_waited", "mma_operand_overwritten",
    "mma_missing_fence",
)  # fmt: skip


def physical(exhibit: Exhibit, fixed: bool, schedule: str, seed: int) -> np.ndarray:
    arguments = exhibit.arguments()
    x = arguments[0].array if isinstance(arguments[0], TensorMap) else arguments[0]
    out = arguments[1].array if isinstance(arguments[1], TensorMap) else arguments[1]
    x.flags.writeable = True
    x[...] = np.arange(x.size).reshape(x.shape) % 7 + 1
    MACHINE.physical = True
    try:
        run(exhibit.kernel, exhibit.grid, *arguments, FIXED=fixed, schedule=schedule, seed=seed)
    finally:
        MACHINE.physical = False
    return out.copy()


@pytest.mark.parametrize("exhibit", [e for e in GALLERY if e.name in DATA_RACES], ids=lambda e: e.name)
def test_without_checks_a_race_gives_a_wrong_result(exhibit: Exhibit) -> None:
    right = physical(exhibit, True, "late", 0)
    assert np.isfinite(right.astype(np.float32)).all()
    wrong = 0
    for schedule, seed in PHYSICAL:
        try:
            wrong += not np.array_equal(physical(exhibit, False, schedule, seed), right)
        except SimulationFault:
            wrong += 1
    assert wrong


def test_every_harmful_removal_of_a_pipeline_is_caught() -> None:
    score = score_kernel(find_kernel("tma_pipeline"), (64, 64, 400))
    assert score is not None
    assert score.harmful >= 4
    assert score.caught == score.harmful, [r for r in score.removals if r.verdict == "missed"]
    assert all(r.report for r in score.removals)
    assert {r.operation for r in score.removals if r.verdict == "harmless"} <= {"barrier", "fence"}


def test_the_command_gives_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--kernels", "wgmma_shared", "--shape", "64x64x64", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["harmful"] == result["caught"] == sum(r["verdict"] == "caught" for r in result["removals"]) > 0
    assert result["harmless"] == sum(r["verdict"] == "harmless" for r in result["removals"])
    assert main(["--kernels", "no_such"]) == 2
    assert "no_such" in capsys.readouterr().err
