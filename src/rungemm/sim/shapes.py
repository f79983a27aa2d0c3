"""Tiles in other shapes: dimensions added, stretched, reordered, reduced; the layout follows.

Importing this module gives :class:`.tile.Tile` its methods of these names.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..compat import gl
from ..layouts.distributed import warps_of
from ..layouts.maps import register_map
from . import alignment as align
from . import numeric
from .context import MACHINE
from .faults import fault_at
from .scalars import make_scalar
from .tile import AUTO, Pointer, Tile, broadcast_shape, canonical
from .types import FLOAT, I32, ElementType, element_type

__all__ = [
    "broadcast_to", "expand_dims", "permute", "reduce_named", "reshape", "split", "take_dims", "wrap_reduced",
]  # fmt: skip


def take_dims(tile: Any, index: Any) -> Any:
    """``tile[:, None]``: dimensions of length 1 added; nothing else can be indexed."""
    items = index if isinstance(index, tuple) else (index,)
    result = tile
    for axis, item in enumerate(items):
        if item is None:
            result = expand_dims(result, axis)
        elif not (isinstance(item, slice) and item == slice(None)):
            raise fault_at("type-error", f"a tile can only be indexed with : and None, not with {item!r}")
    return result


def expand_dims(tile: Any, axis: int) -> Any:
    """A dimension of length 1, allowed where the layout was sliced."""
    layout = tile.layout
    rank = len(tile.shape)
    axis = axis + rank + 1 if axis < 0 else axis
    if isinstance(layout, gl.SliceLayout):
        if layout.dim != axis:
            raise fault_at(
                "layout-mismatch",
                f"dimension {axis} is added to a tile in {layout}, which is sliced along {layout.dim}",
            )
        parent = canonical(layout.parent)
    elif isinstance(layout, gl.AutoLayout):
        parent = layout
    else:
        raise fault_at("layout-mismatch", f"a dimension is added to a tile in {layout}: it must be a SliceLayout")
    if isinstance(tile, Pointer):
        known = align.expanded(tile.alignment, axis, 1) if MACHINE.observer is not None else None
        assert tile.pattern is not None  # only tiles have a layout
        return Pointer(tile.buffer, tile.shift, parent, known, tile.pattern[_room(axis)])
    known = None
    if MACHINE.observer is not None and tile._align is not None:
        known = align.expanded(tile._align, axis, align.common_divisor(tile._align))
    return Tile(tile.data[_room(axis)], tile.element, parent, known)


def _room(axis: int) -> tuple[Any, ...]:
    """The index that adds a dimension there."""
    return (*(slice(None),) * axis, None)


def broadcast_to(tile: Any, shape: tuple[int, ...]) -> Any:
    """Dimensions of length 1 stretched."""
    if tile.shape == shape:
        return tile
    if broadcast_shape(tile.shape, shape) != shape:
        raise fault_at("type-error", f"shape {list(tile.shape)} does not broadcast to {list(shape)}")
    known = align.broadcast(tile.alignment, tile.shape, shape) if MACHINE.observer is not None else None
    if isinstance(tile, Pointer):
        pattern = np.zeros((), np.int64) if tile.pattern is None else tile.pattern
        return Pointer(tile.buffer, tile.shift, tile.layout, known, np.broadcast_to(pattern, shape))
    return Tile(np.broadcast_to(tile.data, shape), tile.element, tile.layout, known)


def permute(tile: Tile, order: tuple[int, ...]) -> Tile:
    """Dimensions reordered; the layout moves along."""
    layout = tile.layout
    if isinstance(layout, gl.BlockedLayout):
        back = [order.index(d) for d in layout.order]
        layout = gl.BlockedLayout(
            [layout.size_per_thread[d] for d in order],
            [layout.threads_per_warp[d] for d in order],
            [layout.warps_per_cta[d] for d in order],
            back,
        )
    elif not isinstance(layout, gl.AutoLayout):
        raise fault_at("not-simulated", f"permute of a tile in {type(layout).__name__} is not simulated: convert it")
    return Tile(np.transpose(tile.data, order), tile.element, canonical(layout))


def split(tile: Tile) -> tuple[Tile, Tile]:
    """The two halves of the last dimension, which must be 2 long."""
    if not tile.shape or tile.shape[-1] != 2:
        raise fault_at("type-error", f"split takes a tile whose last dimension is 2, not {list(tile.shape)}")
    layout = tile.layout
    if isinstance(layout, gl.BlockedLayout):
        rank = len(layout.order) - 1
        if layout.size_per_thread[-1] != 2 or layout.threads_per_warp[-1] != 1 or layout.warps_per_cta[-1] != 1:
            raise fault_at("layout-mismatch", f"split wants the last dimension's two elements in one thread: {layout}")
        layout = gl.BlockedLayout(
            layout.size_per_thread[:-1],
            layout.threads_per_warp[:-1],
            layout.warps_per_cta[:-1],
            [d for d in layout.order if d != rank],
        )
    elif not isinstance(layout, gl.AutoLayout):
        layout = gl.SliceLayout(len(tile.shape) - 1, layout)
    layout = canonical(layout)
    return Tile(tile.data[..., 0], tile.element, layout), Tile(tile.data[..., 1], tile.element, layout)


def reshape(tile: Tile, shape: tuple[int, ...]) -> Tile:
    """Another shape of as many elements, in row-major order. The result's layout is left open (AutoLayout)."""
    if math.prod(shape) != tile.numel:
        raise fault_at("type-error", f"shape {list(tile.shape)} cannot become {list(shape)}: the sizes differ")
    return Tile(tile.data.reshape(shape), tile.element, canonical(AUTO))


