"""Loads, stores and atomics of global memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import alignment as align
from . import numeric
from .context import MACHINE, emit
from .faults import fault_at
from .memory import Buffer
from .scalars import make_scalar
from .tile import Pointer, Tile, broadcast_shape, same_layout
from .types import FLOAT, I1

__all__ = ["atomic_cas", "atomic_operation", "emit_global", "load", "masked_by", "pointers", "read", "store", "write"]


def pointers(pointer: Any, what: str) -> tuple[Buffer, np.ndarray, Any]:
    if not isinstance(pointer, Pointer):
        raise fault_at("type-error", f"{what} takes a pointer or a tile of pointers, not {type(pointer).__name__}")
    return pointer.buffer, np.asarray(pointer.offset, np.int64), pointer.layout


def masked_by(
    pointer: Pointer, mask: Any, offset: np.ndarray, layout: Any
) -> tuple[np.ndarray, np.ndarray | None, Any]:
    """Offsets and mask brought to one shape; the mask ``None`` when there is none."""
    if mask is None:
        return offset, None, layout
    if not isinstance(mask, Tile):
        if isinstance(mask, (bool, int)):
            return offset, None if mask else np.zeros(offset.shape, bool), layout
        raise fault_at("type-error", f"the mask is a {type(mask).__name__}: it must be a tile of booleans")
    if mask.element is not I1:
        raise fault_at("type-error", f"the mask is a tile of {mask.element}: compare it with something")
    if not offset.shape:
        raise fault_at("type-error", "a scalar pointer takes a scalar mask")
    layout = same_layout(layout, mask.layout, "a masked access")
    if mask.shape != offset.shape:
        shape = broadcast_shape(offset.shape, mask.shape)
        return np.broadcast_to(offset, shape), np.broadcast_to(mask.data, shape), layout
    return offset, mask.data, layout


def emit_global(
    kind: str, pointer: Pointer, offset: np.ndarray, mask: Any, data: Any, layout: Any, **more: Any
) -> None:
    buffer = pointer.buffer
    known = pointer.alignment
    if pointer.shape and pointer.shape != offset.shape:
        known = align.broadcast(known, pointer.shape, offset.shape)
    mask_known = None
    if isinstance(mask, Tile):
        mask_known = mask.alignment
        if mask.shape != offset.shape:
            mask_known = align.broadcast(mask_known, mask.shape, offset.shape)
    pattern = pointer.pattern if pointer.shape == offset.shape else None
    emit(
        kind, layout=layout, shape=offset.shape, element_bytes=buffer.element.bytes, role=buffer.name, mask=data,
        alignment=known, mask_alignment=mask_known, global_bytes=lambda: buffer.address_of(offset),
        pattern=pattern, origin=buffer.byte_of(pointer.shift), **more,
    )  # fmt: skip


def read(buffer: Buffer, offset: np.ndarray, mask: np.ndarray | None, what: str) -> np.ndarray:
    """Elements of global memory; masked-off ones are whatever lies at the first element.

    Raises:
        SimulationFault: out of bounds, uninitialised, or written by another program of this launch.
    """
    MACHINE.running.reach_global(buffer, what)
    place = buffer.check(offset, mask, f"{what} reads")
    if buffer.flat.size == 0:
        return np.zeros(place.shape, buffer.element.numpy)
    if buffer.poison is not None:
        bad = buffer.poison[place] if mask is None else buffer.poison[place] & mask
        if bad.any():
            at = int(place.ravel()[np.flatnonzero(bad)[0]]) - buffer.first
            raise fault_at("uninitialised", f"{what} reads {buffer.locate(at)}, which nothing has written")
    if buffer.writer is not None and buffer.reader is not None:
        program = MACHINE.running
        program.read_check(buffer, place, mask, what)
    return buffer.flat.take(place)


def load(
    pointer: Any, mask: Any = None, other: Any = None, boundary_check: Any = (), padding_option: Any = "",
    cache_modifier: Any = "", eviction_policy: Any = "", volatile: Any = False,
) -> Any:  # fmt: skip
    buffer, offset, layout = pointers(pointer, "load")
    offset, masked, layout = masked_by(pointer, mask, offset, layout)
    if MACHINE.observer is not None:
        emit_global("global_load", pointer, offset, mask, masked, layout)
    values = read(buffer, offset, masked, "load")
    element = buffer.element
    if masked is not None:
        if other is None:
            # Undefined on the card: a value that no test expects.
            fill = np.nan if element.kind == FLOAT else 0x5A
            values = np.where(masked, values, np.asarray(fill).astype(element.numpy))
        else:
            extra = other.data if isinstance(other, Tile) else np.asarray(other)
            values = np.where(masked, values, numeric.cast(np.asarray(extra), element.numpy))
    if not offset.shape:
        return make_scalar(values[()], element)
    return Tile(values, element, layout)


def store(
    pointer: Any, value: Any, mask: Any = None, boundary_check: Any = (), cache_modifier: Any = "",
    eviction_policy: Any = "",
) -> None:  # fmt: skip
    buffer, offset, layout = pointers(pointer, "store")
    element = buffer.element
    if isinstance(value, Tile) and offset.shape:
        layout = same_layout(layout, value.layout, "a store")
        shape = broadcast_shape(offset.shape, value.shape) if value.shape != offset.shape else offset.shape
        offset = np.broadcast_to(offset, shape)
        data = np.broadcast_to(numeric.cast(value.data, element.numpy), shape)
    elif isinstance(value, Tile):
        raise fault_at("type-error", "a tile is stored through a scalar pointer: add offsets to the pointer")
    else:
        data = np.broadcast_to(numeric.cast(np.asarray(value), element.numpy), offset.shape)
    offset, masked, layout = masked_by(pointer, mask, offset, layout)
    if masked is not None and masked.shape != data.shape:
        data = np.broadcast_to(data, masked.shape)
    if MACHINE.observer is not None:
        emit_global("global_store", pointer, offset, mask, masked, layout)
    write(buffer, offset, masked, data, "store")


def write(buffer: Buffer, offset: np.ndarray, mask: np.ndarray | None, data: np.ndarray, what: str) -> None:
    """Elements of global memory written.

    Raises:
        SimulationFault: out of bounds, an input operand, or written by another program of this launch.
    """
    if not buffer.writable:
        raise fault_at("input-written", f"{what} writes to {buffer.name}, which is an input")
    MACHINE.running.reach_global(buffer, what)
    place = buffer.check(offset, mask, f"{what} writes")
    if mask is not None:
        place, data = place[mask], data[mask]
    if place.size == 0:
        return
    MACHINE.running.write_check(buffer, place, what)
    buffer.flat[place] = data
    if buffer.poison is not None:
        buffer.poison[place] = False
    if buffer.written is not None:
        buffer.written[place] = True


def atomic_operation(name: str) -> Any:
    def operation(pointer: Any, val: Any, mask: Any = None, sem: Any = None, scope: Any = None) -> Any:
        return atomic(name, pointer, val, mask, sem)

    operation.__name__ = f"atomic_{name}"
    return operation


_ATOMICS: dict[str, Any] = {
    "add": lambda old, new: old + new, "max": np.maximum, "min": np.minimum, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor, "xchg": lambda old, new: new,
}  # fmt: skip


def atomic(name: str, pointer: Any, value: Any, mask: Any, sem: Any, compare: Any = None) -> Any:
    """A read-modify-write of every element in turn; returns what was there. Repeated elements go in tile order."""
    buffer, offset, layout = pointers(pointer, f"atomic_{name}")
    element = buffer.element
    if isinstance(value, Tile) and value.shape != offset.shape and offset.shape:
        shape = broadcast_shape(offset.shape, value.shape)
        offset = np.broadcast_to(offset, shape)
    offset, masked, layout = masked_by(pointer, mask, offset, layout)
    if isinstance(value, Tile):
        layout = same_layout(layout, value.layout, "an atomic")
    data = np.broadcast_to(
        numeric.cast(value.data if isinstance(value, Tile) else np.asarray(value), element.numpy), offset.shape
    )
    if MACHINE.observer is not None:
        emit_global("atomic", pointer, offset, mask, masked, layout)
    if not buffer.writable:
        raise fault_at("input-written", f"atomic_{name} writes to {buffer.name}, which is an input")
    MACHINE.running.reach_global(buffer, f"atomic_{name}")
    place = buffer.check(offset, masked, f"atomic_{name} reaches")
    if buffer.poison is not None:
        bad = buffer.poison[place] if masked is None else buffer.poison[place] & masked
        if bad.any():
            raise fault_at("uninitialised", f"atomic_{name} on an element of {buffer.name} that nothing has written")
    program = MACHINE.running
    program.point()
    old = buffer.flat.take(place) if buffer.flat.size else np.zeros(place.shape, element.numpy)
    live = np.ones(place.shape, bool) if masked is None else masked
    targets, news = place[live], data[live]
    program.atomic_check(buffer, targets, sem)
    if not offset.shape:
        program.spin_check((buffer.name, int(place), old[()].tobytes()))
    if compare is not None:
        wanted = numeric.cast(np.asarray(getattr(compare, "data", compare)), element.numpy)
        expected = np.broadcast_to(wanted, place.shape)
        for at, new, want in zip(targets, news, expected[live], strict=True):
            if buffer.flat[at] == want:
                buffer.flat[at] = new
    elif np.unique(targets).size == targets.size:
        buffer.flat[targets] = _ATOMICS[name](buffer.flat[targets], news).astype(element.numpy)
    else:
        seen = np.empty(targets.shape, element.numpy)
        for i, (at, new) in enumerate(zip(targets, news, strict=True)):
            seen[i] = buffer.flat[at]
            buffer.flat[at] = _ATOMICS[name](buffer.flat[at], new)
        old = old.copy()
        old[live] = seen
    if buffer.written is not None:
        buffer.written[targets] = True
    return make_scalar(old[()], element) if not offset.shape else Tile(old, element, layout)


def atomic_cas(pointer: Any, cmp: Any, val: Any, sem: Any = None, scope: Any = None) -> Any:
    return atomic("cas", pointer, val, None, sem, compare=cmp)
