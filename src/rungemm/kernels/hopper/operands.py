"""How a problem's matrices become TMA descriptors, and what TMA asks of them. Plain host code."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ...compat import gl
from ...dtypes import DType
from ...problem import Matrix, Problem
from ..copies import transposed
from ..plan import Descriptor

__all__ = ["Operand", "element_type", "operand_of", "shared_layout", "swapped", "tma_reason"]

TMA_MAX_EXTENT = 2**32
TMA_MAX_PITCH = 2**40
"""Bytes. Both limits: CUDA driver API, cuTensorMapEncodeTiled."""

_ELEMENT_TYPES = {"fp16": gl.float16, "bf16": gl.bfloat16, "fp32": gl.float32}


def element_type(dtype: DType) -> Any:
    """Gluon's name for an element type."""
    return _ELEMENT_TYPES[dtype.name]


def shared_layout(block: tuple[int, int], dtype: DType) -> Any:
    """The widest swizzle that a block's rows fill: what both TMA and wgmma read without bank conflicts."""
    return gl.NVMMASharedLayout.get_default_for(list(block), element_type(dtype))


def swapped(problem: Problem) -> Problem:
    """The same work as ``D' = B' @ A'`` (primes: transposed): B takes wgmma's M, A its N; no byte moves."""
    epilogue = problem.epilogue
    if epilogue is not None and epilogue.bias is not None:
        epilogue = replace(epilogue, bias="col" if epilogue.bias == "row" else "row")
    return replace(
        problem,
        a=transposed(problem.b),
        b=transposed(problem.a),
        c=None if problem.c is None else transposed(problem.c),
        d=transposed(problem.d),
        epilogue=epilogue,
    )


def _pitch(matrix: Matrix, columns: bool) -> int:
    """Elements between lines of neighbours; with one line only, any pitch will do, so a legal one."""
    lines, length = (matrix.cols, matrix.rows) if columns else (matrix.rows, matrix.cols)
    if lines == 1:
        unit = 16 // matrix.dtype.bytes
        return -(-length // unit) * unit
    return matrix.col_stride if columns else matrix.row_stride


def _contiguous(matrix: Matrix, columns: bool) -> bool:
    """Elements of a line (of a column, or of a row) are neighbours, or there is only one in each line."""
    length, stride = (matrix.rows, matrix.row_stride) if columns else (matrix.cols, matrix.col_stride)
    return stride == 1 or length == 1


def tma_reason(matrix: Matrix, columns: bool, written: bool = False) -> str | None:
    """Why TMA cannot move this matrix by rows (or by ``columns``), or ``None`` if it can.

    ``written``: by a store. Where a line ends inside a group of 16 bytes, TMA's store writes the whole group: seen on
    an H200 (tests/gpu/test_tma_bounds.py). A load reads single elements and fills with zeros.
    """
    line, lines = ("columns", "rows") if columns else ("rows", "columns")
    if not _contiguous(matrix, columns):
        return f"its {line} are not contiguous"
    if matrix.alignment < 16:
        return f"its first byte is aligned to {matrix.alignment}, TMA wants 16"
    pitch = _pitch(matrix, columns)
    length = matrix.rows if columns else matrix.cols
    if pitch * matrix.dtype.bytes % 16:
        return f"its pitch is {pitch} elements ({pitch * matrix.dtype.bytes} bytes), TMA wants a multiple of 16 bytes"
    if written and length * matrix.dtype.bytes % 16:
        return (
            f"a line has {length} elements ({length * matrix.dtype.bytes} bytes): "
            "TMA writes whole groups of 16 bytes, beyond its end"
        )
    if pitch < length:
        return f"its pitch is {pitch} and a line has {length} elements: TMA wants {line} that do not overlap"
    if max(matrix.rows, matrix.cols) >= TMA_MAX_EXTENT or pitch * matrix.dtype.bytes >= TMA_MAX_PITCH:
        return f"{matrix.rows}x{matrix.cols} with pitch {pitch} is beyond TMA's reach"
    if min(matrix.rows, matrix.cols) < 1:
        return f"it has no {lines if length else line}"
    return None


@dataclass(frozen=True)
class Operand:
    """One matrix as TMA moves it: by rows of ``matrix``, or by its columns where ``columns`` is set.

    ``role`` is whose memory it is: the problem's operand, or a workspace that holds an aligned copy.
    """

    role: str
    matrix: Matrix
    columns: bool

    def descriptor(self, tile: tuple[int, int], round_to_tf32: bool = False) -> Descriptor:
        """The descriptor for tiles of ``tile`` = (rows, columns) of the matrix."""
        matrix = self.matrix
        shape, block = (matrix.rows, matrix.cols), tile
        if self.columns:
            shape, block = (shape[1], shape[0]), (block[1], block[0])
        return Descriptor(
            self.role,
            matrix.dtype,
            shape,
            (_pitch(matrix, self.columns), 1),
            block,
            shared_layout(block, matrix.dtype),
            round_to_tf32,
        )


def operand_of(role: str, matrix: Matrix, written: bool = False) -> Operand | str:
    """The operand as TMA can move it, by rows if possible; or, as a string, why it cannot. ``written``: by a store."""
    by_rows = tma_reason(matrix, columns=False, written=written)
    if by_rows is None:
        return Operand(role, matrix, False)
    by_columns = tma_reason(matrix, columns=True, written=written)
    if by_columns is None:
        return Operand(role, matrix, True)
    return by_columns if matrix.is_col_major else by_rows
