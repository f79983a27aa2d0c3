"""How the mma.sync champion moves an operand to shared memory: how many neighbours at a time, by which threads, and
whether it is laid out anew first. Plain host code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ...compat import gl
from ...problem import Matrix
from ..copies import Copy
from .operands import swizzled

__all__ = ["Move", "Way", "copy_layout", "moves_of", "near_axis", "vector_of", "way_of"]


@dataclass(frozen=True)
class Way:
    """An operand's way.

    Attributes:
        role: whose memory it is: the operand's, or a workspace's with a copy.
        matrix: what is read: the operand, or its copy with the zeros after each line.
        copy: the copy to be made first, or ``None``.
        near: the axis (0: down, 1: across) along which neighbours in memory lie.
        vector: neighbours copied at once.
    """

    role: str
    matrix: Matrix
    copy: Copy | None
    near: int
    vector: int

    @property
    def asynchronous(self) -> bool:
        """By cp.async, which moves 4, 8 or 16 bytes; otherwise by loads and stores."""
        return self.vector * self.matrix.dtype.bytes >= 4

    @property
    def wide(self) -> bool:
        """16 bytes at a time."""
        return self.vector * self.matrix.dtype.bytes == 16

    def layout(self, tile: tuple[int, int], num_warps: int) -> Any:
        """Which thread copies what of a tile."""
        return copy_layout(tile, self.near, self.vector, num_warps)

    def shared(self, tile: tuple[int, int], k_axis: int) -> Any:
        """The tile in shared memory."""
        return swizzled(tile, [self.near, 1 - self.near], self.matrix.dtype.bytes, self.near == k_axis)

    def units(self, axis: int) -> tuple[int, int]:
        """The extent along an axis and the stride along it, as the kernel takes them: the extent along the near axis
        and the stride along the far one in vectors."""
        matrix = self.matrix
        extent, stride = ((matrix.rows, matrix.row_stride), (matrix.cols, matrix.col_stride))[axis]
        if axis == self.near:
            return extent // self.vector, stride
        # With one line only its pitch counts for nothing, and may divide badly.
        return extent, 0 if extent == 1 else stride // self.vector


class Move(NamedTuple):
    """What a search needs to know of a way: :class:`Way`'s attributes of the same names, or arrays of them."""

    vector: Any
    near: Any
    wide: Any
    asynchronous: Any

    @staticmethod
    def of(way: Way) -> Move:
        return Move(way.vector, way.near, way.wide, way.asynchronous)


def moves_of(ways: Callable[[bool], tuple[Way, Way]], realign: Any) -> tuple[Move, Move]:
    """What a search needs to know of A's and of B's ways, which follow from whether both are laid out anew where that
    helps; arrays of both where ``realign`` is one."""
    if not isinstance(realign, np.ndarray):
        first, second = ways(realign)
        return Move.of(first), Move.of(second)
    if not realign.any():
        return moves_of(ways, False)
    pairs = zip(moves_of(ways, True), moves_of(ways, False), strict=True)
    a, b = (Move(*(np.where(realign, x, y) for x, y in zip(*pair, strict=True))) for pair in pairs)
    return a, b


def near_axis(matrix: Matrix, otherwise: int) -> int:
    """The axis along which elements are neighbours in memory; the longer if both are, ``otherwise`` if none is."""
    strides = (matrix.row_stride, matrix.col_stride)
    if 1 not in strides:
        return otherwise
    if strides == (1, 1):
        return 0 if matrix.rows > matrix.cols else 1
    return strides.index(1)


def vector_of(matrix: Matrix, near: int) -> int:
    """The most neighbours, up to 16 bytes, that can always be moved together: every line starts and ends with a whole
    vector."""
    strides, extents = (matrix.row_stride, matrix.col_stride), (matrix.rows, matrix.cols)
    if strides[near] != 1 or matrix.alignment % 16:
        return 1
    vector = 16 // matrix.dtype.bytes
    pitch = 0 if extents[1 - near] == 1 else strides[1 - near]
    while pitch % vector or extents[near] % vector:
        vector //= 2
    return vector


@lru_cache(maxsize=256)
def way_of(role: str, matrix: Matrix, k_axis: int, realign: bool) -> Way:
    """The way of operand ``role``; with ``realign``, by a copy where 16 bytes at a time do not go."""
    # Asked for every setting of a problem, so remembered.
    near = near_axis(matrix, k_axis)
    way = Way(role, matrix, None, near, vector_of(matrix, near))
    if way.wide or not realign:
        return way
    # fp32 is read by ldmatrix only along K; other types lie as they lay, if they lay along anything.
    if matrix.dtype.bytes == 4 or 1 not in (matrix.row_stride, matrix.col_stride):
        near = k_axis
    copy = Copy(role, matrix, columns=near == 0)
    return Way(copy.name, copy.padded_copy, copy, near, 16 // matrix.dtype.bytes)


def copy_layout(tile: tuple[int, int], near: int, vector: int, num_warps: int) -> Any:
    """Vectors of a line by neighbouring lanes, lines by further lanes and then by warps."""
    across = min(32, max(1, tile[near] // vector))
    lines = 32 // across
    warps_far = min(num_warps, max(1, tile[1 - near] // lines))
    size, lanes, warps = [1, 1], [1, 1], [1, 1]
    size[near], lanes[near], warps[near] = vector, across, num_warps // warps_far
    lanes[1 - near], warps[1 - near] = lines, warps_far
    return gl.BlockedLayout(size, lanes, warps, [near, 1 - near])
