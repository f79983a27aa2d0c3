"""Shared memory: allocations that start as poison, and views of them.

An allocation keeps its elements by their logical coordinates; where the layout puts them in memory matters only to
counters, and to views that reinterpret the bytes. A view is a NumPy view, so slicing and permuting cost nothing.
"""

from __future__ import annotations

import os.path
from functools import lru_cache
from typing import Any

import numpy as np

from ..compat import gl
from .context import MACHINE, emit
from .events import SharedRegion, Site
from .faults import SOURCES, fault_at
from .order import Access, Footprint, History, Touched
from .scalars import is_scalar
from .tile import Tile, canonical
from .types import FLOAT, ElementType, Shape

__all__ = ["Allocation", "View"]


# Small numbers for distinct views, so that observers' keys are cheap. Canonical layouts live for ever: ids stay valid.
_regions: dict[Any, int] = {}


class Allocation:
    """One ``allocate_shared_memory``.

    ``written`` marks the elements that hold something; ``complete`` is set when all do.
    """

    def __init__(
        self, number: int, element: ElementType, shape: tuple[int, ...], layout: Any, site: Site | None
    ) -> None:
        self.number = number
        self.element = element
        self.shape = shape
        self.layout = canonical(layout)
        self.site = site
        self.data = np.full(shape, _poison(element), element.numpy)
        self.fenced: np.ndarray | None = None  # what the asynchronous proxy sees, in a physical run
        self.written = np.zeros(shape, bool)
        self.complete = False
        self.history = History()
        self.alias: AliasGroup | None = None
        self._offsets: np.ndarray | None = None
        self._name: str | None = None

    @property
    def name(self) -> str:
        """How messages call it."""
        if self._name is None:
            where = f" allocated at {os.path.basename(self.site.file)}:{self.site.line}" if self.site else ""
            self._name = f"the shared {self.element}{list(self.shape)}{where}"
        return self._name

    def byte_offsets(self) -> np.ndarray:
        """Byte offset of every element in the allocation: int64[shape]."""
        if self._offsets is None:
            from ..layouts import shared_map

            self._offsets = shared_map(self.layout, self.shape, self.element.bytes).offset
        return self._offsets

    def flat_index(self, view: np.ndarray) -> np.ndarray:
        """Flat (row-major) element indices of a NumPy view of ``data``, in the view's shape."""
        return _flat_index(*self.place(view))

    def place(self, view: np.ndarray) -> tuple[int, tuple[int, ...], tuple[int, ...], int]:
        """Where a NumPy view of ``data`` lies in it: the first byte, extents, strides in bytes; and an element's."""
        start = view.__array_interface__["data"][0] - self.data.__array_interface__["data"][0]
        return start, view.shape, view.strides, self.element.bytes


@lru_cache(maxsize=64)
def _poison(element: ElementType) -> Any:
    return np.asarray(np.nan if element.kind == FLOAT else 0x5A).astype(element.numpy)[()]


