"""Gluon's synchronous operations on NumPy: what each builtin of the language does to tiles and memory.

Asynchronous operations are in ``asynchronous.py``. Each function here stands for the builtin of the same name.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compat import gl
from . import alignment as align
from . import numeric
from . import tile as tiles
from .context import MACHINE, emit
from .faults import fault_at
from .memory import Buffer
from .scalars import FloatScalar, IntScalar, divisor, is_constant, is_scalar, make_scalar
from .shared import View
from .tile import AUTO, Pointer, Tile, canonical, fma_tile, same_layout
from .types import F32, FLOAT, I1, I32, INT, U32, ElementType, element_type, promote, weak

__all__ = ["SYNCHRONOUS"]

# Making tiles.


def arange(start: Any, end: Any, layout: Any = None) -> Tile:
    length = int(end) - int(start)
    if length < 1 or length & (length - 1):
        raise fault_at("type-error", f"arange({start}, {end}) has {length} elements: Triton wants a power of two")
    known = align.arange(int(start), length) if MACHINE.observer is not None else None
    return Tile(np.arange(start, end, dtype=np.int32), I32, canonical(layout), known)


def full(shape: Any, value: Any, dtype: Any, layout: Any = None) -> Any:
    element = element_type(dtype)
    extent = tuple(int(s) for s in shape)
    if isinstance(value, Tile):
        raise fault_at("type-error", "full() takes a scalar, not a tile")
    number = numeric.cast(np.asarray(value), element.numpy)
    known = None
    if element.kind == INT and MACHINE.observer is not None and is_constant(value):
        known = align.constant(int(value), extent)
    return Tile(np.full(extent, number, element.numpy), element, canonical(layout), known)


def zeros(shape: Any, dtype: Any, layout: Any = None) -> Any:
    return full(shape, 0, dtype, layout)


def full_like(input: Any, value: Any, shape: Any = None, dtype: Any = None, layout: Any = None) -> Any:
    return full(
        input.shape if shape is None else shape, value, input.dtype if dtype is None else dtype,
        input.layout if layout is None else layout,
    )  # fmt: skip


def zeros_like(input: Any, shape: Any = None, dtype: Any = None, layout: Any = None) -> Any:
    return full_like(input, 0, shape, dtype, layout)


def to_tensor(x: Any) -> Any:
    return make_scalar(x, tiles.scalar_type(x)) if is_constant(x) else x


def cast(input: Any, dtype: Any, fp_downcast_rounding: Any = None, bitcast: bool = False) -> Any:
    if is_constant(input):
        return make_scalar(numeric.cast(np.asarray(input), element_type(dtype).numpy), element_type(dtype))
    return input.to(dtype, fp_downcast_rounding, bitcast)


# Shapes and layouts.


def convert_layout(value: Any, layout: Any, assert_trivial: bool = False) -> Tile:
    if not isinstance(value, Tile):
        raise fault_at("type-error", "convert_layout takes a tile")
    target = canonical(layout)
    data = value.data
    if target is not value.layout and MACHINE.observer is not None and not isinstance(value.layout, gl.AutoLayout):
        emit(
            "convert_layout", layout=target, source_layout=value.layout, shape=value.shape,
            element_bytes=value.element.bytes, key=("convert", value.layout, target, value.shape, value.element.bytes),
        )  # fmt: skip
    return Tile(data, value.element, target, value._align)


def set_auto_layout(value: Any, layout: Any) -> Any:
    if not isinstance(value.layout, gl.AutoLayout):
        raise fault_at("layout-mismatch", f"set_auto_layout of a tile that already has {value.layout}")
    return Tile(value.data, value.element, canonical(layout), value._align)


def expand_dims(input: Any, axis: Any) -> Any:
    axes = sorted(axis) if isinstance(axis, (list, tuple)) else [axis]
    for a in axes:
        input = tiles.expand_dims(input, int(a))
    return input


def broadcast(input: Any, other: Any) -> Any:
    layout = same_layout(input.layout, other.layout, "broadcast")
    shape = tiles.broadcast_pair(input, other)
    a, b = tiles.broadcast_to(input, shape), tiles.broadcast_to(other, shape)
    a.layout = b.layout = layout
    return a, b


def permute(input: Any, *dims: Any) -> Any:
    return input.permute(*dims)


def reshape(input: Any, *shape: Any, can_reorder: bool = False) -> Any:
    return input.reshape(*shape)


def join(a: Any, b: Any) -> Any:
    if a.shape != b.shape or a.element is not b.element:
        raise fault_at("type-error", "join takes two tiles of one shape and type")
    same_layout(a.layout, b.layout, "join")
    return Tile(np.stack([a.data, b.data], -1), a.element, canonical(_joined_layout(a.layout)))


def split(a: Any) -> Any:
    return tiles.split(a)


def _joined_layout(layout: Any) -> Any:
    if not isinstance(layout, gl.BlockedLayout):
        return AUTO
    rank = len(layout.order)
    return gl.BlockedLayout(
        [*layout.size_per_thread, 2], [*layout.threads_per_warp, 1], [*layout.warps_per_cta, 1], [rank, *layout.order]
    )


# Arithmetic.


def _spread(*values: Any) -> tuple[list[Any], ElementType, Any, Any]:
    """Values of one elementwise operation as arrays of one type; the layout; the first tile, if any."""
    found = [v for v in values if isinstance(v, Tile)]
    typed = [v for v in values if isinstance(v, Tile) or is_scalar(v)]
    if not typed:
        element = tiles.scalar_type(values[0])
    else:
        element = typed[0].element if isinstance(typed[0], Tile) else typed[0].type_
        for v in typed[1:]:
            element = promote(element, v.element if isinstance(v, Tile) else v.type_)
        for v in values:
            if is_constant(v):
                element = weak(v, element)
    arrays = [tiles._array(v, element) for v in values]
    if not found:
        return arrays, element, None, None
    layout = found[0].layout
    for v in found[1:]:
        if v.layout is not layout:
            layout = same_layout(layout, v.layout, "an elementwise operation")
        if v.shape != found[0].shape:
            tiles.broadcast_pair(found[0], v)
    return arrays, element, layout, found[0]


def _wrap(result: Any, element: ElementType, layout: Any, first: Any, known: Any = None) -> Any:
    if first is None:
        return make_scalar(np.asarray(result)[()], element)
    return Tile(result, element, layout, known)


def fma(x: Any, y: Any, z: Any) -> Any:
    if type(x) is type(y) is type(z) is Tile and x.element is y.element is z.element is F32:  # the common case, fast
        layout = z.layout
        if x.layout is layout and y.layout is layout:
            tiles._broadcast_shape(tiles._broadcast_shape(x.shape, y.shape), z.shape)
            return fma_tile(x.data, y.data, z.data, F32, layout)
    (a, b, c), element, layout, first = _spread(x, y, z)
    if element.kind != FLOAT:
        raise fault_at("type-error", f"fma takes floats, not {element}")
    if first is None:
        return FloatScalar(numeric.fma(np.asarray(a), np.asarray(b), np.asarray(c)), element)
    return fma_tile(a, b, c, element, layout)


def dot_fma(a: Any, b: Any, acc: Any) -> Tile:
    """acc + a @ b by fused multiply-adds, k rising."""
    parent = acc.layout
    for name, operand, number in (("a", a, 0), ("b", b, 1)):
        layout = operand.layout
        if not isinstance(layout, gl.DotOperandLayout) or layout.operand_index != number:
            raise fault_at("layout-mismatch", f"dot_fma's {name} is in {layout}, not DotOperandLayout({number}, ...)")
        if canonical(layout.parent) is not parent:
            raise fault_at("layout-mismatch", f"dot_fma's {name} belongs to {layout.parent}, not to {parent}")
    if a.shape[1] != b.shape[0] or (a.shape[0], b.shape[1]) != acc.shape:
        raise fault_at("type-error", f"dot_fma of {list(a.shape)} and {list(b.shape)} into {list(acc.shape)}")
    total = acc.data
    x, y = numeric.cast(a.data, total.dtype), numeric.cast(b.data, total.dtype)
    for k in range(a.shape[1]):
        total = numeric.fma(x[:, k : k + 1], y[k : k + 1, :], total)
    if MACHINE.observer is not None:
        k = a.shape[1]
        key = ("fma", parent, acc.shape, k)
        emit("fma", layout=parent, shape=acc.shape, k=k, element_bytes=acc.element.bytes, key=key)
    return Tile(total, acc.element, parent)


def _pick(name: str, ours: Any) -> Any:
    def operation(x: Any, y: Any, propagate_nan: Any = None) -> Any:
        (a, b), element, layout, first = _spread(x, y)
        known = None
        if MACHINE.observer is not None and element.kind == INT and first is not None:
            known = align.joined(tiles._known(x, first.shape), tiles._known(y, first.shape))
        return _divided_as_both(_wrap(ours(a, b), element, layout, first, known), x, y)

    operation.__name__ = name
    return operation


def _divided_as_both(result: Any, x: Any, y: Any) -> Any:
    """A runtime integer that is x or y: a power of two known to divide both divides it."""
    if isinstance(result, IntScalar):
        result.divisor = min(divisor(x), divisor(y))
    return result


maximum = _pick("maximum", np.fmax)
minimum = _pick("minimum", np.fmin)


def builtin_max(*values: Any, **options: Any) -> Any:
    """Python's ``max``: elementwise when a tile or a runtime scalar is among the values."""
    if options or not any(isinstance(v, Tile) or is_scalar(v) for v in values):
        return max(*values, **options)
    result = values[0]
    for v in values[1:]:
        result = maximum(result, v)
    return result


