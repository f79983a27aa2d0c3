"""A gallery of faults: for each kind one small kernel that is wrong, and the same kernel put right.

``FIXED`` chooses the repaired twin. The line that a report must name carries the comment ``# fault``. Every kernel
takes NumPy arrays through :func:`rungemm.sim.run`, and torch tensors on a card.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rungemm.compat import (
    async_copy_commit,
    async_copy_load,
    async_copy_wait,
    constexpr,
    fence_async_shared,
    gl,
    grid_launch_dependents,
    grid_wait,
    jit,
    mbarrier,
    tma_load,
    tma_store,
    tma_store_wait,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from rungemm.sim import TensorMap

ROW = gl.constexpr(gl.BlockedLayout([1], [32], [4], [0]))
TILE = gl.constexpr(gl.BlockedLayout([1, 4], [2, 16], [4, 1], [1, 0]))
OTHER = gl.constexpr(gl.BlockedLayout([1, 1], [1, 32], [4, 1], [1, 0]))
PLAIN = gl.constexpr(gl.SwizzledSharedLayout(1, 1, 1, [0]))
BARRIER = gl.constexpr(mbarrier.MBarrierLayout())
BLOCK = gl.constexpr(gl.NVMMASharedLayout(128, 16))
BLOCK_T = gl.constexpr(gl.NVMMASharedLayout(128, 16, 2, True))
ACC = gl.constexpr(gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16]))


@jit
def out_of_bounds(x, y, n, FIXED: constexpr):
    at = gl.program_id(0) * 128 + gl.arange(0, 128, ROW)
    if FIXED:
        value = gl.load(x + at, mask=at < n, other=0.0)
    else:
        value = gl.load(x + at)  # fault
    gl.store(y + at, value, mask=at < n)


@jit
def input_written(x, y, n, FIXED: constexpr):
    at = gl.program_id(0) * 128 + gl.arange(0, 128, ROW)
    value = gl.load(x + at, mask=at < n, other=0.0)
    if FIXED:
        gl.store(y + at, value + 1.0, mask=at < n)
    else:
        gl.store(x + at, value + 1.0, mask=at < n)  # fault


@jit
def written_twice(x, y, n, FIXED: constexpr):
    STEP: constexpr = 128 if FIXED else 96
    at = gl.program_id(0) * STEP + gl.arange(0, 128, ROW)
    value = gl.load(x + at, mask=at < n, other=0.0)
    gl.store(y + at, value, mask=at < n)  # fault


@jit
def program_dependence(x, y, n, FIXED: constexpr):
    program = gl.program_id(0)
    at = gl.arange(0, 128, ROW)
    gl.store(y + program * 128 + at, gl.load(x + at))
    if not FIXED:
        before = gl.load(y + at)  # fault
        gl.store(y + program * 128 + at, before + 1.0)


@jit
def uninitialised(x, y, n, FIXED: constexpr):
    at = gl.arange(0, 128, ROW)
    shared = gl.allocate_shared_memory(gl.float32, [256], PLAIN)
    shared.slice(0, 128, 0).store(gl.load(x + at))
    if FIXED:
        value = shared.slice(0, 128, 0).load(ROW)
    else:
        value = shared.slice(128, 128, 0).load(ROW)  # fault
    gl.store(y + at, value)


@jit
def layout_mismatch(x, y, n, FIXED: constexpr):
    rows = gl.arange(0, 16, gl.SliceLayout(1, TILE))[:, None]
    cols = gl.arange(0, 64, gl.SliceLayout(0, TILE))[None, :]
    value = gl.load(x + rows * 64 + cols)
    more = gl.full([16, 64], 1.0, gl.float32, OTHER)
    if FIXED:
        value = value + gl.convert_layout(more, TILE)
    else:
        value = value + more  # fault
    gl.store(y + rows * 64 + cols, value)


@jit
def tile_as_condition(x, y, n, FIXED: constexpr):
    at = gl.arange(0, 128, ROW)
    value = gl.load(x + at)
    if FIXED:
        value = gl.where(value > 0.0, value, 0.0)
    else:
        if value > 0.0:  # fault
            value = value + 1.0
    gl.store(y + at, value)


@jit
def copy_not_waited(x, y, n, FIXED: constexpr):
    at = gl.arange(0, 128, ROW)
    shared = gl.allocate_shared_memory(gl.float32, [128], PLAIN)
    async_copy_load(shared, x + at)
    async_copy_commit()
    if FIXED:
        async_copy_wait(0)
    gl.store(y + at, shared.load(ROW))  # fault


@jit
def copy_waited_short(x, y, n, FIXED: constexpr):
    """Two groups in flight and a wait that leaves one: the second is read."""
    at = gl.arange(0, 128, ROW)
    shared = gl.allocate_shared_memory(gl.float32, [2, 128], PLAIN)
    for i in gl.static_range(2):
        async_copy_load(shared.index(i), x + at)
        async_copy_commit()
    if FIXED:
        async_copy_wait(0)
    else:
        async_copy_wait(1)
    gl.store(y + at, shared.index(1).load(ROW))  # fault


@jit
def copy_not_committed(x, y, n, FIXED: constexpr):
    at = gl.arange(0, 128, ROW)
    shared = gl.allocate_shared_memory(gl.float32, [128], PLAIN)
    async_copy_load(shared, x + at)
    if FIXED:
        async_copy_commit()
    async_copy_wait(0)
    gl.store(y + at, shared.load(ROW))  # fault


@jit
def overwrite_in_flight(x, y, n, FIXED: constexpr):
    """A TMA store still reads the buffer that the next tile goes to."""
    rows = gl.arange(0, 16, gl.SliceLayout(1, TILE))[:, None]
    cols = gl.arange(0, 64, gl.SliceLayout(0, TILE))[None, :]
    shared = gl.allocate_shared_memory(gl.float16, [16, 64], y.layout)
    for i in range(2):
        if FIXED:
            tma_store_wait(0)
        shared.store(gl.load(x + i * 1024 + rows * 64 + cols))  # fault
        fence_async_shared()
        tma_store(y, [i * 16, 0], shared)
    tma_store_wait(0)


@jit
def missing_fence(x, y, n, FIXED: constexpr):
    rows = gl.arange(0, 16, gl.SliceLayout(1, TILE))[:, None]
    cols = gl.arange(0, 64, gl.SliceLayout(0, TILE))[None, :]
    shared = gl.allocate_shared_memory(gl.float16, [16, 64], y.layout)
    shared.store(gl.load(x + rows * 64 + cols))
    if FIXED:
        fence_async_shared()
    tma_store(y, [0, 0], shared)  # fault
    tma_store_wait(0)


@jit
def store_unfinished(x, y, n, FIXED: constexpr):
    rows = gl.arange(0, 16, gl.SliceLayout(1, TILE))[:, None]
    cols = gl.arange(0, 64, gl.SliceLayout(0, TILE))[None, :]
    shared = gl.allocate_shared_memory(gl.float16, [16, 64], y.layout)
    shared.store(gl.load(x + rows * 64 + cols))
    fence_async_shared()
    tma_store(y, [0, 0], shared)  # fault
    if FIXED:
        tma_store_wait(0)


@jit
def load_not_waited(x, y, n, FIXED: constexpr):
    rows = gl.arange(0, 16, gl.SliceLayout(1, TILE))[:, None]
    cols = gl.arange(0, 64, gl.SliceLayout(0, TILE))[None, :]
    shared = gl.allocate_shared_memory(gl.float16, [16, 64], x.layout)
    bar = gl.allocate_shared_memory(gl.int64, [1], BARRIER)
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, x.block_type.nbytes)
    tma_load(x, [0, 0], bar, shared)
    if FIXED:
        mbarrier.wait(bar, 0)
    value = shared.load(TILE)  # fault
    mbarrier.wait(bar, 0)
    gl.store(y + rows * 64 + cols, value)


@jit
def wrong_phase(x, y, n, FIXED: constexpr):
    """Parity 1 of a new barrier passes at once."""
    rows = gl.arange(0, 16, gl.SliceLayout(1, TILE))[:, None]
    cols = gl.arange(0, 64, gl.SliceLayout(0, TILE))[None, :]
    shared = gl.allocate_shared_memory(gl.float16, [16, 64], x.layout)
    bar = gl.allocate_shared_memory(gl.int64, [1], BARRIER)
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, x.block_type.nbytes)
    tma_load(x, [0, 0], bar, shared)
    mbarrier.wait(bar, 0 if FIXED else 1)  # fault
    value = shared.load(TILE)  # fault
    mbarrier.wait(bar, 0)
    gl.store(y + rows * 64 + cols, value)


@jit
def too_many_bytes(x, y, n, FIXED: constexpr):
    """Fewer bytes are expected than come."""
    rows = gl.arange(0, 16, gl.SliceLayout(1, TILE))[:, None]
    cols = gl.arange(0, 64, gl.SliceLayout(0, TILE))[None, :]
    shared = gl.allocate_shared_memory(gl.float16, [16, 64], x.layout)
    bar = gl.allocate_shared_memory(gl.int64, [1], BARRIER)
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, x.block_type.nbytes if FIXED else 1024)
    tma_load(x, [0, 0], bar, shared)  # fault
    mbarrier.wait(bar, 0)
    gl.store(y + rows * 64 + cols, shared.load(TILE))


@jit
def too_few_bytes(x, y, n, FIXED: constexpr):
    """More bytes are expected than ever come."""
    rows = gl.arange(0, 16, gl.SliceLayout(1, TILE))[:, None]
    cols = gl.arange(0, 64, gl.SliceLayout(0, TILE))[None, :]
    shared = gl.allocate_shared_memory(gl.float16, [16, 64], x.layout)
    bar = gl.allocate_shared_memory(gl.int64, [1], BARRIER)
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, x.block_type.nbytes if FIXED else 4096)
    tma_load(x, [0, 0], bar, shared)
    mbarrier.wait(bar, 0)  # fault
    gl.store(y + rows * 64 + cols, shared.load(TILE))


@jit
def over_arrival(x, y, n, FIXED: constexpr):
    at = gl.arange(0, 128, ROW)
    bar = gl.allocate_shared_memory(gl.int64, [1], BARRIER)
    mbarrier.init(bar, count=3 if FIXED else 2)
    mbarrier.arrive(bar, count=1)
    mbarrier.arrive(bar, count=2)  # fault
    mbarrier.wait(bar, 0)
    gl.store(y + at, gl.load(x + at))


@jit
def barrier_not_initialised(x, y, n, FIXED: constexpr):
    at = gl.arange(0, 128, ROW)
    bar = gl.allocate_shared_memory(gl.int64, [1], BARRIER)
    if FIXED:
        mbarrier.init(bar, count=1)
    mbarrier.arrive(bar, count=1)  # fault
    mbarrier.wait(bar, 0)
    gl.store(y + at, gl.load(x + at))


@jit
def filler(shared, full, empty, x, FIXED: constexpr):
    at = gl.arange(0, 128, ROW)
    for i in range(4):
        mbarrier.wait(empty, (i & 1) ^ 1)
        shared.store(gl.load(x + i * 128 + at))
        mbarrier.arrive(full, count=1)


@jit
def drainer(shared, full, empty, y, FIXED: constexpr):
    at = gl.arange(0, 128, ROW)
    for i in range(4):
        mbarrier.wait(full, i & 1)
        gl.store(y + i * 128 + at, shared.load(ROW))
        if FIXED:
            mbarrier.arrive(empty, count=1)


@jit
def deadlock(x, y, n, FIXED: constexpr):
    """The consumer never gives the buffer back."""
    shared = gl.allocate_shared_memory(gl.float32, [128], PLAIN)
    full = gl.allocate_shared_memory(gl.int64, [1], BARRIER)
    empty = gl.allocate_shared_memory(gl.int64, [1], BARRIER)
    mbarrier.init(full, count=1)
    mbarrier.init(empty, count=1)
    gl.warp_specialize(
        [(drainer, (shared, full, empty, y, FIXED)), (filler, (shared, full, empty, x, FIXED))], [4], [48]
    )


@jit
def hasty_filler(shared, full, empty, x, FIXED: constexpr):
    at = gl.arange(0, 128, ROW)
    for i in range(4):
        if FIXED:
            mbarrier.wait(empty, (i & 1) ^ 1)
        shared.store(gl.load(x + i * 128 + at))  # fault
        mbarrier.arrive(full.index(i), count=1)


@jit
def slow_drainer(shared, full, empty, y, FIXED: constexpr):
    at = gl.arange(0, 128, ROW)
    for i in range(4):
        mbarrier.wait(full.index(i), 0)
        gl.store(y + i * 128 + at, shared.load(ROW))  # fault
        mbarrier.arrive(empty, count=1)


@jit
def partition_race(x, y, n, FIXED: constexpr):
    """The producer does not wait for the buffer to be free."""
    shared = gl.allocate_shared_memory(gl.float32, [128], PLAIN)
    full = gl.allocate_shared_memory(gl.int64, [4, 1], BARRIER)
    empty = gl.allocate_shared_memory(gl.int64, [1], BARRIER)
    for i in gl.static_range(4):
        mbarrier.init(full.index(i), count=1)
    mbarrier.init(empty, count=1)
    gl.warp_specialize(
        [(slow_drainer, (shared, full, empty, y, FIXED)), (hasty_filler, (shared, full, empty, x, FIXED))], [4], [48]
    )


@jit
def racing_filler(shared, full, empty, x, FIXED: constexpr):
    at = gl.arange(0, 128, ROW)
    for i in range(4):
        if FIXED:
            mbarrier.wait(empty, (i & 1) ^ 1)
        shared.index(i).store(gl.load(x + i * 128 + at))
        mbarrier.arrive(full, count=1)  # fault


@jit
def missing_drainer(shared, full, empty, y, FIXED: constexpr):
    at = gl.arange(0, 128, ROW)
    for i in range(4):
        mbarrier.wait(full, i & 1)
        gl.store(y + i * 128 + at, shared.index(i).load(ROW))
        mbarrier.arrive(empty, count=1)


@jit
def phase_missed(x, y, n, FIXED: constexpr):
    """Nothing is overwritten, but one barrier runs through its phases without waiting for who waits for them."""
    shared = gl.allocate_shared_memory(gl.float32, [4, 128], PLAIN)
    full = gl.allocate_shared_memory(gl.int64, [1], BARRIER)
    empty = gl.allocate_shared_memory(gl.int64, [1], BARRIER)
    mbarrier.init(full, count=1)
    mbarrier.init(empty, count=1)
    gl.warp_specialize(
        [(missing_drainer, (shared, full, empty, y, FIXED)), (racing_filler, (shared, full, empty, x, FIXED))],
        [4],
        [48],
    )


@jit
def mma_not_waited(x, y, n, FIXED: constexpr):
    """The result of an asynchronous wgmma is used while it may run."""
    a = gl.allocate_shared_memory(gl.float16, [64, 64], BLOCK)
    b = gl.allocate_shared_memory(gl.float16, [64, 64], BLOCK)
    rows = gl.arange(0, 64, gl.SliceLayout(1, ACC))[:, None]
    cols = gl.arange(0, 64, gl.SliceLayout(0, ACC))[None, :]
    value = gl.load(x + rows * 64 + cols)
    a.store(value)
    b.store(value)
    fence_async_shared()
    acc = gl.zeros([64, 64], gl.float32, ACC)
    token = warpgroup_mma(a, b, acc, is_async=True)
    acc = warpgroup_mma_wait(0 if FIXED else 1, deps=(token,))
    gl.store(y + rows * 64 + cols, acc.to(gl.float16))  # fault


@jit
def mma_operand_overwritten(x, y, n, FIXED: constexpr):
    """The next tile is stored over an operand that a wgmma still reads."""
    a = gl.allocate_shared_memory(gl.float16, [64, 64], BLOCK)
    b = gl.allocate_shared_memory(gl.float16, [64, 64], BLOCK)
    rows = gl.arange(0, 64, gl.SliceLayout(1, ACC))[:, None]
    cols = gl.arange(0, 64, gl.SliceLayout(0, ACC))[None, :]
    value = gl.load(x + rows * 64 + cols)
    a.store(value)
    b.store(value)
    fence_async_shared()
    acc = gl.zeros([64, 64], gl.float32, ACC)
    acc = warpgroup_mma(a, b, acc, is_async=True)
    if FIXED:
        acc = warpgroup_mma_wait(0, deps=(acc,))
    a.store(value * 2.0)  # fault
    acc = warpgroup_mma_wait(0, deps=(acc,))
    gl.store(y + rows * 64 + cols, acc.to(gl.float16))


@jit
def mma_missing_fence(x, y, n, FIXED: constexpr):
    a = gl.allocate_shared_memory(gl.float16, [64, 64], BLOCK)
    rows = gl.arange(0, 64, gl.SliceLayout(1, ACC))[:, None]
    cols = gl.arange(0, 64, gl.SliceLayout(0, ACC))[None, :]
    a.store(gl.load(x + rows * 64 + cols))
    if FIXED:
        fence_async_shared()
    acc = gl.zeros([64, 64], gl.float32, ACC)
    acc = warpgroup_mma(a, a, acc)  # fault
    gl.store(y + rows * 64 + cols, acc.to(gl.float16))


@jit
def reads_too_early(x, y, n, FIXED: constexpr):
    """In a launch with pdl, x may still be written by the launch before when it is read."""
    at = gl.arange(0, 128, ROW)
    if FIXED:
        grid_wait()
    value = gl.load(x + at)  # fault
    grid_wait()
    grid_launch_dependents()
    gl.store(y + at, value)


@jit  # fault
def no_wait_without_work(x, y, n, FIXED: constexpr):
    """The last program has nothing to do, and does not wait: that it has ended says nothing of earlier launches."""
    at = gl.program_id(0) * 128 + gl.arange(0, 128, ROW)
    if FIXED:
        grid_wait()
    if gl.program_id(0) * 128 < n:
        grid_wait()
        gl.store(y + at, gl.load(x + at))


@jit
def patient_filler(shared, full, empty, x, FIXED: constexpr):
    at = gl.arange(0, 128, ROW)
    grid_wait()
    for i in range(4):
        mbarrier.wait(empty, (i & 1) ^ 1)
        shared.store(gl.load(x + i * 128 + at))
        mbarrier.arrive(full, count=1)


@jit
def impatient_drainer(shared, full, empty, y, FIXED: constexpr):
    at = gl.arange(0, 128, ROW)
    if FIXED:
        grid_wait()
    for i in range(4):
        mbarrier.wait(full, i & 1)
        gl.store(y + i * 128 + at, shared.load(ROW))  # fault
        mbarrier.arrive(empty, count=1)


@jit
def one_partition_waits(x, y, n, FIXED: constexpr):
    """The partition that reads has waited for earlier launches, the one that writes has not."""
    shared = gl.allocate_shared_memory(gl.float32, [128], PLAIN)
    full = gl.allocate_shared_memory(gl.int64, [1], BARRIER)
    empty = gl.allocate_shared_memory(gl.int64, [1], BARRIER)
    mbarrier.init(full, count=1)
    mbarrier.init(empty, count=1)
    gl.warp_specialize(
        [(impatient_drainer, (shared, full, empty, y, FIXED)), (patient_filler, (shared, full, empty, x, FIXED))],
        [4],
        [48],
    )


@dataclass(frozen=True)
class Exhibit:
    """One fault: the kernel, the kind that must be reported, words that the report must contain, and its arguments.

    Where the order of events decides which of two operations comes too early, ``kind`` names both kinds.
    """

    kernel: Any
    kind: str
    words: tuple[str, ...]
    arguments: Callable[[], tuple[Any, ...]]
    grid: int = 1
    lines_of: tuple[Any, ...] = ()
    consan: bool = False
    """Whether Triton's own ConSan covers this kind."""
    pdl: bool = False
    """Launched so that it may begin before the launch before it has ended."""

    @property
    def name(self) -> str:
        return self.kernel.fn.__name__

    @property
    def fault_lines(self) -> set[int]:
        """The lines marked ``# fault``, in the kernel or in ``lines_of``."""
        found = set()
        for function in self.lines_of or (self.kernel,):
            lines, start = inspect.getsourcelines(function.fn)
            found |= {start + i for i, line in enumerate(lines) if line.rstrip().endswith("# fault")}
        return found


