"""What runs and what flies: partitions of warps, their queues of asynchronous groups, operations on their way."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from greenlet import greenlet

from .barriers import Barrier
from .faults import SOURCES
from .order import Clock, join

if TYPE_CHECKING:
    from .program import Program

__all__ = ["Flight", "Partition", "Queue", "Waiting"]


class Waiting:
    """Why a partition does not run: what would wake it, and how a deadlock report describes it."""

    def __init__(self, ready: Callable[[], bool], describe: Callable[[], str], barrier: Barrier | None = None) -> None:
        self.ready = ready
        self.describe = describe
        self.barrier = barrier
        self.site = SOURCES.here()


class Flight:
    """An asynchronous operation on its way.

    ``land`` does it; ``queue`` is set where operations land in order (cp.async, wgmma, TMA stores of a partition);
    ``barrier`` is what its landing signals.
    """

    __slots__ = ("barrier", "describe", "done", "land_", "queue", "site", "time")

    def __init__(
        self, land: Callable[[], None], describe: Callable[[], str], queue: Any = None, barrier: Barrier | None = None
    ) -> None:
        self.land_ = land
        self.describe = describe
        self.queue = queue
        self.barrier = barrier
        self.done = False
        self.time = 0
        self.site = SOURCES.here()

    def land(self) -> None:
        """Do it, once."""
        if not self.done:
            self.done = True
            self.land_()


class Partition:
    """The warps that run one function of a program.

    ``clock`` is what surely lies in its past, ``fenced`` which generic writes the asynchronous proxy may see.
    ``queues`` holds its asynchronous groups by kind: "cp_async", "wgmma", "tma_store".
    """

    def __init__(self, program: Program, name: str, num_warps: int) -> None:
        self.program = program
        self.name = name
        self.num_warps = num_warps
        self.component = program.new_component()
        self.time = 1
        self.clock: Clock = {self.component: 1}
        self.fenced: Clock = {}
        self.waiting: Waiting | None = None
        self.finished = False
        self.grids_waited = False  # for the launches before this one
        self.green: greenlet | None = None
        self.queues: dict[str, Queue] = {}

    @property
    def label(self) -> str:
        return self.name if self.program.specialised else ""

    def queue(self, kind: str) -> Queue:
        """This partition's queue of that kind of asynchronous operation."""
        found = self.queues.get(kind)
        if found is None:
            found = self.queues[kind] = Queue(self.program.new_component(), kind)
        return found

    def release(self) -> tuple[Clock, Clock]:
        """What others may acquire: everything up to now. Time moves on."""
        released = dict(self.clock), dict(self.fenced)
        self.time += 1
        self.clock[self.component] = self.time
        return released

    def acquire(self, clock: Clock, fenced: Clock) -> None:
        join(self.clock, clock)
        join(self.fenced, fenced)

    def fence(self) -> None:
        """All generic writes in this partition's past are now visible to the asynchronous proxy."""
        join(self.fenced, self.clock)


class Queue:
    """An in-order queue of asynchronous groups: cp.async, wgmma or TMA stores of one partition."""

    def __init__(self, component: int, kind: str) -> None:
        self.component = component
        self.kind = kind
        self.time = 0  # of the last operation issued
        self.open: list[Flight] = []  # issued since the last commit
        self.groups: list[tuple[int, list[Flight]]] = []  # (time of the group's last operation, its flights)

    def issue(self) -> int:
        """The time of a new operation."""
        self.time += 1
        return self.time

    def commit(self) -> None:
        self.groups.append((self.time, self.open))
        self.open = []

    def wait(self, outstanding: int, partition: Partition) -> None:
        """All but the newest ``outstanding`` groups are complete: land them, and know it."""
        count = len(self.groups) - outstanding
        if count <= 0:
            return
        for _, flights in self.groups[:count]:
            for flight in flights:
                flight.land()
        time = self.groups[count - 1][0]
        del self.groups[:count]
        join(partition.clock, {self.component: time})
