"""Which instructions a change of register layout through shared memory takes.

Triton chooses the arrangement in shared memory from the two layouts, so that both sides move as much at once as they
can, without bank conflicts. What lies together in memory is a row of up to 16 bytes; an ordinary instruction moves
rows of which one thread holds all, stmatrix and ldmatrix those that four neighbouring lanes hold, four bytes each
(transposed, with 16-bit elements: those that the eight lanes 4 apart hold).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any, NamedTuple

__all__ = ["Side", "exchange"]

ROW = 16
"""Bytes that an instruction moves at once at most, and always those of a matrix instruction."""

Basis = tuple[int, ...]


class Side(NamedTuple):
    """One side of the exchange.

    Attributes:
        kind: "sts", "lds", "stsm" or "ldsm".
        width: bytes a lane, or matrices.
        number: instructions of a warp.
    """

    kind: str
    width: int
    number: int


def exchange(source: Any, target: Any, element_bytes: int, arch: int) -> tuple[Side, Side]:
    """How the elements go into shared memory and how they come out.

    Found from the PTX of Triton 3.6 for 265 random pairs of layouts: matrix instructions on one side only where that
    side's rows suit the other's threads, reading before writing; then whole rows by ordinary ones; then matrix
    instructions on both sides; then less. Kinds and widths agree for 131 of 132 pairs with elements of 4 bytes, 64 of
    70 with 2 and 43 of 63 with 1; bytes moved, and so wavefronts, for all but those. Known gaps: where both sides share
    less than a row, one of them may move more at once than is said here, and matrices may go by fewer than four.

    Args:
        source, target: the layouts as :class:`rungemm.layouts.linear.LinearLayout` of the tile.
        arch: stmatrix needs sm_90.
    """
    bases: dict[str, list[Basis]] = source.bases
    others: dict[str, list[Basis]] = target.bases
    mine, theirs = _held(bases["register"]), _held(others["register"])
    stored = _rows(bases, mine, element_bytes) if arch >= 90 else set()
    loaded = _rows(others, theirs, element_bytes)
    shared = len(set(mine) & set(theirs))
    width = min(element_bytes << shared, ROW)
    if element_bytes <= 4:
        if any(row <= set(mine) for row in loaded):
            return _plain("sts", mine, element_bytes, ROW), _matrices("ldsm", theirs, element_bytes)
        if any(row <= set(theirs) for row in stored):
            return _matrices("stsm", mine, element_bytes), _plain("lds", theirs, element_bytes, ROW)
        if width < ROW and stored & loaded:
            return _matrices("stsm", mine, element_bytes), _matrices("ldsm", theirs, element_bytes)
    return _plain("sts", mine, element_bytes, width), _plain("lds", theirs, element_bytes, width)


def _held(registers: Iterable[Sequence[int]]) -> list[Basis]:
    """What the register bits add that do not merely repeat others."""
    return [tuple(basis) for basis in registers if any(basis)]


def _rows(bases: dict[str, list[Basis]], held: Sequence[Basis], element_bytes: int) -> set[frozenset[Basis]]:
    """The rows of 16 bytes that a matrix instruction of this side could move, as sets of bases."""
    lanes = [tuple(basis) for basis in bases["lane"]]
    found: set[frozenset[Basis]] = set()
    if all(any(basis) for basis in lanes[:2]) and element_bytes <= 4:
        packed = (4 // element_bytes).bit_length() - 1
        found |= {frozenset(lanes[:2]) | frozenset(chosen) for chosen in combinations(held, packed)}
    if element_bytes == 2 and held and all(any(basis) for basis in lanes[2:]):
        found.add(frozenset(lanes[2:]))
    return found


def _plain(kind: str, held: Sequence[Basis], element_bytes: int, width: int) -> Side:
    return Side(kind, width, max((element_bytes << len(held)) // width, 1))


def _matrices(kind: str, held: Sequence[Basis], element_bytes: int) -> Side:
    """One matrix for every four bytes of a lane, up to four an instruction."""
    matrices = max((element_bytes << len(held)) // 4, 1)
    together = min(matrices, 4)
    return Side(kind, together, matrices // together)
