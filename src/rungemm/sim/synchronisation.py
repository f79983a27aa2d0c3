"""mbarriers and the proxy fence, as kernels use them."""

from __future__ import annotations

from typing import Any

from .barriers import Barrier
from .context import MACHINE, emit
from .faults import fault_at, short
from .program import Waiting
from .shared import View

__all__ = [
    "barrier_of", "fence_async_shared", "mbarrier_arrive", "mbarrier_expect", "mbarrier_init", "mbarrier_invalidate",
    "mbarrier_wait", "shared_view",
]  # fmt: skip


def shared_view(value: Any, what: str) -> View:
    if not isinstance(value, View):
        raise fault_at("type-error", f"{what} takes shared memory, not a {type(value).__name__}")
    return value


def barrier_of(mbarrier: Any) -> Barrier:
    """The mbarrier that lies in a piece of shared memory."""
    view = shared_view(mbarrier, "an mbarrier operation")
    program = MACHINE.running
    whole = view.allocation
    at = whole.place(view.data)[0] // whole.element.bytes
    key = (whole.number, at)
    found = program.barriers.get(key)
    if found is None:
        if view.data.size != 1:
            raise fault_at("barrier-misuse", f"{whole.name} is used as one mbarrier: take one element with index()")
        where = f" [{at}]" if whole.data.size > 1 else ""
        site = f" (allocated at {short(whole.site)})" if whole.site else ""
        found = program.barriers[key] = Barrier(f"mbarrier{where}{site}", program.new_component())
    return found


def mbarrier_init(mbarrier: Any, count: Any) -> None:
    barrier_of(mbarrier).init(int(count), MACHINE.active.clock)
    MACHINE.active.release()
    if MACHINE.observer is not None:
        emit("mbarrier_init", count=int(count))


def mbarrier_invalidate(mbarrier: Any) -> None:
    barrier = barrier_of(mbarrier)
    barrier.require("invalidated")
    for flight in MACHINE.running.flights:
        if flight.barrier is barrier and not flight.done:
            raise fault_at("barrier-misuse", f"{barrier.name} is invalidated while {flight.describe()} will signal it")
    barrier.invalidate()


def mbarrier_expect(mbarrier: Any, bytes: Any, pred: Any = True) -> None:
    """Arrive once, and expect that many bytes more in this phase (``mbarrier.arrive.expect_tx``)."""
    if not pred:
        return
    partition = MACHINE.active
    barrier = barrier_of(mbarrier)
    barrier.require("told to expect bytes")
    if MACHINE.observer is not None:
        emit("mbarrier_expect", bytes=int(bytes))
    barrier.expect(int(bytes))
    barrier.arrive(1, *partition.release())
    MACHINE.running.point()


def mbarrier_arrive(mbarrier: Any, *, count: Any = 1, pred: Any = True) -> None:
    if not pred:
        return
    partition = MACHINE.active
    barrier = barrier_of(mbarrier)
    barrier.require("arrived at")
    if MACHINE.observer is not None:
        emit("mbarrier_arrive", count=int(count))
    barrier.arrive(int(count), *partition.release())
    MACHINE.running.point()


def mbarrier_wait(mbarrier: Any, phase: Any, pred: Any = True, deps: Any = ()) -> None:
    """Wait until the phase of that parity has completed."""
    if not pred:
        return
    partition = MACHINE.active
    barrier = barrier_of(mbarrier)
    barrier.require("waited for")
    parity = int(phase)
    if MACHINE.observer is not None:
        emit("mbarrier_wait")
    MACHINE.running.point()
    waiter = barrier.wait(parity, partition.label)
    if not waiter.passed:
        MACHINE.running.wait_until(
            Waiting(
                lambda: waiter.passed,
                lambda: f"{barrier.name} to complete the phase of parity {parity & 1}; it has {barrier.state()}",
                barrier,
            )
        )
        barrier.waiters.remove(waiter)
    partition.acquire(waiter.clock, waiter.fences)


def fence_async_shared(cluster: Any = False) -> None:
    """Generic-proxy writes so far become visible to TMA and wgmma."""
    MACHINE.active.fence()
    if MACHINE.physical:
        for allocation in MACHINE.running.allocations:
            allocation.fenced = allocation.data.copy()
    if MACHINE.observer is not None:
        emit("fence")