def _flat_index(start: int, shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> np.ndarray:
    index = np.full(shape, start // size, np.int64)
    for axis, (n, s) in enumerate(zip(shape, strides, strict=True)):
        along = [1] * len(shape)
        along[axis] = n
        index += (np.arange(n, dtype=np.int64) * (s // size)).reshape(along)
    return index


@lru_cache(maxsize=256)
def _touched(start: int, shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> Touched:
    """The elements of a view: every program of a launch makes the same views of its allocations."""
    return Touched(_flat_index(start, shape, strides, size))


class AliasGroup:
    """Allocations that are one piece of memory seen with several types: whoever writes, the others see the bytes."""

    def __init__(self, first: Allocation) -> None:
        self.members = [first]
        self.latest = first
        self.raw = np.zeros(0, np.uint8)
        self.raw_written = np.zeros(0, bool)

    def add(self, other: Allocation) -> None:
        self.members.append(other)
        other.alias = self
        other.history = self.members[0].history

    def touch(self, member: Allocation, write: bool) -> None:
        """Before an access through ``member``: bring its elements up to date with the latest writer's bytes."""
        if member is not self.latest:
            source = self.latest
            offsets = _byte_index(source)
            need = max(int(offsets.max()) + 1, int(_byte_index(member).max()) + 1)
            if self.raw.size < need:
                self.raw = np.concatenate([self.raw, np.zeros(need - self.raw.size, np.uint8)])
                self.raw_written = np.concatenate([self.raw_written, np.zeros(need - self.raw_written.size, bool)])
            size = source.element.bytes
            self.raw[offsets] = np.ascontiguousarray(source.data).reshape(-1, 1).view(np.uint8).reshape(-1, size)
            self.raw_written[offsets] = source.written.reshape(-1, 1)
            mine = _byte_index(member)
            values = np.ascontiguousarray(self.raw[mine]).view(member.element.numpy)
            member.data[...] = values.reshape(member.shape)
            member.written[...] = self.raw_written[mine].all(axis=1).reshape(member.shape)
            member.complete = bool(member.written.all())
            # Reading leaves both valid; the first write through this member makes it the only one.
        if write:
            self.latest = member


def _byte_index(allocation: Allocation) -> np.ndarray:
    """Bytes of every element: int64[elements, bytes of one]."""
    return allocation.byte_offsets().reshape(-1, 1) + np.arange(allocation.element.bytes)


class View:
    """A shared-memory descriptor: what kernels hold."""

    __slots__ = ("_region", "_views", "allocation", "data", "footprint", "layout", "path", "shape", "written")

    def __init__(self, allocation: Allocation, data: np.ndarray, written: np.ndarray, layout: Any) -> None:
        self.allocation = allocation
        self.data = data
        self.written = written
        self.layout = layout
        self.shape = Shape(data.shape)
        self.footprint: Footprint | None = None
        self._views: dict[Any, View] = {}
        self._region: SharedRegion | None = None

    # What kernels read of a descriptor.
    @property
    def element(self) -> ElementType:
        return self.allocation.element

    @property
    def dtype(self) -> Any:
        return self.allocation.element.gluon

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def numel(self) -> int:
        return self.data.size

    @property
    def type(self) -> Any:
        return gl.shared_memory_descriptor_type(self.dtype, list(self.shape), self.layout, list(self.allocation.shape))

    def _derived(self, key: Any, data: np.ndarray, written: np.ndarray, layout: Any) -> View:
        view = View(self.allocation, data, written, layout)
        self._views[key] = view
        return view

    def index(self, index: Any) -> View:
        """One entry along the first dimension."""
        at = int(index)
        found = self._views.get(at)
        if found is None:
            if not self.shape or not 0 <= at < self.shape[0]:
                raise fault_at(
                    "out-of-bounds", f"index {at} into {self.named()}, whose first dimension is {list(self.shape)[:1]}"
                )
            rank = shared_rank(self.layout)
            if rank is not None and rank > len(self.shape) - 1:
                raise fault_at(
                    "layout-mismatch",
                    f"index() into {self.named()} leaves {len(self.shape) - 1} dimensions, and its layout "
                    f"{self.layout} has {rank}: allocate a ring of buffers with the layout of one buffer",
                )
            found = self._derived(at, self.data[at], self.written[at], self.layout)
        return found

    def slice(self, start: Any, length: Any, dim: Any = 0) -> View:
        """``length`` entries from ``start`` along ``dim``: compile-time numbers."""
        key = ("slice", start, length, dim)
        found = self._views.get(key)
        if found is None:
            if is_scalar(start) or is_scalar(length) or is_scalar(dim):
                raise fault_at("type-error", "slice() takes compile-time numbers: use gl.static_range, or index()")
            if start < 0 or length < 1 or start + length > self.shape[dim]:
                raise fault_at(
                    "out-of-bounds",
                    f"slice {start}..{start + length} of dimension {dim}, {self.shape[dim]} long, of {self.named()}",
                )
            box = [slice(None)] * len(self.shape)
            box[dim] = slice(start, start + length)
            found = self._derived(key, self.data[tuple(box)], self.written[tuple(box)], self.layout)
        return found

    def permute(self, order: Any) -> View:
        """Dimensions reordered."""
        order = tuple(int(o) for o in order)
        key = ("permute", order)
        found = self._views.get(key)
        if found is None:
            layout = permuted_layout(self.layout, order)
            found = self._derived(key, self.data.transpose(order), self.written.transpose(order), layout)
        return found

    trans = permute

    def reshape(self, shape: Any) -> View:
        """Another shape over the same elements, in row-major order."""
        shape = tuple(int(s) for s in shape)
        key = ("reshape", shape)
        found = self._views.get(key)
        if found is None:
            if int(np.prod(shape)) != self.data.size:
                raise fault_at("type-error", f"{self.named()} cannot become {list(shape)}: the sizes differ")
            data = self.data.reshape(shape)
            if not np.shares_memory(data, self.allocation.data):
                raise fault_at("not-simulated", f"this reshape of a permuted or sliced {self.named()} is not simulated")
            found = self._derived(key, data, self.written.reshape(shape), self.layout)
        return found

    def reinterpret(self, dtype: Any, shape: Any, layout: Any) -> View:
        """The same bytes as another type, shape and layout."""
        shape = tuple(int(s) for s in shape)
        key = ("reinterpret", dtype.name, shape, canonical(layout))
        found = self._views.get(key)
        if found is None:
            found = MACHINE.running.reinterpreted(self, dtype, shape, layout)
            self._views[key] = found
        return found

    _reinterpret = reinterpret

    def _keep_alive(self) -> None:
        return None

    def named(self) -> str:
        """How messages call it: the allocation, and which part (the stage, for a ring of buffers)."""
        whole = self.allocation
        if self.data.size == whole.data.size:
            return whole.name
        size = whole.element.bytes
        start = (self.data.__array_interface__["data"][0] - whole.data.__array_interface__["data"][0]) // size
        at = [int(i) for i in np.unravel_index(start, whole.shape)]
        if len(whole.shape) > 2 or self.data.size == int(np.prod(whole.shape[1:])):
            return f"stage {at[0]} of {whole.name}"
        return f"the part at {at} of {whole.name}"

    @property
    def region(self) -> SharedRegion:
        if self._region is None:
            whole = self.allocation
            base = whole.data.__array_interface__["data"][0]
            at = self.data.__array_interface__["data"][0] - base
            what = (id(whole.layout), whole.shape, whole.element.name, at, self.data.shape, self.data.strides)
            key = _regions.setdefault(what, len(_regions))
            self._region = SharedRegion(
                whole.number, whole.name, whole.layout, whole.shape, whole.element.bytes, self.layout, self.shape, key
            )
        return self._region

    def byte_offsets(self) -> np.ndarray:
        """Byte offsets in the allocation, int64 in the view's shape: for events."""
        whole = self.allocation
        return whole.byte_offsets().ravel()[whole.flat_index(self.data)]

    def mark(self) -> Footprint:
        """The footprint of this view in its allocation's history."""
        if self.footprint is None:
            whole = self.allocation
            if whole.alias is None:
                touched = _touched(*whole.place(self.data))
            else:
                begins = whole.byte_offsets().ravel()[whole.flat_index(self.data)]
                touched = Touched((begins.reshape(-1, 1) + np.arange(whole.element.bytes)).ravel())
            self.footprint = whole.history.footprint(touched)
        return self.footprint

    def note(self, write: bool, what: str, asynchronous: bool = False, component: int = -1, time: int = 0) -> None:
        """Check this access against all earlier ones, where the program has anything asynchronous in it."""
        program, partition = MACHINE.running, MACHINE.active
        if not program.tracking or MACHINE.physical:
            return
        if component < 0:
            component, time = partition.component, partition.time
        access = Access(component, time, write, asynchronous, what, partition.label, SOURCES.here())
        self.allocation.history.record(self.mark(), access, partition.clock, partition.fenced, self.named)

    def require_written(self, what: str) -> None:
        """Raises SimulationFault: an element was never written."""
        whole = self.allocation
        if whole.complete or MACHINE.physical or self.written.all():
            return
        at = np.unravel_index(int(np.flatnonzero(~self.written)[0]), self.shape)
        raise fault_at(
            "uninitialised",
            f"{what} reads element {[int(i) for i in at]} of {self.named()}, which nothing has written",
        )

    def load(self, layout: Any) -> Tile:
        """The elements, in registers."""
        whole = self.allocation
        if whole.alias is not None:
            whole.alias.touch(whole, write=False)
        self.note(False, "load")
        if not whole.complete:
            self.require_written("the load")
        layout = canonical(layout)
        if MACHINE.observer is not None:
            region = self.region
            emit(
                "shared_load", layout=layout, shape=self.shape, element_bytes=whole.element.bytes, shared=region,
                shared_bytes=self.byte_offsets, key=(region.key, id(layout)),
            )  # fmt: skip
        return Tile(self.data.copy(), whole.element, layout)

    def store(self, value: Any) -> None:
        """The tile's elements, into memory."""
        whole = self.allocation
        if not isinstance(value, Tile):
            raise fault_at("type-error", f"a {type(value).__name__} is stored to shared memory: it takes a tile")
        if value.shape != self.shape:
            raise fault_at("type-error", f"a tile of {list(value.shape)} is stored to {list(self.shape)}")
        if value.element is not whole.element:
            raise fault_at("type-error", f"a {value.element} tile is stored to {whole.element}: cast it with .to()")
        data = value.data
        self.note(True, "store")
        if whole.alias is not None:
            whole.alias.touch(whole, write=True)
        if MACHINE.observer is not None:
            region = self.region
            emit(
                "shared_store", layout=value.layout, shape=self.shape, element_bytes=whole.element.bytes, shared=region,
                shared_bytes=self.byte_offsets, key=(region.key, id(value.layout)),
            )  # fmt: skip
        self.fill(data)

    def land(self, data: np.ndarray, asynchronous: bool = False) -> None:
        """The elements arrive from an asynchronous copy."""
        if self.allocation.alias is not None:
            self.allocation.alias.touch(self.allocation, write=True)
        self.fill(data)
        if asynchronous and MACHINE.physical:
            if self.allocation.fenced is None:
                self.allocation.fenced = np.empty_like(self.allocation.data)
                self.allocation.fenced[...] = self.allocation.data
            self.allocation.fenced.ravel()[self.allocation.flat_index(self.data)] = data

    def seen_by_proxy(self) -> np.ndarray:
        """The elements as TMA and wgmma see them. In a physical run, ordinary writes without a fence may be missing."""
        whole = self.allocation
        dice = MACHINE.running.random
        if not MACHINE.physical or (dice is not None and dice.random() < 0.5):
            return self.data
        if whole.fenced is None:
            return np.full(self.shape, np.nan if whole.element.kind == FLOAT else 0x5A).astype(whole.element.numpy)
        return whole.fenced.ravel()[whole.flat_index(self.data)]

    def require_arrived(self, what: str) -> None:
        """As :meth:`require_written`, but data that is surely on time may still be on its way."""
        if MACHINE.running.nothing_flies():
            self.require_written(what)

    def fill(self, data: np.ndarray) -> None:
        """Write and mark as written."""
        self.data[...] = data
        whole = self.allocation
        if not whole.complete:
            self.written[...] = True
            whole.complete = self.data.size == whole.data.size or bool(whole.written.all())


def shared_rank(layout: Any) -> int | None:
    """Dimensions that a shared layout lays out; a leading one more may count whole buffers."""
    if isinstance(layout, gl.SwizzledSharedLayout):
        return len(layout.order)
    if isinstance(layout, gl.NVMMASharedLayout):
        return int(layout.rank)
    if isinstance(layout, gl.PaddedSharedLayout):
        return len(layout.shape)
    return len(layout.offset_bases[0]) if isinstance(layout, gl.SharedLinearLayout) else None


def permuted_layout(layout: Any, order: tuple[int, ...]) -> Any:
    """The layout of a view whose dimensions were reordered."""
    if isinstance(layout, gl.NVMMASharedLayout):
        if order == tuple(range(len(order))):
            return layout
        return canonical(
            gl.NVMMASharedLayout(
                layout.swizzle_byte_width,
                layout.element_bitwidth,
                layout.rank,
                not layout.transposed,
                layout.fp4_padded,
            )
        )
    if isinstance(layout, gl.SwizzledSharedLayout) and len(layout.order) == len(order):
        moved = [order.index(d) for d in layout.order]
        return canonical(gl.SwizzledSharedLayout(layout.vec, layout.per_phase, layout.max_phase, moved))
    if isinstance(layout, gl.PaddedSharedLayout) and len(layout.shape) == len(order):
        bases = [[basis[d] for d in order] for basis in layout.offset_bases]
        shape = [layout.shape[d] for d in order]
        return canonical(gl.PaddedSharedLayout(layout.interval_padding_pairs, bases, [], shape))
    if isinstance(layout, gl.SharedLinearLayout):
        bases = [[basis[d] for d in order] for basis in layout.offset_bases]
        return canonical(gl.SharedLinearLayout(bases, [], layout.alignment))
    return layout
