"""Arithmetic as the hardware does it: fused multiply-add with one rounding, conversions, tf32, matrix products.

``fma`` must equal the card's bit for bit. The product of two floats is exact in float64; the sum with the addend is
rounded there once and to the result's type again, which differs from one rounding only when the first rounding
lands exactly half way between two results. Those rare elements are recomputed by rounding the sum to odd first
(Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd", 2008).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ml_dtypes
import numpy as np

__all__ = ["cast", "fma", "matmul", "round_tf32", "single_threaded_blas", "truncate_tf32"]

F32, F64, I32, I64 = np.float32, np.float64, np.int32, np.int64
_LOW = I64((1 << 29) - 1)
_HALF = I64(1 << 28)
_EXPONENT = I32(0x7F800000)


def _odd_sum(p: np.ndarray, c: np.ndarray) -> np.ndarray:
    """p + c in float64, rounded to odd: the error's sign sets the last bit where the sum is inexact."""
    s = p + c
    back = s - p
    error = (p - (s - back)) + (c - back)
    bits = s.view(I64)
    inexact = (error != 0) & np.isfinite(s) & np.isfinite(error)
    even = (bits & 1) == 0
    # One step toward the error makes an even last bit odd: away from zero if error and sum agree in sign.
    step = np.where((error > 0) == (s > 0), I64(1), I64(-1))
    # When s is a power of two and the error points to zero, one step down still lands on an odd neighbour.
    return np.where(inexact & even, bits + step, bits).view(F64)


def fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a * b + c rounded once, in the common dtype of the three (float32, float16, bfloat16 or float64), broadcast.

    float64 goes through an 80-bit product and sum where NumPy has one: correct but for rare double roundings.
    """
    dtype = c.dtype
    if dtype == F32:
        p = np.multiply(a, b, dtype=F64)
        if c.shape != p.shape:
            shape = np.broadcast_shapes(p.shape, c.shape)
            p, c = np.broadcast_to(p, shape), np.broadcast_to(c, shape)
        s = np.add(p, c)
        r = s.astype(F32)
        # Half way between two floats of the normal range, or a result in the subnormal range, or an underflow.
        # ("in", because any() is a Python function: tiles are small and many.)
        if _HALF in (s.view(I64) & _LOW) or (I32(0) in (r.view(I32) & _EXPONENT) and not _only_zeros(r, s)):
            odd = _odd_sum(np.asarray(p), c.astype(F64))
            r = odd.astype(F32)
        return r
    if dtype == F64:
        wide = np.longdouble
        return (a.astype(wide) * b.astype(wide) + c.astype(wide)).astype(F64)
    p, c64 = np.broadcast_arrays(a.astype(F64) * b.astype(F64), c.astype(F64))
    return odd_round(_odd_sum(p, c64), dtype)


def _only_zeros(r: np.ndarray, s: np.ndarray) -> bool:
    """Whether all results below the normal range are zeros of a sum that is zero, which is exact (masked edges)."""
    tiny = (r.view(I32) & _EXPONENT) == 0
    return not np.count_nonzero(s[tiny])


def odd_round(value: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """A float64 that was rounded to odd, rounded to a narrow float type.

    ml_dtypes converts float64 through float32: rounding to odd at float32 in between keeps the result right.
    """
    if dtype in (F16, F32):
        return value.astype(dtype)
    r = value.astype(F32)
    back = r.astype(F64)
    bits = r.view(I32)
    inexact = (back != value) & np.isfinite(back) & np.isfinite(value)
    # Chop toward zero, then set the last bit.
    chopped = np.where(inexact & (np.abs(back) > np.abs(value)), bits - 1, bits)
    return np.where(inexact, chopped | 1, chopped).view(F32).astype(dtype)


F16 = np.float16
BF16 = np.dtype(ml_dtypes.bfloat16)
E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)
E5M2 = np.dtype(ml_dtypes.float8_e5m2)
_FP8_MAX = {E4M3: F32(448.0), E5M2: F32(57344.0)}


def is_float(dtype: np.dtype) -> bool:
    return dtype.kind == "f" or dtype in (BF16, E4M3, E5M2)


def cast(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Conversion between element types: to nearest even between floats, toward zero and saturating to integers.

    fp8 saturates at its largest finite value, as the compiler's conversions do; integers wrap.
    """
    source = values.dtype
    if source == dtype:
        return values
    if dtype in _FP8_MAX:
        most = _FP8_MAX[dtype]
        narrow = values.astype(F32) if source != F32 else values
        return np.clip(narrow, -most, most).astype(dtype)
    if dtype == np.bool_:
        return values != 0
    if is_float(source) and not is_float(dtype):
        info = np.iinfo(dtype)
        wide = np.trunc(values.astype(F64))
        wide = np.where(np.isnan(wide), 0.0, wide)
        low, high = float(info.min), float(info.max)
        result = np.clip(wide, low, high).astype(dtype) if dtype.itemsize < 8 else _to_int64(wide, dtype)
        return result
    if source == F64 and dtype == BF16:
        return odd_round(values, dtype)
    return values.astype(dtype)


