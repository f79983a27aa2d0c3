"""How the mma.sync rungs move an operand's tile and lay it out in shared memory. Plain host code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...compat import gl
from ...problem import Matrix

__all__ = ["TilePlan", "swizzled", "tile_plan"]


@dataclass(frozen=True)
class TilePlan:
    """One operand's way to shared memory.

    Attributes:
        asynchronous: by cp.async; otherwise through registers, for cp.async moves 4 bytes at least.
        copy: which thread moves what.
        shared: the tile's layout.
    """

    asynchronous: bool
    copy: Any
    shared: Any


def swizzled(tile: tuple[int, int], order: list[int], element_bytes: int, along_k: bool) -> Any:
    """The layout whose fragments are read without bank conflicts: groups of a row are permuted by the row's number.

    Two-byte elements, and fp32 along K, are read by ldmatrix: 8 rows of 16 bytes at a time must lie in different
    banks. fp32 across K is read word by word, 4 rows of 8 neighbours at a time, so there the groups are of 8.
    """
    length = tile[order[0]] * element_bytes
    rows = max(1, 128 // length)  # rows in one line of all banks
    if element_bytes == 4 and not along_k:
        return gl.SwizzledSharedLayout(8, rows, max(1, min(4 // rows, tile[order[0]] // 8)), order)
    vector = 16 // element_bytes
    return gl.SwizzledSharedLayout(vector, rows, max(1, min(8 // rows, tile[order[0]] // vector)), order)


def tile_plan(matrix: Matrix, tile: tuple[int, int], k_axis: int, num_warps: int) -> TilePlan:
    """The way of a tile of (rows, columns) of ``matrix``; ``k_axis`` says which of them is K.

    The compiler knows of an extent or a stride only whether 16 divides it, so that is what wide copies ask for.
    """
    order = [0, 1] if matrix.row_stride == 1 and matrix.col_stride != 1 else [1, 0]
    near = order[0]
    strides, extents = (matrix.row_stride, matrix.col_stride), (matrix.rows, matrix.cols)
    fits = extents[near] % 16 == 0 or extents[near] % tile[near] == 0
    wide = strides[near] == 1 and strides[1 - near] % 16 == 0 and fits and matrix.alignment % 16 == 0
    vector = 16 // matrix.dtype.bytes if wide else 1
    across = min(32, tile[near] // vector)
    warps_far = min(num_warps, max(1, tile[1 - near] // (32 // across)))
    size, lanes, warps = [1, 1], [1, 1], [1, 1]
    size[near], lanes[near], warps[near] = vector, across, num_warps // warps_far
    lanes[1 - near], warps[1 - near] = 32 // across, warps_far
    return TilePlan(
        wide or matrix.dtype.bytes == 4,
        gl.BlockedLayout(size, lanes, warps, order),
        swizzled(tile, order, matrix.dtype.bytes, near == k_axis),
    )
