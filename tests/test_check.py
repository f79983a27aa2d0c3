"""The sweep finds what it is for: each planted mistake fails the cases that it should, and the sound rung passes."""

from __future__ import annotations

import numpy as np
import pytest

from broken_kernels import ForgetsLastK, MasksNothing, WaitsForNothing
from rungemm.check import CASES, QUICK, Case, View, check, launch_on_simulator, simulator_launcher
from rungemm.dtypes import FP32
from rungemm.hardware import ZOO
from rungemm.kernels import LADDER, find_kernel

H200 = ZOO["h200"]
SMALL = [case for case in QUICK if max(case.shape) < 100]


def failures(kernel, cases=SMALL, launch=launch_on_simulator, seed=0):
    return {
        result.case: result.why
        for result in check([kernel], H200, cases=cases, launch=launch, seed=seed)
        if result.ok is False
    }


def test_the_sound_rung_passes_every_quick_case(seed):
    results = list(check([find_kernel("coalesced")], H200, cases=QUICK, seed=seed))
    assert len(results) == len(QUICK)
    assert all(result.ok for result in results), [result for result in results if not result.ok]


def test_a_product_left_out_fails(seed):
    failed = failures(ForgetsLastK(), seed=seed)
    assert {"1x1x1", "33x32x32", "layout TN", "rows with a gap"} <= failed.keys()
    assert "K is 0: D is beta C" not in failed


def test_no_masks_fails_at_the_edge(seed):
    failed = failures(MasksNothing(), seed=seed)
    assert "out-of-bounds" in failed["33x32x32"] and "outside A of 33x32" in failed["33x32x32"]


@pytest.mark.parametrize(
    ("mistake", "says"),
    [
        (lambda o: o["A"].array.__setitem__((0, 0), 1e3), "A was written to"),
        (lambda o: o["D"].buffer.__setitem__(o["D"].offset - 1, 0), "outside D's elements"),
        (lambda o: o["D"].buffer.__setitem__(o["D"].offset + o["D"].cols, 0), "outside D's elements"),
        (lambda o: o["D"].array.__setitem__((1, 2), np.nan), "NaN or Inf"),
        (lambda o: o["D"].array.__setitem__((1, 2), 77), "D[1, 2]"),
    ],
)
def test_what_a_kernel_must_leave_alone(mistake, says):
    """Mistakes that the simulator would stop, made by a launcher that has no such checks, as a GPU has none."""

    def launch(plan, operands):
        launch_on_simulator(plan, operands)
        mistake(operands)

    case = Case("rows with a gap", (34, 33, 8), pitch=3)
    failed = failures(find_kernel("coalesced"), [case], launch)
    assert says in failed["rows with a gap"]


def test_a_kernel_that_crashes_fails_its_case_alone():
    def launch(plan, operands):
        raise RuntimeError("the launch\nfailed")

    failed = failures(find_kernel("naive"), SMALL[:3], launch)
    assert all(why == "RuntimeError: the launch failed" for why in failed.values()) and len(failed) >= 2


@pytest.mark.parametrize("letter", "NT")
@pytest.mark.parametrize(("pitch", "step", "offset"), [(0, 1, 0), (3, 1, 1), (0, 2, 0), (1, -1, 2), (0, 0, 0)])
def test_views_have_the_strides_they_name(letter, pitch, step, offset):
    view = View.blank(5, 7, FP32, letter, pitch, step, offset)
    fast, extent = (view.col_stride, 7) if letter == "N" else (view.row_stride, 5)
    slow = view.row_stride if letter == "N" else view.col_stride
    assert (fast, slow) == (step, extent * max(abs(step), 1) + pitch)
    x = view.array
    x[...] = 1
    assert int((view.buffer == 1).sum()) == (35 if step else (5 if letter == "N" else 7))
    assert np.isnan(view.buffer[:32]).all() and np.isnan(view.buffer[-32:]).all()
    if step >= 0:
        assert x.__array_interface__["data"][0] % 64 == 4 * offset


def test_the_cases_cover_what_they_must():
    shapes = {case.shape for case in CASES}
    for shape in ((1, 1, 1), (7, 5, 3), (33, 32, 32), (127, 129, 65), (1, 128, 1), (1000, 37, 51)):
        assert shape in shapes
    assert any(case.shape[2] == 0 for case in CASES) and any(case.shape[0] == 0 for case in CASES)
    assert any(case.poison == "C" and case.beta == 0 for case in CASES)
    assert any(case.poison == "A" and case.alpha == 0 for case in CASES)
    assert {case.layout for case in CASES} >= {"NN", "NT", "TN", "TT"}
    assert any(case.offset == 1 for case in CASES) and any(case.step not in (0, 1) for case in CASES)


def test_every_arithmetic_that_a_rung_takes_is_swept(seed):
    tensor = next(kernel for kernel in LADDER if kernel.min_arch == 90)
    results = list(check([tensor], H200, cases=[Case("small", (33, 32, 16), beta=0.5)], seed=seed))
    assert all(result.ok for result in results), results
    assert {"tf32", "bf16", "fp16"} <= {result.arithmetic for result in results}
    (declined,) = check([tensor], ZOO["rtx4090"], cases=[Case("small", (33, 32, 16))], seed=seed)
    assert declined.ok is None and "sm_90" in declined.why


def test_a_failure_under_a_random_schedule_names_the_seed(seed):
    case = Case("small", (33, 32, 16))
    (failed,) = failures(WaitsForNothing(), [case], simulator_launcher("random", seed)).values()
    assert "read-before-arrival" in failed and f"[schedule random, seed {seed}]" in failed
    cp_async = find_kernel("cp_async")
    assert not failures(cp_async, [case], simulator_launcher("random", seed), seed=seed)
