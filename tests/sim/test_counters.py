"""Counters against formulas worked out by hand, and predicted instructions against the machine code, line by line."""

from __future__ import annotations

import pickle
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import pytest

from rungemm.compat import async_copy_commit, async_copy_load, async_copy_wait, constexpr, gl, jit
from rungemm.compiling import compile_plan
from rungemm.dtypes import FP16, FP32, INT32
from rungemm.hardware import find_gpu
from rungemm.kernels.plan import Launch, LaunchPlan, Pointer, Workspace
from rungemm.kernels.registry import find_kernel
from rungemm.ladder.pose import Posed, Task, pose
from rungemm.problem import Problem
from rungemm.sim import run, simulate
from rungemm.sim.counter_names import COUNTERS, ncu_metrics
from rungemm.sim.counters import Counters

from .sass_lines import Line, instructions_by_line

GPU = find_gpu("h200")
SIX = ("naive", "coalesced", "shared_tile", "thread_tile_1d", "thread_tile_2d", "vectorised")


def plan_of(name: str, m: int, n: int, k: int, **changes: Any) -> LaunchPlan:
    kernel, problem = find_kernel(name), Problem.dense(m, n, k)
    config = replace(kernel.default_config(problem, GPU), **changes)
    return kernel.plan(problem, config, GPU)


def counted(plan: LaunchPlan, m: int, n: int, k: int, **options: Any) -> Counters:
    operands = {"A": np.zeros((m, k), "f4"), "B": np.zeros((k, n), "f4"), "D": np.empty((m, n), "f4")}
    report = simulate(plan, operands, **options)
    assert isinstance(report.observer, Counters)
    return report.observer


def per_warp(found: Counters, warps: int) -> dict[tuple[Line, str], float]:
    """Instructions of one warp of a single-program run, and its barriers, by innermost source line."""
    result: Counter[tuple[Line, str]] = Counter()
    for (file, line, *_), names in found.instructions().items():
        for name, count in names.items():
            result[(PurePath(file).name, line), name] += count / warps
    for (file, line, *_), names in found.per_line().items():
        if "barriers" in names:
            result[(PurePath(file).name, line), "BAR"] += names["barriers"]
    return dict(result)


@pytest.mark.parametrize(
    "name, changes",
    [
        *[(name, {}) for name in SIX],
        ("shared_tile", {"tile_k": 16}),
        ("thread_tile_1d", {"tile_k": 16, "num_warps": 8, "thread_m": 16}),
        ("thread_tile_2d", {"tile_k": 16}),
        ("thread_tile_2d", {"num_warps": 4, "tile_m": 64, "tile_n": 128}),
        ("vectorised", {"tile_k": 16}),
        ("bank_conflict_free", {}),
        ("double_buffer", {}),
        ("cp_async", {}),
    ],
)
def test_instructions_of_every_line_are_those_of_the_machine_code(name: str, changes: dict[str, int]) -> None:
    """Static counts, line by line: the rest once, a step of the loop as often as source and ptxas unrolled it."""
    kernel = find_kernel(name)
    config = replace(kernel.default_config(Problem.dense(512, 512, 512), GPU), **changes)
    m, n, step = config.tile_m, config.tile_n, config.tile_k
    short, long = 16, 32
    few = per_warp(counted(plan_of(name, m, n, short * step, **changes), m, n, short * step), config.num_warps)
    many = per_warp(counted(plan_of(name, m, n, long * step, **changes), m, n, long * step), config.num_warps)
    assert few.keys() == many.keys()
    in_loop = {key: (many[key] - few[key]) / (long - short) for key in many}
    outside = {key: few[key] - short * in_loop[key] for key in many}
    machine = instructions_by_line(plan_of(name, m, n, short * step, **changes))
    # To the simulator compat's pinned_fma is one operation, of the line that calls it.
    caller = next(line for line, opcode in many if opcode == "FFMA")
    static = {
        (caller if line[0] == "compat.py" else line, opcode): n
        for line, names in machine.items()
        for opcode, n in names.items()
    }
    fma = next(key for key in static if key[1] == "FFMA")
    unrolled = static[fma] / in_loop[fma]
    assert unrolled == int(unrolled)
    assert {key: unrolled * in_loop[key] + outside[key] for key in many} == static


