"""Tiles: immutable arrays of elements with a dtype and a Gluon layout, and pointers to global memory.

Operators follow Triton's typing and broadcasting, and check that layouts are equal, as Gluon's compiler does. A
float product remembers its factors, because the compiler contracts ``a * b + c`` into one fused multiply-add.
"""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ..compat import gl
from . import alignment as align
from . import numeric
from .context import MACHINE
from .events import Alignment
from .faults import fault_at
from .memory import Buffer
from .scalars import divisor
from .types import FLOAT, I1, INT, ElementType, Shape, element_type

__all__ = ["Pointer", "Tile", "broadcast_pair", "broadcast_shape", "canonical", "same_layout"]

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
    if type(layout) is gl.SliceLayout:  # made anew in every loop; canonical parents live for ever
        key: Any = (layout.dim, id(canonical(layout.parent)))
    else:
        key = _layout_key(layout)
    found = _layouts.setdefault(key, layout)
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


_due: list[tuple[np.ndarray, np.ndarray, np.ndarray, Tile]] = []
MANY_DUE = 256


def _work_off() -> None:
    """Compute the multiply-adds that are due, those of one shape together: NumPy's calls cost more than small tiles."""
    groups: dict[Any, list[Any]] = {}
    for work in _due:
        groups.setdefault((work[0].shape, work[1].shape, work[2].shape), []).append(work)
    _due.clear()
    for shapes, group in groups.items():
        if len(group) == 1:
            u, v, w, tile = group[0]
            tile.settle(numeric.fma(u, v, w))
            continue
        operands = [
            np.concatenate([work[i] for work in group]).reshape(len(group), *shape) for i, shape in enumerate(shapes)
        ]
        for work, result in zip(group, numeric.fma(*operands), strict=True):
            work[3].settle(result)


class Tile:
    """A tile of numbers in registers. ``data`` is never changed once made.

    It may be made late: kernels that hold a thread's registers as single tiles do 64 small multiply-adds in a row.
    """

    __slots__ = ("_align", "_data", "_memo", "element", "factors", "layout", "shape")

    def __init__(
        self, data: np.ndarray | None, element: ElementType, layout: Any, alignment: Alignment | None = None,
        shape: tuple[int, ...] = (),
    ) -> None:  # fmt: skip
        self._data = data
        self.element = element
        self.layout = layout
        self.shape = Shape(shape if data is None else data.shape)
        self._align = alignment
        self.factors: tuple[np.ndarray, np.ndarray] | None = None
        self._memo: dict[Any, Tile] | None = None

    @property
    def data(self) -> np.ndarray:
        """The elements."""
        if self._data is None:
            _work_off()
        return self._data  # type: ignore[return-value]

    def settle(self, data: np.ndarray) -> None:
        """The elements of a tile that was promised by :meth:`of_fma`."""
        self._data = data

    @staticmethod
    def of_fma(
        u: np.ndarray, v: np.ndarray, w: np.ndarray, shape: tuple[int, ...], element: ElementType, layout: Any
    ) -> Tile:
        """``u * v + w`` in one rounding, computed when it is wanted."""
        result = Tile(None, element, layout, shape=shape)
        if len(_due) >= MANY_DUE:
            _work_off()
        _due.append((u, v, w, result))
        return result

    def remembered(self, key: Any) -> Tile | None:
        """What :meth:`remember` was given with this key, if it is still there."""
        return None if self._memo is None else self._memo.get(key)

    def remember(self, key: Any, result: Tile) -> Tile:
        """Keep what an operation on this tile gave: ``rows * stride`` comes back in every turn of a loop. A few only.

        Not for operations that loops chain (``x = x + step``): then every link would keep the next alive.
        """
        if self._memo is None:
            self._memo = {}
        elif len(self._memo) >= 4:
            self._memo.clear()
        self._memo[key] = result
        return result

    # What kernels read of a tensor.
    @property
    def dtype(self) -> Any:
        return self.element.gluon

    @property
    def type(self) -> Any:
        return gl.distributed_type(self.element.gluon, list(self.shape), self.layout)

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

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

    def __neg__(self) -> Tile:
        if self.element.kind == FLOAT:
            return Tile(-self.data, self.element, self.layout)
        return Tile((0 - self.data).astype(self.element.numpy), self.element, self.layout, self._align)

    def __invert__(self) -> Tile:
        keep = self._align if self.element is I1 else None
        return Tile(~self.data, self.element, self.layout, keep)


class Pointer:
    """A pointer, or a tile of pointers, into one buffer.

    A tile of pointers is a ``pattern`` (never changed once made) and a ``shift`` of all of it: a loop that moves
    pointers on by a scalar, or adds one tile to different pointers, keeps the pattern, by which an observer knows it.
    """

    __slots__ = ("_align", "_offset", "buffer", "layout", "pattern", "shape", "shift")

    def __init__(
        self, buffer: Buffer, offset: Any, layout: Any = None, alignment: Alignment | None = None,
        pattern: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        self.buffer = buffer
        self.layout = layout
        self._align = alignment
        if pattern is None and isinstance(offset, np.ndarray):
            pattern, offset = offset, 0
        self.pattern = pattern
        self.shift: int = offset
        self.shape = Shape() if pattern is None else Shape(pattern.shape)
        self._offset: np.ndarray | None = None

    @property
    def offset(self) -> Any:
        """Elements from the buffer's first: a number, or int64 in the tile's shape."""
        if self.pattern is None:
            return self.shift
        if self._offset is None:
            self._offset = np.add(self.pattern, self.shift, dtype=np.int64)
        return self._offset

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
            return Pointer(self.buffer, self.shift + step, self.layout, known, self.pattern)
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
            return Pointer(self.buffer, self.shift, other.layout, known, offsets)
        layout = same_layout(self.layout, other.layout, "pointer arithmetic")
        a, b = self, other
        if a.shape != b.shape:
            shape = broadcast_shape(a.shape, b.shape)
            known = align.broadcast(a.alignment, a.shape, shape) if watch else None
            other_known = align.broadcast(b.alignment, b.shape, shape) if watch else None
        else:
            known, other_known = (a.alignment, b.alignment) if watch else (None, None)
        assert self.pattern is not None
        moved = np.add(self.pattern, offsets, dtype=np.int64)
        result = align.added(known, other_known, size) if known and other_known else None
        return Pointer(self.buffer, self.shift, layout, result, moved)


@lru_cache(maxsize=4096)
def broadcast_shape(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
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
    return a.shape if a.shape == b.shape else broadcast_shape(a.shape, b.shape)
