"""One running program (CTA): its shared memory, its partitions, and what is in flight.

Partitions are greenlets that give way when they must wait. Asynchronous operations land as the schedule says:

* ``late`` (the default): only when somebody waits for them and nothing else can run;
* ``eager``: at once;
* ``random``: at moments, and in an order among those that the hardware may choose, drawn from a seed; partitions give
  way at random moments too. The same seed replays the same run.

Whether the order of accesses is safe is decided by clocks (``order.py``) under every schedule; the schedule decides
what data a kernel with a mistake would see, and finds the deadlocks.
"""

from __future__ import annotations

import contextvars
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from greenlet import greenlet

from .barriers import Barrier
from .context import MACHINE, emit
from .events import Site
from .faults import SOURCES, SimulationFault, fault_at
from .memory import Buffer
from .order import Clock
from .partition import Flight, Partition, Waiting
from .scalars import is_scalar
from .shared import AliasGroup, Allocation, View
from .tile import Pointer
from .types import ElementType, element_type

__all__ = ["SCHEDULES", "Flight", "Partition", "Program", "Waiting"]

SCHEDULES = ("late", "eager", "random")
SPINS = 10_000
"""Atomics on one unchanging element after which a program is said to spin."""


def _known(load: Flight, clocks: list[Clock]) -> bool:
    """Some partition has waited for this TMA load."""
    return load.barrier is not None and any(c.get(load.barrier.component, 0) >= load.time for c in clocks)


def _captured(values: list[Any], known: set[int]) -> int:
    """Bytes of the scalars among the workers' arguments that the kernel computed: each is handed over once.

    Constants, the kernel's own arguments and the addresses of shared memory are made anew in each partition.
    """
    computed = {id(value): value for value in values if id(value) not in known}
    numbers = sum(value.type_.bytes for value in computed.values() if is_scalar(value))
    return numbers + 8 * sum(isinstance(value, Pointer) and not value.shape for value in computed.values())


def _unfinished(flight: Flight) -> SimulationFault:
    return SimulationFault(
        "unfinished",
        f"the program ends while {flight.describe()} may still be in flight: wait for it before returning",
        flight.site,
    )


def _never_waited(function: Callable[..., Any]) -> SimulationFault:
    code = function.__code__
    return SimulationFault(
        "before-grid-wait",
        "the program ends without grid_wait(), in a launch that may begin before the one before it has ended: call it "
        "in every program, so that who waits for this launch has waited for all before it",
        Site(code.co_filename, code.co_firstlineno, code.co_name, code.co_filename, code.co_firstlineno),
    )


