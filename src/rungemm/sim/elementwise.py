"""Operations element by element: arithmetic by name, minimum and maximum, choice, mathematical functions."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compat import gl
from . import alignment as align
from . import numeric
from .arithmetic import as_array, fma_tile, known_of
from .context import MACHINE, emit
from .faults import fault_at
from .scalars import FloatScalar, IntScalar, divisor, is_constant, is_scalar, make_scalar, scalar_type
from .tile import Pointer, Tile, broadcast_pair, broadcast_shape, canonical, same_layout
from .types import F32, FLOAT, INT, U32, ElementType, promote, weak

__all__ = ["ELEMENTWISE", "builtin_max", "builtin_min"]


def _spread(*values: Any) -> tuple[list[Any], ElementType, Any, Any]:
    """Values of one elementwise operation as arrays of one type; the layout; the first tile, if any."""
    found = [v for v in values if isinstance(v, Tile)]
    typed = [v for v in values if isinstance(v, Tile) or is_scalar(v)]
    if not typed:
        element = scalar_type(values[0])
    else:
        element = typed[0].element if isinstance(typed[0], Tile) else typed[0].type_
        for v in typed[1:]:
            element = promote(element, v.element if isinstance(v, Tile) else v.type_)
        for v in values:
            if is_constant(v):
                element = weak(v, element)
    arrays = [as_array(v, element) for v in values]
    if not found:
        return arrays, element, None, None
    layout = found[0].layout
    for v in found[1:]:
        if v.layout is not layout:
            layout = same_layout(layout, v.layout, "an elementwise operation")
        if v.shape != found[0].shape:
            broadcast_pair(found[0], v)
    return arrays, element, layout, found[0]


def _wrap(result: Any, element: ElementType, layout: Any, first: Any, known: Any = None) -> Any:
    if first is None:
        return make_scalar(np.asarray(result)[()], element)
    return Tile(result, element, layout, known)


def fma(x: Any, y: Any, z: Any) -> Any:
    if type(x) is type(y) is type(z) is Tile and x.element is y.element is z.element is F32:  # the common case, fast
        layout = z.layout
        if x.layout is layout and y.layout is layout:
            shape = broadcast_shape(broadcast_shape(x.shape, y.shape), z.shape)
            return fma_tile(x.data, y.data, z.data, F32, layout, shape)
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
        key = (id(parent), acc.shape, k)
        emit("fma", layout=parent, shape=acc.shape, k=k, element_bytes=acc.element.bytes, key=key)
    return Tile(total, acc.element, parent)


def _pick(name: str, ours: Any) -> Any:
    def operation(x: Any, y: Any, propagate_nan: Any = None) -> Any:
        (a, b), element, layout, first = _spread(x, y)
        known = None
        if MACHINE.observer is not None and element.kind == INT and first is not None:
            known = align.joined(known_of(x, first.shape), known_of(y, first.shape))
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
        broadcast_pair(condition, first)
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


ELEMENTWISE: dict[str, Any] = {
    "fma": fma, "pinned_fma": fma, "dot_fma": dot_fma, "maximum": maximum, "minimum": minimum, "where": where,
    "cdiv": cdiv, "add": add, "sub": sub, "mul": mul, "exp": _unary(np.exp), "exp2": _unary(np.exp2),
    "log": _unary(np.log), "log2": _unary(np.log2), "cos": _unary(np.cos), "sin": _unary(np.sin),
    "sqrt": _unary(np.sqrt), "sqrt_rn": _unary(np.sqrt), "rsqrt": _unary(lambda x: 1.0 / np.sqrt(x)),
    "floor": _unary(np.floor), "ceil": _unary(np.ceil), "erf": _unary(_erf), "abs": math_abs, "fdiv": fdiv,
    "div_rn": fdiv, "reciprocal": _unary(lambda x: 1.0 / x), "umulhi": umulhi,
}  # fmt: skip
"""By Gluon's own names."""
