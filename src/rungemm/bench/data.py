"""Operand sets for timing: dense (or strided) tensors of labelled data, one set after another in one allocation.

The data matter: a GEMM on zeros or on small integers toggles fewer transistors, draws less power, and at a power cap
runs faster than on real numbers. "normal" (standard normal) is the default; "uniform" (on [-1, 1)) and "zeros" exist to
show the effect, and every record carries the label.
"""

from __future__ import annotations

from typing import Any

from ..inputs import InputError
from ..problem import Matrix, Problem

__all__ = ["KINDS", "OperandSet", "make_sets", "outputs_for", "poison", "set_bytes", "torch_dtype"]

KINDS: tuple[str, ...] = ("normal", "uniform", "zeros")

OperandSet = dict[str, Any]
"""Tensors by role: "A", "B", "C" (if read), and "D" per contender."""

_PITCH = 512
"""Bytes that each set's first element is aligned to, as torch's own allocations are."""


def torch_dtype(name: str) -> Any:
    """torch's dtype object of one of ours, by torch's name."""
    import torch

    return getattr(torch, name)


def set_bytes(problem: Problem) -> int:
    """Bytes of A, B, D and, if read, C: what a launch touches at least once."""
    return problem.minimum_bytes


def _views(matrix: Matrix, batch: int, sets: int, device: Any, fill: Any) -> list[Any]:
    """``sets`` views of the matrix's shape and strides on one allocation, filled by ``fill(tensor)``."""
    import torch

    extent = matrix.furthest_offset(batch) + 1
    unit = max(1, _PITCH // matrix.dtype.bytes)
    pitch = -(-extent // unit) * unit
    flat = torch.empty(pitch * sets, dtype=torch_dtype(matrix.dtype.torch), device=device)
    fill(flat)
    shape: tuple[int, ...] = (matrix.rows, matrix.cols)
    strides: tuple[int, ...] = (matrix.row_stride, matrix.col_stride)
    if batch != 1:
        shape, strides = (batch, *shape), (matrix.batch_stride, *strides)
    return [torch.as_strided(flat, shape, strides, index * pitch) for index in range(sets)]


def _filler(kind: str, generator: Any) -> Any:
    import torch

    def fill(flat: Any) -> None:
        step = 1 << 28  # a piece at a time, so that the fp32 draw of a narrow type stays small
        for start in range(0, flat.numel(), step):
            piece = flat[start : start + step]
            if kind == "zeros":
                piece.zero_()
            elif not flat.dtype.is_floating_point:
                piece.copy_(torch.randint(-127, 128, piece.shape, generator=generator, device=flat.device))
            elif kind == "uniform":
                draw = torch.rand(piece.shape, generator=generator, device=flat.device)
                piece.copy_(draw.mul_(2).sub_(1))
            elif flat.dtype == torch.float32:
                piece.normal_(generator=generator)
            else:
                piece.copy_(torch.randn(piece.shape, generator=generator, device=flat.device))

    return fill


def make_sets(
    problem: Problem, sets: int, *, kind: str = "normal", seed: int = 0, device: Any = "cuda"
) -> list[OperandSet]:
    """``sets`` operand sets with A, B and (if read) C; D is made per contender by :func:`outputs_for`.

    Raises:
        InputError: unknown kind of data, or a negative stride (torch has none).
    """
    import torch

    if kind not in KINDS:
        raise InputError(f"data {kind!r} is unknown: use one of {', '.join(KINDS)}")
    for role, matrix in (("A", problem.a), ("B", problem.b)):
        if min(matrix.row_stride, matrix.col_stride, matrix.batch_stride) < 0:
            raise InputError(f"{role} has a negative stride: torch has no such tensors, so it cannot be timed")
    generator = torch.Generator(device=device)
    generator.manual_seed(seed)
    fill = _filler(kind, generator)
    views = {"A": _views(problem.a, problem.batch, sets, device, fill)}
    views["B"] = _views(problem.b, problem.batch, sets, device, fill)
    if problem.reads_c and problem.c is not None:
        views["C"] = _views(problem.c, problem.batch, sets, device, fill)
    return [{role: tensors[index] for role, tensors in views.items()} for index in range(sets)]


def poison(flat: Any) -> None:
    """Fill with what no right product has: NaN, or the type's largest integer."""
    import torch

    if flat.dtype.is_floating_point:
        if flat.dtype.itemsize == 1:
            flat.view(torch.uint8).fill_(0x7F)  # NaN in both fp8 types
        else:
            flat.fill_(float("nan"))
    else:
        flat.fill_(torch.iinfo(flat.dtype).max)


def outputs_for(problem: Problem, sets: int, device: Any = "cuda") -> list[Any]:
    """One contender's own poisoned outputs, one a set."""
    return _views(problem.d, problem.batch, sets, device, poison)
