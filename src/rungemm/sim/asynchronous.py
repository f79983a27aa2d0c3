"""Gluon's asynchronous operations: cp.async, TMA, mbarriers, tensor cores, warp specialisation."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ..compat import gl
from . import numeric, operations
from .barriers import Barrier
from .context import MACHINE, emit
from .faults import SOURCES, SimulationFault, fault_at, short
from .memory import Buffer
from .program import Flight, Partition, Waiting
from .scalars import is_scalar
from .shared import View
from .tile import Pointer, Tile, canonical, same_layout
from .types import F16, F32, FP8, I32, ElementType, Shape, element_type

__all__ = ["ASYNCHRONOUS", "TensorDescriptor"]


# cp.async


def async_copy_load(
    smem: Any, pointer: Any, mask: Any = None, cache_modifier: Any = "", eviction_policy: Any = "",
    volatile: Any = False,
) -> None:  # fmt: skip
    """cp.async: global to shared without registers; masked-off elements become zero."""
    partition = MACHINE.active
    buffer, offset, layout = operations._pointers(pointer, "async_copy")
    offset, masked, layout = operations._masked(pointer, mask, offset, layout)
    view = _view(smem, "async_copy")
    if view.shape != offset.shape:
        raise fault_at("type-error", f"async_copy of {list(offset.shape)} elements into {list(view.shape)}")
    if view.element is not buffer.element:
        raise fault_at("type-error", f"async_copy of {buffer.element} into {view.element}: it cannot convert")
    queue = partition.queue("cp_async")
    time = queue.issue()
    if MACHINE.observer is not None:
        region = view.region
        operations._emit_global(
            "async_copy", pointer, offset, mask, masked, layout, shared=region, shared_bytes=view.byte_offsets
        )
    view.note(True, "cp.async", component=queue.component, time=time)
    values = operations.read(buffer, offset, masked, "async_copy")
    if masked is not None:
        values = np.where(masked, values, np.zeros((), view.element.numpy))

    def land() -> None:
        view.land(values)

    flight = Flight(land, lambda: f"a cp.async into {view.named()}", queue=("cp_async", queue.component))
    queue.open.append(flight)
    MACHINE.running.launch_flight(flight)


def commit_group() -> None:
    MACHINE.active.queue("cp_async").commit()
    if MACHINE.observer is not None:
        emit("async_commit")


def wait_group(num_outstanding: Any = 0) -> None:
    """All but the newest ``num_outstanding`` groups have landed."""
    partition = MACHINE.active
    if MACHINE.observer is not None:
        emit("async_wait", count=int(num_outstanding))
    MACHINE.running.point()
    partition.queue("cp_async").wait(int(num_outstanding), partition)


def async_copy_mbarrier_arrive(mbarrier: Any, increment_count: Any = True) -> None:
    """Arrive once all earlier cp.async of the partition have landed.

    With ``increment_count`` the arrival is added to the pending count first (net zero); without, every thread of the
    partition makes one of the arrivals given to ``mbarrier.init``.
    """
    partition = MACHINE.active
    barrier = barrier_of(mbarrier)
    barrier.require("arrived at")
    queue = partition.queue("cp_async")
    time = queue.time
    earlier = [f for _, flights in queue.groups for f in flights] + list(queue.open)
    count = 1 if increment_count else 32 * partition.num_warps
    if increment_count:
        barrier.pending += 1
    site = SOURCES.here()
    if MACHINE.observer is not None:
        emit("mbarrier_arrive", count=count)

    def land() -> None:
        for flight in earlier:
            flight.land()
        barrier.arrive(count, {queue.component: time}, {}, site)

    flight = Flight(land, lambda: f"an arrival at {barrier.name} by cp.async", ("cp_async", queue.component), barrier)
    queue.open.append(flight)
    MACHINE.running.launch_flight(flight)


# mbarriers


def _view(value: Any, what: str) -> View:
    if not isinstance(value, View):
        raise fault_at("type-error", f"{what} takes shared memory, not a {type(value).__name__}")
    return value


def barrier_of(mbarrier: Any) -> Barrier:
    """The mbarrier that lies in a piece of shared memory."""
    view = _view(mbarrier, "an mbarrier operation")
    program = MACHINE.running
    whole = view.allocation
    at = int(whole.flat_index(view.data).ravel()[0])
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


# TMA


class BlockType:
    """The type of a descriptor's block, as kernels ask about it."""

    def __init__(self, element: ElementType, block: tuple[int, ...]) -> None:
        self.element_ty = self.scalar = element.gluon
        self.shape = Shape(block)
        self.numel = int(np.prod(block))
        self.nbytes = self.numel * element.bytes


