"""The mbarrier: arrivals, expected bytes, phases, and the clocks that travel through it.

State as in the PTX ISA: a phase completes when no arrival is pending and the bytes received equal the bytes expected;
the next phase starts with the same count. Waiting for parity P succeeds while the phase in progress has the other
parity, so waiting for parity 1 on a new barrier passes at once.
"""

from __future__ import annotations

from .context import MACHINE
from .events import Site
from .faults import SOURCES, SimulationFault, fault_at, short
from .order import Clock, join

__all__ = ["Barrier"]


class Waiter:
    """A wait in progress: what it waits for, and once it may pass, the clocks that it acquires."""

    __slots__ = ("clock", "fences", "parity", "passed", "site", "who")

    def __init__(self, parity: int, who: str, site: Site | None) -> None:
        self.parity = parity
        self.who = who
        self.site = site
        self.passed = False
        self.clock: Clock = {}
        self.fences: Clock = {}


class Barrier:
    """One mbarrier in shared memory."""

    def __init__(self, name: str, component: int) -> None:
        self.name = name
        self.component = component
        self.time = 0  # of the last TMA load that signals this barrier
        self.loads: set[int] = set()  # times of those in flight
        self.count = 0
        self.pending = 0
        self.bytes = 0  # expected and not yet received; negative when data came before the expectation
        self.phase = 0  # number of the phase in progress
        self.ready = False
        self.waiters: list[Waiter] = []
        self.gathered: Clock = {}
        self.gathered_fences: Clock = {}
        self.released: Clock = {}
        self.released_fences: Clock = {}
        self.init_clock: Clock = {}
        self.init_site: Site | None = None
        self.expect_site: Site | None = None

    def init(self, count: int, clock: Clock) -> None:
        if self.ready:
            where = f" (first at {short(self.init_site)})" if self.init_site else ""
            raise fault_at("barrier-misuse", f"{self.name} is initialised twice{where}: invalidate it in between")
        if count < 1:
            raise fault_at("barrier-misuse", f"{self.name} is initialised with a count of {count}: at least 1")
        self.count = self.pending = count
        self.phase = self.bytes = 0
        self.ready = True
        self.init_site = SOURCES.here()
        self.init_clock = dict(clock)
        self.gathered, self.gathered_fences = {}, {}
        self.released, self.released_fences = dict(clock), {}

    def invalidate(self) -> None:
        self.require("invalidated")
        if self.pending != self.count or self.bytes:
            raise fault_at("barrier-misuse", f"{self.name} is invalidated in the middle of a phase: {self.state()}")
        self.ready = False

    def require(self, verb: str) -> None:
        if not self.ready:
            raise fault_at("barrier-misuse", f"{self.name} is {verb} before mbarrier.init")

    def arrive(self, count: int, clock: Clock, fenced: Clock, site: Site | None = None) -> None:
        """``count`` arrivals that release a clock."""
        if count > self.pending:
            raise SimulationFault(
                "over-arrival",
                f"{count} arrival(s) at {self.name}, which has {self.pending} of {self.count} pending in phase "
                f"{self.phase}: the count given to mbarrier.init is too small, or somebody arrives twice",
                site or SOURCES.here(),
            )
        self.pending -= count
        join(self.gathered, clock)
        join(self.gathered_fences, fenced)
        self.advance()

    def expect(self, amount: int) -> None:
        """More bytes to receive in this phase."""
        self.bytes += amount
        self.expect_site = SOURCES.here()

    def issue_load(self) -> int:
        """The time, in this barrier's own component, of a TMA load that will signal it."""
        self.time += 1
        self.loads.add(self.time)
        return self.time

    def receive_load(self, amount: int, time: int, site: Site | None) -> None:
        """The bytes of the load of that time arrived. Known to be complete: all loads before the oldest in flight."""
        self.require("signalled by a TMA load")
        self.loads.discard(time)
        self.bytes -= amount
        join(self.gathered, {self.component: min(self.loads, default=self.time + 1) - 1})
        if self.bytes < 0 and self.pending == 0:
            where = f" at {short(self.expect_site)}" if self.expect_site else ""
            raise SimulationFault(
                "wrong-bytes",
                f"{self.name} received {-self.bytes} bytes more than were expected{where}, and no arrival is pending "
                f"in phase {self.phase} that could expect them: correct mbarrier.expect",
                site,
            )
        self.advance()

    def advance(self) -> None:
        """Complete the phase if nothing is missing, and let those pass who wait for it."""
        if self.pending or self.bytes:
            return
        self.released, self.released_fences = self.gathered, self.gathered_fences
        self.gathered, self.gathered_fences = dict(self.released), dict(self.released_fences)
        self.phase += 1
        self.pending = self.count
        for waiter in self.waiters:
            if not waiter.passed:
                if self.passes(waiter.parity):
                    waiter.passed, waiter.clock, waiter.fences = True, self.released, self.released_fences
                continue
            if MACHINE.physical:
                continue
            where = f" at {short(waiter.site)}" if waiter.site else ""
            who = f" by partition {waiter.who}" if waiter.who else ""
            raise fault_at(
                "wrong-phase",
                f"phase {self.phase - 1} of {self.name} completes while the wait{who}{where} for phase "
                f"{self.phase - 2} may not have noticed it yet, and would miss it: nothing makes this arrival wait",
            )

    def wait(self, parity: int, who: str) -> Waiter:
        """Somebody waits for a parity. The waiter must be taken off :attr:`waiters` when it goes on."""
        waiter = Waiter(parity, who, SOURCES.here())
        if self.passes(parity):
            waiter.passed, waiter.clock, waiter.fences = True, self.released, self.released_fences
        else:
            self.waiters.append(waiter)
        return waiter

    def passes(self, parity: int) -> bool:
        """Whether a wait for that parity succeeds now."""
        return (self.phase & 1) != (parity & 1)

    def state(self) -> str:
        """For messages."""
        missing = f", {self.bytes} bytes still to come" if self.bytes else ""
        return (
            f"phase {self.phase} (parity {self.phase & 1}) in progress, {self.pending} of {self.count} arrivals "
            f"pending{missing}"
        )
