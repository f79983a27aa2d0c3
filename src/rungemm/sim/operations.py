"""Gluon's synchronous operations: making tiles, layouts, reductions, programs; and the table of them all.

Asynchronous operations are in ``asynchronous.py``. Each function here stands for the builtin of the same name.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compat import gl
from . import alignment as align
from . import arithmetic, numeric, shapes
from .context import MACHINE, emit
from .elementwise import ELEMENTWISE, builtin_max, builtin_min
from .faults import fault_at
from .global_memory import atomic_cas, atomic_operation, load, store
from .scalars import IntScalar, is_constant, make_scalar, scalar_type
from .shared import View
from .tile import AUTO, Tile, broadcast_pair, canonical, same_layout
from .types import I32, INT, element_type

__all__ = ["SYNCHRONOUS", "barrier", "builtin_max", "builtin_min", "nothing"]

# The modules that give tiles their operators and methods.
_INSTALLED = (arithmetic, shapes)


# Making shapes.


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
    elif MACHINE.observer is not None and extent:
        known = align.scalar(1, extent)  # one value everywhere, whatever it is: a mask of it keeps vectors whole
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
    return make_scalar(x, scalar_type(x)) if is_constant(x) else x


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
            element_bytes=value.element.bytes, key=(id(value.layout), id(target), value.shape, value.element.bytes),
        )  # fmt: skip
    return Tile(data, value.element, target, value._align)


def set_auto_layout(value: Any, layout: Any) -> Any:
    if not isinstance(value.layout, gl.AutoLayout):
        raise fault_at("layout-mismatch", f"set_auto_layout of a tile that already has {value.layout}")
    return Tile(value.data, value.element, canonical(layout), value._align)


def expand_dims(input: Any, axis: Any) -> Any:
    axes = sorted(axis) if isinstance(axis, (list, tuple)) else [axis]
    for a in axes:
        input = shapes.expand_dims(input, int(a))
    return input


def broadcast(input: Any, other: Any) -> Any:
    layout = same_layout(input.layout, other.layout, "broadcast")
    shape = broadcast_pair(input, other)
    a, b = shapes.broadcast_to(input, shape), shapes.broadcast_to(other, shape)
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


def _joined_layout(layout: Any) -> Any:
    if not isinstance(layout, gl.BlockedLayout):
        return AUTO
    rank = len(layout.order)
    return gl.BlockedLayout(
        [*layout.size_per_thread, 2], [*layout.threads_per_warp, 1], [*layout.warps_per_cta, 1], [rank, *layout.order]
    )


# Reductions.


def _named_reduction(name: str) -> Any:
    def operation(input: Any, axis: Any = None, keep_dims: bool = False, dtype: Any = None, **_: Any) -> Any:
        tile = input.to(dtype) if dtype is not None else input
        return shapes.reduce_named(name, tile, None if axis is None else int(axis), keep_dims)

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
        shapes.wrap_reduced(np.asarray(t.data), source, axis, t.element, keep_dims)
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


# Shared memory.


def allocate_shared_memory(element_ty: Any, shape: Any, layout: Any, value: Any = None) -> View:
    view = MACHINE.running.allocate(element_ty, shape, layout)
    if value is not None:
        view.store(value)
    return view


SYNCHRONOUS: dict[str, Any] = {
    **ELEMENTWISE,
    "arange": arange, "full": full, "zeros": zeros, "full_like": full_like, "zeros_like": zeros_like,
    "to_tensor": to_tensor, "cast": cast, "convert_layout": convert_layout, "set_auto_layout": set_auto_layout,
    "expand_dims": expand_dims, "broadcast": broadcast, "permute": permute, "reshape": reshape, "join": join,
    "split": shapes.split, "sum": _named_reduction("sum"), "max": _named_reduction("max"),
    "min": _named_reduction("min"), "xor_sum": _named_reduction("xor_sum"), "reduce": reduce,
    "program_id": program_id, "num_programs": num_programs, "num_warps": num_warps, "num_ctas": num_ctas,
    "static_assert": static_assert, "device_assert": device_assert, "static_print": nothing,
    "device_print": nothing, "assume": nothing, "multiple_of": multiple_of, "max_contiguous": hint,
    "max_constancy": hint, "load": load, "store": store, "atomic_cas": atomic_cas,
    "allocate_shared_memory": allocate_shared_memory,
    **{f"atomic_{name}": atomic_operation(name) for name in ("add", "max", "min", "and", "or", "xor", "xchg")},
}  # fmt: skip
"""By Gluon's own names."""
