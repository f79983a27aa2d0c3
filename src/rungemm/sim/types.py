"""Element types as the simulator sees them, and Triton's rules for mixing them.

Kernels name types by Gluon's own objects (``gl.float32``); here each has its NumPy type and its kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from ..compat import gl
from .faults import fault_at

__all__ = ["ElementType", "Shape", "element_type", "of_numpy", "promote"]

BOOL, INT, FLOAT = 0, 1, 2


@dataclass(frozen=True, eq=False)
class ElementType:
    """A type of elements: Gluon's object, NumPy's, its kind (bool < int < float), its width in bits and in memory."""

    gluon: Any
    numpy: np.dtype
    kind: int
    bits: int
    signed: bool = True
    bytes: int = 0

    @property
    def name(self) -> str:
        return self.gluon.name

    def __str__(self) -> str:
        return self.name


class Shape(tuple):  # type: ignore[type-arg]
    """A shape as kernels see it: it can be joined with a list (``[STAGES] + tile.shape``)."""

    __slots__ = ()

    def __add__(self, other: Any) -> Any:
        return Shape((*self, *other))

    def __radd__(self, other: Any) -> Any:
        return Shape((*other, *self))


def _make() -> dict[str, ElementType]:
    table = [
        (gl.int1, np.bool_, BOOL, 1, False),
        (gl.int8, np.int8, INT, 8, True),
        (gl.int16, np.int16, INT, 16, True),
        (gl.int32, np.int32, INT, 32, True),
        (gl.int64, np.int64, INT, 64, True),
        (gl.uint8, np.uint8, INT, 8, False),
        (gl.uint16, np.uint16, INT, 16, False),
        (gl.uint32, np.uint32, INT, 32, False),
        (gl.uint64, np.uint64, INT, 64, False),
        (gl.float8e4nv, ml_dtypes.float8_e4m3fn, FLOAT, 8, True),
        (gl.float8e5, ml_dtypes.float8_e5m2, FLOAT, 8, True),
        (gl.float16, np.float16, FLOAT, 16, True),
        (gl.bfloat16, ml_dtypes.bfloat16, FLOAT, 16, True),
        (gl.float32, np.float32, FLOAT, 32, True),
        (gl.float64, np.float64, FLOAT, 64, True),
    ]
    return {
        g.name: ElementType(g, np.dtype(n), kind, bits, signed, np.dtype(n).itemsize)
        for g, n, kind, bits, signed in table
    }


TYPES = _make()
I1, I8, I16, I32, I64 = (TYPES[gl_type.name] for gl_type in (gl.int1, gl.int8, gl.int16, gl.int32, gl.int64))
U8, U16, U32, U64 = (TYPES[gl_type.name] for gl_type in (gl.uint8, gl.uint16, gl.uint32, gl.uint64))
F8E4, F8E5, F16, BF16, F32, F64 = (
    TYPES[gl_type.name] for gl_type in (gl.float8e4nv, gl.float8e5, gl.float16, gl.bfloat16, gl.float32, gl.float64)
)
FP8 = (F8E4, F8E5)
_BY_NUMPY = {t.numpy: t for t in TYPES.values()}


def element_type(gluon: Any) -> ElementType:
    """The type that a kernel named.

    Raises:
        SimulationFault: it is none, or one that the simulator does not know.
    """
    if isinstance(gluon, ElementType):
        return gluon
    found = TYPES.get(getattr(gluon, "name", ""))
    if found is None:
        raise fault_at("not-simulated", f"element type {gluon} is not simulated")
    return found


def of_numpy(dtype: np.dtype) -> ElementType:
    """The element type that a NumPy array holds.

    Raises:
        TypeError: none of ours.
    """
    found = _BY_NUMPY.get(np.dtype(dtype))
    if found is None:
        names = ", ".join(str(t.numpy) for t in TYPES.values())
        raise TypeError(f"an array of {dtype} cannot be passed to a kernel: use one of {names}")
    return found


def promote(a: ElementType, b: ElementType, division: bool = False) -> ElementType:
    """The type in which two operands are combined, as Triton's documentation of its semantics has it."""
    if a is b and not division:
        return a
    for wide in (F64, F32):
        if wide in (a, b):
            return wide
    if F16 in (a, b):
        return F32 if division else F16
    if BF16 in (a, b):
        return BF16 if a is b and not division else F32
    if a.kind == FLOAT and b.kind == FLOAT:
        return a if a is b else F16
    if FLOAT in (a.kind, b.kind):
        raise fault_at("type-error", f"{a} and {b} do not mix: cast one of them with .to()")
    if a.signed == b.signed:
        return a if a.bits > b.bits else b
    unsigned, signed = (b, a) if a.signed else (a, b)
    return unsigned if unsigned.bits >= signed.bits else signed


def weak(number: bool | int | float, other: ElementType, division: bool = False) -> ElementType:
    """The type in which a Python number and a value of type ``other`` are combined."""
    kind = BOOL if _is_bool(number) else INT if isinstance(number, int) else FLOAT
    if kind <= other.kind:
        return F32 if division and other in (F16, BF16) else other
    if kind == FLOAT:
        return promote(F32, other, division)
    return promote(literal(number), other, division)


def _is_bool(number: bool | int | float) -> bool:
    return isinstance(number, bool) or getattr(number, "truth", False)


def literal(number: bool | int | float) -> ElementType:
    """The type of a Python number that stands alone."""
    if _is_bool(number):
        return I1
    if isinstance(number, int):
        for t in (I32, U32, I64, U64):
            info = np.iinfo(t.numpy)
            if info.min <= number <= info.max:
                return t
        raise fault_at("type-error", f"{number} fits no integer type")
    return F32
