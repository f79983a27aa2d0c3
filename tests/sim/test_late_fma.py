"""Multiply-adds of small tiles are put off and done many at once: the same bits, and whoever looks sees them done."""

from __future__ import annotations

import numpy as np
import pytest

from rungemm.compat import constexpr, gl, jit
from rungemm.sim import SimulationFault, numeric, run
from rungemm.sim.counters import Counters
from rungemm.sim.tile import MANY_DUE

LANES = gl.constexpr(gl.BlockedLayout([1], [32], [4], [0]))


@jit
def chains(x, y, out, TURNS: constexpr, PIECES: constexpr):
    """Sums that depend on themselves and on each other: the k-th takes the one before it every third turn."""
    at = gl.arange(0, 128, LANES)
    sums = ()
    for piece in gl.static_range(PIECES):
        sums = sums + (gl.load(x + piece * 128 + at),)  # noqa: RUF005
    for turn in gl.static_range(TURNS):
        a = gl.load(y + turn * 128 + at)
        fresh = ()
        for piece in gl.static_range(PIECES):
            other = sums[(piece + 1) % PIECES] if turn % 3 == 0 else a
            fresh = fresh + (gl.fma(a, other, sums[piece]),)  # noqa: RUF005
        sums = fresh
    for piece in gl.static_range(PIECES):
        gl.store(out + piece * 128 + at, sums[piece])


@pytest.mark.parametrize("pieces", [1, 5, MANY_DUE + 3])
def test_the_bits_are_those_of_one_after_the_other(pieces: int, rng: np.random.Generator) -> None:
    turns = 7
    x = rng.standard_normal((pieces, 128)).astype(np.float32)
    y = rng.standard_normal((turns, 128)).astype(np.float32)
    out = np.full_like(x, np.nan)
    report = run(chains, 1, x, y, out, TURNS=turns, PIECES=pieces, observer=Counters())
    sums = list(x)
    for turn in range(turns):
        sums = [
            numeric.fma(y[turn], sums[(i + 1) % pieces] if turn % 3 == 0 else y[turn], sums[i]) for i in range(pieces)
        ]
    assert np.array_equal(out, np.array(sums))
    assert report.counters["fmas"] == turns * pieces * 128


@jit
def left_behind(x, out, n):
    at = gl.arange(0, 128, LANES)
    value = gl.load(x + at)
    value = gl.fma(value, value, value)
    if n > 0:
        gl.load(x + at + 1)  # out of bounds, while the multiply-add is due
    gl.store(out + at, value)


def test_what_a_failed_run_left_does_not_touch_the_next(rng: np.random.Generator) -> None:
    x, out = rng.standard_normal(128).astype(np.float32), np.zeros(128, np.float32)
    with pytest.raises(SimulationFault, match="out-of-bounds"):
        run(left_behind, 1, x, out, 5)
    run(left_behind, 1, x, out, 0)
    assert np.array_equal(out, numeric.fma(x, x, x))
