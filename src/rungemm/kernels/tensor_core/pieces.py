"""The jitted pieces that the mma.sync rungs share: tiles to shared memory, fragments to registers."""

from __future__ import annotations

from ...compat import async_copy_load, constexpr, gl, jit
from ..common import load_tile

__all__ = ["copy_step", "copy_tile", "fragment", "round_to_tf32"]


@jit
def round_to_tf32(x):
    """To the nearest number with a 10-bit mantissa, ties to even; NaN and infinities stay. Tensor cores cut off."""
    bits = x.to(gl.int32, bitcast=True)
    rounded = (bits + 0xFFF + ((bits >> 13) & 1)) & -8192
    return gl.where(gl.abs(x) < float("inf"), rounded.to(gl.float32, bitcast=True), x)


@jit
def copy_tile(
    tile, matrix, rows, cols, row_stride, col_stride, row_end, col_end,
    MASK_ROWS: constexpr, MASK_COLS: constexpr, ASYNC: constexpr,
):  # fmt: skip
    """``matrix[rows, cols]`` to shared memory, zero outside; with ASYNC it is there after a wait."""
    if ASYNC:
        pointers = matrix + rows * row_stride + cols * col_stride
        if MASK_ROWS and MASK_COLS:
            async_copy_load(tile, pointers, mask=(rows < row_end) & (cols < col_end))
        elif MASK_ROWS:
            async_copy_load(tile, pointers, mask=rows < row_end)
        elif MASK_COLS:
            async_copy_load(tile, pointers, mask=cols < col_end)
        else:
            async_copy_load(tile, pointers)
    else:
        tile.store(load_tile(matrix, rows, cols, row_stride, col_stride, row_end, col_end, MASK_ROWS, MASK_COLS))


@jit
def copy_step(
    a_tile, b_tile, a, b, a_row, a_col, b_row, b_col, row, col, k0, M, N, K,
    TILE_M: constexpr, TILE_N: constexpr, TILE_K: constexpr,
    MASK_M: constexpr, MASK_N: constexpr, MASK_K: constexpr,
    A_ASYNC: constexpr, B_ASYNC: constexpr, A_COPY: constexpr, B_COPY: constexpr,
):  # fmt: skip
    """One K step of A and B to shared memory."""
    a_rows = (row + gl.arange(0, TILE_M, gl.SliceLayout(1, A_COPY)))[:, None]
    a_cols = (k0 + gl.arange(0, TILE_K, gl.SliceLayout(0, A_COPY)))[None, :]
    b_rows = (k0 + gl.arange(0, TILE_K, gl.SliceLayout(1, B_COPY)))[:, None]
    b_cols = (col + gl.arange(0, TILE_N, gl.SliceLayout(0, B_COPY)))[None, :]
    copy_tile(a_tile, a, a_rows, a_cols, a_row, a_col, M, K, MASK_M, MASK_K, A_ASYNC)
    copy_tile(b_tile, b, b_rows, b_cols, b_row, b_col, K, N, MASK_K, MASK_N, B_ASYNC)


@jit
def fragment(tile, LAYOUT: constexpr, OPERAND: constexpr, K_WIDTH: constexpr):
    """A tile in shared memory as mma.sync's operand in registers: by ldmatrix where the layout lets it."""
    value = tile.load(gl.DotOperandLayout(OPERAND, LAYOUT, K_WIDTH))
    if K_WIDTH == 1:  # fp32
        value = round_to_tf32(value)
    return value
