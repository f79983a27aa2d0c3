"""TMA, mbarriers, wgmma and partitions where they are used rightly; schedules, replay, and processes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from rungemm.compat import (
    async_copy_commit,
    async_copy_load,
    async_copy_mbarrier_arrive,
    constexpr,
    fence_async_shared,
    gl,
    jit,
    mbarrier,
    tma,
    tma_load,
    tma_store,
    tma_store_wait,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)
from rungemm.hardware import find_gpu
from rungemm.kernels.registry import find_kernel
from rungemm.problem import Problem
from rungemm.sim import SimulationFault, TensorMap, run, simulate
from rungemm.sim.counters import Counters
from rungemm.sim.events import Event
from rungemm.sim.numeric import round_tf32, truncate_tf32

ROW = gl.constexpr(gl.BlockedLayout([1], [32], [4], [0]))
BARRIER = gl.constexpr(mbarrier.MBarrierLayout())
SCHEDULES = [("late", 0), ("eager", 0), ("random", 3), ("random", 4)]


@jit
def copy_block_kernel(x, y, row, col):
    """One block from one tensor to another, by TMA both ways."""
    shared = gl.allocate_shared_memory(x.dtype, x.block_shape, x.layout)
    bar = gl.allocate_shared_memory(gl.int64, [1], BARRIER)
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, x.block_type.nbytes)
    tma_load(x, [row, col], bar, shared)
    mbarrier.wait(bar, 0)
    tma_store(y, [row, col], shared)
    tma_store_wait(0)
    mbarrier.invalidate(bar)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda s: f"{s[0]}{s[1]}")
@pytest.mark.parametrize("at", [(0, 0), (16, 8), (-4, -8), (40, 56), (100, 100)], ids=str)
def test_tma_fills_with_zero_and_clips(
    at: tuple[int, int], schedule: tuple[str, int], rng: np.random.Generator
) -> None:
    layout = gl.NVMMASharedLayout(128, 16)
    x = rng.standard_normal((45, 72)).astype(np.float16)
    y = np.full((45, 72), 9, np.float16)
    maps = TensorMap(x, (16, 64), layout), TensorMap(y, (16, 64), layout)
    run(copy_block_kernel, 1, *maps, *at, schedule=schedule[0], seed=schedule[1])
    expected = np.full((45, 72), 9, np.float16)
    box = (slice(max(at[0], 0), max(at[0] + 16, 0)), slice(max(at[1], 0), max(at[1] + 64, 0)))
    expected[box] = x[box]
    assert (y == expected).all()


def test_a_tma_store_that_ends_inside_16_bytes_would_write_beyond(rng: np.random.Generator) -> None:
    # The card writes the whole group; a load of the same matrix is exact, to the element.
    layout = gl.NVMMASharedLayout(128, 16)
    x = rng.standard_normal((45, 72)).astype(np.float16)
    y = np.full((45, 72), 9, np.float16)
    with pytest.raises(SimulationFault, match="whole groups of 16 bytes"):
        run(copy_block_kernel, 1, TensorMap(x, (16, 64), layout), TensorMap(y[:, :70], (16, 64), layout), 0, 8)
    run(copy_block_kernel, 1, TensorMap(x[:, :70], (16, 64), layout), TensorMap(y, (16, 64), layout), 0, 8)
    assert (y[:16, 8:70] == x[:16, 8:70]).all() and (y[:16, 70:] == 0).all()
    # A block that stays clear of the end writes what it should.
    run(copy_block_kernel, 1, TensorMap(x, (16, 64), layout), TensorMap(y[:, :70], (16, 64), layout), 16, 0)
    assert (y[16:32, :64] == x[16:32, :64]).all()


@jit
def device_descriptor_kernel(x, y, rows, cols):
    """A descriptor made by the kernel."""
    LAYOUT: constexpr = gl.NVMMASharedLayout(32, 32)
    desc = tma.make_tensor_descriptor(x, [rows, cols], [cols, 1], [8, 8], LAYOUT)
    shared = gl.allocate_shared_memory(gl.float32, [8, 8], LAYOUT)
    bar = gl.allocate_shared_memory(gl.int64, [1], BARRIER)
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, 256)
    tma_load(desc, [rows - 4, 0], bar, shared)
    mbarrier.wait(bar, 0)
    FLAT: constexpr = gl.BlockedLayout([1, 1], [4, 8], [4, 1], [1, 0])
    at = gl.arange(0, 8, gl.SliceLayout(1, FLAT))[:, None] * 8 + gl.arange(0, 8, gl.SliceLayout(0, FLAT))[None, :]
    gl.store(y + at, shared.load(FLAT))


def test_a_descriptor_made_by_the_kernel(rng: np.random.Generator) -> None:
    x, y = rng.standard_normal((12, 8)).astype(np.float32), np.full((8, 8), np.nan, np.float32)
    run(device_descriptor_kernel, 1, x, y, 12, 8)
    assert (y[:4] == x[8:]).all() and (y[4:] == 0).all()


@jit
def product_kernel(x, y, out, CHAIN: constexpr, REGISTERS: constexpr):
    """``out = x @ y.T`` by wgmma, K in two chained steps when CHAIN."""
    DTYPE: constexpr = x.dtype.element_ty
    BITS: constexpr = DTYPE.primitive_bitwidth
    STEP: constexpr = 512 // BITS
    K: constexpr = 2 * STEP
    ACC_T: constexpr = gl.int32 if DTYPE.is_int() else gl.float32
    ACC: constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 256 // BITS])
    PLACE: constexpr = gl.BlockedLayout([1, 4], [8, 4], [4, 1], [1, 0])
    SHARED: constexpr = gl.NVMMASharedLayout(64, BITS)
    rows = gl.arange(0, 64, gl.SliceLayout(1, PLACE))[:, None]
    cols = gl.arange(0, STEP, gl.SliceLayout(0, PLACE))[None, :]
    a = gl.allocate_shared_memory(DTYPE, [2, 64, STEP], SHARED)
    b = gl.allocate_shared_memory(DTYPE, [2, 64, STEP], SHARED)
    for i in gl.static_range(2):
        a.index(i).store(gl.load(x + rows * K + i * STEP + cols))
        b.index(i).store(gl.load(y + rows * K + i * STEP + cols))
    fence_async_shared()
    acc = warpgroup_mma_init(gl.zeros([64, 64], ACC_T, ACC))
    for i in gl.static_range(2):
        if REGISTERS:
            left = a.index(i).load(gl.DotOperandLayout(0, ACC, 32 // BITS))
        else:
            left = a.index(i)
        acc = warpgroup_mma(left, b.index(i).permute([1, 0]), acc, use_acc=i > 0, is_async=True)
        if not CHAIN:
            acc = warpgroup_mma_wait(0, deps=(acc,))
    if CHAIN:
        acc = warpgroup_mma_wait(0, deps=(acc,))
    m = gl.arange(0, 64, gl.SliceLayout(1, ACC))[:, None]
    n = gl.arange(0, 64, gl.SliceLayout(0, ACC))[None, :]
    gl.store(out + m * 64 + n, acc)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda s: f"{s[0]}{s[1]}")
@pytest.mark.parametrize("chain", [True, False], ids=["chained", "waited"])
@pytest.mark.parametrize(
    "dtype", [np.float16, ml_dtypes.bfloat16, np.float32, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, np.int8],
    ids=lambda t: np.dtype(t).name,
)  # fmt: skip
def test_wgmma_of_every_type(dtype: Any, chain: bool, schedule: tuple[str, int], rng: np.random.Generator) -> None:
    k = 1024 // (8 * np.dtype(dtype).itemsize)
    scale = 30 if np.dtype(dtype) == np.int8 else 1
    x, y = ((rng.standard_normal((64, k)) * scale).astype(np.float32).astype(dtype) for _ in range(2))
    out = np.zeros((64, 64), np.int32 if np.dtype(dtype) == np.int8 else np.float32)
    registers = bool(rng.integers(2))
    run(product_kernel, 1, x, y, out, CHAIN=chain, REGISTERS=registers, schedule=schedule[0], seed=schedule[1])
    if np.dtype(dtype) == np.float32:
        x, y = truncate_tf32(x), truncate_tf32(y)
    exact = x.astype(np.float64) @ y.astype(np.float64).T
    if np.dtype(dtype) == np.int8:
        assert (out == exact).all()
    else:
        # Two steps: two roundings of the accumulator.
        assert (np.abs(out - exact) <= 2 * np.spacing(np.abs(exact).max().astype(np.float32))).all()


@jit
def copying_producer(x, ring, full, empty, steps, STAGES: constexpr, INCREMENT: constexpr):
    at = gl.arange(0, 128, ROW)
    for i in range(steps):
        slot = i % STAGES
        mbarrier.wait(empty.index(slot), (i // STAGES & 1) ^ 1)
        async_copy_load(ring.index(slot), x + i * 128 + at)
        async_copy_mbarrier_arrive(full.index(slot), increment_count=INCREMENT)
        if INCREMENT:
            mbarrier.arrive(full.index(slot), count=1)
    async_copy_commit()


@jit
def adding_consumer(out, ring, full, empty, steps, STAGES: constexpr):
    at = gl.arange(0, 128, ROW)
    total = gl.zeros([128], gl.float32, ROW)
    for i in range(steps):
        slot = i % STAGES
        mbarrier.wait(full.index(slot), i // STAGES & 1)
        total += ring.index(slot).load(ROW)
        mbarrier.arrive(empty.index(slot), count=1)
    gl.store(out + at, total)
    return total


@jit
def ring_kernel(x, out, steps, STAGES: constexpr, INCREMENT: constexpr):
    """A producer of cp.async and a consumer; with INCREMENT=False every thread of the producer arrives."""
    ring = gl.allocate_shared_memory(gl.float32, [STAGES, 128], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], BARRIER)
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], BARRIER)
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1 if INCREMENT else 128)
        mbarrier.init(empty.index(i), count=1)
    total = gl.warp_specialize(
        [
            (adding_consumer, (out, ring, full, empty, steps, STAGES)),
            (copying_producer, (x, ring, full, empty, steps, STAGES, INCREMENT)),
        ],
        [4],
        [48],
    )
    gl.store(out + 128 + gl.arange(0, 128, ROW), total)


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda s: f"{s[0]}{s[1]}")
@pytest.mark.parametrize("increment", [True, False])
def test_partitions_hand_over_a_ring(increment: bool, schedule: tuple[str, int], rng: np.random.Generator) -> None:
    x, out = rng.standard_normal((11, 128)).astype(np.float32), np.zeros((2, 128), np.float32)
    run(ring_kernel, 1, x, out, 11, STAGES=3, INCREMENT=increment, schedule=schedule[0], seed=schedule[1])
    total = np.zeros(128, np.float32)
    for row in x:
        total += row
    assert (out == total).all()


class Recorder:
    """Notes the order of events."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []

    def launch(self, name: str, grid: tuple[int, int, int], num_warps: int) -> None:
        return None

    def event(self, event: Event) -> None:
        self.seen.append((event.kind, event.site.line, event.partition))

    def spawn(self) -> Recorder:
        return Recorder()

    def merge(self, other: Any) -> None:
        self.seen += other.seen


