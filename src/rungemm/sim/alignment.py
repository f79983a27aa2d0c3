"""What a compiler can prove about a tile of integers or pointers: divisibility, contiguity, constancy.

Triton decides from these three numbers a dimension how wide a global access may be. The rules here are written
from their meaning: `x = multiple of d at the head of each run`, `rises by one over c elements`, `equal over s
elements`. They are computed only while an observer watches, and remembered, since the same few combinations come
back in every iteration.
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd

from .events import Alignment

__all__ = ["UNKNOWN_DIVISOR", "added", "arange", "broadcast", "constant", "expanded", "scalar", "scaled", "unknown"]

UNKNOWN_DIVISOR = 1
MOST = 1 << 30  # "any power of two": the divisibility of zero


def power_of_two(value: int) -> int:
    """The largest power of two that divides ``value``, at most 2**30."""
    value = int(value)
    return MOST if value == 0 else min(value & -value, MOST)


@lru_cache(maxsize=4096)
def unknown(rank: int) -> Alignment:
    """Nothing is known."""
    ones = (1,) * rank
    return Alignment(ones, ones, ones)


@lru_cache(maxsize=4096)
def constant(value: int, shape: tuple[int, ...]) -> Alignment:
    """One known value everywhere."""
    return Alignment((power_of_two(value),) * len(shape), (1,) * len(shape), shape, value)


@lru_cache(maxsize=4096)
def scalar(divisor: int, shape: tuple[int, ...]) -> Alignment:
    """One value everywhere, a multiple of ``divisor``."""
    return Alignment((divisor,) * len(shape), (1,) * len(shape), shape)


@lru_cache(maxsize=4096)
def arange(start: int, length: int) -> Alignment:
    """start, start + 1, ..."""
    return Alignment((power_of_two(start),), (length,), (1,))


@lru_cache(maxsize=4096)
def expanded(a: Alignment, axis: int, divisor: int) -> Alignment:
    """A dimension of length 1 inserted; ``divisor`` is what divides every element."""

    def put(values: tuple[int, ...], value: int) -> tuple[int, ...]:
        return (*values[:axis], value, *values[axis:])

    return Alignment(put(a.divisibility, divisor), put(a.contiguity, 1), put(a.constancy, 1), a.constant)


def common_divisor(a: Alignment) -> int:
    """What divides every element: the head's divisor, or 1 when the elements rise."""
    divisors = [d if c == 1 else 1 for d, c in zip(a.divisibility, a.contiguity, strict=True)]
    return max(divisors, default=1)


@lru_cache(maxsize=4096)
def broadcast(a: Alignment, old: tuple[int, ...], new: tuple[int, ...]) -> Alignment:
    """Dimensions of length 1 stretched: constant along them."""
    constancy = tuple(n if o == 1 and n != 1 else c for o, n, c in zip(old, new, a.constancy, strict=True))
    return Alignment(a.divisibility, a.contiguity, constancy, a.constant)


@lru_cache(maxsize=16384)
def added(a: Alignment, b: Alignment, unit: int = 1) -> Alignment:
    """a + b. ``unit`` is the bytes of an element when a is pointers (divisibility in bytes) and b counts elements."""
    rank = len(a.divisibility)
    divisibility, contiguity, constancy = [], [], []
    for i in range(rank):
        db = min(b.divisibility[i] * unit, MOST)
        rising = max(gcd(a.contiguity[i], b.constancy[i]), gcd(a.constancy[i], b.contiguity[i]))
        contiguity.append(rising)
        constancy.append(gcd(a.constancy[i], b.constancy[i]))
        divisibility.append(gcd(a.divisibility[i], db))
    value = None if a.constant is None or b.constant is None else a.constant + b.constant
    return Alignment(tuple(divisibility), tuple(contiguity), tuple(constancy), value)


