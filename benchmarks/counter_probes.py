"""Small kernels, each of one kind of memory access, that settle what one warp instruction costs on a card.

``counters_ncu.py --probes`` runs them under ncu and in the simulator. Each program makes the access once; a plan runs
PROGRAMS of them, so that a counter divided by that is the cost of one access.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rungemm.compat import async_copy_commit, async_copy_load, async_copy_wait, barrier, constexpr, gl, jit
from rungemm.dtypes import FP32
from rungemm.kernels.plan import Launch, LaunchPlan, Pointer

PROGRAMS = 256
ROW = 64
"""Floats between rows of the source that the strided probes read."""

SOURCE_ROWS = 896
"""Rows of the source: 224 KiB, as much as is in flight at most."""

COPIED_ROW = 128
"""Floats that a warp's 16-byte cp.async moves: four lines."""

FLIGHTS = (
    *((1, 1, size) for size in (16, 96, 144, 160, 192, 226)),
    *((8, 12, size) for size in (48, 96, 144, 160, 192)),
    *((8, copies, 192) for copies in (24, 36, 48)),
    (8, 24, 96), (8, 36, 144), (8, 56, 224), (4, 72, 144), (4, 96, 192),
)  # fmt: skip
"""Warps, copies that each has in flight, and KiB of shared memory a block, of the probes of cp.async's writes."""


@jit
def probe_global(a, d, REGISTERS: constexpr, ROWS: constexpr, COLS: constexpr, STRIDE: constexpr):
    """Global load to registers, one row a lane, STRIDE floats apart."""
    rows = gl.arange(0, ROWS, gl.SliceLayout(1, REGISTERS))[:, None]
    cols = gl.arange(0, COLS, gl.SliceLayout(0, REGISTERS))[None, :]
    out = d + gl.program_id(0) * ROWS * COLS
    gl.store(out + rows * COLS + cols, gl.load(a + rows * STRIDE + cols))


@jit
def probe_async_copy(a, d, REGISTERS: constexpr, ROWS: constexpr, COLS: constexpr, STRIDE: constexpr):
    """Global to shared by cp.async, one row a lane, STRIDE floats apart."""
    SHARED: constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    rows = gl.arange(0, ROWS, gl.SliceLayout(1, REGISTERS))[:, None]
    cols = gl.arange(0, COLS, gl.SliceLayout(0, REGISTERS))[None, :]
    buffer = gl.allocate_shared_memory(gl.float32, [ROWS, COLS], SHARED)
    async_copy_load(buffer, a + rows * STRIDE + cols)
    async_copy_commit()
    async_copy_wait(0)
    out = d + gl.program_id(0) * ROWS * COLS
    gl.store(out + rows * COLS + cols, buffer.load(REGISTERS))


@jit
def probe_flight(
    a, d, REGISTERS: constexpr, ROWS: constexpr, COLS: constexpr, SHARED: constexpr, SLOTS: constexpr, COPIES: constexpr
):  # fmt: skip
    """COPIES tiles by cp.async, all in flight together, in a block that has room for SLOTS."""
    rows = gl.arange(0, ROWS, gl.SliceLayout(1, REGISTERS))[:, None]
    cols = gl.arange(0, COLS, gl.SliceLayout(0, REGISTERS))[None, :]
    ring = gl.allocate_shared_memory(gl.float32, [SLOTS, ROWS, COLS], SHARED)
    for copy in gl.static_range(COPIES):
        async_copy_load(ring.index(copy), a + (copy * ROWS + rows) * COLS + cols)
    async_copy_commit()
    async_copy_wait(0)
    out = d + gl.program_id(0) * ROWS * COLS
    gl.store(out + rows * COLS + cols, ring.index(COPIES - 1).load(REGISTERS))


@jit
def probe_shared(
    a, d, FILL: constexpr, STORED: constexpr, LOADED: constexpr, ROWS: constexpr, COLS: constexpr, PITCH: constexpr
):  # fmt: skip
    """Shared memory written in layout STORED and read in layout LOADED; rows PITCH floats apart."""
    SHARED: constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    rows = gl.arange(0, ROWS, gl.SliceLayout(1, FILL))[:, None]
    cols = gl.arange(0, COLS, gl.SliceLayout(0, FILL))[None, :]
    whole = gl.allocate_shared_memory(gl.float32, [ROWS, PITCH], SHARED)
    buffer = whole.slice(0, COLS, 1)
    buffer.store(gl.convert_layout(gl.load(a + rows * COLS + cols), STORED))
    value = gl.convert_layout(buffer.load(LOADED), FILL)
    barrier()  # or ptxas lets only those lanes load that store
    gl.store(d + gl.program_id(0) * ROWS * COLS + rows * COLS + cols, value)


