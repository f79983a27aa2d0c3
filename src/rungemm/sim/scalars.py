"""Runtime scalars: numbers that a kernel knows only when it runs, with the hardware's arithmetic.

An integer scalar IS a Python int, so ``range``, ``if``, indexing and formatting work natively; its operators wrap to
its width and divide as C does, toward zero. A float scalar rounds after every operation. Plain Python numbers are
compile-time constants and adapt to the scalar they meet.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from . import numeric
from .alignment import power_of_two
from .context import MACHINE
from .faults import fault_at
from .types import BF16, F16, F32, F64, FLOAT, I1, I32, INT, TYPES, ElementType, element_type, literal, promote, weak

__all__ = ["Constant", "FloatScalar", "IntScalar", "is_constant", "is_scalar", "make_scalar", "scalar_type"]


class ScalarMethods:
    """What a runtime scalar has of a tensor's interface."""

    type_: ElementType

    @property
    def dtype(self) -> Any:
        return self.type_.gluon

    @property
    def type(self) -> Any:
        return self.type_.gluon

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    def to(self, dtype: Any, fp_downcast_rounding: str | None = None, bitcast: bool = False) -> Any:
        target = element_type(dtype)
        value = np.asarray(self, dtype=self.type_.numpy)
        result = make_scalar(value.view(target.numpy)[()] if bitcast else numeric.cast(value, target.numpy)[()], target)
        if isinstance(self, IntScalar) and isinstance(result, IntScalar):
            result.divisor = self.divisor  # a wider integer is as divisible, and a narrower one, cut at a power of two
        return result

    cast = to


def _int_op(name: str, function: Callable[[int, int], int]) -> None:
    def forward(self: IntScalar, other: Any) -> Any:
        if isinstance(other, int):
            return _combine(name, function, self, other)
        if type(other) is float:
            return _float_combine(name, FloatScalar(float(self), weak(other, self.type_)), other)
        return NotImplemented

    def backward(self: IntScalar, other: Any) -> Any:
        if isinstance(other, int):
            return _combine(name, function, other, self)
        if type(other) is float:
            return _float_combine(name, other, FloatScalar(float(self), weak(other, self.type_)))
        return NotImplemented

    setattr(IntScalar, f"__{name}__", forward)
    setattr(IntScalar, f"__r{name}__", backward)


def _combine(name: str, function: Callable[[int, int], int], a: int, b: int) -> IntScalar:
    ta, tb = getattr(a, "type_", None), getattr(b, "type_", None)
    if (ta is I32 or tb is I32) and (ta is tb or type(a) is int or type(b) is int):  # nearly always
        t = I32
    elif ta is None:
        t = weak(a, tb)  # type: ignore[arg-type]
    elif tb is None:
        t = weak(b, ta)
    else:
        t = ta if ta is tb else promote(ta, tb)
    value = function(int(a), int(b))
    low, high = _RANGES[t]
    result = _INTS[t](value if low <= value <= high else t_wrap(value, t))
    if MACHINE.observer is None:
        return result
    if name in ("add", "sub"):
        d = min(divisor(a), divisor(b))
    elif name == "mul":
        d = divisor(a) * divisor(b)
    else:
        return result
    if d > 1:
        result.divisor = d
    return result


def divisor(value: Any) -> int:
    """What is known to divide a number: itself for a constant, what its history says for a runtime scalar."""
    if isinstance(value, IntScalar):
        return value.divisor
    return power_of_two(value)


def t_wrap(value: int, t: ElementType) -> int:
    """The value that remains in ``t``'s bits."""
    bits = t.bits
    value &= (1 << bits) - 1
    if t.signed and value >> (bits - 1):
        value -= 1 << bits
    return value