class TensorDescriptor:
    """A TMA descriptor: a tensor in global memory and the block that one copy moves.

    Raises:
        SimulationFault: what the hardware does not take: strides or blocks that are not multiples of 16 bytes, a last
            stride other than 1, a tensor reaching outside the operand.
    """

    def __init__(
        self, buffer: Buffer, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], block: tuple[int, ...],
        layout: Any, round_to_tf32: bool = False, padding: str = "zero",
    ) -> None:  # fmt: skip
        self.buffer = buffer
        self.element: ElementType = buffer.element
        self.shape = shape
        self.strides = strides
        self.block = block
        self.layout = canonical(layout)
        self.round_to_tf32 = round_to_tf32
        self.padding = padding
        size = self.element.bytes
        self.first = offset + buffer.first
        name = f"the descriptor of {buffer.name}"
        if strides[-1] != 1:
            raise fault_at("type-error", f"{name} has a last stride of {strides[-1]}: TMA wants 1")
        if (buffer.address + self.first * size) % 16:
            raise fault_at("type-error", f"{name} starts at an address that is not a multiple of 16 bytes")
        for n, s in zip(shape[:-1], strides[:-1], strict=True):
            if n > 1 and s * size % 16:
                raise fault_at("type-error", f"{name} has a stride of {s} elements: TMA wants multiples of 16 bytes")
        if block[-1] * size % 16:
            raise fault_at(
                "type-error", f"{name} has blocks {block[-1]} elements wide: TMA wants multiples of 16 bytes"
            )
        if any(b > 256 for b in block) and not isinstance(layout, gl.NVMMASharedLayout):
            raise fault_at("type-error", f"{name} has a block of {list(block)}: a TMA box has at most 256 a side")
        low = self.first + sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if s < 0 and n > 0)
        high = self.first + sum((n - 1) * s for n, s in zip(shape, strides, strict=True) if s > 0 and n > 0)
        empty = 0 in shape
        if not empty and (low < 0 or high >= buffer.flat.size):
            raise fault_at(
                "out-of-bounds",
                f"{name} of shape {list(shape)} and strides {list(strides)} reaches outside {buffer.name}",
            )
        self.attach()
        if buffer.owned is not None and not empty:
            mine = np.lib.stride_tricks.as_strided(buffer.owned[self.first :], shape, tuple(strides))
            if not mine.all():
                raise fault_at("out-of-bounds", f"{name} covers memory between the rows of {buffer.name}")

    def attach(self) -> None:
        """Look at the buffer's memory, which may have moved."""
        size = self.element.bytes
        start = self.buffer.flat[0 if 0 in self.shape else self.first :]
        steps = tuple(s * size for s in self.strides)
        self.array = np.lib.stride_tricks.as_strided(start, self.shape, steps, writeable=self.buffer.writable)

    @property
    def dtype(self) -> Any:
        return self.element.gluon

    @property
    def block_shape(self) -> Shape:
        return Shape(self.block)

    @property
    def block_type(self) -> BlockType:
        return BlockType(self.element, self.block)

    @property
    def nbytes_per_block(self) -> int:
        return int(np.prod(self.block)) * self.element.bytes

    def boxes(self, coord: Any) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """The part of the tensor under a block, and the part of the block that lies in the tensor."""
        at = [int(c) for c in coord]
        if len(at) != len(self.shape):
            raise fault_at("type-error", f"{len(at)} coordinates for a descriptor of {len(self.shape)} dimensions")
        tensor, inside = [], []
        for c, b, n in zip(at, self.block, self.shape, strict=True):
            begin, end = max(c, 0), max(min(c + b, n), max(c, 0))
            begin = min(begin, end)
            tensor.append(slice(begin, end))
            inside.append(slice(begin - c if end > begin else 0, end - c if end > begin else 0))
        return tuple(tensor), tuple(inside)

    def offsets(self, box: tuple[slice, ...]) -> np.ndarray:
        """Element offsets from the operand's first element."""
        total = np.full((1,) * len(box), self.first - self.buffer.first, np.int64)
        for axis, (part, stride) in enumerate(zip(box, self.strides, strict=True)):
            shape = [1] * len(box)
            shape[axis] = part.stop - part.start
            total = total + (np.arange(part.start, part.stop, dtype=np.int64) * stride).reshape(shape)
        return total