def reduce_named(name: str, tile: Tile, axis: int | None, keep_dims: bool = False) -> Any:
    """Sum, maximum or minimum along a dimension; the result's layout is the slice of the tile's.

    A sum of fp32 along a dimension of a tile with a layout is added in the card's order (:func:`_sum_in_order`); any
    other sum of floats is taken in float64 and rounded once.
    """
    data, element = tile.data, tile.element
    if element.bits < 32:
        element = element_type(gl.float32) if element.kind == FLOAT else I32
        data = numeric.cast(data, element.numpy)
    function: Any = {"sum": np.sum, "max": np.max, "min": np.min, "xor_sum": np.bitwise_xor.reduce}[name]
    if name in ("max", "min") and element.kind == FLOAT:
        # A NaN loses against a number, as in the hardware's min and max.
        function = {"max": np.fmax.reduce, "min": np.fmin.reduce}[name]
    wide = np.float64 if name == "sum" and element.kind == FLOAT else data.dtype
    ordered = name == "sum" and data.dtype == np.float32 and not isinstance(tile.layout, gl.AutoLayout)
    if axis is not None and ordered:
        out = _sum_in_order(data, axis % data.ndim, tile.layout)
    elif name == "sum":
        out = function(data, axis=axis, dtype=wide).astype(element.numpy)
    else:
        out = function(data if axis is not None else data.ravel(), axis=axis if axis is not None else 0)
    return wrap_reduced(np.asarray(out), tile, axis, element, keep_dims)


def _sum_in_order(data: np.ndarray, axis: int, layout: Any) -> np.ndarray:
    """An fp32 sum in the card's order: each thread its own registers one after the other, then lanes, then warps.

    Lanes and warps add in halves, as Triton lowers it: position i and i + n/2, then n/4, down to neighbours.
    """
    index = register_map(layout, data.shape, warps_of(layout)).index
    at = np.unravel_index(index, data.shape)[axis]  # by warp, lane and register
    # The index bits of warps, lanes and registers that move along the dimension.
    moving = [
        [1 << b for b in range((n - 1).bit_length()) if np.take(at, 1 << b, d).flat[0] != at.flat[0]]
        for d, n in enumerate(index.shape)
    ]
    mask = sum(moving[2])
    own = [r for r in range(index.shape[2]) if not r & mask]
    values = data.reshape(-1)[index]
    total = values[:, :, own]
    for step in range(1, index.shape[2]):
        if step & mask == step:
            total = total + values[:, :, [r | step for r in own]]
    for dimension in (1, 0):
        for bit in reversed(moving[dimension]):
            total = total + np.take(total, np.arange(total.shape[dimension]) ^ bit, dimension)
    if data.ndim == 1:
        return total.flat[0]
    places = np.unravel_index(index[:, :, own], data.shape)
    out = np.empty(data.shape[:axis] + data.shape[axis + 1 :], np.float32)
    out[tuple(place for d, place in enumerate(places) if d != axis)] = total
    return out


def wrap_reduced(out: np.ndarray, tile: Tile, axis: int | None, element: ElementType, keep_dims: bool) -> Any:
    """The result of a reduction as a tile in the slice of the layout, or as a scalar."""
    if keep_dims:
        full = tuple(1 if axis is None or i == axis % len(tile.shape) else n for i, n in enumerate(tile.shape))
        return Tile(out.reshape(full), element, tile.layout)
    if out.ndim == 0:
        return make_scalar(out[()], element)
    if isinstance(tile.layout, gl.AutoLayout):
        return Tile(out, element, tile.layout)
    return Tile(out, element, canonical(gl.SliceLayout(axis % len(tile.shape) if axis is not None else 0, tile.layout)))


def _numbers(values: tuple[Any, ...]) -> tuple[int, ...]:
    """``f(1, 2)`` and ``f([1, 2])`` alike."""
    given = values[0] if len(values) == 1 and isinstance(values[0], (list, tuple)) else values
    return tuple(int(v) for v in given)


def _reduction(name: str) -> Callable[..., Any]:
    def method(self: Tile, axis: int | None = None, keep_dims: bool = False) -> Any:
        return reduce_named(name, self, axis, keep_dims)

    return method


_METHODS: dict[str, Any] = {
    "__getitem__": take_dims,
    "T": property(lambda self: permute(self, tuple(reversed(range(len(self.shape)))))),
    "permute": lambda self, *dims: permute(self, _numbers(dims)),
    "trans": lambda self, *dims: permute(self, _numbers(dims)),
    "reshape": lambda self, *shape: reshape(self, _numbers(shape)),
    "broadcast_to": lambda self, *shape: broadcast_to(self, _numbers(shape)),
    "expand_dims": expand_dims,
    "split": split,
    "sum": _reduction("sum"),
    "max": _reduction("max"),
    "min": _reduction("min"),
}
for _name, _method in _METHODS.items():
    setattr(Tile, _name, _method)
setattr(Pointer, "__getitem__", take_dims)  # noqa: B010