@pytest.mark.parametrize("name", SIX)
def test_masked_accesses_are_as_wide_as_in_the_machine_code(name: str, rng: np.random.Generator) -> None:
    kernel = find_kernel(name)
    config = kernel.default_config(Problem.dense(512, 512, 512), GPU)
    shape = [int(extent - rng.integers(1, 8)) for extent in (config.tile_m, config.tile_n, 16 * config.tile_k)]
    shape[int(rng.integers(3))] &= -4  # some strides stay divisible by 4
    found = per_warp(counted(plan_of(name, *shape), *shape), config.num_warps)
    machine = instructions_by_line(plan_of(name, *shape))
    assert set(found) == {(line, opcode) for line, names in machine.items() for opcode in names}, shape


def test_naive_counts_by_hand() -> None:
    m = n = 64
    k = 48
    totals = counted(plan_of("naive", m, n, k), m, n, k).totals()
    warps = m * n // 32
    assert totals["fmas"] == m * n * k
    assert totals["global_load_requests"] == 2 * k * warps
    assert totals["global_load_sectors"] == (32 + 1) * k * warps  # A: a sector a lane; B: one for the warp
    assert totals["global_store_sectors"] == 32 * warps
    assert totals["global_load_elements"] == 2 * k * m * n
    assert totals["shared_wavefronts"] == totals["barriers"] == 0


def test_shared_tile_counts_by_hand() -> None:
    m, n, k = 64, 32, 64
    totals = counted(plan_of("shared_tile", m, n, k), m, n, k).totals()
    blocks, steps = 2, k // 32
    assert totals["global_load_elements"] == m * n * k // 16
    assert totals["global_load_sectors"] == 4 * 2 * 32 * blocks * steps
    assert totals["shared_load_elements"] == 2 * m * n * k
    assert totals["bank_conflicts"] == 0
    assert totals["barriers"] == 2 * blocks * steps
    # Of A a warp reads one row, all lanes the same four floats: two wavefronts for 16 bytes, and one more read at the
    # end of the row that LLVM keeps apart; of B 32 rows of 32 neighbours by ldmatrix.
    assert totals["shared_load_wavefronts"] == (8 * 2 + 1 + 32) * 32 * blocks * steps


def test_fewer_rows_than_a_tile_leave_whole_requests_out() -> None:
    full = counted(plan_of("coalesced", 16, 32, 4), 16, 32, 4).totals()
    half = counted(plan_of("coalesced", 8, 32, 4), 8, 32, 4).totals()
    assert half["global_store_requests"] == full["global_store_requests"] // 2
    assert half["fmas"] == full["fmas"]  # masked rows still multiply


def test_the_same_counts_in_two_processes() -> None:
    plan, shape = plan_of("thread_tile_2d", 256, 256, 16), (256, 256, 16)
    one, two = counted(plan, *shape), counted(plan, *shape, processes=2)
    assert one.totals() == two.totals()
    assert one.per_line() == two.per_line()
    assert one.conflicts.keys() == two.conflicts.keys()


def test_pickling_keeps_everything() -> None:
    found = counted(plan_of("vectorised", 128, 128, 16), 128, 128, 16)
    copy = pickle.loads(pickle.dumps(found))
    assert copy.per_line() == found.per_line()
    assert copy.instructions() == found.instructions()
    copy.merge(found)
    assert copy.totals() == {name: 2 * count for name, count in found.totals().items()}


def test_totals_are_the_sum_of_the_lines() -> None:
    found = counted(plan_of("vectorised", 128, 128, 16), 128, 128, 16)
    summed: Counter[str] = Counter()
    for counts in found.per_line().values():
        summed.update(counts)
    assert {name: summed[name] for name in COUNTERS} == found.totals()


