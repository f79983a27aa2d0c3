"""Tiles: immutable arrays of elements with a dtype and a Gluon layout, and pointers to global memory.

Operators follow Triton's typing and broadcasting, and check that layouts are equal, as Gluon's compiler does. A
float product remembers its factors, because the compiler contracts ``a * b + c`` into one fused multiply-add.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ..compat import gl
from . import alignment as align
from . import numeric
from .context import MACHINE, emit
from .events import Alignment
from .faults import fault_at
from .memory import Buffer
from .scalars import FloatScalar, IntScalar, divisor, is_scalar, make_scalar, scalar_type
from .types import FLOAT, FP8, I1, I32, I64, INT, ElementType, Shape, element_type, promote, weak

__all__ = ["Pointer", "Tile", "as_tile", "broadcast_pair", "canonical", "same_layout"]

_layouts: dict[Any, Any] = {}
_seen: dict[int, tuple[Any, Any]] = {}  # by identity: the object itself, kept alive, and its canonical one
AUTO = gl.AutoLayout()


def _layout_key(layout: Any) -> Any:
    if is_dataclass(layout):
        return (type(layout).__name__, *(_layout_key(getattr(layout, f.name)) for f in fields(layout)))
    if isinstance(layout, (list, tuple)):
        return tuple(_layout_key(x) for x in layout)
    return layout


def canonical(layout: Any) -> Any:
    """One object for all equal layouts, so that comparing them is comparing identities."""
    if layout is None:
        layout = AUTO
    known = _seen.get(id(layout))
    if known is not None:
        return known[1]
    found = _layouts.setdefault(_layout_key(layout), layout)
    if len(_seen) > 4096:  # kernels make new layout objects in every program
        _seen.clear()
    _seen[id(layout)] = (layout, found)
    return found


def same_layout(a: Any, b: Any, what: str) -> Any:
    """The layout of a combination of two tiles.

    Raises:
        SimulationFault: they differ.
    """
    if a is b:
        return a
    if isinstance(a, gl.AutoLayout):
        return b
    if isinstance(b, gl.AutoLayout):
        return a
    raise fault_at(
        "layout-mismatch", f"{what} of tiles in two layouts, {a} and {b}: convert one with gl.convert_layout"
    )


class Tile:
    """A tile of numbers in registers. ``data`` is never changed once made."""

    __slots__ = ("_align", "data", "element", "factors", "layout", "shape")

    def __init__(self, data: np.ndarray, element: ElementType, layout: Any, alignment: Alignment | None = None) -> None:
        self.data = data
        self.element = element
        self.layout = layout
        self.shape = Shape(data.shape)
        self._align = alignment
        self.factors: tuple[np.ndarray, np.ndarray] | None = None

    # What kernels read of a tensor.
    @property
    def dtype(self) -> Any:
        return self.element.gluon

    @property
    def type(self) -> Any:
        return gl.distributed_type(self.element.gluon, list(self.shape), self.layout)

    @property
    def numel(self) -> int:
        return self.data.size

    @property
    def T(self) -> Any:
        return permute(self, tuple(reversed(range(len(self.shape)))))

    @property
    def alignment(self) -> Alignment:
        return self._align or align.unknown(len(self.shape))

    def __bool__(self) -> bool:
        raise fault_at(
            "tile-as-condition",
            f"a tile of shape {list(self.shape)} has no single truth value: use gl.where, or a reduction to a scalar",
        )

    def __repr__(self) -> str:
        return f"Tile({self.element}{list(self.shape)}, {self.layout})"

    def __iter__(self) -> Any:
        raise fault_at("type-error", "a tile cannot be iterated: use gl.split, or shared memory")

    __hash__ = object.__hash__

    def to(self, dtype: Any, fp_downcast_rounding: str | None = None, bitcast: bool = False) -> Tile:
        """Another element type: converted, or the same bits."""
        target = element_type(dtype)
        if target is self.element:
            return self
        if bitcast:
            if target.bits != self.element.bits:
                raise fault_at("type-error", f"bitcast from {self.element} to {target}: widths differ")
            return Tile(np.ascontiguousarray(self.data).view(target.numpy), target, self.layout)
        if fp_downcast_rounding == "rtz":
            raise fault_at("not-simulated", "rounding toward zero in .to() is not simulated")
        keep = self._align if target.kind == INT and self.element.kind == INT else None
        return Tile(numeric.cast(self.data, target.numpy), target, self.layout, keep)

    cast = to

    def __getitem__(self, index: Any) -> Any:
        return take_dims(self, index)

    # Reductions and reshapes as methods forward to the operations of the same name.
    def sum(self, axis: int | None = None, keep_dims: bool = False) -> Any:
        return reduce_named("sum", self, axis, keep_dims)

    def max(self, axis: int | None = None, keep_dims: bool = False) -> Any:
        return reduce_named("max", self, axis, keep_dims)

    def min(self, axis: int | None = None, keep_dims: bool = False) -> Any:
        return reduce_named("min", self, axis, keep_dims)

    def permute(self, *dims: Any) -> Any:
        order = dims[0] if len(dims) == 1 and isinstance(dims[0], (list, tuple)) else dims
        return permute(self, tuple(int(d) for d in order))

    trans = permute

    def split(self) -> Any:
        return split(self)

    def expand_dims(self, axis: int) -> Any:
        return expand_dims(self, axis)

    def broadcast_to(self, *shape: Any) -> Any:
        target = shape[0] if len(shape) == 1 and isinstance(shape[0], (list, tuple)) else shape
        return broadcast_to(self, tuple(int(s) for s in target))

    def reshape(self, *shape: Any) -> Any:
        target = shape[0] if len(shape) == 1 and isinstance(shape[0], (list, tuple)) else shape
        return reshape(self, tuple(int(s) for s in target))

    def __neg__(self) -> Tile:
        if self.element.kind == FLOAT:
            return Tile(-self.data, self.element, self.layout)
        return Tile((0 - self.data).astype(self.element.numpy), self.element, self.layout, self._align)

    def __invert__(self) -> Tile:
        keep = self._align if self.element is I1 else None
        return Tile(~self.data, self.element, self.layout, keep)


class Pointer:
    """A pointer, or a tile of pointers, into one buffer. ``offset`` counts elements from the buffer's first."""

    __slots__ = ("_align", "buffer", "layout", "offset", "shape")

    def __init__(self, buffer: Buffer, offset: Any, layout: Any = None, alignment: Alignment | None = None) -> None:
        self.buffer = buffer
        self.offset = offset
        self.layout = layout
        self.shape = Shape(offset.shape) if isinstance(offset, np.ndarray) else Shape()
        self._align = alignment

    @property
    def element(self) -> ElementType:
        return self.buffer.element

    @property
    def dtype(self) -> Any:
        return gl.pointer_type(self.buffer.element.gluon)

    @property
    def type(self) -> Any:
        return self.dtype if not self.shape else gl.distributed_type(self.dtype, list(self.shape), self.layout)

    @property
    def alignment(self) -> Alignment:
        return self._align or align.unknown(len(self.shape))

    def __bool__(self) -> bool:
        raise fault_at("tile-as-condition", "a pointer has no truth value")

    def __add__(self, other: Any) -> Pointer:
        return self._moved(other, 1)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Pointer:
        return self._moved(other, -1)

    def __getitem__(self, index: Any) -> Any:
        return take_dims(self, index)

    def _moved(self, other: Any, sign: int) -> Pointer:
        size = self.buffer.element.bytes
        watch = MACHINE.observer is not None
        if isinstance(other, int):
            step = int(other) * sign
            known = None
            if watch:
                d = min(divisor(other), 1 << 30) * size
                known = align.added(self.alignment, align.scalar(d, self.shape), 1) if self.shape else None
                if not self.shape:
                    ours = self._align.divisibility[0] if self._align else size
                    known = Alignment((min(ours, d),), (1,), (1,))
            return Pointer(self.buffer, self.offset + step, self.layout, known)
        if not isinstance(other, Tile):
            return NotImplemented
        if other.element.kind != INT:
            raise fault_at("type-error", f"a pointer moves by integers, not by {other.element}")
        offsets = other.data if sign == 1 else -other.data.astype(np.int64)
        if not self.shape:
            known = None
            if watch:
                ours = self._align.divisibility[0] if self._align else size
                known = align.added(align.scalar(ours, other.shape), other.alignment, size)
            return Pointer(self.buffer, np.add(offsets, self.offset, dtype=np.int64), other.layout, known)
        layout = same_layout(self.layout, other.layout, "pointer arithmetic")
        a, b = self, other
        if a.shape != b.shape:
            shape = _broadcast_shape(a.shape, b.shape)
            known = align.broadcast(a.alignment, a.shape, shape) if watch else None
            other_known = align.broadcast(b.alignment, b.shape, shape) if watch else None
        else:
            known, other_known = (a.alignment, b.alignment) if watch else (None, None)
        moved = np.add(self.offset, offsets, dtype=np.int64)
        result = align.added(known, other_known, size) if known and other_known else None
        return Pointer(self.buffer, moved, layout, result)


