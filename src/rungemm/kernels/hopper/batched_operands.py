"""How a batch's matrices become TMA descriptors of three dimensions, and when a copy helps. Plain host code."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from ...compat import gl
from ...dtypes import FP32
from ...problem import Matrix, Problem
from ..batches import is_shared
from ..copies import transposed
from ..plan import Descriptor
from .operands import TMA_MAX_EXTENT, TMA_MAX_PITCH, Operand, operand_of, swapped, tma_reason
from .prepare import Copy
from .setup import Setup

__all__ = ["batched_descriptor", "batched_operand", "flattened", "set_up_batch"]


def tma_batch_reason(matrix: Matrix, batch: int) -> str | None:
    """Why TMA cannot step from one product's matrix to the next, or ``None`` if it can."""
    if is_shared(matrix, batch):
        return None
    size = matrix.batch_stride * matrix.dtype.bytes
    if size < 0 or size % 16 or size >= TMA_MAX_PITCH:
        return f"products lie {matrix.batch_stride} elements ({size} bytes) apart: TMA wants a multiple of 16 bytes"
    if batch >= TMA_MAX_EXTENT:
        return f"{batch} products are beyond TMA's reach"
    return None


def batched_operand(role: str, matrix: Matrix, batch: int, written: bool = False) -> Operand | str:
    """As :func:`.operands.operand_of`, for each product of a batch."""
    operand = operand_of(role, matrix, written)
    return tma_batch_reason(matrix, batch) or operand if isinstance(operand, Operand) else operand


def batched_descriptor(
    operand: Operand, batch: int, tile: tuple[int, int], round_to_tf32: bool = False
) -> tuple[Descriptor, object]:
    """The descriptor of three dimensions for tiles of (rows, columns) of one product, and a stage's layout.

    A matrix that all products share is a batch of one: nothing is asked of a stride of 0.
    """
    flat = operand.descriptor(tile, round_to_tf32)
    shared = is_shared(operand.matrix, batch)
    layout = flat.layout
    deep = gl.NVMMASharedLayout(layout.swizzle_byte_width, layout.element_bitwidth, 3)
    stride = flat.shape[0] * flat.strides[0] if shared else operand.matrix.batch_stride
    descriptor = replace(
        flat,
        shape=(1 if shared else batch, *flat.shape),
        strides=(stride, *flat.strides),
        block=(1, *flat.block),
        layout=deep,
    )
    return descriptor, layout


def flattened(matrix: Matrix, batch: int, columns: bool) -> Matrix | None:
    """All products' rows (or ``columns``) as one matrix' lines, or ``None`` where they lie at no single stride."""
    if columns:
        turned = flattened(transposed(matrix), batch, False)
        return None if turned is None else transposed(turned)
    if is_shared(matrix, batch):
        return replace(matrix, batch_stride=0)
    pitch = matrix.batch_stride if matrix.rows == 1 else matrix.row_stride
    if matrix.batch_stride != matrix.rows * pitch:
        return None
    return replace(matrix, rows=batch * matrix.rows, row_stride=pitch, batch_stride=0)


@lru_cache(maxsize=64)
def set_up_batch(problem: Problem, swap: bool) -> Setup | str:
    """The batch for the kernel, ``swap``: with B in the place of A; or, as a string, why it cannot be.

    An operand that TMA cannot move is copied first, line by line, where all products' lines lie at one stride.
    """
    # Asked for every setting of a problem, so remembered.
    turned = swapped(problem) if swap else problem
    names = ("B", "A") if swap else ("A", "B")
    tf32 = problem.a.dtype == FP32
    operands: list[Operand] = []
    copies: list[Copy] = []
    for place, (name, matrix) in enumerate(zip(names, (turned.a, turned.b), strict=True)):
        # wgmma reads fp32 along K only; A has another way, through registers.
        along_k = tf32 and place == 1
        found = batched_operand(name, matrix, problem.batch)
        if along_k:
            reason = tma_reason(matrix, columns=True) or tma_batch_reason(matrix, problem.batch)
            found = Operand(name, matrix, True) if reason is None else f"wgmma reads fp32 along K only, and {reason}"
        if isinstance(found, str):
            copied = _copied(name, matrix, problem.batch, along_k)
            if copied is None:
                return f"{name}: {found}; a copy of lines at one stride would help, but it has none"
            found, copy = copied
            copies.append(copy)
        operands.append(found)
    d = batched_operand("D", turned.d, problem.batch, written=True)
    return Setup(
        replace(turned, a=operands[0].matrix, b=operands[1].matrix),
        operands[0],
        operands[1],
        None if isinstance(d, str) else d,
        tf32 and operands[0].columns,
        tuple(copies),
    )


def _copied(role: str, matrix: Matrix, batch: int, down: bool) -> tuple[Operand, Copy] | None:
    """The operand of a copy with aligned lines, as it lies; ``down``: by columns or not at all."""
    columns = matrix.row_stride == 1 and (down or matrix.col_stride != 1)
    lies = matrix.row_stride if columns else matrix.col_stride
    whole = flattened(matrix, batch, columns)
    if whole is None or lies != 1 or (down and not columns):
        return None
    copy = Copy(role, whole, columns)
    lines = matrix.cols if columns else matrix.rows
    stride = 0 if is_shared(matrix, batch) else lines * copy.pitch
    copied = copy.copied
    one = replace(copied, rows=matrix.rows, cols=matrix.cols, batch_stride=stride)
    return Operand(copy.name, one, columns), copy
