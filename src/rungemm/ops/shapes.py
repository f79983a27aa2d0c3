"""From operands of any number of dimensions to one product or one batch of products, by torch.matmul's rules.

No element is copied where a view will do: leading dimensions that lie one after the other are merged, and a matrix that
is the same for every batch becomes one product with more rows, or has stride 0.
"""

from __future__ import annotations

from itertools import combinations
from math import gcd, prod
from typing import NamedTuple

from torch import Tensor

from ..problem import ProblemError

__all__ = ["Posed", "dense_strides", "overlaps_itself", "pose", "result_of", "view_as", "words"]


class Posed(NamedTuple):
    """``a`` and ``b`` are both 2-D or both 3-D; ``core`` is their product's shape and ``result`` what the user gets."""

    a: Tensor
    b: Tensor
    core: tuple[int, ...]
    result: tuple[int, ...]


def words(tensor: Tensor) -> str:
    """A tensor's shape as errors say it: "4x5"."""
    return "x".join(map(str, tensor.shape)) or "a scalar"


def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a new tensor of that shape, as torch has them: an extent of 0 counts as 1."""
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


def pose(a: Tensor, b: Tensor, fold: bool = True) -> Posed:
    """The product (..., M, K) @ (..., K, N), vectors and broadcasting as torch.matmul has them.

    Args:
        fold: batches of A that share one B may become one product with the rows of all.

    Raises:
        ProblemError: a scalar operand, K that differs, or batches that do not broadcast.
    """
    batch, result = result_of(a, b)
    full_a = a.unsqueeze(0) if a.dim() == 1 else a
    full_b = b.unsqueeze(1) if b.dim() == 1 else b
    m, k, n = full_a.shape[-2], full_a.shape[-1], full_b.shape[-1]
    count = prod(batch)
    if count == 1:
        return Posed(full_a.reshape(m, k), full_b.reshape(k, n), (m, n), result)
    if fold and prod(full_b.shape[:-2]) == 1:
        rows = merged(full_a, 1)
        if rows is not None:
            return Posed(rows, full_b.reshape(k, n), (count * m, n), result)
    return Posed(_batch(full_a, batch, count), _batch(full_b, batch, count), (count, m, n), result)


def result_of(a: Tensor, b: Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The batch's shape and the whole result's; raises as :func:`pose` does."""
    for name, operand in (("A", a), ("B", b)):
        if operand.dim() == 0:
            raise ProblemError(f"{name} is a scalar: a product wants vectors or matrices; multiply with * instead")
    k, rows = a.shape[-1], b.shape[-2 if b.dim() > 1 else -1]
    if rows != k:
        raise ProblemError(
            f"A is {words(a)} and B is {words(b)}: K differs ({k} columns of A, {rows} rows of B); "
            f"pass B with {k} rows"
        )
    batch = _broadcast(a, b, tuple(a.shape[:-2]), tuple(b.shape[:-2]))
    return batch, (*batch, *a.shape[-2:-1], *(b.shape[-1:] if b.dim() > 1 else ()))


def _broadcast(a: Tensor, b: Tensor, of_a: tuple[int, ...], of_b: tuple[int, ...]) -> tuple[int, ...]:
    length = max(len(of_a), len(of_b))
    padded_a, padded_b = (1,) * (length - len(of_a)) + of_a, (1,) * (length - len(of_b)) + of_b
    batch = []
    for x, y in zip(padded_a, padded_b, strict=True):
        if x != y and x != 1 and y != 1:
            raise ProblemError(
                f"A is {words(a)} and B is {words(b)}: batches of {x} and {y} do not broadcast; make them equal, or 1"
            )
        batch.append(y if x == 1 else x)
    return tuple(batch)


def _batch(x: Tensor, batch: tuple[int, ...], count: int) -> Tensor:
    """``x`` with one batch dimension; a copy only where its batches lie at no single stride."""
    x = x.expand(*batch, *x.shape[-2:])
    one = merged(x, 2)
    return x.reshape(count, *x.shape[-2:]) if one is None else one


def merged(x: Tensor, kept: int) -> Tensor | None:
    """``x`` with all but its last ``kept`` dimensions made one, without a copy; ``None`` if that cannot be."""
    last = x.dim() - kept
    shape, strides = x.shape[:last], x.stride()[:last]
    inner: int | None = None  # the stride that the next dimension outwards must have
    if prod(shape) != 0:
        for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
            if extent == 1:
                continue
            if inner is not None and stride != inner:
                return None
            inner = stride * extent
    return x.view(prod(shape), *x.shape[last:])


def view_as(x: Tensor, shape: tuple[int, ...]) -> Tensor | None:
    """``x`` in another shape without a copy, or ``None``: for a tensor that is to be written."""
    if tuple(x.shape) == shape:
        return x
    try:
        return x.view(shape)
    except RuntimeError:
        return None


def overlaps_itself(x: Tensor) -> bool:
    """Whether two indices along some pair of dimensions are one place in memory: exact for matrices."""
    axes = [(stride, extent) for stride, extent in zip(x.stride(), x.shape, strict=True) if extent > 1]
    if x.numel() == 0:
        return False
    if any(stride == 0 for stride, _ in axes):
        return True
    # i * s = j * t first at i = t / gcd, j = s / gcd.
    return any(t // gcd(s, t) < m and s // gcd(s, t) < n for (s, m), (t, n) in combinations(axes, 2))