def _frozen(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


def vectors(n: int = 128, out: int | None = None) -> Callable[[], tuple[Any, ...]]:
    def make() -> tuple[Any, ...]:
        x = _frozen(np.random.default_rng().standard_normal(n).astype(np.float32))
        return x, np.full(out or n, np.nan, np.float32), n

    return make


def matrices(rows: int, store: str = "") -> Callable[[], tuple[Any, ...]]:
    """fp16 matrices of 64 columns; ``store`` says which goes by TMA."""

    def make() -> tuple[Any, ...]:
        x: Any = _frozen(np.random.default_rng().standard_normal((rows, 64)).astype(np.float16))
        y: Any = np.full((rows, 64), np.nan, np.float16)
        if store == "y":
            y = TensorMap(y, (16, 64), BLOCK.value)
        if store == "x":
            x = TensorMap(x, (16, 64), BLOCK.value)
        return x, y, rows

    return make


GALLERY: tuple[Exhibit, ...] = (
    Exhibit(out_of_bounds, "out-of-bounds", ("offset 200", "x of 200", "mask"), vectors(200), grid=2),
    Exhibit(input_written, "input-written", ("x", "input"), vectors(200), grid=2),
    Exhibit(written_twice, "written-twice", ("offset 96", "(0, 0, 0)"), vectors(224), grid=2),
    Exhibit(program_dependence, "program-dependence", ("(0, 0, 0)", "atomic"), vectors(128, 256), grid=2),
    Exhibit(uninitialised, "uninitialised", ("element [0]", "fp32[256]"), vectors()),
    Exhibit(layout_mismatch, "layout-mismatch", ("BlockedLayout", "convert_layout"), vectors(1024)),
    Exhibit(tile_as_condition, "tile-as-condition", ("[128]", "gl.where"), vectors()),
    Exhibit(copy_not_waited, "read-before-arrival", ("cp.async", "wait_group"), vectors(), consan=True),
    Exhibit(copy_waited_short, "read-before-arrival", ("cp.async", "stage 1"), vectors(), consan=True),
    Exhibit(copy_not_committed, "read-before-arrival", ("cp.async", "commit_group"), vectors(), consan=True),
    Exhibit(overwrite_in_flight, "overwrite-in-flight", ("TMA store", "store_wait"), matrices(32, "y"), consan=True),
    Exhibit(missing_fence, "missing-proxy-fence", ("TMA store", "fence_async_shared"), matrices(16, "y")),
    Exhibit(store_unfinished, "unfinished", ("TMA store",), matrices(16, "y")),
    Exhibit(load_not_waited, "read-before-arrival", ("TMA load", "mbarrier.wait"), matrices(16, "x"), consan=True),
    Exhibit(wrong_phase, "read-before-arrival or deadlock", ("phase",), matrices(16, "x"), consan=True),
    Exhibit(too_many_bytes, "wrong-bytes", ("1024 bytes more",), matrices(16, "x")),
    Exhibit(too_few_bytes, "deadlock", ("2048 bytes still to come",), matrices(16, "x")),
    Exhibit(over_arrival, "over-arrival", ("2 arrival", "1 of 2"), vectors()),
    Exhibit(barrier_not_initialised, "barrier-misuse", ("before mbarrier.init",), vectors()),
    Exhibit(deadlock, "deadlock", ("filler waits", "drainer waits", "phase"), vectors(512)),
    Exhibit(
        partition_race, "overwrite-in-flight or read-before-arrival", ("hasty_filler", "slow_drainer"), vectors(512),
        lines_of=(hasty_filler, slow_drainer), consan=True,
    ),
    Exhibit(
        phase_missed, "wrong-phase or deadlock", ("missing_drainer",), vectors(512),
        lines_of=(racing_filler,),
    ),
    Exhibit(mma_not_waited, "read-before-arrival", ("warpgroup_mma", "fewer outstanding"), matrices(64)),
    Exhibit(mma_operand_overwritten, "overwrite-in-flight", ("wgmma", "warpgroup_mma_wait"), matrices(64), consan=True),
    Exhibit(mma_missing_fence, "missing-proxy-fence", ("wgmma", "fence_async_shared"), matrices(64)),
    Exhibit(reads_too_early, "before-grid-wait", ("load reaches x", "grid_wait"), vectors(), pdl=True),
    Exhibit(no_wait_without_work, "before-grid-wait", ("the program ends", "(1, 0, 0)"), vectors(), grid=2, pdl=True),
    Exhibit(
        one_partition_waits, "before-grid-wait", ("store reaches y", "partition"), vectors(512),
        lines_of=(impatient_drainer,), pdl=True,
    ),
)  # fmt: skip