def builtin_min(*values: Any, **options: Any) -> Any:
    if options or not any(isinstance(v, Tile) or is_scalar(v) for v in values):
        return min(*values, **options)
    result = values[0]
    for v in values[1:]:
        result = minimum(result, v)
    return result


def where(condition: Any, x: Any, y: Any) -> Any:
    if not isinstance(condition, Tile) and not isinstance(x, Tile) and not isinstance(y, Tile):
        if is_constant(condition) and is_constant(x) and is_constant(y):
            return x if condition else y
        (a, b), element, _, _ = _spread(x, y)
        return _divided_as_both(make_scalar((a if condition else b)[()], element), x, y)
    if isinstance(x, Pointer) or isinstance(y, Pointer):
        raise fault_at("not-simulated", "where() of pointers is not simulated: choose the offset, then add the pointer")
    (a, b), element, layout, first = _spread(x, y)
    if not isinstance(condition, Tile):
        chosen = np.broadcast_to(a if condition else b, np.broadcast_shapes(np.shape(a), np.shape(b)))
        return Tile(chosen, element, layout)
    layout = condition.layout if first is None else same_layout(condition.layout, layout, "where")
    if first is not None:
        tiles.broadcast_pair(condition, first)
    return Tile(np.where(condition.data, a, b), element, layout)