def test_tma_and_wgmma_by_hand() -> None:
    m, n, k = 256, 512, 192
    posed = pose(find_kernel("tma_pipeline"), Task.random(m, n, k, seed=1), GPU)
    assert isinstance(posed, Posed)
    size, tile = posed.problem.a.dtype.bytes, posed.config
    report = simulate(posed.plan, Task.random(m, n, k, seed=1).operands(posed.problem.a.dtype))
    totals = report.counters
    assert totals["tensor_macs"] == m * n * k
    (kind,) = (name for name in report.observer.instruction_totals() if name.startswith("wgmma"))
    rows, columns, depth = 64, int(kind.split("n")[1].split("k")[0]), 32 // size
    assert kind.startswith(f"wgmma.m{rows}n{columns}k{depth}.")
    assert totals["wgmma_instructions"] == m // rows * (n // columns) * (k // depth)
    blocks = m // tile.tile_m * (n // tile.tile_n)
    assert totals["tma_load_bytes"] == blocks * (tile.tile_m + tile.tile_n) * k * size
    assert totals["l2_read_bytes"] == totals["tma_load_bytes"]
    assert totals["fmas"] == totals["global_load_requests"] == 0


def test_tma_counts_what_lies_outside_as_moved_but_not_as_read_from_l2() -> None:
    m, n, k = 100, 200, 40
    task = Task.random(m, n, k, seed=1)
    posed = pose(find_kernel("tma_pipeline"), task, GPU)
    assert isinstance(posed, Posed)
    totals = simulate(posed.plan, task.operands(posed.problem.a.dtype)).counters
    arguments = dict(posed.plan.launches[0].arguments)
    rows, columns = arguments["M"].value, arguments["N"].value  # the kernel may compute the transposed product
    down, across = -(-rows // posed.config.tile_m), -(-columns // posed.config.tile_n)
    assert {rows, columns} == {m, n}
    assert totals["l2_read_bytes"] == (rows * across + columns * down) * k * posed.problem.a.dtype.bytes
    assert totals["tma_load_bytes"] > totals["l2_read_bytes"]


@jit
def column_reader(out, STRIDE: constexpr):
    """Every lane reads a float4, STRIDE floats from its neighbour's."""
    rows: constexpr = gl.BlockedLayout([1, 4], [32, 1], [1, 1], [1, 0])
    shared: constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    buffer = gl.allocate_shared_memory(gl.float32, [32, STRIDE], shared)
    buffer.store(gl.full([32, STRIDE], 1.0, gl.float32, rows))
    piece = buffer.slice(0, 4, 1).load(rows)
    r = gl.arange(0, 32, gl.SliceLayout(1, rows))[:, None]
    c = gl.arange(0, 4, gl.SliceLayout(0, rows))[None, :]
    gl.store(out + r * 4 + c, piece)


@pytest.mark.parametrize("stride, wavefronts, degree", [(4, 4, 1), (8, 8, 2), (32, 32, 8)])
def test_float4_by_stride(stride: int, wavefronts: int, degree: int) -> None:
    found = Counters()
    run(column_reader, 1, np.zeros(128, "f4"), num_warps=1, STRIDE=stride, observer=found)
    totals = found.totals()
    assert totals["shared_load_wavefronts"] == wavefronts
    assert totals["shared_load_conflicts"] == wavefronts - 4
    loads = {site: worst for site, worst in found.conflicts.items() if worst.instruction.startswith("LD")}
    if degree == 1:
        assert not loads
    else:
        ((_, worst),) = loads.items()
        assert (worst.degree, worst.instruction) == (degree, "LDS.128")
        assert len(worst.lanes) == degree
        assert {stride * lane % 32 // 4 for lane in worst.lanes} == {worst.bank // 4}


@jit
def turned(a, d, counter, FROM: constexpr, TO: constexpr):
    """A tile whose layout changes through shared memory, and an atomic whose result everyone needs."""
    first = gl.atomic_add(counter, 1)
    rows = gl.arange(0, 64, gl.SliceLayout(1, FROM))[:, None]
    cols = gl.arange(0, 64, gl.SliceLayout(0, FROM))[None, :]
    tile = gl.convert_layout(gl.load(a + rows * 64 + cols), TO)
    to_rows = gl.arange(0, 64, gl.SliceLayout(1, TO))[:, None]
    to_cols = gl.arange(0, 64, gl.SliceLayout(0, TO))[None, :]
    gl.store(d + first * 4096 + to_cols * 64 + to_rows, tile)


@pytest.mark.parametrize("down", [1, 4])
def test_layout_changes_and_scalar_atomics_cost_what_the_machine_code_does(down: int) -> None:
    read = gl.BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0])
    write = gl.BlockedLayout([4, 1], [16, 2], [1, 4], [0, 1]) if down == 4 else gl.BlockedLayout(
        [1, 4], [32, 1], [1, 4], [1, 0])  # fmt: skip
    arguments = (("a", Pointer("A", FP32)), ("d", Pointer("D", FP32)), ("counter", Pointer("counter", INT32)))
    launch = Launch(turned, (1, 1, 1), arguments, (("FROM", read), ("TO", write)), 4)
    plan = LaunchPlan("turned", (launch,), (Workspace("counter", INT32, 1, zeroed=True),))
    a, d = np.arange(4096, dtype="f4").reshape(64, 64), np.empty((64, 64), "f4")
    report = simulate(plan, {"A": a, "D": d})
    assert np.array_equal(d, a.T)
    found = per_warp(report.observer, 4)
    machine = instructions_by_line(plan)
    for (line, name), count in found.items():
        if name in ("LDS", "STS", "LDS.128", "STS.128", "LDG.128", "STG.128") and not (name == "STS" and count < 1):
            assert machine[line][name] == count, (line, name)
    assert report.counters["shared_wavefronts"] == 2 * 4096 * 4 // 128 + 4 + 1
    assert report.counters["atomic_requests"] == 1