def order_of(seed: int) -> list[tuple[Any, ...]]:
    x, out, recorder = np.ones((11, 128), np.float32), np.zeros((2, 128), np.float32), Recorder()
    run(ring_kernel, 1, x, out, 11, STAGES=3, INCREMENT=True, schedule="random", seed=seed, observer=recorder)
    return recorder.seen


def test_a_seed_replays_its_run_and_seeds_differ() -> None:
    assert order_of(5) == order_of(5)
    assert len({tuple(order_of(seed)) for seed in range(6)}) > 1
    assert {partition for _, _, partition in order_of(5)} == {"", "adding_consumer", "copying_producer"}


@jit
def two_waiters_kernel(out):
    bar = gl.allocate_shared_memory(gl.int64, [1], BARRIER)
    mbarrier.init(bar, count=2)
    mbarrier.arrive(bar, count=1)
    mbarrier.wait(bar, 0)
    gl.store(out + gl.arange(0, 128, ROW), gl.full([128], 1.0, gl.float32, ROW))


def test_a_deadlock_names_the_barrier_and_its_state() -> None:
    with pytest.raises(SimulationFault) as caught:
        run(two_waiters_kernel, 1, np.zeros(128, np.float32))
    report = str(caught.value)
    assert caught.value.kind == "deadlock"
    assert "1 of 2 arrivals pending" in report and "parity 0" in report and "test_asynchronous.py" in report