def make_tensor_descriptor(
    base: Any, shape: Any, strides: Any, block_shape: Any, layout: Any, padding_option: Any = "zero"
) -> TensorDescriptor:
    if not isinstance(base, Pointer) or base.shape:
        raise fault_at("type-error", "make_tensor_descriptor takes a scalar pointer")
    return TensorDescriptor(
        base.buffer, int(base.offset), tuple(int(s) for s in shape), tuple(int(s) for s in strides),
        tuple(int(b) for b in block_shape), layout, padding=padding_option,
    )  # fmt: skip


def _check_block(desc: TensorDescriptor, view: View, what: str) -> None:
    shape = view.shape
    if shape != desc.block:
        raise fault_at("type-error", f"{what}: the buffer is {list(shape)}, the descriptor's block {list(desc.block)}")
    if view.element is not desc.element:
        raise fault_at("type-error", f"{what}: the buffer holds {view.element}, the descriptor {desc.element}")
    if canonical(view.layout) is not desc.layout:
        raise fault_at("layout-mismatch", f"{what}: the buffer is in {view.layout}, the descriptor in {desc.layout}")


def tma_load(desc: Any, coord: Any, barrier: Any, result: Any, pred: Any = True, multicast: Any = False) -> None:
    """A block of a tensor into shared memory, zero outside the tensor. The mbarrier receives all the block's bytes."""
    if not pred:
        return
    view = _view(result, "a TMA load")
    signal = barrier_of(barrier)
    signal.require("given to a TMA load")
    _check_block(desc, view, "a TMA load")
    tensor, inside = desc.boxes(coord)
    site = SOURCES.here()
    amount = desc.nbytes_per_block
    time = signal.issue_load()
    if MACHINE.observer is not None:
        _emit_tma("tma_load", desc, coord, view)
    view.note(True, "TMA load", asynchronous=True, component=signal.component, time=time)
    buffer = desc.buffer
    if buffer.writer is not None:
        operations.read(buffer, desc.offsets(tensor), None, "a TMA load")

    def land() -> None:
        block = np.zeros(desc.block, desc.element.numpy)
        block[inside] = desc.array[tensor]
        if desc.round_to_tf32:
            block = numeric.round_tf32(block)
        view.land(block, asynchronous=True)
        signal.receive_load(amount, time, site)

    MACHINE.running.launch_load(Flight(land, lambda: f"the TMA load into {view.named()}", None, signal))


def _emit_tma(kind: str, desc: TensorDescriptor, coord: Any, view: View) -> None:
    at = [int(c) for c in coord]

    def addresses() -> np.ndarray:
        return desc.buffer.address_of(desc.offsets(tuple(slice(c, c + b) for c, b in zip(at, desc.block, strict=True))))

    mask = np.ones((), bool)
    for axis, (c, b, n) in enumerate(zip(at, desc.block, desc.shape, strict=True)):
        shape = [1] * len(at)
        shape[axis] = b
        index = np.arange(c, c + b).reshape(shape)
        mask = mask & (index >= 0) & (index < n)
    region = view.region
    emit(
        kind, shape=desc.block, element_bytes=desc.element.bytes, role=desc.buffer.name,
        mask=np.broadcast_to(mask, desc.block), shared=region, shared_bytes=view.byte_offsets, global_bytes=addresses,
        bytes=desc.nbytes_per_block, key=None,
    )  # fmt: skip