def cdiv(x: Any, div: Any) -> Any:
    return (x + (div - 1)) // div


def add(x: Any, y: Any, sanitize_overflow: bool = True) -> Any:
    return x + y


def sub(x: Any, y: Any, sanitize_overflow: bool = True) -> Any:
    return x - y


def mul(x: Any, y: Any, sanitize_overflow: bool = True) -> Any:
    return x * y


def _unary(function: Any) -> Any:
    """A mathematical function: computed in float64, rounded once. The card's approximations differ in the last bits."""

    def operation(x: Any, *_: Any, **__: Any) -> Any:
        if isinstance(x, Tile):
            return Tile(function(x.data.astype(np.float64)).astype(x.element.numpy), x.element, x.layout)
        return FloatScalar(function(np.float64(x)))

    return operation


def _erf(x: np.ndarray) -> np.ndarray:
    from math import erf

    return np.vectorize(erf, otypes=[np.float64])(x) if x.size else x


def math_abs(x: Any) -> Any:
    if isinstance(x, Tile):
        return Tile(np.abs(x.data), x.element, x.layout)
    return abs(x) if not isinstance(x, FloatScalar) else FloatScalar(abs(float(x)), x.type_)


def fdiv(x: Any, y: Any, ieee_rounding: bool = False) -> Any:
    return x / y


def umulhi(x: Any, y: Any) -> Any:
    (a, b), element, layout, first = _spread(x, y)
    bits = element.bits
    wide = (np.asarray(a).astype(object) & ((1 << bits) - 1)) * (np.asarray(b).astype(object) & ((1 << bits) - 1))
    high = np.asarray(wide >> bits)
    unsigned = high.astype(np.uint64).astype(U32.numpy if bits == 32 else np.uint64)
    return _wrap(unsigned.view(element.numpy), element, layout, first)


# Reductions.


def _named_reduction(name: str) -> Any:
    def operation(input: Any, axis: Any = None, keep_dims: bool = False, dtype: Any = None, **_: Any) -> Any:
        tile = input.to(dtype) if dtype is not None else input
        return tiles.reduce_named(name, tile, None if axis is None else int(axis), keep_dims)

    return operation


