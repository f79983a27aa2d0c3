"""The operators of tiles: Triton's typing and broadcasting, equal layouts, contraction of ``a * b + c``.

Importing this module gives :class:`.tile.Tile` its operators.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from ..compat import gl
from . import alignment as align
from . import numeric
from .context import MACHINE, emit
from .events import Alignment
from .faults import fault_at
from .scalars import IntScalar, is_scalar
from .tile import Tile, broadcast_pair, broadcast_shape, same_layout
from .types import FLOAT, FP8, I1, INT, ElementType, element_type, promote, weak

__all__ = ["as_array", "fma_tile", "known_of"]


def known_of(value: Any, shape: tuple[int, ...]) -> Alignment:
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


def as_array(value: Any, element: ElementType) -> Any:
    if isinstance(value, Tile):
        return value.data if value.element is element else numeric.cast(value.data, element.numpy)
    if is_scalar(value):
        if value.type_ is element and element.bits >= 32:
            return element.numpy.type(value)
        return numeric.cast(np.asarray(value, dtype=value.type_.numpy), element.numpy)
    if element.kind == INT:
        low, high = _range(element)
        if not low <= value <= high:
            raise fault_at("type-error", f"the constant {value} does not fit {element}")
    return np.asarray(value).astype(element.numpy)


@lru_cache(maxsize=64)
def _range(element: ElementType) -> tuple[int, int]:
    info = np.iinfo(element.numpy)
    return int(info.min), int(info.max)


def _operands(name: str, a: Any, b: Any) -> tuple[Any, Any, ElementType, Any, tuple[int, ...]]:
    element = _types(name, a, b)
    if isinstance(a, Tile) and isinstance(b, Tile):
        layout = a.layout if a.layout is b.layout else same_layout(a.layout, b.layout, f"operator {name}")
        shape = a.shape if a.shape == b.shape else broadcast_shape(a.shape, b.shape)
    else:
        tile = a if isinstance(a, Tile) else b
        layout, shape = tile.layout, tile.shape
    return as_array(a, element), as_array(b, element), element, layout, shape


def _is_operand(value: Any) -> bool:
    return isinstance(value, (Tile, int, float))


def _scaling(tile: Any, number: Any) -> Any:
    """What tells one product of an integer tile and an integer from another; ``None`` for other products."""
    if type(tile) is Tile and tile.element.kind == INT and isinstance(number, int):
        return (type(number), int(number), getattr(number, "divisor", 0), MACHINE.observer is None)
    return None


def _arithmetic(name: str, function: Any, rule: Rule | None) -> None:
    def compute(a: Any, b: Any) -> Tile:
        key = _scaling(a, b) if name == "mul" else None
        found = a.remembered(key) if key is not None else None
        if found is not None:
            return found
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
            known = rule(known_of(a, shape), known_of(b, shape))
        tile = Tile(result, element, layout, known)
        if name == "mul" and element.kind == FLOAT:
            tile.factors = (x, y)
        return tile if key is None else a.remember(key, tile)

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


SMALL = 512
"""Elements of a tile whose multiply-adds are put off and done many at once."""


def fma_tile(
    u: np.ndarray, v: np.ndarray, w: np.ndarray, element: ElementType, layout: Any, shape: tuple[int, ...] = ()
) -> Tile:
    """u * v + w, and the event; ``shape`` of the result, where it is known to be of fp32."""
    if shape and math.prod(shape) <= SMALL:
        result = Tile.of_fma(u, v, w, shape, element, layout)
    else:
        result = Tile(numeric.fma(u, v, w), element, layout)
    if MACHINE.observer is not None:
        key = (id(layout), result.shape)
        emit("fma", layout=layout, shape=result.shape, element_bytes=element.bytes, key=key)
    return result


def _comparison(name: str, function: Any, strict: bool) -> None:
    def compare(self: Tile, other: Any) -> Any:
        if not _is_operand(other):
            return NotImplemented
        x, y, element, layout, shape = _operands(name, self, other)
        if element in FP8:
            x, y = x.astype(np.float32), y.astype(np.float32)
        known = None
        if MACHINE.observer is not None and element.kind == INT:
            known = align.compared(known_of(self, shape), known_of(other, shape), strict)
        return Tile(function(x, y), I1, layout, known)

    setattr(Tile, f"__{name}__", compare)


def _bitwise(name: str, function: Any) -> None:
    def compute(a: Any, b: Any) -> Tile:
        x, y, element, layout, shape = _operands(name, a, b)
        if element.kind == FLOAT:
            raise fault_at("type-error", f"operator {name} takes integers, not {element}")
        known = align.joined(known_of(a, shape), known_of(b, shape)) if MACHINE.observer is not None else None
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
    x, y = as_array(a, element), as_array(b, element)
    if isinstance(a, Tile) and isinstance(b, Tile):
        layout = same_layout(a.layout, b.layout, "division")
        broadcast_pair(a, b)
    else:
        layout = a.layout if isinstance(a, Tile) else b.layout
    return Tile(np.divide(x, y), element, layout)


setattr(Tile, "__truediv__", lambda self, other: _true_divide(self, other))  # noqa: B010
setattr(Tile, "__rtruediv__", lambda self, other: _true_divide(other, self))  # noqa: B010