def tma_store(desc: Any, coord: Any, src: Any) -> None:
    """A block of shared memory into a tensor; what lies outside the tensor is dropped. Commits a group of its own."""
    view = _view(src, "a TMA store")
    _check_block(desc, view, "a TMA store")
    partition = MACHINE.active
    queue = partition.queue("tma_store")
    time = queue.issue()
    if view.allocation.alias is not None:
        view.allocation.alias.touch(view.allocation, write=False)
    view.note(False, "TMA store", asynchronous=True, component=queue.component, time=time)
    view.require_written("a TMA store")
    tensor, inside = desc.boxes(coord)
    if MACHINE.observer is not None:
        _emit_tma("tma_store", desc, coord, view)
    buffer = desc.buffer
    if not buffer.writable:
        raise fault_at("input-written", f"a TMA store writes to {buffer.name}, which is an input")
    place = desc.offsets(tensor) + buffer.first
    if place.size:
        MACHINE.running.write_check(buffer, place, "a TMA store")

    def land() -> None:
        if not place.size:
            return
        desc.array[tensor] = view.seen_by_proxy()[inside]
        if buffer.poison is not None:
            buffer.poison[place] = False
        if buffer.written is not None:
            buffer.written[place] = True

    flight = Flight(land, lambda: f"the TMA store from {view.named()}", queue=("tma_store", queue.component))
    queue.open.append(flight)
    queue.commit()
    MACHINE.running.launch_flight(flight)


def tma_store_wait(pendings: Any) -> None:
    """All but the newest ``pendings`` stores have read their shared memory."""
    partition = MACHINE.active
    if MACHINE.observer is not None:
        emit("tma_store_wait", count=int(pendings))
    MACHINE.running.point()
    partition.queue("tma_store").wait(int(pendings), partition)


# Tensor cores


class PendingTile(Tile):
    """The accumulator of a wgmma that may still run. Its numbers can be used only after a covering wait."""

    __slots__ = ("holder", "issued_at", "partition", "time", "token")

    def __init__(
        self, like: Tile, holder: list[np.ndarray], partition: Partition, time: int, token: bool, site: Any
    ) -> None:
        self.element = like.element
        self.layout = like.layout
        self.shape = like.shape
        self._align = None
        self.factors = None
        self.holder = holder
        self.partition = partition
        self.time = time
        self.token = token
        self.issued_at = site

    @property
    def complete(self) -> bool:
        queue = self.partition.queue("wgmma")
        return self.partition.clock.get(queue.component, 0) >= self.time

    @property
    def data(self) -> np.ndarray:  # type: ignore[override]
        if MACHINE.physical:
            return self.holder[0] if self.holder else np.full(self.shape, np.nan).astype(self.element.numpy)
        where = f" at {short(self.issued_at)}" if self.issued_at else ""
        if self.token:
            raise fault_at(
                "read-before-arrival",
                f"the result of the asynchronous warpgroup_mma{where} is used directly: use what "
                "warpgroup_mma_wait returns",
            )
        if not self.complete:
            raise fault_at(
                "read-before-arrival",
                f"the result of the warpgroup_mma{where} is used while it may still run: wait with fewer outstanding",
            )
        return self.holder[0]


def warpgroup_mma_init(value: Any) -> Any:
    return value


_WGMMA_INPUTS = ("fp16", "bf16", "fp32", "fp8e4nv", "fp8e5", "int8", "uint8")


def _operand(value: Any, name: str, number: int, acc: Tile) -> tuple[tuple[int, ...], ElementType]:
    if isinstance(value, Tile):
        layout = value.layout
        if not isinstance(layout, gl.DotOperandLayout) or layout.operand_index != number:
            raise fault_at("layout-mismatch", f"{name} is in {layout}: it must be DotOperandLayout({number}, ...)")
        if canonical(layout.parent) is not acc.layout:
            raise fault_at("layout-mismatch", f"{name} has the parent {layout.parent}, the accumulator {acc.layout}")
    return value.shape, value.element