def reduce(input: Any, axis: Any, combine_fn: Any, keep_dims: bool = False) -> Any:
    """Fold along a dimension with the kernel's own combining function, first element to last."""
    many = isinstance(input, tuple)
    inputs = input if many else (input,)
    if axis is None:
        inputs = tuple(Tile(t.data.reshape(-1), t.element, canonical(AUTO)) for t in inputs)
        axis = 0
    axis = int(axis) % len(inputs[0].shape)
    sliced = canonical(AUTO)
    slices = [[Tile(np.take(t.data, i, axis), t.element, sliced) for t in inputs] for i in range(inputs[0].shape[axis])]
    total = slices[0]
    for part in slices[1:]:
        out = combine_fn(*total, *part)
        total = list(out) if isinstance(out, tuple) else [out]
    results = tuple(
        tiles.wrap_reduced(np.asarray(t.data), source, axis, t.element, keep_dims)
        for t, source in zip(total, inputs, strict=True)
    )
    return results if many else results[0]


# Programs and the compile-time world.


def program_id(axis: Any) -> Any:
    return make_scalar(MACHINE.running.id[int(axis)], I32)


def num_programs(axis: Any) -> Any:
    return make_scalar(MACHINE.running.grid[int(axis)], I32)


def num_warps() -> int:
    return MACHINE.active.num_warps


def num_ctas() -> int:
    return 1


def static_assert(condition: Any, message: Any = "") -> None:
    if not condition:
        raise fault_at("kernel-error", f"static_assert failed{': ' + str(message) if message else ''}")


def device_assert(condition: Any, message: Any = "", mask: Any = None) -> None:
    data = condition.data if isinstance(condition, Tile) else np.asarray(condition)
    if mask is not None:
        data = data | ~(mask.data if isinstance(mask, Tile) else np.asarray(mask))
    if not np.all(data):
        raise fault_at("kernel-error", f"device_assert failed{': ' + str(message) if message else ''}")


def nothing(*_: Any, **__: Any) -> None:
    return None


def hint(input: Any, values: Any = None) -> Any:
    """multiple_of, max_contiguous, max_constancy: a promise to the compiler; the simulator needs none."""
    return input


def multiple_of(input: Any, values: Any) -> Any:
    if isinstance(input, Tile) and MACHINE.observer is not None:
        steps = tuple(int(v) for v in (values if isinstance(values, (list, tuple)) else (values,)))
        known = input.alignment
        return Tile(
            input.data, input.element, input.layout,
            align.Alignment(steps, known.contiguity, known.constancy, known.constant),
        )  # fmt: skip
    if isinstance(input, IntScalar) and is_constant(values):
        result = make_scalar(int(input), input.type_)
        result.divisor = align.power_of_two(values)
        return result
    return input


def barrier(**_: Any) -> None:
    """A barrier among the threads of the partition. Tiles run whole, so there is nothing to wait for."""
    if MACHINE.observer is not None:
        emit("barrier")
    MACHINE.running.point()


# Global memory.


def _pointers(pointer: Any, what: str) -> tuple[Buffer, np.ndarray, Any]:
    if not isinstance(pointer, Pointer):
        raise fault_at("type-error", f"{what} takes a pointer or a tile of pointers, not {type(pointer).__name__}")
    return pointer.buffer, np.asarray(pointer.offset, np.int64), pointer.layout


def _masked(pointer: Pointer, mask: Any, offset: np.ndarray, layout: Any) -> tuple[np.ndarray, np.ndarray | None, Any]:
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
        shape = tiles._broadcast_shape(offset.shape, mask.shape)
        return np.broadcast_to(offset, shape), np.broadcast_to(mask.data, shape), layout
    return offset, mask.data, layout


