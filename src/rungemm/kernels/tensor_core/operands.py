"""How the mma.sync rungs move an operand's tile and lay it out in shared memory. Plain host code."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ...compat import gl
from ...problem import Matrix
from ..hopper.prepare import Copy

__all__ = ["TilePlan", "movable", "swizzled", "tile_plan"]


def _wide(matrix: Matrix, near: int) -> bool:
    """Whether 16 bytes at a time can be moved along axis ``near``, as far as the compiler can see.

    It knows of an extent or a stride only whether 16 divides it, so that is what wide copies ask for.
    """
    strides, extents = (matrix.row_stride, matrix.col_stride), (matrix.rows, matrix.cols)
    divide = strides[1 - near] % 16 == 0 and extents[near] % 16 == 0
    return strides[near] == 1 and divide and matrix.alignment % 16 == 0


def movable(role: str, matrix: Matrix, k_axis: int) -> tuple[str, Matrix, Copy | None]:
    """The operand as cp.async can move it: itself, or an aligned copy, padded with zeros, that is made first.

    cp.async moves 4 bytes at least, two elements of fp16, and those only from an even address.
    """
    near = 0 if matrix.is_col_major else 1
    if matrix.dtype.bytes == 4 or _wide(matrix, near):
        return role, matrix, None
    columns = matrix.is_col_major if 1 in (matrix.row_stride, matrix.col_stride) else k_axis == 0
    copy = Copy(role, matrix, columns)
    made = copy.operand
    padded = replace(made.matrix, rows=copy.padded) if columns else replace(made.matrix, cols=copy.padded)
    return made.role, padded, copy


@dataclass(frozen=True)
class TilePlan:
    """One operand's way to shared memory: which thread copies what, and the tile's layout there."""

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
    """The way of a tile of (rows, columns) of a movable ``matrix``; ``k_axis`` says which of them is K."""
    near = 0 if matrix.is_col_major else 1
    order = [near, 1 - near]
    vector = 16 // matrix.dtype.bytes if _wide(matrix, near) else 1
    across = min(32, tile[near] // vector)
    warps_far = min(num_warps, max(1, tile[1 - near] // (32 // across)))
    size, lanes, warps = [1, 1], [1, 1], [1, 1]
    size[near], lanes[near], warps[near] = vector, across, num_warps // warps_far
    lanes[1 - near], warps[1 - near] = 32 // across, warps_far
    return TilePlan(
        gl.BlockedLayout(size, lanes, warps, order),
        swizzled(tile, order, matrix.dtype.bytes, near == k_axis),
    )