def _to_int64(wide: np.ndarray, dtype: np.dtype) -> np.ndarray:
    info = np.iinfo(dtype)
    inside = (wide > float(info.min)) & (wide < float(info.max))
    ends = np.where(wide < 0, info.min, info.max).astype(dtype)
    return np.where(inside, np.where(inside, wide, 0).astype(dtype), ends)


def truncate_tf32(values: np.ndarray) -> np.ndarray:
    """float32 with the 13 lowest bits cleared: what the tensor cores see of a raw float32 operand."""
    return (np.ascontiguousarray(values).view(I32) & I32(~0x1FFF)).view(F32)


def round_tf32(values: np.ndarray) -> np.ndarray:
    """float32 rounded to the nearest tf32, ties away from zero: ``cvt.rna.tf32.f32`` and TMA's rounding mode."""
    values = np.ascontiguousarray(values)
    bits = values.view(I32)
    rounded = ((bits + I32(0x1000)) & I32(~0x1FFF)).view(F32)
    return np.where(np.isfinite(values), rounded, values)


def matmul(a: np.ndarray, b: np.ndarray, acc: np.ndarray | None, out: np.dtype, saturate: bool = False) -> np.ndarray:
    """A tensor-core product of one tile, ``a @ b + acc``: one rounding to ``out`` at the end.

    Stated order: products are exact, the sum over the tile's K is taken in float64, the accumulator is added and the
    total rounded to nearest even once. (The hardware adds in chunks of its instruction's K and cuts low bits: results
    agree within the rounding of the accumulator.) float32 operands are read as tf32, cut. Integers are exact; with
    ``saturate`` they stop at the ends of int32, else they wrap.
    """
    if a.dtype == F32:
        a, b = truncate_tf32(a), truncate_tf32(b)
    total = np.matmul(a.astype(F64), b.astype(F64))
    if acc is not None:
        total = total + acc.astype(F64)
    if out == I32:
        if saturate:
            return np.clip(total, -(2.0**31), 2.0**31 - 1).astype(I32)
        return total.astype(I64).astype(I32)
    return total.astype(out) if out != BF16 else odd_round(total, out)


_blas: list[Any] | None = None


def _find_blas() -> list[Any]:
    """NumPy's own OpenBLAS, if that is what it uses: its functions to get and set the number of threads."""
    try:
        with open("/proc/self/maps") as maps:
            paths = {line.split()[-1] for line in maps if "openblas" in line}
    except OSError:
        return []
    for path in paths:
        try:
            library = ctypes.CDLL(path)
        except OSError:
            continue
        for prefix in ("scipy_openblas", "openblas"):
            for suffix in ("64_", ""):
                get = getattr(library, f"{prefix}_get_num_threads{suffix}", None)
                put = getattr(library, f"{prefix}_set_num_threads{suffix}", None)
                if get is not None and put is not None:
                    return [get, put]
    return []


@contextmanager
def single_threaded_blas() -> Iterator[None]:
    """Many small products are an order of magnitude faster without threads."""
    global _blas
    if _blas is None:
        _blas = _find_blas()
    if not _blas:
        yield
        return
    get, put = _blas
    before = get()
    put(1)
    try:
        yield
    finally:
        put(before)