@lru_cache(maxsize=4096)
def _broadcast_shape(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    if len(a) != len(b):
        raise fault_at("type-error", f"shapes {list(a)} and {list(b)} differ in rank: add dimensions with [:, None]")
    shape = []
    for x, y in zip(a, b, strict=True):
        if x != y and 1 not in (x, y):
            raise fault_at("type-error", f"shapes {list(a)} and {list(b)} do not broadcast")
        shape.append(max(x, y) if 0 not in (x, y) else 0)
    return tuple(shape)


def broadcast_pair(a: Tile, b: Tile) -> tuple[int, ...]:
    """The common shape."""
    return a.shape if a.shape == b.shape else _broadcast_shape(a.shape, b.shape)


def as_tile(value: Any, like: Tile | Pointer, element: ElementType) -> Tile:
    """A scalar or tile as a tile of ``like``'s shape and layout, of type ``element``."""
    if isinstance(value, Tile):
        return value.to(element)
    data = np.full((1,) * len(like.shape), 0, element.numpy)
    data[...] = numeric.cast(np.asarray(value), element.numpy) if is_scalar(value) else value
    return Tile(np.broadcast_to(data, like.shape), element, like.layout)


def _known(value: Any, shape: tuple[int, ...]) -> Alignment:
    """Alignment of an operand as a tile of ``shape``."""
    if isinstance(value, Tile):
        return value.alignment if value.shape == shape else align.broadcast(value.alignment, value.shape, shape)
    if isinstance(value, IntScalar):
        return align.scalar(value.divisor, shape)
    if isinstance(value, int):
        return align.constant(int(value), shape)
    return align.unknown(len(shape))


Rule = Callable[[Alignment, Alignment], Alignment]


def _divide(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if (y == 0).any():
        raise fault_at("kernel-error", "an integer tile is divided by zero")
    return (x - np.fmod(x, y)) // y


def _modulo(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if (y == 0).any():
        raise fault_at("kernel-error", "an integer tile is divided by zero")
    return np.fmod(x, y)


_FLOAT_DIVISIONS = ("truediv", "floordiv", "mod")


def _types(name: str, a: Any, b: Any) -> ElementType:
    division = name in _FLOAT_DIVISIONS
    if isinstance(a, Tile):
        if isinstance(b, Tile):
            return a.element if a.element is b.element and not division else promote(a.element, b.element, division)
        return promote(a.element, b.type_, division) if is_scalar(b) else weak(b, a.element, division)
    return promote(a.type_, b.element, division) if is_scalar(a) else weak(a, b.element, division)


def _array(value: Any, element: ElementType) -> Any:
    if isinstance(value, Tile):
        return value.data if value.element is element else numeric.cast(value.data, element.numpy)
    if is_scalar(value):
        return numeric.cast(np.asarray(value, dtype=value.type_.numpy), element.numpy)
    if element.kind == INT:
        info = np.iinfo(element.numpy)
        if not info.min <= value <= info.max:
            raise fault_at("type-error", f"the constant {value} does not fit {element}")
    return np.asarray(value).astype(element.numpy)


def _operands(name: str, a: Any, b: Any) -> tuple[Any, Any, ElementType, Any, tuple[int, ...]]:
    element = _types(name, a, b)
    if isinstance(a, Tile) and isinstance(b, Tile):
        layout = a.layout if a.layout is b.layout else same_layout(a.layout, b.layout, f"operator {name}")
        shape = a.shape if a.shape == b.shape else _broadcast_shape(a.shape, b.shape)
    else:
        tile = a if isinstance(a, Tile) else b
        layout, shape = tile.layout, tile.shape
    return _array(a, element), _array(b, element), element, layout, shape


def _is_operand(value: Any) -> bool:
    return isinstance(value, (Tile, int, float))


def _arithmetic(name: str, function: Any, rule: Rule | None) -> None:
    def compute(a: Any, b: Any) -> Tile:
        x, y, element, layout, shape = _operands(name, a, b)
        if element in FP8:
            raise fault_at("type-error", f"fp8 has no arithmetic of its own: cast to float16 or float32 before {name}")
        if element.kind == FLOAT and name in ("add", "sub"):
            fused = _contract(name, a, b, x, y, element, layout)
            if fused is not None:
                return fused
        if element.kind == FLOAT and element.bits == 16:
            # Through float32, which holds the exact sum or product well enough to round right.
            result = function(x.astype(np.float32), y.astype(np.float32)).astype(element.numpy)
        else:
            result = function(x, y)
        if element.kind != FLOAT and result.dtype != element.numpy:
            result = result.astype(element.numpy)
        known = None
        if rule is not None and element.kind == INT and MACHINE.observer is not None:
            known = rule(_known(a, shape), _known(b, shape))
        tile = Tile(result, element, layout, known)
        if name == "mul" and element.kind == FLOAT:
            tile.factors = (x, y)
        return tile

    def forward(self: Tile, other: Any) -> Any:
        return compute(self, other) if _is_operand(other) else NotImplemented

    def backward(self: Tile, other: Any) -> Any:
        return compute(other, self) if _is_operand(other) else NotImplemented

    setattr(Tile, f"__{name}__", forward)
    setattr(Tile, f"__r{name}__", backward)


def _contract(name: str, a: Any, b: Any, x: Any, y: Any, element: ElementType, layout: Any) -> Tile | None:
    """a * b + c in one rounding: the left product first when both sides are products, as LLVM prefers."""
    if element.bits != 32:
        return None
    if isinstance(a, Tile) and a.factors is not None and a.element is element:
        u, v = a.factors
        w = -y if name == "sub" else y
    elif isinstance(b, Tile) and b.factors is not None and b.element is element:
        u, v = b.factors
        u = -u if name == "sub" else u
        w = x
    else:
        return None
    return fma_tile(u, v, np.asarray(w), element, layout)


def fma_tile(u: np.ndarray, v: np.ndarray, w: np.ndarray, element: ElementType, layout: Any) -> Tile:
    """u * v + w, and the event."""
    result = numeric.fma(u, v, w)
    if MACHINE.observer is not None:
        emit("fma", layout=layout, shape=result.shape, element_bytes=element.bytes, key=("fma", layout, result.shape))
    return Tile(result, element, layout)


def _comparison(name: str, function: Any, strict: bool) -> None:
    def compare(self: Tile, other: Any) -> Any:
        if not _is_operand(other):
            return NotImplemented
        x, y, element, layout, shape = _operands(name, self, other)
        if element in FP8:
            x, y = x.astype(np.float32), y.astype(np.float32)
        known = None
        if MACHINE.observer is not None and element.kind == INT:
            known = align.compared(_known(self, shape), _known(other, shape), strict)
        return Tile(function(x, y), I1, layout, known)

    setattr(Tile, f"__{name}__", compare)


def _bitwise(name: str, function: Any) -> None:
    def compute(a: Any, b: Any) -> Tile:
        x, y, element, layout, shape = _operands(name, a, b)
        if element.kind == FLOAT:
            raise fault_at("type-error", f"operator {name} takes integers, not {element}")
        known = align.joined(_known(a, shape), _known(b, shape)) if MACHINE.observer is not None else None
        return Tile(function(x, y), element, layout, known)

    def forward(self: Tile, other: Any) -> Any:
        return compute(self, other) if _is_operand(other) else NotImplemented

    def backward(self: Tile, other: Any) -> Any:
        return compute(other, self) if _is_operand(other) else NotImplemented

    setattr(Tile, f"__{name}__", forward)
    setattr(Tile, f"__r{name}__", backward)


_arithmetic("add", np.add, align.added)
_arithmetic("sub", np.subtract, align.subtracted)
_arithmetic("mul", np.multiply, align.scaled)
_arithmetic("floordiv", _divide, align.divided)
_arithmetic("mod", _modulo, align.remainder)
for _name, _function in {
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "lshift": np.left_shift, "rshift": np.right_shift,
}.items():  # fmt: skip
    _bitwise(_name, _function)
# a < b and a >= b never split a run whose head and bound are multiples of its length; a <= b and a > b may.
for _name, _function, _strict in (
    ("lt", np.less, True), ("ge", np.greater_equal, True), ("le", np.less_equal, False),
    ("gt", np.greater, False), ("eq", np.equal, False), ("ne", np.not_equal, False),
):  # fmt: skip
    _comparison(_name, _function, _strict)
Tile.__hash__ = object.__hash__  # type: ignore[method-assign,assignment]


def _true_divide(a: Any, b: Any) -> Tile:
    element = _types("truediv", a, b)
    if element.kind != FLOAT:
        element = element_type(gl.float32)
    x, y = _array(a, element), _array(b, element)
    if isinstance(a, Tile) and isinstance(b, Tile):
        layout = same_layout(a.layout, b.layout, "division")
        broadcast_pair(a, b)
    else:
        layout = a.layout if isinstance(a, Tile) else b.layout
    return Tile(np.divide(x, y), element, layout)


setattr(Tile, "__truediv__", lambda self, other: _true_divide(self, other))  # noqa: B010
setattr(Tile, "__rtruediv__", lambda self, other: _true_divide(other, self))  # noqa: B010


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
        return Pointer(tile.buffer, np.expand_dims(tile.offset, axis), parent, known)
    known = None
    if MACHINE.observer is not None and tile._align is not None:
        known = align.expanded(tile._align, axis, align.common_divisor(tile._align))
    return Tile(np.expand_dims(tile.data, axis), tile.element, parent, known)


def broadcast_to(tile: Any, shape: tuple[int, ...]) -> Any:
    """Dimensions of length 1 stretched."""
    if tile.shape == shape:
        return tile
    if _broadcast_shape(tile.shape, shape) != shape:
        raise fault_at("type-error", f"shape {list(tile.shape)} does not broadcast to {list(shape)}")
    known = align.broadcast(tile.alignment, tile.shape, shape) if MACHINE.observer is not None else None
    if isinstance(tile, Pointer):
        return Pointer(tile.buffer, np.broadcast_to(tile.offset, shape), tile.layout, known)
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
    if int(np.prod(shape)) != tile.data.size:
        raise fault_at("type-error", f"shape {list(tile.shape)} cannot become {list(shape)}: the sizes differ")
    return Tile(tile.data.reshape(shape), tile.element, canonical(AUTO))


def reduce_named(name: str, tile: Tile, axis: int | None, keep_dims: bool = False) -> Any:
    """Sum, maximum or minimum along a dimension; the result's layout is the slice of the tile's.

    A sum of floats is taken in float64 and rounded once: the order on the card (lanes, then warps) is not modelled.
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
    if name == "sum":
        out = function(data, axis=axis, dtype=wide).astype(element.numpy)
    else:
        out = function(data if axis is not None else data.ravel(), axis=axis if axis is not None else 0)
    return wrap_reduced(np.asarray(out), tile, axis, element, keep_dims)


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


__all__ += ["I64", "FloatScalar", "scalar_type"]
