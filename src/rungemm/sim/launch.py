"""Running plans and kernels: from operands to programs, and what is checked before and after."""

from __future__ import annotations

import mmap
import os
import pickle
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..compat import constexpr_parameters
from ..kernels.plan import Descriptor, Launch, LaunchPlan, Scalar
from ..kernels.plan import Pointer as PlanPointer
from . import numeric
from .alignment import scalar
from .asynchronous import TensorDescriptor
from .context import MACHINE
from .events import Observer, Site
from .faults import SOURCES, SimulationFault
from .memory import AddressSpace, Buffer
from .program import SCHEDULES, Program
from .reglobal import operations_reached, translate_kernel
from .scalars import FloatScalar, make_scalar
from .tile import Pointer
from .types import F32, of_numpy

__all__ = ["SimReport", "run", "simulate"]

ASYNCHRONOUS = {
    "async_copy_load",
    "mbarrier_init",
    "fence_async_shared",
    "tma_load",
    "tma_store",
    "warpgroup_mma",
    "warp_specialize",
}
"""A program that uses none of these has one partition and nothing in flight: no order to check."""


@dataclass
class SimReport:
    """What a run gave besides its results.

    Attributes:
        counters: totals of the counting observer, by name; empty without one.
        per_line: the same by source line: ``{(file, line): {name: value}}``.
        programs: programs that ran, all launches.
        observer: the observer itself.
    """

    counters: dict[str, int] = field(default_factory=dict)
    per_line: dict[Any, dict[str, int]] = field(default_factory=dict)
    programs: int = 0
    observer: Any = None


def simulate(
    plan: LaunchPlan,
    operands: Mapping[str, np.ndarray],
    *,
    count: bool = True,
    schedule: str = "late",
    seed: int = 0,
    processes: int = 1,
    observer: Observer | None = None,
) -> SimReport:
    """Run a plan's kernels on NumPy arrays.

    Args:
        plan: what :meth:`rungemm.kernels.base.Kernel.plan` returned.
        operands: "A", "B", "C", "D" (and "bias" and the like) by role, each of (rows, cols) with any NumPy strides and
            the dtype that the plan says. "D" is written in place; the others never are.
        count: count with :class:`rungemm.sim.counters.Counters` (ignored when ``observer`` is given).
        schedule: when asynchronous operations complete: "late", "eager" or "random".
        seed: of the random schedule: the same seed replays the same run.
        processes: programs of a launch run in so many processes (where the kernel has no atomics and the system has
            fork); the results and counters are the same.
        observer: who is told of every operation.

    Raises:
        SimulationFault: the kernel did something wrong; it names the source line.
        ValueError: operands missing, or of another dtype than the plan's.
    """
    if schedule not in SCHEDULES:
        raise ValueError(f"schedule {schedule!r} is unknown: use one of {', '.join(SCHEDULES)}")
    if observer is None and count:
        from .counters import Counters

        observer = Counters()
    space = AddressSpace()
    buffers = _buffers_of(plan, operands, space)
    report = SimReport(observer=observer)
    for launch in plan.launches:
        arguments = {name: _argument(argument, buffers) for name, argument in launch.arguments}
        arguments.update(launch.constants)
        kernel = launch.function
        _launch(
            kernel, launch.grid, arguments, launch.num_warps, list(buffers.values()), observer,
            schedule, seed, processes, launch.pdl,
        )  # fmt: skip
        report.programs += launch.programs
    result = buffers.get("D")
    if plan.launches and result is not None:
        _require_written(result, plan.launches[-1], _replay(schedule, seed))
    return _counted(report)


