"""The machine that is running now: one program of a launch, one of its partitions, and who watches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .events import Event, Observer
from .faults import SOURCES, fault_at

if TYPE_CHECKING:
    from .program import Partition, Program

__all__ = ["MACHINE", "Machine", "emit"]


class Machine:
    """What is running. The simulator is single-threaded; several processes have one each.

    Attributes:
        observer: who watches.
        removed: synchronising operations that are left out, as (file, line, event kind).
        physical: no order is checked; memory gives what the hardware might give (poison, old data), so that a kernel
            with a mistake computes something wrong instead of being stopped.
    """

    __slots__ = ("observer", "partition", "physical", "program", "removed")

    def __init__(self) -> None:
        self.observer: Observer | None = None
        # For experiments (removal.py): operations left out, and memory without the checks that forbid misuse.
        self.removed: frozenset[tuple[str, int, str]] = frozenset()
        self.physical = False
        self.program: Program | None = None
        self.partition: Partition | None = None

    @property
    def running(self) -> Program:
        """The program that is running.

        Raises:
            SimulationFault: none is (an operation was called from outside a kernel).
        """
        if self.program is None:
            raise fault_at("kernel-error", "a simulated operation was called outside a simulated kernel")
        return self.program

    @property
    def active(self) -> Partition:
        """The partition that is running."""
        if self.partition is None:
            raise fault_at("kernel-error", "a simulated operation was called outside a simulated kernel")
        return self.partition


MACHINE = Machine()


def emit(kind: Any, **details: Any) -> None:
    """Tell the observer. Callers test ``MACHINE.observer`` first, so that without one nothing is computed."""
    observer, program, partition = MACHINE.observer, MACHINE.program, MACHINE.partition
    site = SOURCES.here()
    if observer is None or program is None or partition is None or site is None:
        return
    observer.event(
        Event(kind, site, program.id, partition.name if program.specialised else "", partition.num_warps, **details)
    )
