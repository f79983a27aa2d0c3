"""Order in time: who surely happened before whom, by vector clocks.

Every partition has a clock, and so has every asynchronous queue (a partition's cp.async copies, its wgmmas, its TMA
stores; the TMA loads of an mbarrier). A clock maps a *component* (one of those) to how much of it surely lies in the
past. Arriving at an mbarrier releases a clock to it, waiting acquires it. Each access to shared memory is checked
against all earlier ones that touch the same elements: unless it surely comes after them, somebody may read too early
or overwrite what is still being read. A second clock of the same kind says which generic-proxy writes have been
fenced for the asynchronous proxy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .events import Site
from .faults import SimulationFault, short

__all__ = ["Access", "Clock", "Footprint", "History", "Touched"]

Clock = dict[int, int]


def join(clock: Clock, other: Clock) -> None:
    """Everything in ``other``'s past is now in ``clock``'s."""
    for component, time in other.items():
        if time > clock.get(component, 0):
            clock[component] = time


@dataclass(frozen=True)
class Access:
    """One access to shared memory: who, when, what, where in the source."""

    component: int
    time: int
    write: bool
    asynchronous: bool  # through the async proxy (TMA, wgmma)
    what: str  # "cp.async", "TMA load", "wgmma", "TMA store", "store", "load"
    partition: str
    site: Site | None

    def described(self) -> str:
        who = f" of partition {self.partition}" if self.partition else ""
        where = f" at {short(self.site)}" if self.site else ""
        return f"the {self.what}{who}{where}"


class Touched:
    """A set of elements of an allocation: flat indices, sorted, each once. Of no program: views of all share it.

    Attributes:
        key: equal sets have equal keys.
        low, high: the first and the last element.
    """

    __slots__ = ("elements", "high", "key", "low")

    def __init__(self, index: np.ndarray) -> None:
        self.elements = np.unique(index)
        self.low, self.high = int(self.elements[0]), int(self.elements[-1])
        self.key = (self.low, self.high, self.elements.size, hash(self.elements.tobytes()))

    def common(self, other: Touched) -> int:
        """Elements in both."""
        if other.high < self.low or self.high < other.low:
            return 0
        pair = (self.key, other.key)
        known = _common.get(pair)
        if known is None:
            if len(_common) > MANY_PAIRS:
                _common.clear()
            known = np.intersect1d(other.elements, self.elements, assume_unique=True).size
            _common[pair] = _common[other.key, self.key] = known
        return known


MANY_PAIRS = 1 << 16
_common: dict[Any, int] = {}
"""Elements in common, by the keys of two sets: every program of a launch asks the same again."""


@dataclass(eq=False)
class Footprint:
    """A set of elements of one allocation that some access touched, and the last accesses that touched just it."""

    touched: Touched
    writes: dict[int, Access] = field(default_factory=dict)
    reads: dict[int, Access] = field(default_factory=dict)
    overlapping: list[Footprint] = field(default_factory=list)
    inside: list[Footprint] = field(default_factory=list)


class History:
    """Who touched what in one allocation (or in several that share their bytes)."""

    def __init__(self) -> None:
        self.footprints: dict[Any, Footprint] = {}

    def by_bytes(self, offsets: np.ndarray, size: int) -> None:
        """From elements to bytes: the allocation gets an alias with another element type."""
        old = list(self.footprints.values())
        self.footprints = {}
        for footprint in old:
            begins = offsets[footprint.touched.elements].reshape(-1, 1)
            footprint.touched = Touched((begins + np.arange(size)).ravel())
            self.footprints[footprint.touched.key] = footprint

    def footprint(self, touched: Touched) -> Footprint:
        """The footprint of these elements; new ones learn whom they overlap."""
        found = self.footprints.get(touched.key)
        if found is not None:
            return found
        new = Footprint(touched)
        new.overlapping.append(new)
        for other in self.footprints.values():
            common = touched.common(other.touched)
            if common:
                other.overlapping.append(new)
                new.overlapping.append(other)
                if common == other.touched.elements.size:
                    new.inside.append(other)
                if common == touched.elements.size:
                    other.inside.append(new)
        self.footprints[touched.key] = new
        return new

    def record(self, where: Footprint, access: Access, clock: Clock, fenced: Clock, buffer: Callable[[], str]) -> None:
        """Check an access against all before it, then remember it.

        ``clock`` and ``fenced`` are those of the partition that performs or issues it.

        Raises:
            SimulationFault: it may run before something that it must follow.
        """
        for other in where.overlapping:
            for earlier in other.writes.values():
                if clock.get(earlier.component, 0) < earlier.time:
                    raise _unordered(access, earlier, buffer)
                unfenced = access.asynchronous and not access.write and not earlier.asynchronous
                if unfenced and fenced.get(earlier.component, 0) < earlier.time:
                    raise SimulationFault(
                        "missing-proxy-fence",
                        f"{access.described()} reads {buffer()} through the asynchronous proxy, and no "
                        f"fence_async_shared() follows {earlier.described()} that wrote it: add one in between",
                        access.site,
                    )
            if access.write:
                for earlier in other.reads.values():
                    if clock.get(earlier.component, 0) < earlier.time:
                        raise _unordered(access, earlier, buffer)
        if access.write:
            # All before is ordered before this: whoever is ordered after this is ordered after all of it.
            for other in where.inside:
                other.writes.clear()
                other.reads.clear()
            where.reads.clear()
            where.writes.clear()
            where.writes[access.component] = access
        else:
            where.reads[access.component] = access


def _unordered(access: Access, earlier: Access, buffer: Callable[[], str]) -> SimulationFault:
    if access.write:
        verb = "written by" if earlier.write else "read by"
        return SimulationFault(
            "overwrite-in-flight",
            f"{access.described()} overwrites {buffer()} while it may still be {verb} {earlier.described()}: "
            f"wait for it first{_remedy(earlier)}",
            access.site,
        )
    return SimulationFault(
        "read-before-arrival",
        f"{access.described()} reads {buffer()} before the data of {earlier.described()} has surely arrived"
        f"{_remedy(earlier)}",
        access.site,
    )


def _remedy(earlier: Access) -> str:
    return {
        "cp.async": " (async_copy wait_group, after a commit_group)",
        "TMA load": " (mbarrier.wait on the barrier that it signals, with the right phase)",
        "wgmma": " (warpgroup_mma_wait)",
        "TMA store": " (tma store_wait)",
    }.get(earlier.what, " (an mbarrier between the two partitions)")
