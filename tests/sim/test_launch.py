"""From plans and operands to programs: what is checked around a run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rungemm.compat import constexpr, gl, jit
from rungemm.dtypes import FP16, FP32, INT32
from rungemm.kernels.plan import Launch, LaunchPlan, Pointer, Scalar, Workspace
from rungemm.sim import SimulationFault, TensorMap, run, simulate
from rungemm.sim.counters import Counters

ROW = gl.constexpr(gl.BlockedLayout([1], [32], [4], [0]))


@jit
def copy_kernel(a, d, n):
    at = gl.program_id(0) * 128 + gl.arange(0, 128, ROW)
    gl.store(d + at, gl.load(a + at, mask=at < n, other=0.0), mask=at < n)


@jit
def through_workspace_kernel(a, part, n, FIRST: constexpr):
    at = gl.program_id(0) * 128 + gl.arange(0, 128, ROW)
    if FIRST:
        gl.store(part + at, gl.load(a + at, mask=at < n, other=0.0))
    else:
        # ``a`` is D here: the second launch reads what the first left.
        gl.store(a + at, gl.load(part + at), mask=at < n)


@jit
def count_up_kernel(d, counter, n):
    before = gl.atomic_add(counter, 1)
    at = gl.program_id(0) * 128 + gl.arange(0, 128, ROW)
    gl.store(d + at, gl.full([128], 0.0, gl.float32, ROW) + before.to(gl.float32), mask=at < n)


def plan_of(n: int, programs: int, covered: int | None = None) -> LaunchPlan:
    arguments = (("a", Pointer("A", FP32)), ("d", Pointer("D", FP32)), ("n", Scalar.index(covered or n)))
    return LaunchPlan("copy", (Launch(copy_kernel, (programs, 1, 1), arguments, (), 4),))


def test_a_plan_runs_and_reports(rng: np.random.Generator) -> None:
    a, d = rng.standard_normal((1, 300)).astype(np.float32), np.full((1, 300), np.nan, np.float32)
    report = simulate(plan_of(300, 3), {"A": a, "D": d})
    assert (d == a).all()
    assert report.programs == 3
    assert report.counters["global_load_sectors"] == -(-300 * 4 // 32)
    assert {line for _, line, *_ in report.per_line} == {copy_kernel.fn.__code__.co_firstlineno + 3}


def test_an_element_that_nobody_writes_is_a_fault() -> None:
    a, d = np.ones((1, 300), np.float32), np.zeros((1, 300), np.float32)
    with pytest.raises(SimulationFault) as caught:
        simulate(plan_of(300, 3, covered=290), {"A": a, "D": d}, count=False)
    assert caught.value.kind == "never-written"
    assert "10 elements" in str(caught.value) and "element [0, 290]" in str(caught.value)


def test_wrong_operands_are_explained() -> None:
    a, d = np.ones((1, 300), np.float32), np.zeros((1, 300), np.float32)
    with pytest.raises(ValueError, match="needs operand A"):
        simulate(plan_of(300, 3), {"D": d}, count=False)
    with pytest.raises(ValueError, match="A is float64"):
        simulate(plan_of(300, 3), {"A": a.astype(np.float64), "D": d}, count=False)
    with pytest.raises(ValueError, match="schedule 'soon'"):
        simulate(plan_of(300, 3), {"A": a, "D": d}, count=False, schedule="soon")
    with pytest.raises(TypeError, match="not a @gluon"):
        run(print, 1)


def test_what_lies_between_the_rows_of_a_view_is_not_touched(rng: np.random.Generator) -> None:
    home = np.full((4, 200), 7, np.float32)
    with pytest.raises(SimulationFault) as caught:
        simulate(plan_of(600, 5), {"A": np.ones((1, 600), np.float32), "D": home[:, :150]}, count=False)
    assert caught.value.kind == "out-of-bounds"
    assert "between the rows of D of 4x150" in str(caught.value)
    assert (home[:, 150:] == 7).all()


def two_launches(zeroed: bool, first: bool = True) -> LaunchPlan:
    launches = []
    if first:
        arguments = (("a", Pointer("A", FP32)), ("part", Pointer("part", FP32)), ("n", Scalar.index(300)))
        launches.append(Launch(through_workspace_kernel, (3, 1, 1), arguments, (("FIRST", True),), 4))
    arguments = (("a", Pointer("D", FP32)), ("part", Pointer("part", FP32)), ("n", Scalar.index(300)))
    launches.append(Launch(through_workspace_kernel, (3, 1, 1), arguments, (("FIRST", False),), 4))
    return LaunchPlan("two", tuple(launches), (Workspace("part", FP32, 384, zeroed),))


def test_launches_share_a_workspace_that_starts_as_poison(rng: np.random.Generator) -> None:
    a, d = rng.standard_normal((1, 300)).astype(np.float32), np.full((1, 300), np.nan, np.float32)
    simulate(two_launches(zeroed=False), {"A": a, "D": d}, count=False, processes=2)
    assert (d == a).all()
    simulate(two_launches(zeroed=True, first=False), {"D": d}, count=False)
    assert (d == 0).all()
    with pytest.raises(SimulationFault) as caught:
        simulate(two_launches(zeroed=False, first=False), {"D": d}, count=False)
    assert caught.value.kind == "uninitialised"


def test_a_zeroed_counter_orders_programs() -> None:
    arguments = (("d", Pointer("D", FP32)), ("counter", Pointer("counter", INT32)), ("n", Scalar.index(256)))
    launch = Launch(count_up_kernel, (2, 1, 1), arguments, (), 4)
    d = np.full((2, 128), np.nan, np.float32)
    simulate(LaunchPlan("count", (launch,), (Workspace("counter", INT32, 1, True),)), {"D": d}, count=False)
    assert (d[0] == 0).all() and (d[1] == 1).all()


def test_an_empty_plan_does_nothing() -> None:
    d = np.full((0, 5), np.nan, np.float32)
    assert simulate(LaunchPlan("none"), {"D": d}).programs == 0


@jit
def add_kernel(x, out, n, bias):
    at = gl.arange(0, 128, ROW)
    gl.store(out + at, gl.load(x + at, mask=at < n, other=0.0) + bias, mask=at < n)


def test_run_takes_views_and_numbers(rng: np.random.Generator) -> None:
    home = rng.standard_normal(401).astype(np.float32)
    out = np.zeros(100, np.float32)
    run(add_kernel, 1, home[1:101], out, 100, 0.5)
    assert (out == home[1:101] + np.float32(0.5)).all()


@pytest.mark.parametrize("offset", [0, 1, 2])
def test_alignment_of_the_first_element_decides_the_vector(offset: int, rng: np.random.Generator) -> None:
    """Four floats a thread: 128-bit loads only where the address allows it."""
    home = np.zeros(516, np.float32)
    start = -home.__array_interface__["data"][0] % 16 // 4 + offset
    report = run(wide_kernel, 1, home[start : start + 512], np.zeros(512, np.float32), observer=Counters())
    assert report.counters["global_load_requests"] == 4 * (1 if offset == 0 else 4)


@jit
def wide_kernel(x, out):
    at = gl.arange(0, 512, gl.BlockedLayout([4], [32], [4], [0]))
    gl.store(out + at, gl.load(x + at))


def bad_map(case: str) -> Any:
    layout = gl.NVMMASharedLayout(128, 16)
    home = np.zeros((32, 100), np.float16)
    if case == "stride":
        return TensorMap(home[:, :64], (16, 64), layout)
    if case == "column":
        return TensorMap(home[:, ::2], (16, 64), layout)
    return TensorMap(np.zeros((32, 64), np.float16), (16, 4), layout)


@jit
def unused_map_kernel(x):
    gl.static_assert(x.block_shape[0] == 16)


@pytest.mark.parametrize(
    ("case", "words"), [("stride", "multiples of 16 bytes"), ("column", "last stride"), ("block", "blocks 4 elements")]
)
def test_a_descriptor_that_tma_does_not_take(case: str, words: str) -> None:
    with pytest.raises(SimulationFault, match=words):
        run(unused_map_kernel, 1, bad_map(case))


def test_half_and_single_are_not_mixed_up() -> None:
    arguments = (("a", Pointer("A", FP16)), ("d", Pointer("D", FP32)), ("n", Scalar.index(5)))
    plan = LaunchPlan("copy", (Launch(copy_kernel, (1, 1, 1), arguments, (), 4),))
    a, d = np.arange(5, dtype=np.float16).reshape(1, 5), np.zeros((1, 5), np.float32)
    simulate(plan, {"A": a, "D": d}, count=False)
    assert (d == a).all()