@lru_cache(maxsize=16384)
def subtracted(a: Alignment, b: Alignment) -> Alignment:
    """a - b: runs rise only where b is constant."""
    rank = len(a.divisibility)
    contiguity = tuple(gcd(a.contiguity[i], b.constancy[i]) for i in range(rank))
    constancy = tuple(gcd(a.constancy[i], b.constancy[i]) for i in range(rank))
    divisibility = tuple(gcd(a.divisibility[i], b.divisibility[i]) for i in range(rank))
    value = None if a.constant is None or b.constant is None else a.constant - b.constant
    return Alignment(divisibility, contiguity, constancy, value)


@lru_cache(maxsize=16384)
def scaled(a: Alignment, b: Alignment) -> Alignment:
    """a * b: runs survive only a factor of one."""
    rank = len(a.divisibility)
    if a.constant is not None and b.constant is None:
        a, b = b, a
    if b.constant == 1:
        contiguity = a.contiguity
    else:
        contiguity = (1,) * rank
    divisibility = []
    for i in range(rank):
        # Where the product is not taken at the head of a run, the run's other elements are not multiples.
        da = a.divisibility[i] if a.contiguity[i] == 1 or b.constant == 1 else 1
        db = b.divisibility[i] if b.contiguity[i] == 1 else 1
        divisibility.append(min(da * db, MOST))
    constancy = tuple(gcd(a.constancy[i], b.constancy[i]) for i in range(rank))
    value = None if a.constant is None or b.constant is None else a.constant * b.constant
    return Alignment(tuple(divisibility), contiguity, constancy, value)


@lru_cache(maxsize=16384)
def divided(a: Alignment, b: Alignment) -> Alignment:
    """a // b: a run that rises becomes steps as long as the constant divisor, when its head is a multiple of it."""
    rank = len(a.divisibility)
    if b.constant is None or b.constant <= 0:
        constancy = tuple(gcd(a.constancy[i], b.constancy[i]) for i in range(rank))
        return Alignment((1,) * rank, (1,) * rank, constancy)
    d = power_of_two(b.constant) if b.constant & (b.constant - 1) == 0 else 1
    constancy = tuple(max(gcd(gcd(a.contiguity[i], d), a.divisibility[i]), a.constancy[i]) for i in range(rank))
    plain = d == 1 and b.constant != 1
    divisibility = tuple(1 if plain else max(a.divisibility[i] // b.constant, 1) for i in range(rank))
    contiguity = a.contiguity if b.constant == 1 else (1,) * rank
    value = None if a.constant is None else a.constant // b.constant
    return Alignment(tuple(power_of_two(x) for x in divisibility), contiguity, constancy, value)


@lru_cache(maxsize=16384)
def remainder(a: Alignment, b: Alignment) -> Alignment:
    """a % b: runs survive up to the divisor's own power of two."""
    rank = len(a.divisibility)
    contiguity = tuple(gcd(a.contiguity[i], b.divisibility[i]) if b.contiguity[i] == 1 else 1 for i in range(rank))
    divisibility = tuple(gcd(a.divisibility[i], b.divisibility[i]) for i in range(rank))
    constancy = tuple(gcd(a.constancy[i], b.constancy[i]) for i in range(rank))
    return Alignment(divisibility, contiguity, constancy)


@lru_cache(maxsize=16384)
def compared(a: Alignment, b: Alignment, strict_less: bool) -> Alignment:
    """A mask a < b (or another comparison): constant over runs that cannot straddle the bound.

    A rising run whose head and a constant bound are both multiples of the run's length lies wholly on one side.
    """
    rank = len(a.divisibility)
    constancy = []
    for i in range(rank):
        both = gcd(a.constancy[i], b.constancy[i])
        run = 1
        if strict_less:
            run = gcd(gcd(a.contiguity[i], b.constancy[i]), gcd(a.divisibility[i], b.divisibility[i]))
        constancy.append(max(both, run))
    return Alignment((1,) * rank, (1,) * rank, tuple(constancy))


@lru_cache(maxsize=16384)
def joined(a: Alignment, b: Alignment) -> Alignment:
    """Both at once, element by element (a & b, where, minimum): constant where both are."""
    rank = len(a.divisibility)
    constancy = tuple(gcd(a.constancy[i], b.constancy[i]) for i in range(rank))
    return Alignment((1,) * rank, (1,) * rank, constancy)