def _check_mma(a: Any, b: Any, acc: Any, what: str, version: int) -> None:
    if not isinstance(acc, Tile):
        raise fault_at("type-error", f"{what} takes an accumulator tile, not a {type(acc).__name__}")
    layout = acc.layout
    if not isinstance(layout, gl.NVMMADistributedLayout) or next(iter(layout.version)) != version:
        raise fault_at(
            "layout-mismatch", f"{what} wants an accumulator in NVMMADistributedLayout version {version}, not {layout}"
        )
    (m, k), ta = _operand(a, f"{what}'s a", 0, acc)
    (k2, n), tb = _operand(b, f"{what}'s b", 1, acc)
    if k != k2 or (m, n) != acc.shape:
        raise fault_at("type-error", f"{what} of {m}x{k} and {k2}x{n} into {list(acc.shape)}")
    if ta is not tb and not (ta in FP8 and tb in FP8):
        raise fault_at("type-error", f"{what} of {ta} and {tb}: both operands need one type")
    if ta.name not in _WGMMA_INPUTS:
        raise fault_at("type-error", f"{what} does not take {ta}")
    wanted = (I32,) if ta.kind == 1 else (F32, F16) if ta is F16 or ta in FP8 else (F32,)
    if acc.element not in wanted:
        names = " or ".join(t.name for t in wanted)
        raise fault_at("type-error", f"{what} of {ta} accumulates in {names}, not in {acc.element}")


def warpgroup_mma(
    a: Any, b: Any, acc: Any, *, use_acc: Any = True, precision: Any = None, max_num_imprecise_acc: Any = None,
    is_async: Any = False,
) -> Any:  # fmt: skip
    """wgmma: ``a @ b + acc``, with b (and often a) in shared memory."""
    partition = MACHINE.active
    view_b = _view(b, "warpgroup_mma's b")
    _check_mma(a, b, acc, "warpgroup_mma", 3)
    if partition.num_warps % 4:
        raise fault_at("type-error", f"warpgroup_mma needs groups of 4 warps; the partition has {partition.num_warps}")
    element = view_b.element
    for name, view in (("a", a), ("b", b)):
        if isinstance(view, View) and not isinstance(view.layout, gl.NVMMASharedLayout):
            raise fault_at(
                "layout-mismatch", f"warpgroup_mma's {name} is in {view.layout}: it must be an NVMMASharedLayout"
            )
    if element.bits != 16:
        # K must be the contiguous dimension of both; for b that is the layout marked as transposed.
        if not view_b.layout.transposed:
            raise fault_at("layout-mismatch", f"warpgroup_mma of {element} wants b with K contiguous in shared memory")
        if isinstance(a, View) and a.layout.transposed:
            raise fault_at("layout-mismatch", f"warpgroup_mma of {element} wants a with K contiguous in shared memory")
    queue = partition.queue("wgmma")
    time = queue.issue()
    for view in (a, b):
        if isinstance(view, View):
            if view.allocation.alias is not None:
                view.allocation.alias.touch(view.allocation, write=False)
            view.note(False, "wgmma", asynchronous=True, component=queue.component, time=time)
            if not view.allocation.complete:
                view.require_arrived("warpgroup_mma")
    if MACHINE.observer is not None:
        (m, k), n = a.shape, b.shape[1]
        emit(
            "wgmma", layout=acc.layout, shape=(m, n), k=k, operands=(element.name, acc.element.name),
            a_in_registers=isinstance(a, Tile), element_bytes=element.bytes,
            key=("wgmma", acc.layout, m, n, k, element.name, acc.element.name, isinstance(a, Tile)),
        )  # fmt: skip
    holder: list[np.ndarray] = []
    registers = a.data if isinstance(a, Tile) else None
    use = bool(use_acc)
    before = acc if isinstance(acc, PendingTile) else None
    start = acc.data if use and before is None else None
    if before is not None and before.partition is not partition:
        raise fault_at("type-error", "an accumulator of another partition cannot be used")
    out = acc.element.numpy

    def land() -> None:
        left = registers if registers is not None else a.seen_by_proxy()
        previous = (before.holder[0] if before is not None else start) if use else None
        holder.append(numeric.matmul(left, view_b.seen_by_proxy(), previous, out))

    flight = Flight(land, lambda: "a wgmma", queue=("wgmma", queue.component))
    queue.open.append(flight)
    queue.commit()
    MACHINE.running.launch_flight(flight)
    if is_async:
        return PendingTile(acc, holder, partition, time, True, SOURCES.here())
    queue.wait(0, partition)
    return Tile(holder[0], acc.element, acc.layout)