def test_every_metric_is_named_once() -> None:
    metrics = ncu_metrics()
    assert len(set(metrics)) == len(metrics) >= 8
    assert all(metric.endswith(".sum") or metric == "memory_l1_wavefronts_shared" for metric in metrics)


def test_cp_async_costs_what_was_measured_on_an_h200() -> None:
    """One access a program, 256 of them, under Nsight Compute: sectors, and passes for 4 and 8 bytes a lane."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
    import counter_probes

    plans = {name: plan for name, plan, _ in counter_probes.probes()}
    measured = {"4_dense": (4, 1), "4_apart": (32, 32), "8_dense": (8, 2), "8_apart": (32, 32), "16_apart": (32, None)}
    for name, (sectors, passes) in measured.items():
        width = int(name.split("_")[0]) // 4
        size = counter_probes.ROW
        operands = {"A": np.zeros((size, size), "f4"), "D": np.zeros((32, width), "f4")}
        totals = simulate(counter_probes.alone(plans[f"ldgsts_{name}"]), operands).counters
        assert totals["global_load_requests"] == 1
        assert totals["global_load_sectors"] == sectors, name
        if passes is not None:
            assert totals["shared_copy_wavefronts"] == passes, name


@jit
def copy_some_lanes(x, keep, WIDE: constexpr):
    """A warp copies 128 floats by cp.async, those before ``keep``; zeros are written in place of the others."""
    layout: constexpr = gl.BlockedLayout([4 if WIDE else 1], [32], [1], [0])
    plain: constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    at = gl.arange(0, 128, layout)
    keep = gl.multiple_of(keep, 4)
    tile = gl.allocate_shared_memory(gl.float32, [128], plain)
    async_copy_load(tile, x + at, mask=at < keep)
    async_copy_commit()
    async_copy_wait(0)


@pytest.mark.parametrize(
    "wide, keep, requests, instructions, passes",
    [
        # 16 bytes a lane: four lines fetched; four phases of zeros; half of each.
        (True, 128, 1, 1, 4), (True, 0, 0, 1, 4), (True, 64, 1, 1, 4),
        # 4 bytes a lane, so four instructions of one line or one phase; of the third, one line and one phase.
        (False, 128, 4, 4, 4), (False, 0, 0, 4, 4), (False, 80, 3, 4, 5),
    ],
)  # fmt: skip
def test_zeros_in_place_of_what_a_mask_leaves_out_take_a_stores_passes(
    wide: bool, keep: int, requests: int, instructions: int, passes: int
) -> None:
    """Measured on an H200 for instructions that fetch nothing at all, in the fp32 and fp16 champions' last steps."""
    x = np.arange(128, dtype="f4")
    found = Counters()
    run(copy_some_lanes, 1, x, keep, num_warps=1, WIDE=wide, observer=found)
    totals, names = found.totals(), found.instruction_totals()
    assert totals["global_load_requests"] == requests
    assert totals["async_copy_bytes"] == 4 * keep
    assert totals["shared_copy_wavefronts"] == totals["shared_wavefronts"] == passes
    assert sum(n for name, n in names.items() if name.startswith("LDGSTS")) == instructions


