"""Copies of an operand into a workspace: aligned, contiguous along the wanted axis, or split in three for tf32.

The cost is one read and one write of the operand (tf32x3: three writes). At H200's 4.27 TB/s a 4096 x 4096 bf16 matrix
takes 16 us, where the product takes 200 us; the cost model of :func:`copy_seconds` says when that pays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..compat import constexpr, gl, jit
from ..hardware import Gpu
from ..problem import Matrix
from .common import after_earlier_launches, cdiv
from .plan import INT32_MAX, Argument, Launch, Pointer, Scalar, Workspace

__all__ = ["Copy", "copy_launches", "copy_seconds", "transposed"]

TILE_ROWS = 64
TILE_COLS = 64
NUM_WARPS = 4


def transposed(matrix: Matrix) -> Matrix:
    """The same memory seen as the transposed matrix."""
    return replace(
        matrix, rows=matrix.cols, cols=matrix.rows, row_stride=matrix.col_stride, col_stride=matrix.row_stride
    )


@jit
def truncate_to_tf32(x):
    """The 11 leading bits of the mantissa; what is cut off is exact in fp32. NaN stays NaN whatever its payload."""
    bits = x.to(gl.int32, bitcast=True) & -8192
    return gl.where(x == x, bits.to(gl.float32, bitcast=True), x)


@jit
def copy_tile(
    program, source, target, rows, cols, padded, source_row, source_col, pitch,
    TILE_ROWS: constexpr, TILE_COLS: constexpr, NUM_WARPS: constexpr,
    DOWN: constexpr, READ_VECTOR: constexpr, WRITE_VECTOR: constexpr, ORDER: constexpr,
):  # fmt: skip
    """One tile of ``target`` (row-major, ``pitch``) = ``source``, zero from column ``cols`` up to ``padded``.

    DOWN: neighbours of the source lie along its columns, so it is read that way and turned in shared memory.
    ORDER 0 copies. Otherwise each element x becomes three, ``padded`` columns apart, for the product of two such
    matrices to be x*y to nearly fp32's accuracy: high, finite high and rest (1), or high, rest and finite high (2), so
    that the products are high*high, high*rest and rest*high. An infinity meets only the other operand's high part.
    """
    LANES: constexpr = min(32, (TILE_ROWS if DOWN else TILE_COLS) // READ_VECTOR)
    if DOWN:
        READ: constexpr = gl.BlockedLayout([READ_VECTOR, 1], [LANES, 32 // LANES], [1, NUM_WARPS], [0, 1])
    else:
        READ: constexpr = gl.BlockedLayout([1, READ_VECTOR], [32 // LANES, LANES], [NUM_WARPS, 1], [1, 0])  # type: ignore[no-redef]
    ACROSS: constexpr = TILE_COLS // WRITE_VECTOR
    WRITE: constexpr = gl.BlockedLayout([1, WRITE_VECTOR], [32 // ACROSS, ACROSS], [NUM_WARPS, 1], [1, 0])
    tiles_across = gl.cdiv(padded, TILE_COLS)
    row = (program // tiles_across).to(gl.int64) * TILE_ROWS
    col = program % tiles_across * TILE_COLS
    from_rows = (row + gl.arange(0, TILE_ROWS, gl.SliceLayout(1, READ)))[:, None]
    from_cols = (col + gl.arange(0, TILE_COLS, gl.SliceLayout(0, READ)))[None, :]
    inside = (from_rows < rows) & (from_cols < cols)
    after_earlier_launches()  # with pdl they may still run: nothing in global memory is touched before this
    read = gl.load(source + from_rows * source_row + from_cols * source_col, mask=inside, other=0.0)
    value = gl.convert_layout(read, WRITE)
    to_rows = (row + gl.arange(0, TILE_ROWS, gl.SliceLayout(1, WRITE)))[:, None]
    to_cols = (col + gl.arange(0, TILE_COLS, gl.SliceLayout(0, WRITE)))[None, :]
    pointers = target + to_rows * pitch + to_cols
    wanted = (to_rows < rows) & (to_cols < padded)
    if ORDER == 0:
        gl.store(pointers, value, mask=wanted)
    else:
        high = truncate_to_tf32(value)
        finite = gl.abs(value) < float("inf")
        finite_high = gl.where(finite, high, 0.0)
        rest = gl.where(finite, value - high, 0.0)
        gl.store(pointers, high, mask=wanted)
        gl.store(pointers + padded, finite_high if ORDER == 1 else rest, mask=wanted)
        gl.store(pointers + 2 * padded, rest if ORDER == 1 else finite_high, mask=wanted)


@jit
def copy_kernel(
    source, target, rows, cols, padded, source_row, source_col, pitch,
    TILE_ROWS: constexpr, TILE_COLS: constexpr, NUM_WARPS: constexpr,
    DOWN: constexpr, READ_VECTOR: constexpr, WRITE_VECTOR: constexpr, ORDER: constexpr,
):  # fmt: skip
    """One operand."""
    copy_tile(
        gl.program_id(0), source, target, rows, cols, padded, source_row, source_col, pitch,
        TILE_ROWS, TILE_COLS, NUM_WARPS, DOWN, READ_VECTOR, WRITE_VECTOR, ORDER,
    )  # fmt: skip


@jit
def copy_two_kernel(
    source, target, rows, cols, padded, source_row, source_col, pitch,
    source2, target2, rows2, cols2, padded2, source_row2, source_col2, pitch2, first_tiles,
    TILE_ROWS: constexpr, TILE_COLS: constexpr, NUM_WARPS: constexpr,
    DOWN: constexpr, READ_VECTOR: constexpr, WRITE_VECTOR: constexpr, ORDER: constexpr,
    DOWN2: constexpr, READ_VECTOR2: constexpr, WRITE_VECTOR2: constexpr, ORDER2: constexpr,
):  # fmt: skip
    """Both operands in one launch: of a small product, a second launch would be a fifth of the time."""
    program = gl.program_id(0)
    if program < first_tiles:
        copy_tile(
            program, source, target, rows, cols, padded, source_row, source_col, pitch,
            TILE_ROWS, TILE_COLS, NUM_WARPS, DOWN, READ_VECTOR, WRITE_VECTOR, ORDER,
        )  # fmt: skip
    else:
        copy_tile(
            program - first_tiles, source2, target2, rows2, cols2, padded2, source_row2, source_col2, pitch2,
            TILE_ROWS, TILE_COLS, NUM_WARPS, DOWN2, READ_VECTOR2, WRITE_VECTOR2, ORDER2,
        )  # fmt: skip


@dataclass(frozen=True)
class Copy:
    """One such copy: of operand ``role``'s ``matrix``, row-major, or column-major if ``columns``, into a workspace.

    ``order`` is 0 for a plain copy, or the operand's place in a product of three-part matrices (1: A, 2: B).
    """

    role: str
    matrix: Matrix
    columns: bool
    order: int = 0

    @property
    def name(self) -> str:
        return f"copy_{self.role}"

    @property
    def source(self) -> Matrix:
        """The matrix whose rows the copy lays out one after the other."""
        return transposed(self.matrix) if self.columns else self.matrix

    @property
    def padded(self) -> int:
        """Elements of a row, rounded up to whole 128-byte lines."""
        line = 128 // self.matrix.dtype.bytes
        return cdiv(self.source.cols, line) * line

    @property
    def pitch(self) -> int:
        return self.padded * (3 if self.order else 1)

    @property
    def workspace(self) -> Workspace:
        return Workspace(self.name, self.matrix.dtype, self.source.rows * self.pitch)

    @property
    def copied(self) -> Matrix:
        """The copy, in the place of the original; with three parts its K is three times as long."""
        cols = self.pitch if self.order else self.source.cols
        copied = replace(
            self.source, cols=cols, row_stride=self.pitch, col_stride=1, batch_stride=0, alignment=16
        )
        return transposed(copied) if self.columns else copied

    @property
    def padded_copy(self) -> Matrix:
        """:attr:`copied` with the zeros after each row, as part of the matrix."""
        copied = replace(transposed(self.copied) if self.columns else self.copied, cols=self.pitch)
        return transposed(copied) if self.columns else copied

    @property
    def tiles(self) -> int:
        return cdiv(self.source.rows, TILE_ROWS) * cdiv(self.padded, TILE_COLS)

    def arguments(self) -> tuple[Argument, ...]:
        """:func:`copy_tile`'s, from ``source`` to ``pitch``."""
        source = self.source
        wide = source.furthest_offset() > INT32_MAX or source.rows * self.pitch > INT32_MAX
        return (
            Pointer(self.role, source.dtype, source.alignment),
            Pointer(self.name, source.dtype),
            Scalar.index(source.rows),
            Scalar.index(source.cols),
            Scalar.index(self.padded),
            Scalar.index(source.row_stride, wide),
            Scalar.index(source.col_stride, wide),
            Scalar.index(self.pitch, wide),
        )

    def constants(self) -> tuple[Any, ...]:
        """:func:`copy_tile`'s, from DOWN to ORDER."""
        source = self.source
        down = abs(source.row_stride) < abs(source.col_stride)
        stride = source.col_stride if down else source.row_stride
        vector = 16 // source.dtype.bytes
        aligned = source.alignment >= 16 and stride % vector == 0 and 1 in (source.row_stride, source.col_stride)
        return (down, vector if aligned else 1, vector, self.order)


