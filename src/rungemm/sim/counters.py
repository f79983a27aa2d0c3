"""The observer that counts what a profiler would: requests, sectors, wavefronts, conflicts, multiply-adds, bytes.

An operation is analysed once for each distinct pattern and only tallied after that. Shared loads are held back until
the next store or barrier, since the compiler merges neighbouring ones (:func:`.lowering.merge_neighbours`).
``COUNTERS`` in :mod:`.counter_names` says what each counter means and which metric of Nsight Compute it equals.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from .costs import (
    Conflict,
    convert_cost,
    fma_cost,
    global_cost,
    hand_over_cost,
    instruction_cost,
    mma_cost,
    shared_access,
)
from .counter_names import COUNTERS
from .events import Event
from .lowering import merge_neighbours
from .tally import Counts, Operation, SiteKey, Stretch, merged_loads
from .traffic import LINE, SECTOR

__all__ = ["Counters", "SiteKey"]

_BITS = {
    "fp32": 32, "float32": 32, "tf32": 32, "fp16": 16, "float16": 16, "bf16": 16, "bfloat16": 16,
    "fp8e4nv": 8, "fp8e5": 8, "float8_e4m3fn": 8, "float8_e5m2": 8, "int8": 8, "i8": 8, "uint8": 8,
}  # fmt: skip

RECENT = 8
"""Address patterns kept for each place and alignment; older ones are analysed again if they come back."""

QUICK, SMALL = 128, 4096
"""Address patterns known by the identity of their arrays, and the elements of the largest array kept for that."""

MANY_WINDOWS = 20000
"""Distinct runs of shared loads held before their counts are added up, which bounds memory."""


class Counters:
    """Counts a run. Implements :class:`.events.Observer`.

    Attributes:
        arch: architecture whose instructions are counted (90 is sm_90): stmatrix needs 90.
        conflicts: the worst bank conflict of each place that has one.
    """

    def __init__(self, arch: int = 90) -> None:
        self.arch = arch
        self.conflicts: dict[SiteKey, Conflict] = {}
        self._lines: dict[SiteKey, Counts] = {}
        self._known: dict[Any, Operation] = {}
        self._quick: dict[Any, tuple[Operation, Any]] = {}
        self._patterns: dict[Any, list[tuple[Any, Any, Any, Operation]]] = {}
        self._windows: dict[tuple[Operation, ...], int] = {}
        self._partitions: dict[str, Stretch] = {}
        self._program: Any = None
        self._specialised = False

    # The observer's side.

    def launch(self, name: str, grid: tuple[int, int, int], num_warps: int) -> None:
        """A launch begins; nothing of the one before can merge with it."""
        self._end_program()

    def event(self, event: Event) -> None:
        """Tally one operation."""
        if event.kind == "grid_wait":  # not among the counters, and no end to what is being merged
            return
        if event.program != self._program:
            self._end_program()
            self._program = event.program
        state = self._state(event.partition)
        if state.owed is not None:
            self._pay(state, event.kind == "barrier")
        _HANDLERS[event.kind](self, event)

    def spawn(self) -> Counters:
        """A fresh one for another process."""
        return Counters(self.arch)

    def merge(self, other: Any) -> None:
        """Add another's counts.

        Raises:
            TypeError: it is not a :class:`Counters`.
        """
        if not isinstance(other, Counters):
            raise TypeError(f"Counters can add Counters, not {type(other).__name__}")
        self._settle()
        other._settle()
        for site, counts in other._lines.items():
            self._lines.setdefault(site, Counter()).update(counts)
        for site, conflict in other.conflicts.items():
            self._note(site, conflict)

    def __getstate__(self) -> dict[str, Any]:
        self._settle()
        return {"arch": self.arch, "conflicts": self.conflicts, "_lines": self._lines}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["arch"])  # type: ignore[misc]
        self.conflicts = state["conflicts"]
        self._lines = state["_lines"]

    # Results.

    def totals(self) -> dict[str, int]:
        """Every counter of :data:`.counter_names.COUNTERS`, over the whole run."""
        return _named(self._sum())

    def per_line(self) -> dict[SiteKey, dict[str, int]]:
        """The counters that are not zero, for each place."""
        self._settle()
        return {
            site: {name: counts[name] for name in COUNTERS if counts[name]}
            for site, counts in sorted(self._lines.items())
            if any(counts[name] for name in COUNTERS)
        }

    def instructions(self) -> dict[SiteKey, dict[str, int]]:
        """Warp instructions by mnemonic ("LDS.128", "LDSM.4", "FFMA", "mma.m16n8k16.bf16") for each place."""
        self._settle()
        found = {
            site: {name: n for name, n in sorted(counts.items()) if name not in COUNTERS and n}
            for site, counts in sorted(self._lines.items())
        }
        return {site: names for site, names in found.items() if names}

    def instruction_totals(self) -> dict[str, int]:
        """Warp instructions by mnemonic over the whole run."""
        return {name: n for name, n in sorted(self._sum().items()) if name not in COUNTERS and n}

    def _sum(self) -> Counts:
        self._settle()
        total: Counts = Counter()
        for counts in self._lines.values():
            total.update(counts)
        return total

    # Tallying.

    def _operation(self, key: Any, event: Event, cost: Any) -> Operation:
        """The operation of this key, analysed if it is new."""
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = Operation(event.site.key, cost(event))
        return known

    def _plain(self, event: Event, cost: Any) -> None:
        self._operation((event.kind, event.site.key, event.num_warps, event.key), event, cost).runs += 1

    def _fma(self, event: Event) -> None:
        self._plain(event, fma_cost)

    def _mma(self, event: Event) -> None:
        bits = _BITS.get(event.operands[0], 16) if event.operands else 8 * (event.element_bytes or 2)
        self._plain(event, lambda e: mma_cost(e, bits))

    def _convert(self, event: Event) -> None:
        self._flush(event.partition)
        self._plain(event, lambda e: convert_cost(e, self.arch))

    def _once(self, event: Event, **counts: int) -> None:
        self._lines.setdefault(event.site.key, Counter()).update(counts)

    def _global(self, event: Event) -> None:
        self._by_pattern(event).runs += 1

    def _by_pattern(self, event: Event) -> Operation:
        """Analyse a global access once for each distinct relative pattern and alignment to a sector (or line).

        The same pattern array again is known at once; the same pattern in another array, by comparing.
        """
        if event.pattern is None or event.pattern.size > SMALL:
            return self._by_addresses(event)
        held = (event.pattern, event.site, event.layout, event.alignment, event.mask, event.mask_alignment)
        key = (
            event.kind, event.origin % (LINE if event.kind == "async_copy" else SECTOR), event.num_warps,
            event.element_bytes, event.shared.key if event.shared is not None else None, *map(id, held),
        )  # fmt: skip
        known = self._quick.get(key)
        if known is not None:
            return known[0]
        operation = self._by_addresses(event)
        if len(self._quick) >= QUICK:
            self._quick.clear()
        self._quick[key] = (operation, held)
        return operation

    def _by_addresses(self, event: Event) -> Operation:
        assert event.global_bytes is not None
        addresses = event.global_bytes()
        origin = int(addresses.flat[0])
        relative = addresses - origin
        phase = origin % (LINE if event.kind == "async_copy" else SECTOR)
        # By identity where hashing is slow; what the identities stand for is kept alive in the entries' first field.
        by_identity = (event.layout, event.alignment, event.mask_alignment)
        key = (
            event.kind, event.site.key, phase, event.shape, event.num_warps, event.element_bytes,
            event.shared.key if event.shared is not None else None, *map(id, by_identity),
        )  # fmt: skip
        recent = self._patterns.setdefault(key, [])
        for _, pattern, mask, operation in recent:
            if (pattern == relative).all() and _same_mask(mask, event.mask):
                return operation
        operation = Operation(event.site.key, global_cost(event))
        if len(recent) >= RECENT:
            self._add(recent.pop(0)[3])
            self._quick.clear()  # it may lead there
        recent.append((by_identity, relative, None if event.mask is None else event.mask.copy(), operation))
        return operation

    def _async_copy(self, event: Event) -> None:
        operation = self._by_pattern(event)
        operation.runs += 1
        state = self._state(event.partition)
        self._hazard(state, operation, event, writes=True)

    def _tma(self, event: Event) -> None:
        inside = event.bytes
        if event.mask is not None and event.mask.size:
            inside = int(event.mask.sum()) * (event.element_bytes or event.bytes // event.mask.size)
        if event.kind == "tma_load":
            self._once(event, tma_load_bytes=event.bytes, l2_read_bytes=inside)
        else:
            self._once(event, tma_store_bytes=inside, l2_write_bytes=inside)

    def _shared(self, event: Event) -> None:
        assert event.shared is not None
        key = (event.kind, event.site.key, event.num_warps, event.key, event.shared.allocation)
        operation = self._known.get(key)
        if operation is None:
            operation = self._known[key] = self._new_shared(event)
        operation.runs += 1
        state = self._state(event.partition)
        load = event.kind == "shared_load"
        self._hazard(state, operation, event, writes=not load)
        if load:
            if operation in state.window:
                self._flush_window(state)  # the same code again: another turn of a loop
            state.window.append(operation)
        else:
            self._flush_window(state)

    def _new_shared(self, event: Event) -> Operation:
        assert event.shared is not None
        access = shared_access(event, self.arch)
        load = event.kind == "shared_load"
        site = event.site.key
        side = "load" if load else "store"
        lanes = access.offsets.shape[1] * 32 * access.count
        per_lane = access.width if access.kind in ("lds", "sts") else 4 * access.width
        counts: Counts = Counter()
        counts[f"shared_{side}_bytes"] = lanes * per_lane
        counts[f"shared_{side}_elements"] = lanes * per_lane // event.element_bytes
        if not load:
            merged = [access] if access.kind == "stsm" else [part for _, part in merge_neighbours([(None, access)])]
            for part in merged:
                cost, conflict = instruction_cost(part)
                counts.update(cost)
                self._note(site, conflict)
        operation = Operation(site, counts)
        operation.access = access if load else None
        operation.allocation = event.shared.allocation
        return operation

    # Barriers and straight stretches.

    def _state(self, partition: str) -> Stretch:
        state = self._partitions.get(partition)
        if state is None:
            state = self._partitions[partition] = Stretch()
        return state

    def _hazard(self, state: Stretch, operation: Operation, event: Event, *, writes: bool) -> None:
        """Triton's rule for inserting barriers: one allocation, written and not yet separated from its other use."""
        assert event.shared is not None
        allocation = event.shared.allocation
        if allocation in state.written or (writes and allocation in state.read):
            operation.barrier = True
            self._separate(state)
        (state.written if writes else state.read).add(allocation)

    def _separate(self, state: Stretch) -> None:
        """A barrier stands here: accesses before it are done."""
        self._flush_window(state)
        state.read.clear()
        state.written.clear()

    def _barrier(self, event: Event) -> None:
        self._separate(self._state(event.partition))
        self._once(event, barriers=1)

    def _async_wait(self, event: Event) -> None:
        # Triton puts a CTA barrier behind a wait for cp.async or for TMA stores, unless the kernel has one there.
        state = self._state(event.partition)
        self._separate(state)
        state.owed = event.site.key
        self._once(event, waits=1)

    def _pay(self, state: Stretch, stands: bool) -> None:
        """Count the barrier behind a wait, unless the kernel's own ``stands`` there."""
        if state.owed is not None and not stands:
            self._lines.setdefault(state.owed, Counter())["barriers"] += 1
        state.owed = None

    def _wait(self, event: Event) -> None:
        self._flush(event.partition)
        self._once(event, waits=1)

    def _arrive(self, event: Event) -> None:
        self._flush(event.partition)
        self._once(event, mbarrier_arrivals=event.count or 1)

    def _fence(self, event: Event) -> None:
        self._flush(event.partition)
        self._once(event, fences=1)

    def _warp_specialize(self, event: Event) -> None:
        self._flush(event.partition)
        # The workers are told to end once, when the program does.
        self._lines.setdefault(event.site.key, Counter()).update(hand_over_cost(event, 1 if self._specialised else 2))
        self._specialised = True

    def _nothing(self, event: Event) -> None:
        """Costs nothing that is counted."""

    def _flush(self, partition: str) -> None:
        state = self._partitions.get(partition)
        if state is not None:
            self._flush_window(state)

    def _flush_window(self, state: Stretch) -> None:
        if state.window:
            key = tuple(state.window)
            self._windows[key] = self._windows.get(key, 0) + 1
            state.window.clear()
            if len(self._windows) > MANY_WINDOWS:
                self._add_windows()

    def _end_program(self) -> None:
        for state in self._partitions.values():
            self._pay(state, False)
            self._separate(state)
        self._program = None
        self._specialised = False

    # Adding up.

    def _settle(self) -> None:
        """Move everything tallied so far into the per-line counts."""
        self._end_program()
        self._add_windows()
        for operation in self._known.values():
            self._add(operation)
        for recent in self._patterns.values():
            for *_, operation in recent:
                self._add(operation)

    def _add(self, operation: Operation) -> None:
        if operation.runs:
            counts = self._lines.setdefault(operation.site, Counter())
            for name, n in operation.counts.items():
                counts[name] += n * operation.runs
            if operation.barrier:
                counts["barriers"] += operation.runs
            operation.runs = 0

    def _add_windows(self) -> None:
        for window, times in self._windows.items():
            for site, part in merged_loads(window):
                cost, conflict = instruction_cost(part)
                counts = self._lines.setdefault(site, Counter())
                for name, n in cost.items():
                    counts[name] += n * times
                self._note(site, conflict)
        self._windows.clear()

    def _note(self, site: SiteKey, conflict: Conflict | None) -> None:
        if conflict is not None and (site not in self.conflicts or self.conflicts[site].degree < conflict.degree):
            self.conflicts[site] = conflict


def _same_mask(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    return bool(np.array_equal(one, other))


def _named(counts: Mapping[str, int]) -> dict[str, int]:
    return {name: int(counts.get(name, 0)) for name in COUNTERS}


_HANDLERS: dict[str, Any] = {
    "global_load": Counters._global,
    "global_store": Counters._global,
    "atomic": Counters._global,
    "shared_load": Counters._shared,
    "shared_store": Counters._shared,
    "async_copy": Counters._async_copy,
    "tma_load": Counters._tma,
    "tma_store": Counters._tma,
    "fma": Counters._fma,
    "mma": Counters._mma,
    "wgmma": Counters._mma,
    "warp_specialize": Counters._warp_specialize,
    "convert_layout": Counters._convert,
    "barrier": Counters._barrier,
    "fence": Counters._fence,
    "mbarrier_init": Counters._nothing,
    "mbarrier_expect": Counters._arrive,
    "mbarrier_arrive": Counters._arrive,
    "mbarrier_wait": Counters._wait,
    "async_commit": Counters._nothing,
    "async_wait": Counters._async_wait,
    "tma_store_wait": Counters._async_wait,
    "wgmma_wait": Counters._wait,
}