def _plan(name: str, function: object, constants: dict[str, object], warps: int = 1) -> LaunchPlan:
    arguments = (("a", Pointer("A", FP32)), ("d", Pointer("D", FP32)))
    return LaunchPlan(name, (Launch(function, (PROGRAMS, 1, 1), arguments, tuple(constants.items()), warps),))


def _flights() -> Iterator[tuple[str, LaunchPlan, tuple[int, int]]]:
    """What the writes of cp.async cost as copies in flight and the block's shared memory grow; and in other layouts."""
    plain, turned = gl.SwizzledSharedLayout(1, 1, 1, [1, 0]), gl.SwizzledSharedLayout(4, 1, 8, [1, 0])
    whole = [("", warps, copies, size, COPIED_ROW, plain) for warps, copies, size in FLIGHTS]
    ways = (("_swizzled", COPIED_ROW, turned), ("_rows", 32, plain), ("_rows_swizzled", 32, turned))
    for label, cols, shared in ways:
        whole += [(label, 8, 12, 48, cols, shared), (label, 8, 48, 192, cols, shared)]
    for label, warps, copies, size, cols, shared in whole:
        rows = warps * COPIED_ROW // cols
        registers = gl.BlockedLayout([1, 4], [COPIED_ROW // cols, cols // 4], [warps, 1], [1, 0])
        constants = {
            "REGISTERS": registers, "ROWS": rows, "COLS": cols, "SHARED": shared,
            "SLOTS": size * 1024 // (rows * cols * 4), "COPIES": copies,
        }  # fmt: skip
        name = f"flight_{warps}_warps_{copies}_copies_{size}_kib{label}"
        yield name, _plan("probe", probe_flight, constants, warps), (PROGRAMS * rows, cols)


def _lanes(registers: list[list[int]], lanes: list[list[int]], rows: int, cols: int) -> gl.DistributedLinearLayout:
    return gl.DistributedLinearLayout(registers, lanes, [], [], [rows, cols])


def _float4(same: tuple[int, ...]) -> tuple[gl.DistributedLinearLayout, int]:
    """A float4 a lane, one row of 4 each; lane bits in ``same`` do not matter: those lanes share a row."""
    bases, row = [], 1
    for bit in range(5):
        bases.append([0, 0] if bit in same else [row, 0])
        row *= 1 if bit in same else 2
    return _lanes([[0, 1], [0, 2]], bases, row, 4), row


def alone(plan: LaunchPlan) -> LaunchPlan:
    """The plan with one program only."""
    (launch,) = plan.launches
    return replace(plan, launches=(replace(launch, grid=(1, 1, 1)),))


def probes() -> Iterator[tuple[str, LaunchPlan, tuple[int, int]]]:
    """Name, plan, and (rows, cols) of D, for every probe; A is (SOURCE_ROWS, ROW)."""
    yield from _flights()
    for width in (1, 2, 4):
        registers = gl.BlockedLayout([1, width], [32, 1], [1, 1], [1, 0])
        for what, stride in (("dense", width), ("apart", ROW)):
            constants = {"REGISTERS": registers, "ROWS": 32, "COLS": width, "STRIDE": stride}
            shape = (PROGRAMS * 32, width)
            yield f"ldg_{4 * width}_{what}", _plan("probe", probe_global, constants), shape
            yield f"ldgsts_{4 * width}_{what}", _plan("probe", probe_async_copy, constants), shape
    for same in ((), (0,), (1,), (0, 1), (2,), (3, 4), (0, 1, 2, 3, 4)):
        layout, rows = _float4(same)
        name = "".join(map(str, same)) or "none"
        constants = {"FILL": layout, "STORED": layout, "LOADED": layout, "ROWS": rows, "COLS": 4, "PITCH": 4}
        yield f"float4_same_{name}", _plan("probe", probe_shared, constants), (PROGRAMS * rows, 4)
    for pitch in (4, 8, 32):
        layout, rows = _float4(())
        constants = {"FILL": layout, "STORED": layout, "LOADED": layout, "ROWS": 32, "COLS": 4, "PITCH": pitch}
        yield f"float4_pitch_{4 * pitch}", _plan("probe", probe_shared, constants), (PROGRAMS * 32, 4)
        for rows in (8, 16, 32):
            registers = [[8 << bit, 0] for bit in range((rows // 8).bit_length() - 1)]
            matrix = _lanes(registers, [[0, 1], [0, 2], [1, 0], [2, 0], [4, 0]], rows, 4)
            constants = {"FILL": matrix, "STORED": matrix, "LOADED": matrix, "ROWS": rows, "COLS": 4, "PITCH": pitch}
            name = f"matrix_x{rows // 8}_pitch_{4 * pitch}"
            yield name, _plan("probe", probe_shared, constants), (PROGRAMS * rows, 4)