ARGUMENTS = ("source", "target", "rows", "cols", "padded", "source_row", "source_col", "pitch")
CONSTANTS = ("DOWN", "READ_VECTOR", "WRITE_VECTOR", "ORDER")


def copy_launches(copies: Sequence[Copy]) -> tuple[Launch, ...]:
    """The launch that makes these copies: none, one or two of them."""
    if not copies:
        return ()
    arguments: list[tuple[str, Argument]] = []
    constants: list[tuple[str, Any]] = [("TILE_ROWS", TILE_ROWS), ("TILE_COLS", TILE_COLS), ("NUM_WARPS", NUM_WARPS)]
    for copy, suffix in zip(copies, ("", "2"), strict=False):
        arguments += [(name + suffix, value) for name, value in zip(ARGUMENTS, copy.arguments(), strict=True)]
        constants += [(name + suffix, value) for name, value in zip(CONSTANTS, copy.constants(), strict=True)]
    function = copy_kernel
    if len(copies) == 2:
        arguments.append(("first_tiles", Scalar.index(copies[0].tiles)))
        function = copy_two_kernel
    tiles = sum(copy.tiles for copy in copies)
    return (Launch(function, (tiles, 1, 1), tuple(arguments), tuple(constants), NUM_WARPS),)


def copy_seconds(copies: Sequence[Copy], gpu: Gpu) -> float:
    """What the copies cost: their bytes at three quarters of the card's bandwidth, and two microseconds to launch."""
    if not copies:
        return 0.0
    moved = sum(copy.source.rows * (copy.source.cols + copy.pitch) * copy.source.dtype.bytes for copy in copies)
    return 2e-6 + moved / (0.75e9 * gpu.dram_gbs)
