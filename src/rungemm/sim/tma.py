"""TMA: descriptors, and blocks of tensors copied between global and shared memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..compat import gl
from . import numeric
from .context import MACHINE, emit
from .faults import SOURCES, fault_at
from .global_memory import read
from .memory import Buffer, strided
from .program import Flight
from .shared import View
from .synchronisation import barrier_of, shared_view
from .tile import Pointer, canonical
from .types import ElementType, Shape

__all__ = ["TensorDescriptor", "make_tensor_descriptor", "tma_load", "tma_store", "tma_store_wait"]

TMA_GROUP_BYTES = 16
"""A TMA store writes groups of so many bytes whole."""


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
        self.array = strided(start, self.shape, steps, self.buffer.writable)

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
    # A buffer may leave out leading dimensions in which the block is one wide: it holds the same bytes.
    left_out = len(desc.block) - len(view.shape)
    if left_out < 0 or any(extent != 1 for extent in desc.block[:left_out]) or view.shape != desc.block[left_out:]:
        raise fault_at(
            "type-error", f"{what}: the buffer is {list(view.shape)}, the descriptor's block {list(desc.block)}"
        )
    if view.element is not desc.element:
        raise fault_at("type-error", f"{what}: the buffer holds {view.element}, the descriptor {desc.element}")
    if canonical(view.layout) is not (desc.layout if left_out == 0 else _narrowed(desc.layout, left_out)):
        raise fault_at("layout-mismatch", f"{what}: the buffer is in {view.layout}, the descriptor in {desc.layout}")


def _narrowed(layout: Any, left_out: int) -> Any:
    """The layout of a block without its outermost dimensions."""
    if not isinstance(layout, gl.NVMMASharedLayout) or layout.transposed:
        return layout
    return canonical(replace(layout, rank=layout.rank - left_out))


def tma_load(desc: Any, coord: Any, barrier: Any, result: Any, pred: Any = True, multicast: Any = False) -> None:
    """A block of a tensor into shared memory, zero outside the tensor. The mbarrier receives all the block's bytes."""
    if not pred:
        return
    view = shared_view(result, "a TMA load")
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
    MACHINE.running.reach_global(buffer, "a TMA load")
    if buffer.writer is not None:
        read(buffer, desc.offsets(tensor), None, "a TMA load")

    def land() -> None:
        block = np.zeros(desc.block, desc.element.numpy)
        block[inside] = desc.array[tensor]
        if desc.round_to_tf32:
            block = numeric.round_tf32(block)
        view.land(block.reshape(view.shape), asynchronous=True)
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
    """A block of shared memory into a tensor; what lies outside the tensor is dropped. Commits a group of its own.

    Not dropped on the card: the rest of a group of 16 bytes in which the tensor's line ends. That is a fault here.
    """
    view = shared_view(src, "a TMA store")
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
    MACHINE.running.reach_global(buffer, "a TMA store")
    if not buffer.writable:
        raise fault_at("input-written", f"a TMA store writes to {buffer.name}, which is an input")
    place = desc.offsets(tensor) + buffer.first
    if place.size and tensor[-1].stop == desc.shape[-1]:
        _require_whole_groups(desc)
    if place.size:
        MACHINE.running.write_check(buffer, place, "a TMA store")

    def land() -> None:
        if not place.size:
            return
        desc.array[tensor] = view.seen_by_proxy().reshape(desc.block)[inside]
        if buffer.poison is not None:
            buffer.poison[place] = False
        if buffer.written is not None:
            buffer.written[place] = True

    flight = Flight(land, lambda: f"the TMA store from {view.named()}", queue=("tma_store", queue.component))
    queue.open.append(flight)
    queue.commit()
    MACHINE.running.launch_flight(flight)


def _require_whole_groups(desc: TensorDescriptor) -> None:
    """As an H200 showed (tests/gpu/test_tma_bounds.py)."""
    length = desc.shape[-1]
    if length * desc.element.bytes % TMA_GROUP_BYTES:
        raise fault_at(
            "out-of-bounds",
            f"a TMA store writes {desc.buffer.name} beyond the end of its lines: they have {length} elements "
            f"({length * desc.element.bytes} bytes), and TMA writes whole groups of {TMA_GROUP_BYTES} bytes. Make "
            "lines a multiple of that, or store with masks",
        )


def tma_store_wait(pendings: Any) -> None:
    """All but the newest ``pendings`` stores have read their shared memory."""
    partition = MACHINE.active
    if MACHINE.observer is not None:
        emit("tma_store_wait", count=int(pendings))
    MACHINE.running.point()
    partition.queue("tma_store").wait(int(pendings), partition)
