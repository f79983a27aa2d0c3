"""Arithmetic: one rounding, as exact rational arithmetic says."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from rungemm.sim import numeric


def rounded(value: Fraction, precision: int, least: int, most: int) -> float:
    """``value`` rounded to nearest even with ``precision`` bits, smallest step 2**least, overflow at 2**most."""
    if value == 0:
        return 0.0
    sign = -1 if value < 0 else 1
    value = abs(value)
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    if Fraction(2) ** exponent > value:
        exponent -= 1
    step = Fraction(2) ** max(exponent - precision + 1, least)
    whole, rest = divmod(value, step)
    if rest * 2 > step or (rest * 2 == step and whole % 2):
        whole += 1
    result = whole * step
    return sign * (float("inf") if result >= Fraction(2) ** most else float(result))


FORMATS = {
    np.dtype(np.float32): (24, -149, 128),
    np.dtype(np.float16): (11, -24, 16),
    np.dtype(ml_dtypes.bfloat16): (8, -133, 128),
}


def hard_numbers(rng: np.random.Generator, dtype: np.dtype, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Products a little below or above half a unit in the last place of the addend, and numbers of any size."""
    precision, least, most = FORMATS[dtype]
    near = 2.0 ** -(precision // 2) * rng.integers(0, 4, count)
    a = 1 + near
    b = (1 - near) * 2.0**-precision * rng.choice([-1, 1], count)
    c = (1 + 2.0 ** (1 - precision) * rng.integers(0, 6, count)) * rng.choice([-1, 1], count)
    wide = rng.random(count) < 0.5
    scale = [2.0 ** rng.integers(max(least // 2, -60), most // 4, count) for _ in range(3)]
    random = [rng.standard_normal(count) * s for s in scale]
    c_tiny = np.where(rng.random(count) < 0.3, 2.0**least * rng.integers(-9, 9, count), random[2])
    return tuple(  # type: ignore[return-value]
        np.where(wide, free, tight).astype(np.float32).astype(dtype)
        for free, tight in zip((random[0], random[1], c_tiny), (a, b, c), strict=True)
    )


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
def test_fma_rounds_once(dtype: np.dtype, rng: np.random.Generator) -> None:
    with np.errstate(all="ignore"):
        a, b, c = hard_numbers(rng, dtype, 3000)
        out = numeric.fma(a, b, c)
    for x, y, z, got in zip(a, b, c, out, strict=True):
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        assert float(got) == rounded(exact, *FORMATS[dtype]), (float(x), float(y), float(z))


def test_fma_differs_from_two_roundings() -> None:
    """The case that a sum in float64, rounded again, gets wrong."""
    x = np.float32(2.0**-20)
    a, b = np.array([1 + x], np.float32), np.array([(1 - x) * np.float32(2.0**-24)], np.float32)
    c = np.array([1 + 2.0**-23], np.float32)
    assert numeric.fma(a, b, c)[0] == np.float32(1 + 2.0**-23)
    assert np.float32(np.float64(a[0]) * b[0] + c[0]) != np.float32(1 + 2.0**-23)


def test_fma_keeps_infinities_and_nan() -> None:
    inf, nan = np.float32(np.inf), np.float32(np.nan)
    a = np.array([inf, inf, 1, nan, 3e38], np.float32)
    b = np.array([2, 0, inf, 1, 3e38], np.float32)
    c = np.array([1, 1, -inf, 1, 0], np.float32)
    with np.errstate(all="ignore"):
        out = numeric.fma(a, b, c)
    assert out[0] == inf and out[4] == inf
    assert np.isnan(out[1:4]).all()


def test_casts() -> None:
    e4m3, e5m2 = np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2)
    values = np.array([1e9, -1e9, 300.0, 0.3, np.nan], np.float32)
    assert numeric.cast(values, e4m3).astype(float)[:2].tolist() == [448.0, -448.0]
    assert numeric.cast(values, e5m2).astype(float)[:2].tolist() == [57344.0, -57344.0]
    assert np.isnan(numeric.cast(values, e4m3).astype(float)[4])
    assert numeric.cast(np.array([2.9, -2.9, 1e20, np.nan], np.float32), np.dtype(np.int32)).tolist() == [
        2, -2, 2**31 - 1, 0,
    ]  # fmt: skip
    assert numeric.cast(np.array([1e20, -1e20, 2.5], np.float32), np.dtype(np.int64)).tolist() == [
        2**63 - 1, -(2**63), 2,
    ]  # fmt: skip
    assert numeric.cast(np.array([300], np.int32), np.dtype(np.int8)).tolist() == [44]


def test_tf32_cuts_and_rounds() -> None:
    ulp = np.float32(2.0**-10)
    values = np.array([1 + ulp * 0.75, 1 + ulp * 0.5, 1 + ulp * 0.25, np.inf], np.float32)
    assert numeric.truncate_tf32(values).tolist() == [1.0, 1.0, 1.0, np.inf]
    assert numeric.round_tf32(values).tolist() == [1 + ulp, 1 + ulp, 1.0, np.inf]


def test_matmul_accumulates_in_the_stated_type(rng: np.random.Generator) -> None:
    a, b = rng.integers(-128, 128, (8, 64)).astype(np.int8), rng.integers(-128, 128, (64, 8)).astype(np.int8)
    acc = np.full((8, 8), 2**31 - 10, np.int32)
    exact = a.astype(np.int64) @ b.astype(np.int64) + acc.astype(np.int64)
    assert (numeric.matmul(a, b, acc, np.dtype(np.int32)) == exact.astype(np.int32)).all()
    clipped = np.clip(exact, -(2**31), 2**31 - 1)
    assert (numeric.matmul(a, b, acc, np.dtype(np.int32), saturate=True) == clipped).all()
    x = rng.standard_normal((4, 16)).astype(np.float32)
    y = rng.standard_normal((16, 4)).astype(np.float32)
    cut = numeric.truncate_tf32(x).astype(np.float64) @ numeric.truncate_tf32(y).astype(np.float64)
    assert (numeric.matmul(x, y, None, np.dtype(np.float32)) == cut.astype(np.float32)).all()
