"""The jitted pieces that the mma.sync rungs share: tiles to shared memory, fragments to registers, the epilogue."""

from __future__ import annotations

from ...compat import async_copy_load, constexpr, gl, jit, mma_v2
from ..common import store_tile
from ..hopper.pieces import split_columns

__all__ = ["copy_step", "copy_tile", "fragment", "multiply_ahead", "part_fragment", "round_to_tf32", "store_rows"]


@jit
def round_to_tf32(x):
    """To the nearest number with a 10-bit mantissa, ties away from zero, as PTX's cvt.rna.tf32.f32 does; NaN and
    infinities stay. Tensor cores would cut off."""
    rounded = (x.to(gl.int32, bitcast=True) + 0x1000) & -8192
    return gl.where(gl.abs(x) < float("inf"), rounded.to(gl.float32, bitcast=True), x)


@jit
def copy_tile(
    tile, matrix, rows, cols, row_stride, col_stride, row_end, col_end, MASK_ROWS: constexpr, MASK_COLS: constexpr
):
    """``matrix[rows, cols]`` to shared memory by cp.async, zero outside: there after a wait."""
    pointers = matrix + rows * row_stride + cols * col_stride
    if MASK_ROWS and MASK_COLS:
        async_copy_load(tile, pointers, mask=(rows < row_end) & (cols < col_end))
    elif MASK_ROWS:
        async_copy_load(tile, pointers, mask=rows < row_end)
    elif MASK_COLS:
        async_copy_load(tile, pointers, mask=cols < col_end)
    else:
        async_copy_load(tile, pointers)


@jit
def copy_step(
    a_tile, b_tile, a, b, a_row, a_col, b_row, b_col, row, col, k0, a_rows, a_cols, b_rows, b_cols,
    TILE_M: constexpr, TILE_N: constexpr, TILE_K: constexpr, MASKS: constexpr, A_COPY: constexpr, B_COPY: constexpr,
):  # fmt: skip
    """One K step of A and B to shared memory. ``a_rows`` to ``b_cols``: the extents; MASKS has a bit for each that
    tiles do not divide."""
    a_down = (row + gl.arange(0, TILE_M, gl.SliceLayout(1, A_COPY)))[:, None]
    a_across = (k0 + gl.arange(0, TILE_K, gl.SliceLayout(0, A_COPY)))[None, :]
    b_down = (k0 + gl.arange(0, TILE_K, gl.SliceLayout(1, B_COPY)))[:, None]
    b_across = (col + gl.arange(0, TILE_N, gl.SliceLayout(0, B_COPY)))[None, :]
    copy_tile(a_tile, a, a_down, a_across, a_row, a_col, a_rows, a_cols, MASKS & 1, MASKS & 2)
    copy_tile(b_tile, b, b_down, b_across, b_row, b_col, b_rows, b_cols, MASKS & 4, MASKS & 8)


@jit
def fragment(tile, LAYOUT: constexpr, OPERAND: constexpr, K_WIDTH: constexpr):
    """A tile in shared memory as mma.sync's operand in registers: by ldmatrix where the layout lets it."""
    value = tile.load(gl.DotOperandLayout(OPERAND, LAYOUT, K_WIDTH))
    if K_WIDTH == 1:  # fp32
        value = round_to_tf32(value)
    return value


@jit
def part_fragment(tile, PART: constexpr, LAYOUT: constexpr, OPERAND: constexpr, K_WIDTH: constexpr):
    """As :func:`fragment`, of 16 along K, from ``16 * PART`` on."""
    return fragment(tile.slice(16 * PART, 16, 1 - OPERAND), LAYOUT, OPERAND, K_WIDTH)


@jit
def multiply_ahead(
    acc, left, right, a_tile, b_tile, PART: constexpr, LAYOUT: constexpr, K_WIDTH: constexpr
):  # fmt: skip
    """``acc`` with the products of all parts from PART on but the last, of which the fragments come back as well.

    ``left`` and ``right`` are PART's. Each part's fragments are asked for before the part ahead of it is multiplied.
    """
    if a_tile.shape[1] > 16 * (PART + 1):
        next_left = part_fragment(a_tile, PART + 1, LAYOUT, 0, K_WIDTH)
        next_right = part_fragment(b_tile, PART + 1, LAYOUT, 1, K_WIDTH)
        acc = mma_v2(left, right, acc)
        result = multiply_ahead(acc, next_left, next_right, a_tile, b_tile, PART + 1, LAYOUT, K_WIDTH)
    else:
        result = (acc, left, right)
    return result


@jit
def store_rows(
    acc, row, col, c, c_row, c_col, d, d_row, d_col, M, N, alpha, beta, LAYOUT: constexpr, OUT: constexpr,
    PARTS: constexpr, READ_C: constexpr, MASK_M: constexpr, MASK_N: constexpr, finish=None,
):  # fmt: skip
    """``D[row:, col:] = alpha * acc + beta * C`` in whole lines of memory, PARTS pieces one after the other.

    ``finish``: what of an epilogue follows (:class:`..epilogue.Finish`), in the kernels that fuse one.

    The accumulators' layout writes 8 columns at a time; the piece goes through shared memory into layout OUT first. By
    then nobody needs the ring, and Triton puts the piece into its place.
    """
    PART_N: constexpr = acc.shape[1] // PARTS
    parts = split_columns(acc, PARTS)
    rows = (row + gl.arange(0, acc.shape[0], gl.SliceLayout(1, OUT)))[:, None]
    for i in gl.static_range(PARTS):
        cols = (col + i * PART_N + gl.arange(0, PART_N, gl.SliceLayout(0, OUT)))[None, :]
        part = gl.convert_layout(parts[i], LAYOUT, assert_trivial=True).to(gl.float32)
        if READ_C or finish is not None:
            out = gl.convert_layout(part, OUT)
            store_tile(
                out, rows, cols, c, c_row, c_col, d, d_row, d_col, M, N, alpha, beta, READ_C, MASK_M, MASK_N, finish
            )
        else:
            # Scaled and rounded first: half the bytes through shared memory, for two-byte D.
            narrow = gl.convert_layout((part * alpha).to(d.dtype.element_ty), OUT)
            pointers = d + rows * d_row + cols * d_col
            if MASK_M or MASK_N:
                gl.store(pointers, narrow, mask=(rows < M) & (cols < N))
            else:
                gl.store(pointers, narrow)