def warpgroup_mma_wait(num_outstanding: Any = 0, deps: Any = None) -> Any:
    """All but the newest ``num_outstanding`` wgmmas are complete; returns ``deps`` to go on with."""
    if deps is None:
        raise fault_at("type-error", "warpgroup_mma_wait needs deps=(...): the accumulators that it waits for")
    partition = MACHINE.active
    if MACHINE.observer is not None:
        emit("wgmma_wait", count=int(num_outstanding))
    MACHINE.running.point()
    partition.queue("wgmma").wait(int(num_outstanding), partition)
    results = []
    for dep in deps:
        if isinstance(dep, PendingTile):
            if dep.complete:
                results.append(Tile(dep.holder[0], dep.element, dep.layout))
            else:
                results.append(PendingTile(dep, dep.holder, partition, dep.time, False, dep.issued_at))
        else:
            results.append(dep)
    return results[0] if len(results) == 1 else tuple(results)


def mma_v2(a: Any, b: Any, acc: Any, input_precision: Any = None) -> Tile:
    """mma.sync: both operands in registers."""
    _check_mma(a, b, acc, "mma_v2", 2)
    if not isinstance(a, Tile) or not isinstance(b, Tile):
        raise fault_at("type-error", "mma_v2 takes tiles in registers: load them with a DotOperandLayout")
    if MACHINE.observer is not None:
        (m, k), n = a.shape, b.shape[1]
        emit(
            "mma", layout=acc.layout, shape=(m, n), k=k, operands=(a.element.name, acc.element.name),
            a_in_registers=True,
            element_bytes=a.element.bytes, key=("mma", acc.layout, m, n, k, a.element.name, acc.element.name),
        )  # fmt: skip
    return Tile(
        numeric.matmul(a.data, b.data, acc.data, acc.element.numpy, saturate=acc.element is I32),
        acc.element,
        acc.layout,
    )


# Warp specialisation


def warp_specialize(functions_and_args: Any, worker_num_warps: Any, worker_num_regs: Any = None) -> Any:
    """Run functions at the same time in partitions of warps; the first one's result is returned."""
    pairs = []
    for pair in functions_and_args:
        function, args = pair
        pairs.append((function, tuple(args) if isinstance(args, (tuple, list)) else (args,)))
    return MACHINE.running.specialise(pairs, list(worker_num_warps), lambda f: getattr(f, "__name__", "partition"))


def _removable(kind: str, operation: Any, without: Any = operations.nothing) -> Any:
    """The operation, unless the experiment that is running leaves it out at this line."""

    @functools.wraps(operation)
    def call(*args: Any, **kwargs: Any) -> Any:
        if MACHINE.removed:
            site = SOURCES.here()
            if site is not None and (site.file, site.line, kind) in MACHINE.removed:
                return without(*args, **kwargs)
        return operation(*args, **kwargs)

    return call


def _pass_on(num_outstanding: Any = 0, deps: Any = ()) -> Any:
    """A warpgroup_mma_wait that waits for nothing."""
    return warpgroup_mma_wait(1 << 30, deps)


ASYNCHRONOUS: dict[str, Any] = {
    "async_copy_load": async_copy_load,
    "async_copy_commit": _removable("async_commit", commit_group),
    "async_copy_wait": _removable("async_wait", wait_group),
    "async_copy_mbarrier_arrive": _removable("mbarrier_arrive", async_copy_mbarrier_arrive),
    "mbarrier_init": _removable("mbarrier_init", mbarrier_init),
    "mbarrier_invalidate": mbarrier_invalidate,
    "mbarrier_expect": _removable("mbarrier_expect", mbarrier_expect),
    "mbarrier_arrive": _removable("mbarrier_arrive", mbarrier_arrive),
    "mbarrier_wait": _removable("mbarrier_wait", mbarrier_wait),
    "fence_async_shared": _removable("fence", fence_async_shared),
    "make_tensor_descriptor": make_tensor_descriptor,
    "tma_load": tma_load,
    "tma_store": tma_store,
    "tma_store_wait": _removable("tma_store_wait", tma_store_wait),
    "warpgroup_mma_init": warpgroup_mma_init,
    "warpgroup_mma": warpgroup_mma,
    "warpgroup_mma_wait": _removable("wgmma_wait", warpgroup_mma_wait, _pass_on),
    "mma_v2": mma_v2,
    "warp_specialize": warp_specialize,
    "barrier": _removable("barrier", operations.barrier),
}
"""By the names of :mod:`rungemm.compat`."""

__all__ += ["SimulationFault", "element_type", "is_scalar", "same_layout"]