def _emit_global(
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
    emit(
        kind, layout=layout, shape=offset.shape, element_bytes=buffer.element.bytes, role=buffer.name, mask=data,
        alignment=known, mask_alignment=mask_known, global_bytes=lambda: buffer.address_of(offset), **more,
    )  # fmt: skip


def read(buffer: Buffer, offset: np.ndarray, mask: np.ndarray | None, what: str) -> np.ndarray:
    """Elements of global memory; masked-off ones are whatever lies at the first element.

    Raises:
        SimulationFault: out of bounds, uninitialised, or written by another program of this launch.
    """
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
    buffer, offset, layout = _pointers(pointer, "load")
    offset, masked, layout = _masked(pointer, mask, offset, layout)
    if MACHINE.observer is not None:
        _emit_global("global_load", pointer, offset, mask, masked, layout)
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
    buffer, offset, layout = _pointers(pointer, "store")
    element = buffer.element
    if isinstance(value, Tile) and offset.shape:
        layout = same_layout(layout, value.layout, "a store")
        shape = tiles._broadcast_shape(offset.shape, value.shape) if value.shape != offset.shape else offset.shape
        offset = np.broadcast_to(offset, shape)
        data = np.broadcast_to(numeric.cast(value.data, element.numpy), shape)
    elif isinstance(value, Tile):
        raise fault_at("type-error", "a tile is stored through a scalar pointer: add offsets to the pointer")
    else:
        data = np.broadcast_to(numeric.cast(np.asarray(value), element.numpy), offset.shape)
    offset, masked, layout = _masked(pointer, mask, offset, layout)
    if masked is not None and masked.shape != data.shape:
        data = np.broadcast_to(data, masked.shape)
    if MACHINE.observer is not None:
        _emit_global("global_store", pointer, offset, mask, masked, layout)
    write(buffer, offset, masked, data, "store")


def write(buffer: Buffer, offset: np.ndarray, mask: np.ndarray | None, data: np.ndarray, what: str) -> None:
    """Elements of global memory written.

    Raises:
        SimulationFault: out of bounds, an input operand, or written by another program of this launch.
    """
    if not buffer.writable:
        raise fault_at("input-written", f"{what} writes to {buffer.name}, which is an input")
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


def _atomic(name: str) -> Any:
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
    buffer, offset, layout = _pointers(pointer, f"atomic_{name}")
    element = buffer.element
    if isinstance(value, Tile) and value.shape != offset.shape and offset.shape:
        shape = tiles._broadcast_shape(offset.shape, value.shape)
        offset = np.broadcast_to(offset, shape)
    offset, masked, layout = _masked(pointer, mask, offset, layout)
    if isinstance(value, Tile):
        layout = same_layout(layout, value.layout, "an atomic")
    data = np.broadcast_to(
        numeric.cast(value.data if isinstance(value, Tile) else np.asarray(value), element.numpy), offset.shape
    )
    if MACHINE.observer is not None:
        _emit_global("atomic", pointer, offset, mask, masked, layout)
    if not buffer.writable:
        raise fault_at("input-written", f"atomic_{name} writes to {buffer.name}, which is an input")
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


# Shared memory.


def allocate_shared_memory(element_ty: Any, shape: Any, layout: Any, value: Any = None) -> View:
    view = MACHINE.running.allocate(element_ty, shape, layout)
    if value is not None:
        view.store(value)
    return view


SYNCHRONOUS: dict[str, Any] = {
    name: value
    for name, value in {
        "arange": arange, "full": full, "zeros": zeros, "full_like": full_like, "zeros_like": zeros_like,
        "to_tensor": to_tensor, "cast": cast, "convert_layout": convert_layout, "set_auto_layout": set_auto_layout,
        "expand_dims": expand_dims, "broadcast": broadcast, "permute": permute, "reshape": reshape, "join": join,
        "split": split, "fma": fma, "dot_fma": dot_fma, "maximum": maximum, "minimum": minimum, "where": where,
        "pinned_fma": fma, "cdiv": cdiv, "add": add, "sub": sub, "mul": mul,
        "exp": _unary(np.exp), "exp2": _unary(np.exp2),
        "log": _unary(np.log), "log2": _unary(np.log2), "cos": _unary(np.cos), "sin": _unary(np.sin),
        "sqrt": _unary(np.sqrt), "sqrt_rn": _unary(np.sqrt), "rsqrt": _unary(lambda x: 1.0 / np.sqrt(x)),
        "floor": _unary(np.floor), "ceil": _unary(np.ceil), "erf": _unary(_erf), "abs": math_abs, "fdiv": fdiv,
        "div_rn": fdiv, "umulhi": umulhi, "sum": _named_reduction("sum"), "max": _named_reduction("max"),
        "min": _named_reduction("min"), "xor_sum": _named_reduction("xor_sum"), "reduce": reduce,
        "program_id": program_id, "num_programs": num_programs, "num_warps": num_warps, "num_ctas": num_ctas,
        "static_assert": static_assert, "device_assert": device_assert, "static_print": nothing,
        "device_print": nothing, "assume": nothing, "multiple_of": multiple_of, "max_contiguous": hint,
        "max_constancy": hint, "load": load, "store": store, "atomic_add": _atomic("add"),
        "atomic_max": _atomic("max"), "atomic_min": _atomic("min"), "atomic_and": _atomic("and"),
        "atomic_or": _atomic("or"), "atomic_xor": _atomic("xor"), "atomic_xchg": _atomic("xchg"),
        "atomic_cas": atomic_cas, "allocate_shared_memory": allocate_shared_memory,
    }.items()
}  # fmt: skip
"""By Gluon's own names."""