@pytest.mark.parametrize("name, m", [("warp_specialised", 128), ("ping_pong", 128)])
def test_the_hand_over_to_worker_warps_costs_what_was_measured(name: str, m: int) -> None:
    """16 stores' wavefronts and 2 loads a worker warp in each program, on an H200, whatever the shape."""
    task = Task.random(m, 128, 32, seed=1)
    posed = pose(find_kernel(name), task, GPU)
    assert isinstance(posed, Posed)
    report = simulate(posed.plan, task.operands(posed.problem.a.dtype))
    (launch,) = posed.plan.launches
    names = report.observer.instruction_totals()
    workers = 12 - launch.num_warps  # ncu's block size is 384 threads in both
    assert names["LDS.8"] == 2 * workers * launch.programs
    line = next(counts for counts in report.per_line.values() if counts.get("shared_load_requests") == names["LDS.8"])
    assert line["shared_store_wavefronts"] == 16 * launch.programs
    assert line["shared_load_wavefronts"] == 2 * workers * launch.programs


def test_the_docs_list_every_counter_with_its_metric() -> None:
    text = (Path(__file__).parents[2] / "docs" / "counters.md").read_text()
    for counter in COUNTERS.values():
        metric = f"`{counter.ncu}`" if counter.ncu else ""
        assert f"| `{counter.name}` | {counter.unit}: {counter.meaning} | {metric} |" in text, counter.name


def test_merging_with_a_stranger_is_refused() -> None:
    with pytest.raises(TypeError, match="Counters"):
        Counters().merge(object())


def test_what_the_kernel_hands_to_its_workers_is_stored_once() -> None:
    """Row and column of the tile, 8 bytes: an STS.64 of each default warp, an LDS.64 of each worker, as in SASS."""
    card = find_gpu("h200")
    kernel = find_kernel("mma_warp_specialised")
    problem = Problem.dense(128, 256, 64, dtype=FP16)
    plan = kernel.plan(problem, kernel.default_config(problem, card), card)
    a, b = np.zeros((128, 64), np.float16), np.zeros((64, 256), np.float16)
    report = simulate(plan, {"A": a, "B": b, "D": np.zeros((128, 256), np.float16)})
    (launch,), (compiled,) = plan.launches, compile_plan(plan, 90)
    producers = dict(launch.constants)["PRODUCERS"]
    counted = report.observer.instruction_totals()
    assert counted["STS.64"] == launch.num_warps * launch.programs
    assert counted["LDS.64"] == -(-producers // 4) * 4 * launch.programs
    assert compiled.sass["STS.64"] == compiled.sass["LDS.64"] == 1
    # Arguments of the kernel are read where they are needed, not handed over.
    other = find_kernel("warp_specialised")
    problem = Problem.dense(128, 256, 64, dtype=FP16)
    plan = other.plan(problem, other.default_config(problem, card), card)
    report = simulate(plan, {"A": a, "B": b, "D": np.zeros((128, 256), np.float16)})
    assert not {"STS.64", "LDS.64"} & set(report.observer.instruction_totals())
    assert not {"STS.64", "LDS.64"} & set(compile_plan(plan, 90)[0].sass)
