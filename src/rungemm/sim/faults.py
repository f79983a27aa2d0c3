"""Faults: what a kernel did wrong, and where in its source.

A fault is a sentence with the kernel's file and line, the program and partition, and what to change. It is
raised at the operation that shows the mistake, whichever schedule revealed it.
"""

from __future__ import annotations

import os.path
import sys
from types import CodeType, FrameType
from typing import Any, Literal

from .events import Site

__all__ = ["FaultKind", "NotSimulated", "SimulationFault", "SourceMap", "fault_at"]

FaultKind = Literal[
    "out-of-bounds",  # a global access outside the elements that an operand owns
    "input-written",  # a store to A, B, C or bias
    "written-twice",  # two programs wrote one element
    "never-written",  # an element of D that nobody wrote
    "program-dependence",  # a program read what another program of the launch wrote, without an atomic between
    "uninitialised",  # a read of memory that nobody wrote
    "read-before-arrival",  # a read of data that an asynchronous operation has not delivered, or not surely
    "overwrite-in-flight",  # a write to memory that somebody may still read or write
    "missing-proxy-fence",  # generic-proxy writes read by TMA or wgmma without fence_async_shared
    "wrong-bytes",  # an mbarrier got more bytes than it was told to expect
    "wrong-phase",  # an mbarrier's phase completes before a waiter surely noticed the one before
    "over-arrival",  # more arrivals than an mbarrier's count
    "barrier-misuse",  # an mbarrier used before init, initialised twice, ...
    "deadlock",  # every partition waits and nothing is in flight
    "before-grid-wait",  # a launch with pdl reaches global memory, or ends, without waiting for the launches before
    "unfinished",  # the program ended with asynchronous work that nobody waited for
    "layout-mismatch",  # operands of one operation in different layouts
    "type-error",  # dtypes or shapes that do not fit the operation
    "tile-as-condition",  # `if` on a tile
    "not-simulated",  # an operation that the simulator does not know
    "kernel-error",  # any other error raised while the kernel ran: an assertion, a Python error
]


class SimulationFault(Exception):
    """The kernel is wrong (or uses what is not simulated).

    Attributes:
        kind: one word for the kind of fault, see :data:`FaultKind`.
        file, line: the innermost kernel code at which it shows; "" and 0 when no line is to blame.
        message: what happened and what to do.
        program: (x, y, z) of the program, or ``None``.
        partition: the partition's name; "" outside warp specialisation.
        schedule: the schedule and seed that showed it, to replay.
    """

    def __init__(
        self,
        kind: str,
        message: str,
        site: Site | None = None,
        *,
        program: tuple[int, int, int] | None = None,
        partition: str = "",
        schedule: str = "",
    ) -> None:
        super().__init__(kind, message, site)
        self.kind = kind
        self.message = message
        self.site = site
        self.program = program
        self.partition = partition
        self.schedule = schedule

    @property
    def file(self) -> str:
        return self.site.file if self.site else ""

    @property
    def line(self) -> int:
        return self.site.line if self.site else 0

    def __str__(self) -> str:
        where = f"{short(self.site)}: " if self.site else ""
        who = f" [program {self.program}" if self.program is not None else ""
        if who:
            who += f", partition {self.partition}]" if self.partition else "]"
        via = ""
        if self.site and (self.site.kernel_line, self.site.kernel_file) != (self.site.line, self.site.file):
            via = f" (called from line {self.site.kernel_line})"
        how = f" [schedule {self.schedule}]" if self.schedule else ""
        return f"{where}{self.kind}: {self.message}{via}{who}{how}"

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (self.kind, self.message, self.site, self.program, self.partition, self.schedule))


class NotSimulated(SimulationFault):
    """The kernel uses an operation that the simulator does not know."""


def _rebuild(kind, message, site, program, partition, schedule):  # type: ignore[no-untyped-def]
    cls = NotSimulated if kind == "not-simulated" else SimulationFault
    return cls(kind, message, site, program=program, partition=partition, schedule=schedule)


def short(site: Site) -> str:
    """``file.py:12``, without the directories."""
    return f"{os.path.basename(site.file)}:{site.line}"


class SourceMap:
    """Turns the Python frames of running kernel code into :class:`Site` objects, one a place.

    Every operation asks where it is, so this must be quick, and reading ``frame.f_code`` is not: it raises an audit
    event, for which anybody may have installed a hook (filelock has). Kernel code is known by its builtins instead,
    which are the simulator's own, and a function by its globals, of which each has its own.
    """

    def __init__(self) -> None:
        self.builtins: dict[str, Any] = {}
        self._codes: dict[int, CodeType] = {}
        self._nested: dict[int, bool] = {}
        self._kept: list[dict[str, Any]] = []
        self._sites: dict[tuple[int, int, int, int], Site] = {}

    def add(self, code: CodeType, names: dict[str, Any]) -> None:
        """This code object is kernel code; ``names`` are its function's globals. Both are kept: identities last."""
        self._codes[id(code)] = code
        # Functions inside a function share its globals: there, a place needs the code object after all.
        self._nested[id(names)] = id(names) in self._nested
        self._kept.append(names)

    def __contains__(self, code: CodeType) -> bool:
        return id(code) in self._codes

    def here(self) -> Site | None:
        """The site of the kernel code that called us; ``None`` when no kernel code is on the stack."""
        ours = self.builtins
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_builtins is not ours:
            frame = frame.f_back
        if frame is None:
            return None
        outer: FrameType = frame
        up = frame.f_back
        # Kernel code calls kernel code directly (Python's frames in between, if any, are ours and short).
        while up is not None:
            if up.f_builtins is ours:
                outer = up
            up = up.f_back
        key = (self._function(frame), frame.f_lasti, self._function(outer), outer.f_lasti)
        site = self._sites.get(key)
        if site is None:
            code, top = frame.f_code, outer.f_code
            site = Site(code.co_filename, frame.f_lineno, code.co_name, top.co_filename, outer.f_lineno)
            self._sites[key] = site
        return site

    def _function(self, frame: FrameType) -> int:
        """A number for the code that a frame runs."""
        names = id(frame.f_globals)
        return id(frame.f_code) if self._nested.get(names, True) else names


SOURCES = SourceMap()
"""The code objects being simulated. One for the process: code objects are shared by all runs."""


def fault_at(kind: str, message: str) -> SimulationFault:
    """A fault at the kernel line that is running; the program's state fills in the rest when it passes by."""
    return SimulationFault(kind, message, SOURCES.here())
