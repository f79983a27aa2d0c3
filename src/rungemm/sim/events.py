"""What the execution core tells its observers: one :class:`Event` for each operation that a counter could want.

The core knows nothing of counters. It calls an :class:`Observer`, if there is one, with events that say what was
asked of the machine: a whole tile at a time, with the Gluon layout that spreads it over warps, lanes and registers
(:func:`rungemm.layouts.register_map` turns tile elements into threads). Addresses are computed only when read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np

__all__ = ["Alignment", "Event", "Kind", "Observer", "SharedRegion", "Site"]

Kind = Literal[
    "global_load",  # ld.global: global_bytes, mask, alignment, layout
    "global_store",  # st.global: the same
    "atomic",  # red/atom.global: the same
    "shared_load",  # ld.shared or ldmatrix: shared, shared_bytes, layout
    "shared_store",  # st.shared or stmatrix: the same
    "async_copy",  # cp.async: global_bytes, mask, alignment, layout, shared, shared_bytes
    "tma_load",  # bulk tensor copy in: global_bytes, mask (inside the tensor), shared, bytes (as the mbarrier counts)
    "tma_store",  # bulk tensor copy out: the same; bytes of the block
    "fma",  # gl.fma, gl.dot_fma or a contracted multiply-add: layout, shape; k for dot_fma
    "mma",  # mma.sync: layout (accumulator), shape (M, N), k, operand types
    "wgmma",  # wgmma: the same; a_in_registers
    "warp_specialize",  # worker partitions start: count is their warps, rounded up to four; bytes handed to them
    "convert_layout",  # registers to registers through shared memory: source_layout, layout, shape
    "barrier",  # a CTA barrier that the kernel asked for
    "fence",  # fence.proxy.async
    "grid_wait",  # griddepcontrol.wait
    "mbarrier_init", "mbarrier_expect", "mbarrier_arrive", "mbarrier_wait",
    "async_commit", "async_wait", "tma_store_wait", "wgmma_wait",
]  # fmt: skip


@dataclass(frozen=True, eq=False)
class Site:
    """A place in the source. One object a place and program run, so it can be a key by identity.

    Attributes:
        file, line, function: the innermost kernel code, perhaps a helper function.
        kernel_file, kernel_line: the line of the kernel itself (or of the partition's function) that led there.
    """

    file: str
    line: int
    function: str
    kernel_file: str
    kernel_line: int

    @cached_property
    def key(self) -> tuple[str, int, str, int]:
        """Equal for the same place in two runs, and across processes."""
        return (self.file, self.line, self.kernel_file, self.kernel_line)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, eq=False)
class Alignment:
    """What the compiler can prove of a tile of integers or pointers, one number a dimension (Triton's AxisInfo).

    Attributes:
        divisibility: the largest power of two known to divide the first element of every contiguous run
            (bytes for pointers, the plain value for integers).
        contiguity: length of the runs that rise by one (one element for pointers) along the dimension.
        constancy: length of the runs of one value along the dimension.
        constant: the value if all elements are one known constant.
    """

    divisibility: tuple[int, ...]
    contiguity: tuple[int, ...]
    constancy: tuple[int, ...]
    constant: int | None = None


@dataclass(frozen=True)
class SharedRegion:
    """A view of one shared-memory allocation.

    Attributes:
        allocation: number of the allocation in the program, 0 for the first; its base is taken as 1024-byte aligned.
        name: how messages call it, from the line that allocated it.
        layout, shape, element_bytes: the Gluon layout and extent of the whole allocation.
        view_layout, view_shape: those of the view accessed (``view_layout``: after index, permute and so on).
        key: equal when layout, extent, transformation and position of the view are equal, in one process.
    """

    allocation: int
    name: str
    layout: Any
    shape: tuple[int, ...]
    element_bytes: int
    view_layout: Any
    view_shape: tuple[int, ...]
    key: int


@dataclass(eq=False, slots=True)
class Event:
    """One operation of one partition of one program on a whole tile.

    ``global_bytes`` and ``shared_bytes`` are functions without arguments that compute int64 arrays of the tile's
    shape: byte addresses in the simulated global memory (allocations of distinct operands never share a 256-byte
    block, and keep their own alignment), and byte offsets inside the allocation. They are valid only while the
    event is handled.

    Attributes:
        kind: see :data:`Kind`.
        site: where.
        program: (x, y, z) of the program.
        partition: name of the partition; "" outside warp specialisation.
        num_warps: warps of the partition.
        layout: the Gluon register layout of the tile, ``None`` for operations without one.
        shape: the tile's shape.
        element_bytes: bytes of one element.
        role: the operand or workspace that the addresses belong to ("A", ..., or a run's argument name).
        mask: bool array of ``shape`` (``None``: all true).
        alignment: what the compiler can prove of the addresses (pointer tiles only).
        pattern, origin: of global accesses: ``global_bytes`` is ``origin + element_bytes * pattern``. An array that
            is never changed, often the same object in every turn of a loop; ``None`` where there is no such array.
        mask_alignment: the same of the mask (its constancy bounds the vector width), ``None`` without a mask.
        key: hashable; two events with equal site, num_warps and key (not ``None``) cost the same in shared memory or
            arithmetic, so that an observer can compute once. ``None`` for global accesses.
        bytes, count, k, operands, a_in_registers, source_layout: as :data:`Kind` says. ``operands`` are type names.
    """

    kind: Kind
    site: Site
    program: tuple[int, int, int]
    partition: str
    num_warps: int
    layout: Any = None
    shape: tuple[int, ...] = ()
    element_bytes: int = 0
    role: str = ""
    mask: np.ndarray | None = None
    alignment: Alignment | None = None
    mask_alignment: Alignment | None = None
    shared: SharedRegion | None = None
    global_bytes: Callable[[], np.ndarray] | None = None
    shared_bytes: Callable[[], np.ndarray] | None = None
    pattern: np.ndarray | None = None
    origin: int = 0
    key: Any = None
    bytes: int = 0
    count: int = 0
    k: int = 1
    operands: tuple[str, ...] = field(default=())
    a_in_registers: bool = False
    source_layout: Any = None


class Observer(Protocol):
    """Somebody who watches a run. Programs may run in several processes, each with an observer of its own."""

    def launch(self, name: str, grid: tuple[int, int, int], num_warps: int) -> None:
        """A launch begins: the kernel's function name, the programs along x, y, z and the warps of each."""

    def event(self, event: Event) -> None:
        """An operation was executed."""

    def spawn(self) -> Observer:
        """A fresh observer for another process; it comes back pickled, to be merged."""

    def merge(self, other: Observer) -> None:
        """Add what a spawned observer saw."""
