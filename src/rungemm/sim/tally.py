"""What the counting observer holds on to: operations with their costs, and the straight stretch a partition is in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from .lowering import SharedInstructions, merge_neighbours

__all__ = ["Counts", "Operation", "SiteKey", "Stretch", "merged_loads"]

SiteKey = tuple[str, int, str, int]
"""File and line of the innermost kernel code, and of the kernel that led there: :attr:`.events.Site.key`."""

Counts = Counter[str]


class Operation:
    """One pattern of one place: what it costs, how often it ran, and whether a barrier has to stand before it."""

    __slots__ = ("access", "allocation", "barrier", "counts", "runs", "site")

    def __init__(self, site: SiteKey, counts: Counts) -> None:
        self.site = site
        self.counts = counts
        self.runs = 0
        self.barrier = False
        self.access: SharedInstructions | None = None
        self.allocation = -1


class Stretch:
    """The straight stretch of code that a partition is in."""

    __slots__ = ("owed", "read", "window", "written")

    def __init__(self) -> None:
        self.owed: SiteKey | None = None  # a wait that Triton puts a barrier behind, unless one stands there
        self.window: list[Operation] = []
        self.read: set[int] = set()
        self.written: set[int] = set()


def merged_loads(window: Iterable[Operation]) -> Iterable[tuple[SiteKey, SharedInstructions]]:
    """The instructions of a straight stretch of shared loads, neighbours merged within each allocation."""
    by_allocation: dict[int, list[tuple[SiteKey, SharedInstructions]]] = {}
    for operation in window:
        access = operation.access
        if access is None:
            continue
        if access.kind == "ldsm":
            yield operation.site, access
        else:
            by_allocation.setdefault(operation.allocation, []).append((operation.site, access))
    for accesses in by_allocation.values():
        yield from merge_neighbours(accesses)
