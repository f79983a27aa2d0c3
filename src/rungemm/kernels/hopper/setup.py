"""A problem as the wgmma kernels take it: turned over if asked, every operand movable by TMA, copied if need be."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from ...dtypes import FP32
from ...problem import Problem
from .operands import Operand, operand_of, swapped
from .prepare import Copy

__all__ = ["Setup", "better_swapped", "set_up"]


@dataclass(frozen=True)
class Setup:
    """The turned problem and its operands.

    Attributes:
        problem: what the kernel computes; with tf32x3 its K is three times as long.
        a, b: the operands, of the problem or of a copy in a workspace; of a batch, one product's.
        d: how TMA writes D, or ``None`` where it cannot.
        a_in_registers: wgmma reads fp32 along K only, and A lies across it: A goes through registers.
        copies: to be made first.
    """

    problem: Problem
    a: Operand
    b: Operand
    d: Operand | None
    a_in_registers: bool
    copies: tuple[Copy, ...]


def better_swapped(problem: Problem) -> bool:
    """Whether exchanging the operands' roles saves a copy: an fp32 B must lie along K, an fp32 A need not."""
    if problem.a.dtype != FP32 or problem.precision == "tf32x3":
        return False
    return problem.b.row_stride != 1 and problem.a.col_stride == 1


@lru_cache(maxsize=64)  # asked once for every candidate of a problem
def set_up(problem: Problem, swap: bool) -> Setup:
    """The problem for the kernel, ``swap``: with B in the place of A; and the copies that this needs."""
    turned = swapped(problem) if swap else problem
    names = ("B", "A") if swap else ("A", "B")
    triple = problem.a.dtype == FP32 and problem.precision == "tf32x3"
    tf32 = problem.a.dtype == FP32
    copies = []
    operands = []
    for order, (name, matrix) in enumerate(zip(names, (turned.a, turned.b), strict=True), start=1):
        # B's K runs down its rows: contiguous along K means by columns for B, by rows for A.
        operand = operand_of(name, matrix)
        if triple or isinstance(operand, str) or (tf32 and order == 2 and not operand.columns):
            along_k = triple or tf32 or 1 not in (matrix.row_stride, matrix.col_stride)
            columns = (order == 2) if along_k else matrix.is_col_major
            copy = Copy(name, matrix, columns, order if triple else 0)
            copies.append(copy)
            operand = copy.operand
        operands.append(operand)
    a, b = operands
    d = operand_of("D", turned.d, written=True)
    return Setup(
        replace(turned, a=a.matrix, b=b.matrix),
        a,
        b,
        None if isinstance(d, str) else d,
        tf32 and a.columns,
        tuple(copies),
    )