class IntScalar(int, ScalarMethods):
    """A runtime integer; a subclass for each type.

    ``divisor`` is the power of two that the compiler knows to divide it: a launch argument's 16, a loop's step.
    """

    type_: ElementType
    divisor: int = 1

    def __invert__(self) -> Any:
        if self.type_ is I1:
            return _INTS[I1](not self)
        return _INTS[self.type_](t_wrap(~int(self), self.type_))

    def __neg__(self) -> Any:
        result = _INTS[self.type_](t_wrap(-int(self), self.type_))
        result.divisor = self.divisor
        return result

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return _INTS[self.type_](t_wrap(abs(int(self)), self.type_))

    def __truediv__(self, other: Any) -> Any:
        return _float_combine("truediv", FloatScalar(float(self), F32), other)

    def __rtruediv__(self, other: Any) -> Any:
        return _float_combine("truediv", other, FloatScalar(float(self), F32))

    def __repr__(self) -> str:
        return f"{int(self)}"

    __str__ = __repr__
    __hash__ = int.__hash__

    def __reduce__(self) -> Any:
        return (make_scalar, (int(self), self.type_.name))


_INTS: dict[ElementType, type[IntScalar]] = {
    t: type(f"Int_{t.name}", (IntScalar,), {"type_": t}) for t in TYPES.values() if t.kind <= INT
}


_RANGES = {t: (0, 1) if t is I1 else (int(np.iinfo(t.numpy).min), int(np.iinfo(t.numpy).max)) for t in _INTS}


def _c_div(a: int, b: int) -> int:
    if b == 0:
        raise fault_at("kernel-error", "an integer is divided by zero")
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


def _c_mod(a: int, b: int) -> int:
    return a - b * _c_div(a, b)


for _name, _function in {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "floordiv": _c_div, "mod": _c_mod,
    "and": operator.and_, "or": operator.or_, "xor": operator.xor, "lshift": operator.lshift, "rshift": operator.rshift,
}.items():  # fmt: skip
    _int_op(_name, _function)


def _comparison(name: str) -> None:
    plain = getattr(int, f"__{name}__")
    plain_float = getattr(float, f"__{name}__")
    bool_type = _INTS[I1]

    def compare(self: IntScalar, other: Any) -> Any:
        if isinstance(other, int):
            return bool_type(plain(self, other))
        if isinstance(other, (float, FloatScalar)):
            return bool_type(getattr(operator, name)(float(self), float(other)))
        return NotImplemented

    def compare_float(self: FloatScalar, other: Any) -> Any:
        if isinstance(other, (int, float)):
            return bool_type(plain_float(self, float(other)))
        return NotImplemented

    setattr(IntScalar, f"__{name}__", compare)
    setattr(FloatScalar, f"__{name}__", compare_float)


class FloatScalar(float, ScalarMethods):
    """A runtime float of type ``type_``."""

    type_: ElementType

    def __new__(cls, value: Any, t: ElementType = F32) -> FloatScalar:
        rounded = np.asarray(value, dtype=np.float64)
        self = super().__new__(cls, float(numeric.cast(rounded, t.numpy)))
        self.type_ = t
        return self

    def __repr__(self) -> str:
        return f"{float(self)}"

    __str__ = __repr__

    def __neg__(self) -> FloatScalar:
        return FloatScalar(-float(self), self.type_)

    def __hash__(self) -> int:
        return float.__hash__(self)

    def __reduce__(self) -> Any:
        return (make_scalar, (float(self), self.type_.name))


def _float_combine(name: str, a: Any, b: Any) -> Any:
    for x in (a, b):
        if not isinstance(x, (int, float)):
            return NotImplemented
    ta, tb = getattr(a, "type_", None), getattr(b, "type_", None)
    division = name in ("truediv", "mod")
    if ta is None:
        t = weak(a, tb, division)  # type: ignore[arg-type]
    elif tb is None:
        t = weak(b, ta, division)
    else:
        t = promote(ta, tb, division)
    x, y = numeric.cast(np.asarray(float(a)), t.numpy), numeric.cast(np.asarray(float(b)), t.numpy)
    wide = np.float64 if t in (F32, F16, BF16) else t.numpy
    if name == "truediv":
        value = np.divide(x.astype(wide), y.astype(wide))
    elif name == "mod":
        value = np.fmod(x.astype(wide), y.astype(wide))
    else:
        value = getattr(operator, name)(x.astype(wide), y.astype(wide))
    return FloatScalar(value, t)