@pytest.mark.parametrize("name", ["shared_tile", "warp_specialised"])
def test_processes_change_neither_results_nor_counts(name: str, rng: np.random.Generator) -> None:
    kernel, card = find_kernel(name), find_gpu("h200")
    dtype = kernel.dtypes[0]
    problem = Problem.dense(150, 304, 72, dtype=dtype, beta=0.5)
    plan = kernel.plan(problem, kernel.default_config(problem, card), card)
    shapes = {"A": (150, 72), "B": (72, 304), "C": (150, 304)}
    home = {role: rng.standard_normal(shape).astype(dtype.numpy) for role, shape in shapes.items()}
    reports, results = [], []
    for processes in (1, 2):
        operands = {**home, "D": np.zeros((150, 304), dtype.numpy)}
        reports.append(simulate(plan, operands, processes=processes, observer=Counters()))
        results.append(operands["D"])
    assert (results[0] == results[1]).all()
    assert reports[0].counters == reports[1].counters
    assert sum(reports[0].counters.values()) > 0


@jit
def faulty_program_kernel(x, out):
    at = gl.program_id(0) * 128 + gl.arange(0, 128, ROW)
    gl.store(out + at, gl.load(x + at))


def test_a_fault_in_another_process_comes_back_whole() -> None:
    x, out = np.ones(512, np.float32), np.zeros(640, np.float32)
    x.flags.writeable = False
    with pytest.raises(SimulationFault) as caught:
        run(faulty_program_kernel, 5, x, out, processes=2)
    assert caught.value.kind == "out-of-bounds"
    assert caught.value.program == (4, 0, 0)
    assert caught.value.line == faulty_program_kernel.fn.__code__.co_firstlineno + 3


def test_tf32_rounding_of_a_descriptor_is_what_tma_does(rng: np.random.Generator) -> None:
    x = rng.standard_normal(64).astype(np.float32)
    assert np.abs(round_tf32(x) - x).max() <= np.abs(truncate_tf32(x) - x).max()