def run(
    kernel: Any,
    grid: int | Sequence[int],
    *args: Any,
    num_warps: int = 4,
    schedule: str = "late",
    seed: int = 0,
    processes: int = 1,
    observer: Observer | None = None,
    pdl: bool = False,
    **constexprs: Any,
) -> SimReport:
    """Run any ``@gluon.jit`` kernel on NumPy arrays.

    Args:
        kernel: the function.
        grid: the number of programs, or up to three numbers.
        args: the kernel's arguments in order. An array becomes a pointer to its first element, and may be written;
            a read-only array (``array.flags.writeable = False``) is checked not to be. Python integers become int32 (or
            int64), floats fp32, :class:`TensorMap` a TMA descriptor; anything else is a compile-time value.
        num_warps: warps of a program.
        pdl: the launch may begin before the one before it has ended, so every program must call ``grid_wait`` before
            it touches global memory.
        constexprs: the compile-time parameters by name.

    Raises:
        SimulationFault: the kernel did something wrong.
    """
    if schedule not in SCHEDULES:
        raise ValueError(f"schedule {schedule!r} is unknown: use one of {', '.join(SCHEDULES)}")
    translate_kernel(kernel)  # says so if it is no kernel
    sizes = (int(grid),) if isinstance(grid, int) else tuple(int(g) for g in grid)
    padded = (*sizes, 1, 1)
    full_grid = (padded[0], padded[1], padded[2])
    space = AddressSpace()
    names = list(kernel.fn.__code__.co_varnames[: kernel.fn.__code__.co_argcount])
    if len(args) > len(names):
        raise TypeError(f"{kernel.fn.__name__} takes {len(names)} arguments, {len(args)} were given")
    compile_time = constexpr_parameters(kernel)
    buffers: dict[int, Buffer] = {}

    def buffer_of(array: np.ndarray, name: str) -> Buffer:
        found = buffers.get(id(array))
        if found is None:
            alignment = array.__array_interface__["data"][0]
            alignment = min(alignment & -alignment, 16) if alignment else 16
            found = Buffer(name, array, space, writable=array.flags.writeable, alignment=alignment)
            buffers[id(array)] = found
        return found

    arguments: dict[str, Any] = {}
    for name, value in zip(names, args, strict=False):
        if name in compile_time:
            arguments[name] = value
        elif isinstance(value, np.ndarray):
            buffer = buffer_of(value, name)
            divisible = int(buffer.address_of(0)) % 16 == 0
            known = scalar(16 if divisible else 1, (1,))
            arguments[name] = Pointer(buffer, 0, None, known)
        elif isinstance(value, TensorMap):
            buffer = buffer_of(value.array, name)
            steps = tuple(s // value.array.dtype.itemsize for s in value.array.strides)
            arguments[name] = TensorDescriptor(buffer, 0, value.array.shape, steps, tuple(value.block), value.layout)
        elif isinstance(value, (bool, str)) or not isinstance(value, (int, float)):
            arguments[name] = value
        else:
            kind = "fp32" if isinstance(value, float) else "i32" if abs(value) < 2**31 else "i64"
            arguments[name] = _number(value, kind)
    arguments.update(constexprs)
    _launch(kernel, full_grid, arguments, num_warps, list(buffers.values()), observer, schedule, seed, processes, pdl)
    report = SimReport(observer=observer, programs=full_grid[0] * full_grid[1] * full_grid[2])
    return _counted(report)


def _counted(report: SimReport) -> SimReport:
    """With the observer's totals, if it counts."""
    if hasattr(report.observer, "totals") and hasattr(report.observer, "per_line"):
        report.counters = dict(report.observer.totals())
        report.per_line = dict(report.observer.per_line())
    return report


@dataclass
class TensorMap:
    """A host-made TMA descriptor for :func:`run`: an array, the block that one copy moves, and its shared layout."""

    array: np.ndarray
    block: Sequence[int]
    layout: Any


def _buffers_of(plan: LaunchPlan, operands: Mapping[str, np.ndarray], space: AddressSpace) -> dict[str, Buffer]:
    wanted: dict[str, PlanPointer | Descriptor] = {}
    for launch in plan.launches:
        for _, argument in launch.arguments:
            if isinstance(argument, (PlanPointer, Descriptor)):
                wanted.setdefault(argument.role, argument)
    scratch = {w.name: w for w in plan.workspaces}
    buffers: dict[str, Buffer] = {}
    for role, argument in wanted.items():
        if role in scratch:
            work = scratch[role]
            # Poison that no test expects: NaN for floats, an odd pattern for integers.
            fill = 0 if work.zeroed else np.nan if not work.dtype.is_integer else 0x5A
            array = np.full(work.elements, fill).astype(work.dtype.numpy)
            buffers[role] = Buffer(role, array, space, writable=True, poisoned=not work.zeroed)
            continue
        if role not in operands:
            raise ValueError(f"the plan of {plan.kernel} needs operand {role}: pass operands[{role!r}]")
        array = operands[role]
        if of_numpy(array.dtype).numpy != argument.dtype.numpy:
            raise ValueError(f"operand {role} is {array.dtype}; the plan was made for {argument.dtype}")
        alignment = argument.alignment if isinstance(argument, PlanPointer) else 16
        buffers[role] = Buffer(role, array, space, writable=role == "D", alignment=alignment)
    return buffers


def _argument(argument: Any, buffers: Mapping[str, Buffer]) -> Any:
    if isinstance(argument, PlanPointer):
        # As Triton's launcher: 16 or nothing is known of a pointer.
        return Pointer(buffers[argument.role], 0, None, scalar(16 if argument.divisible else 1, (1,)))
    if isinstance(argument, Scalar):
        return _number(argument.value, argument.kind)
    if isinstance(argument, Descriptor):
        return TensorDescriptor(
            buffers[argument.role], 0, argument.shape, argument.strides, argument.block, argument.layout,
            round_to_tf32=argument.round_to_tf32,
        )  # fmt: skip
    raise TypeError(f"{argument!r} is no argument of a plan")


def _number(value: Any, kind: str) -> Any:
    """A scalar argument: 1 is compiled in, and divisibility by 16 is known, as Triton's launcher has it."""
    if kind == "fp32":
        return FloatScalar(value, F32)
    if value == 1:
        return 1
    result = make_scalar(value, {"i32": "int32", "i64": "int64"}[kind])
    if value % 16 == 0:
        result.divisor = 16
    return result


def _launch(
    kernel: Any, grid: tuple[int, int, int], arguments: dict[str, Any], num_warps: int, buffers: list[Buffer],
    observer: Observer | None, schedule: str, seed: int, processes: int, pdl: bool,
) -> None:  # fmt: skip
    twin = translate_kernel(kernel)
    reached = operations_reached(kernel)
    tracking = bool(reached & ASYNCHRONOUS)
    for buffer in buffers:
        buffer.begin_launch()
    if observer is not None:
        observer.launch(kernel.fn.__name__, grid, num_warps)
    total = grid[0] * grid[1] * grid[2]
    job = _Job(twin, grid, arguments, num_warps, tracking, schedule, seed, pdl)
    atomics = any(name.startswith("atomic_") for name in reached)
    if processes > 1 and total > 1 and not atomics and hasattr(os, "fork"):
        _run_forked(job, total, buffers, observer, min(processes, total))
    else:
        job.programs(range(total), observer)


@dataclass
class _Job:
    """One launch, ready to run any of its programs."""

    twin: Any
    grid: tuple[int, int, int]
    arguments: dict[str, Any]
    num_warps: int
    tracking: bool
    schedule: str
    seed: int
    pdl: bool

    def programs(self, numbers: Sequence[int] | range, observer: Observer | None) -> None:
        x, y, _ = self.grid
        before = MACHINE.observer
        MACHINE.observer = observer
        try:
            with np.errstate(all="ignore"), numeric.single_threaded_blas():
                for number in numbers:
                    place = (number % x, number // x % y, number // (x * y))
                    program = Program(
                        place, number, self.grid, self.num_warps,
                        tracking=self.tracking, schedule=self.schedule, seed=self.seed, pdl=self.pdl,
                    )  # fmt: skip
                    try:
                        program.run(self.twin, self.arguments)
                    except SimulationFault as fault:
                        fault.schedule = _replay(self.schedule, self.seed)
                        raise
                    except Exception as error:
                        raise _kernel_error(error, place, _replay(self.schedule, self.seed)) from error
        finally:
            MACHINE.observer = before


def _replay(schedule: str, seed: int) -> str:
    """What to say to see the run again; nothing of the default schedule."""
    return {"late": "", "random": f"random, seed {seed}"}.get(schedule, schedule)


def _kernel_error(error: Exception, place: tuple[int, int, int], schedule: str) -> SimulationFault:
    """An ordinary Python error raised by kernel code, with the kernel's line; an error of ours stays what it is."""
    site = None
    frame = error.__traceback__
    outer = None
    while frame is not None:
        code = frame.tb_frame.f_code
        if code in SOURCES:
            outer = outer or (code.co_filename, frame.tb_lineno)
            site = Site(code.co_filename, frame.tb_lineno, code.co_name, *outer)
        frame = frame.tb_next
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = "" if site and last.filename == site.file else f" (in {os.path.basename(last.filename)}:{last.lineno})"
    message = f"{type(error).__name__}: {error}{where}"
    return SimulationFault("kernel-error", message, site, program=place, schedule=schedule)


def _shared_copy(array: np.ndarray) -> np.ndarray:
    """A copy in memory that forked processes share."""
    memory = mmap.mmap(-1, max(array.nbytes, 1))
    shared = np.frombuffer(memory, array.dtype, array.size).reshape(array.shape)
    shared[...] = array
    return shared


_WRITTEN_BY_PROGRAMS = ("flat", "writer", "reader", "written", "poison")


def _run_forked(job: _Job, total: int, buffers: list[Buffer], observer: Observer | None, processes: int) -> None:
    """Programs dealt to processes; what they write lies in shared memory while they run."""
    kept: list[tuple[Buffer, dict[str, np.ndarray]]] = []
    for buffer in buffers:
        if buffer.writable:
            before = {n: getattr(buffer, n) for n in _WRITTEN_BY_PROGRAMS if getattr(buffer, n) is not None}
            kept.append((buffer, before))
            for name, array in before.items():
                setattr(buffer, name, _shared_copy(array))
    for argument in job.arguments.values():
        if isinstance(argument, TensorDescriptor):
            argument.attach()
    children = []
    try:
        for rank in range(processes):
            read_end, write_end = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.close(read_end)
                _child(job, range(rank, total, processes), observer, write_end)
            os.close(write_end)
            children.append((pid, read_end))
        outcomes = []
        for pid, read_end in children:
            with os.fdopen(read_end, "rb") as stream:
                data = stream.read()
            os.waitpid(pid, 0)
            outcomes.append(pickle.loads(data) if data else None)
    finally:
        for buffer, before in kept:
            for name, array in before.items():
                array[...] = getattr(buffer, name)
                setattr(buffer, name, array)
        for argument in job.arguments.values():
            if isinstance(argument, TensorDescriptor):
                argument.attach()
    faults = []
    for outcome in outcomes:
        if outcome is None:
            raise RuntimeError("a simulating process died: run with processes=1 to see why")
        fault, seen = outcome
        if fault is not None:
            faults.append(fault)
        elif observer is not None:
            observer.merge(seen)
    if faults:
        raise min(faults, key=lambda f: f.program or (0, 0, 0))


def _child(job: _Job, numbers: range, observer: Observer | None, write_end: int) -> None:
    """Run programs in a forked process, send back what was seen, and end without Python's exit handlers."""
    status = 1
    try:
        watcher = observer.spawn() if observer is not None else None
        try:
            job.programs(numbers, watcher)
            outcome: Any = (None, watcher)
        except SimulationFault as fault:
            outcome = (fault, None)
        with os.fdopen(write_end, "wb") as stream:
            pickle.dump(outcome, stream)
        status = 0
    finally:
        os._exit(status)


def _require_written(result: Buffer, last: Launch, schedule: str) -> None:
    """Every element of D was written by somebody."""
    assert result.written is not None
    missing = ~result.written
    if result.owned is not None:
        missing &= result.owned
    if missing.any():
        at = int(np.flatnonzero(missing)[0]) - result.first
        name = last.function.fn.__name__
        code = last.function.fn.__code__
        site = Site(code.co_filename, code.co_firstlineno, name, code.co_filename, code.co_firstlineno)
        raise SimulationFault(
            "never-written",
            f"{int(missing.sum())} elements of D were never written, the first at {result.locate(at)}",
            site,
            schedule=schedule,
        )
