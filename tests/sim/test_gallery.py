"""Every fault of the gallery is found at its line with its report; its repaired twin runs clean and right."""

from __future__ import annotations

import numpy as np
import pytest

from rungemm.sim import SimulationFault, TensorMap, run

from .gallery import GALLERY, Exhibit

SCHEDULES = [("late", 0), ("eager", 0), ("random", 1), ("random", 2)]


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda s: f"{s[0]}{s[1]}")
@pytest.mark.parametrize("exhibit", GALLERY, ids=lambda e: e.name)
def test_a_fault_is_found_and_named(exhibit: Exhibit, schedule: tuple[str, int]) -> None:
    with pytest.raises(SimulationFault) as caught:
        run(
            exhibit.kernel, exhibit.grid, *exhibit.arguments(), FIXED=False, schedule=schedule[0], seed=schedule[1],
            pdl=exhibit.pdl,
        )  # fmt: skip
    fault = caught.value
    report = str(fault)
    assert fault.kind in exhibit.kind.split(" or "), report
    if exhibit.fault_lines:
        assert fault.file == exhibit.kernel.fn.__code__.co_filename
        assert fault.line in exhibit.fault_lines, report
    for word in exhibit.words:
        assert word in report, report
    assert fault.program is not None
    if schedule[0] == "random":
        assert f"random, seed {schedule[1]}" in report
    assert "\n" not in report


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda s: f"{s[0]}{s[1]}")
@pytest.mark.parametrize("exhibit", GALLERY, ids=lambda e: e.name)
def test_the_repaired_twin_is_clean(exhibit: Exhibit, schedule: tuple[str, int]) -> None:
    arguments = exhibit.arguments()
    schedule_of = {"schedule": schedule[0], "seed": schedule[1]}
    run(exhibit.kernel, exhibit.grid, *arguments, FIXED=True, pdl=exhibit.pdl, **schedule_of)
    out = arguments[1].array if isinstance(arguments[1], TensorMap) else arguments[1]
    assert np.isfinite(out.astype(np.float32)).all()


@pytest.mark.parametrize("exhibit", [e for e in GALLERY if e.pdl], ids=lambda e: e.name)
def test_a_launch_that_begins_after_the_one_before_need_not_wait(exhibit: Exhibit) -> None:
    run(exhibit.kernel, exhibit.grid, *exhibit.arguments(), FIXED=False)