def _float_op(name: str) -> None:
    def forward(self: FloatScalar, other: Any) -> Any:
        return _float_combine(name, self, other)

    def backward(self: FloatScalar, other: Any) -> Any:
        return _float_combine(name, other, self)

    setattr(FloatScalar, f"__{name}__", forward)
    setattr(FloatScalar, f"__r{name}__", backward)


for _name in ("add", "sub", "mul", "truediv", "mod"):
    _float_op(_name)
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    _comparison(_name)
IntScalar.__hash__ = int.__hash__  # type: ignore[method-assign,assignment]
FloatScalar.__hash__ = float.__hash__  # type: ignore[method-assign,assignment]


def make_scalar(value: Any, t: ElementType | str) -> Any:
    """A runtime scalar of that type."""
    t = TYPES[t] if isinstance(t, str) else t
    if t.kind == FLOAT:
        return FloatScalar(value, t)
    return _INTS[t](t_wrap(int(value), t) if t is not I1 else bool(value))


class Constant(int):
    """An integer literal of the kernel's source: a compile-time number that may become the first value of a loop's
    variable, and so has a runtime scalar's methods. Everywhere else it is a plain number, with Python's arithmetic."""

    truth = False

    @property
    def dtype(self) -> Any:
        return (I1 if self.truth else literal(int(self))).gluon

    @property
    def type(self) -> Any:
        return self.dtype

    @property
    def value(self) -> int | bool:
        return bool(self) if self.truth else int(self)

    def to(self, dtype: Any, fp_downcast_rounding: str | None = None, bitcast: bool = False) -> Any:
        target = element_type(dtype)
        return make_scalar(numeric.cast(np.asarray(int(self)), target.numpy)[()], target)

    def __invert__(self) -> Any:
        return _truth(not self) if self.truth else Constant(~int(self))

    def __neg__(self) -> Any:
        return Constant(-int(self))

    def __reduce__(self) -> Any:
        return (int, (int(self),))


def _truth(value: Any) -> Constant:
    result = Constant(bool(value))
    result.truth = True
    return result


def _constant_op(name: str) -> None:
    plain = getattr(int, f"__{name}__")
    reverse = getattr(int, f"__r{name}__", None)

    def forward(self: Constant, other: Any) -> Any:
        if isinstance(other, IntScalar):
            return NotImplemented
        result = plain(self, other)
        return Constant(result) if type(result) is int else result

    def backward(self: Constant, other: Any) -> Any:
        if reverse is None or isinstance(other, IntScalar):
            return NotImplemented
        result = reverse(self, other)
        return Constant(result) if type(result) is int else result

    def compare(self: Constant, other: Any) -> Any:
        result = NotImplemented if isinstance(other, IntScalar) else plain(self, other)
        return _truth(result) if isinstance(result, bool) else result

    if reverse is None:
        setattr(Constant, f"__{name}__", compare)
    else:
        setattr(Constant, f"__{name}__", forward)
        setattr(Constant, f"__r{name}__", backward)


for _name in ("add", "sub", "mul", "floordiv", "mod", "and", "or", "xor", "lshift", "rshift", "pow"):
    _constant_op(_name)
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    _constant_op(_name)
Constant.__hash__ = int.__hash__  # type: ignore[method-assign,assignment]


def is_scalar(value: Any) -> bool:
    """A runtime scalar."""
    return isinstance(value, (IntScalar, FloatScalar))


def is_constant(value: Any) -> bool:
    """A number known when the kernel is compiled."""
    return isinstance(value, (bool, int, float)) and not is_scalar(value)


def scalar_type(value: Any) -> ElementType:
    """The element type of a scalar or a constant."""
    return value.type_ if is_scalar(value) else literal(value)


__all__ += ["F64", "divisor"]