class Program:
    """One program of a launch; ``pdl``: which may begin before the launch before it has ended."""

    def __init__(
        self, program_id: tuple[int, int, int], number: int, grid: tuple[int, int, int], num_warps: int,
        *, tracking: bool, schedule: str, seed: int, pdl: bool = False,
    ) -> None:  # fmt: skip
        self.id = program_id
        self.number = number
        self.grid = grid
        self.tracking = tracking
        self.schedule = schedule
        self.pdl = pdl
        self.random = random.Random(f"{seed}/{number}") if schedule == "random" else None
        self.components = 0
        self.specialised = False
        self.was_specialised = False
        self.allocations: list[Allocation] = []
        self.barriers: dict[Any, Barrier] = {}
        self.flights: list[Flight] = []
        self.past: set[int] = set()
        self.last_seen: Any = None
        self.spins = 0
        self.main = Partition(self, "default", num_warps)
        self.partitions = [self.main]
        self.everyone = [self.main]
        self.tma_loads: list[Flight] = []
        self.hub: greenlet | None = None
        self.known: set[int] = set()  # identities of the kernel's arguments, which every partition can read

    def new_component(self) -> int:
        self.components += 1
        return self.components

    # Shared memory.

    def allocate(self, element: Any, shape: Any, layout: Any) -> View:
        """A new allocation, all poison."""
        extent = tuple(int(s) for s in shape)
        whole = Allocation(len(self.allocations), element_type(element), extent, layout, SOURCES.here())
        self.allocations.append(whole)
        return View(whole, whole.data, whole.written, whole.layout)

    def reinterpreted(self, view: View, dtype: Any, shape: tuple[int, ...], layout: Any) -> View:
        """Another allocation over the same bytes; whole allocations only."""
        whole = view.allocation
        if view.data.size != whole.data.size:
            raise fault_at("not-simulated", f"reinterpreting a part of {whole.name} is not simulated: take all of it")
        element: ElementType = element_type(dtype)
        other = Allocation(whole.number, element, shape, layout, whole.site)
        group = whole.alias
        if group is None:
            if whole.history.footprints:
                # Earlier accesses were recorded by element; from here on they are recorded by byte.
                whole.history.by_bytes(whole.byte_offsets().ravel(), whole.element.bytes)
            group = whole.alias = AliasGroup(whole)
        group.add(other)
        return View(other, other.data, other.written, other.layout)

    # Running.

    def run(self, function: Callable[..., Any], arguments: dict[str, Any]) -> None:
        """Run the kernel to its end.

        Raises:
            SimulationFault: with this program's id and the partition filled in.
        """
        before = MACHINE.program, MACHINE.partition
        MACHINE.program, MACHINE.partition = self, self.main
        try:
            self.hub = greenlet.getcurrent()
            self.known = {id(value) for value in arguments.values()}
            self.start(self.main, function, (), arguments)
            self.loop()
            if self.pdl and not MACHINE.physical and not any(p.grids_waited for p in self.everyone):
                raise _never_waited(function)
            self.finish()
        except SimulationFault as fault:
            self.blame(fault)
            raise
        finally:
            MACHINE.program, MACHINE.partition = before

    def blame(self, fault: SimulationFault) -> None:
        """Fill in who and how."""
        if fault.program is None:
            fault.program = self.id
            partition = MACHINE.partition
            if not fault.partition and self.was_specialised and partition is not None and fault.kind != "deadlock":
                fault.partition = partition.name

    def start(
        self, partition: Partition, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Make a partition's greenlet; the loop runs it."""
        result: list[Any] = []

        def body() -> None:
            result.append(function(*args, **kwargs))
            partition.finished = True

        partition.green = greenlet(body, parent=self.hub)
        # NumPy's error state lives in the context, and a greenlet starts with an empty one.
        partition.green.gr_context = contextvars.copy_context()
        return result

    def loop(self) -> None:
        """Run partitions until all have finished."""
        turn = 0
        while True:
            alive = [p for p in self.partitions if not p.finished]
            if not alive:
                return
            ready = [p for p in alive if p.waiting is None or p.waiting.ready()]
            if not ready:
                if self.land_needed(alive):
                    continue
                raise self.deadlock(alive)
            if self.random is not None:
                chosen = self.random.choice(ready)
            else:
                chosen = ready[turn % len(ready)]
                turn += 1
            chosen.waiting = None
            MACHINE.partition = chosen
            assert chosen.green is not None
            chosen.green.switch()

    def wait_until(self, waiting: Waiting) -> None:
        """Give way until it is ready. Returns at once if it already is."""
        if waiting.ready():
            return
        partition = MACHINE.active
        partition.waiting = waiting
        assert self.hub is not None
        self.hub.switch()

    # Asynchronous operations.

    def launch_load(self, flight: Flight) -> None:
        """A TMA load starts. Somebody must have waited for it before the program ends."""
        barrier = flight.barrier
        assert barrier is not None
        flight.time = barrier.time
        # Loads that are known to be complete need not be remembered.
        if len(self.tma_loads) > 64:
            clocks = [p.clock for p in self.partitions]
            self.tma_loads = [f for f in self.tma_loads if not _known(f, clocks)]
        self.tma_loads.append(flight)
        self.launch_flight(flight)

    def launch_flight(self, flight: Flight) -> Flight:
        """An operation starts; under the eager schedule it lands at once."""
        if self.schedule == "eager":
            flight.land()
        else:
            self.flights.append(flight)
            self.point()
        return flight

    def point(self) -> None:
        """A moment at which, under the random schedule, something may land and another partition may run."""
        dice = self.random
        if dice is None:
            return
        while self.flights and dice.random() < 0.3:
            self.land_one(dice.choice(self.candidates()))
        if self.specialised and dice.random() < 0.3:
            partition = MACHINE.active
            partition.waiting = Waiting(lambda: True, lambda: "ready to run")
            assert self.hub is not None
            self.hub.switch()

    def candidates(self) -> list[Flight]:
        """What may land next: the head of every ordered queue, and all that lands in any order."""
        self.flights = [f for f in self.flights if not f.done]
        seen: set[Any] = set()
        result = []
        for flight in self.flights:
            if flight.queue is None:
                result.append(flight)
            elif flight.queue not in seen:
                seen.add(flight.queue)
                result.append(flight)
        return result or [Flight(lambda: None, lambda: "nothing")]

    def land_one(self, flight: Flight) -> None:
        flight.land()
        self.flights = [f for f in self.flights if not f.done]

    def land_needed(self, alive: list[Partition]) -> bool:
        """Everybody waits: land what a waiting partition needs, else anything; False if nothing is in flight."""
        flights = self.candidates()
        if not self.flights:
            return False
        wanted = {id(p.waiting.barrier) for p in alive if p.waiting is not None}
        needed = [f for f in flights if f.barrier is not None and id(f.barrier) in wanted]
        choice = needed or flights
        self.land_one(self.random.choice(choice) if self.random is not None else choice[0])
        return True

    def deadlock(self, alive: list[Partition]) -> SimulationFault:
        """Who waits for what."""
        lines = []
        for p in alive:
            waiting = p.waiting
            assert waiting is not None
            where = f"{Path(waiting.site.file).name}:{waiting.site.line}" if waiting.site else "?"
            who = f"partition {p.name}" if self.was_specialised else "the program"
            lines.append(f"{who} waits at {where} for {waiting.describe()}")
        site = alive[0].waiting.site if alive[0].waiting else None
        return SimulationFault("deadlock", "nothing can go on: " + "; ".join(lines), site)

    def finish(self) -> None:
        """The kernel returned. cp.async and wgmma end with it; TMA needs the shared memory that is given back."""
        for partition in self.everyone:
            queue = partition.queues.get("tma_store")
            if queue is not None and queue.groups and not MACHINE.physical:
                raise _unfinished(queue.groups[0][1][0])
        for flight in self.tma_loads:
            barrier = flight.barrier
            late = barrier is not None and self.main.clock.get(barrier.component, 0) < flight.time
            if late and not MACHINE.physical:
                raise _unfinished(flight)
        for flight in self.flights:
            flight.land()

    def reach_global(self, buffer: Buffer, what: str) -> None:
        """The running partition is about to reach global memory: in a launch with pdl it must have waited."""
        if self.pdl and not MACHINE.active.grids_waited and not MACHINE.physical:
            raise fault_at(
                "before-grid-wait",
                f"{what} reaches {buffer.name} before grid_wait(), in a launch that may begin while the one before it "
                "still runs: call grid_wait() first, in this partition or before warp_specialize",
            )

    def nothing_flies(self) -> bool:
        """No asynchronous operation is on its way."""
        return all(f.done for f in self.flights)

    # Other programs of the launch: what they wrote may be read only after an atomic that both touched.

    def _foreign(self, who: np.ndarray) -> int | None:
        """A program among those (1 + number, 0: nobody) that is neither this one nor surely before it."""
        others = who[(who != 0) & (who != self.number + 1)]
        if others.size == 0:
            return None
        for other in np.unique(others):
            if int(other) not in self.past:
                return int(other) - 1
        return None

    def read_check(self, buffer: Buffer, place: np.ndarray, mask: np.ndarray | None, what: str) -> None:
        """A plain read of memory that programs may write."""
        assert buffer.writer is not None and buffer.reader is not None
        where = place if mask is None else place[mask]
        other = self._foreign(buffer.writer[where])
        if other is not None:
            raise fault_at(
                "program-dependence",
                f"{what} reads of {buffer.name} what program {self.id_of(other)} of the same launch wrote: programs "
                "run in any order; split the launch, or order them with an atomic",
            )
        buffer.reader[where] = self.number + 1

    def write_check(self, buffer: Buffer, place: np.ndarray, what: str) -> None:
        """A plain write of memory that other programs may read or write."""
        assert buffer.writer is not None and buffer.reader is not None
        other = self._foreign(buffer.writer[place])
        if other is not None:
            at = int(place[buffer.writer[place] == other + 1].ravel()[0]) - buffer.first
            raise fault_at(
                "written-twice",
                f"{what} writes {buffer.locate(at)}, which program {self.id_of(other)} has written: tiles overlap",
            )
        other = self._foreign(buffer.reader[place])
        if other is not None:
            raise fault_at(
                "program-dependence",
                f"{what} overwrites of {buffer.name} what program {self.id_of(other)} of the same launch read",
            )
        buffer.writer[place] = self.number + 1

    def atomic_check(self, buffer: Buffer, place: np.ndarray, semantics: Any) -> None:
        """An atomic: must not meet another program's plain accesses; orders the two unless relaxed."""
        assert buffer.writer is not None and buffer.reader is not None
        other = self._foreign(buffer.writer[place])
        if other is not None:
            raise fault_at(
                "program-dependence",
                f"an atomic reaches what program {self.id_of(other)} of this launch wrote to {buffer.name} without one",
            )
        if semantics == "relaxed" or place.size > 1:
            return
        key = int(place.ravel()[0]) if place.size else -1
        if key >= 0:
            released = buffer.released.setdefault(key, set())
            if semantics != "release":
                self.past |= released
            if semantics != "acquire":
                released |= self.past
                released.add(self.number + 1)

    def spin_check(self, seen: Any) -> None:
        """Called at every atomic on one element, with what it found there: the same again and again is a spin."""
        self.spins = self.spins + 1 if seen == self.last_seen else 0
        self.last_seen = seen
        if self.spins >= SPINS:
            raise fault_at(
                "deadlock",
                f"the program reads the same value from {seen[0]} {SPINS} times: it waits for another program, and "
                "programs run one after the other here, in the order of their numbers",
            )

    def id_of(self, number: int) -> tuple[int, int, int]:
        x, y, _ = self.grid
        return (number % x, number // x % y, number // (x * y))

    # Partitions.

    def specialise(self, functions: Any, warps: Any, worker_name: Callable[[Any], str]) -> Any:
        """``warp_specialize``: run all functions at the same time; the first one's result is returned."""
        if self.specialised:
            raise fault_at("type-error", "warp_specialize inside a warp_specialize is not supported")
        if len(functions) != len(warps) + 1:
            raise fault_at(
                "type-error", f"{len(functions) - 1} worker partitions but {len(warps)} warp counts were given"
            )
        main = MACHINE.active
        if MACHINE.observer is not None:
            handed = _captured([value for _, args in functions[1:] for value in args], self.known)
            emit("warp_specialize", count=-(-sum(map(int, warps)) // 4) * 4, bytes=handed)
        self.specialised = self.was_specialised = True
        names = [worker_name(f) for f, _ in functions]
        clock, fenced = main.release()
        main.name = names[0]
        workers = []
        for i, ((function, args), count) in enumerate(zip(functions[1:], warps, strict=True), 1):
            name = names[i] if names.count(names[i]) == 1 else f"{names[i]}[{names[:i].count(names[i])}]"
            worker = Partition(self, name, int(count))
            worker.acquire(clock, fenced)
            worker.grids_waited = main.grids_waited
            self.start(worker, function, tuple(args), {})
            workers.append(worker)
        self.partitions.extend(workers)
        self.everyone.extend(workers)
        function, args = functions[0]
        try:
            result = function(*args)
            unfinished = [w for w in workers if not w.finished]
            if unfinished:
                self.wait_until(
                    Waiting(
                        lambda: all(w.finished for w in workers),
                        lambda: "partitions " + ", ".join(w.name for w in workers if not w.finished) + " to finish",
                    )
                )
        finally:
            main.name = "default"
        for worker in workers:
            self.partitions.remove(worker)
            main.acquire(worker.clock, worker.fenced)
            main.grids_waited |= worker.grids_waited
        self.specialised = False
        return result
