"""Shared-memory layouts: at which byte of its allocation each element lies.

Like :mod:`.distributed`, by attribute and class name, from the definitions of Triton 3.6's layouts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .linear import Bases, LinearLayout, bits_of, identity

__all__ = ["TMA_BOX", "padded_offset", "padded_size", "shared_linear", "shared_rank"]

TMA_BOX = 256
"""The most elements that a TMA box has along one dimension; larger tiles are laid out box by box."""


def shared_rank(layout: Any) -> int:
    """Dimensions that the layout itself describes; an allocation may stack buffers in front of them."""
    kind = type(layout).__name__
    if kind == "SwizzledSharedLayout":
        return len(layout.order)
    if kind == "NVMMASharedLayout":
        return int(layout.rank)
    if kind == "PaddedSharedLayout":
        return len(layout.shape)
    if kind == "SharedLinearLayout":
        return len(layout.offset_bases[0])
    raise ValueError(
        f"layout {kind} has no shared map: use SwizzledSharedLayout, PaddedSharedLayout, NVMMASharedLayout or "
        "SharedLinearLayout"
    )


def shared_linear(layout: Any, shape: Sequence[int]) -> LinearLayout:
    """A shared layout over a buffer of ``shape``: element offset (before padding) to coordinates.

    Raises:
        ValueError: an unknown layout, a rank or an extent that does not fit, a tile smaller than the swizzle's atom.
    """
    kind = type(layout).__name__
    rank = shared_rank(layout)
    shape = tuple(shape)
    if len(shape) != rank:
        raise ValueError(f"{kind} has {rank} dimensions and the buffer {shape} has {len(shape)}")
    for extent in shape:
        bits_of(extent, f"extent of the shared buffer {shape}")
    if getattr(layout, "cga_layout", None) or getattr(layout, "block_bases", None):
        raise ValueError(f"{kind} spreads over a cluster of blocks: only layouts of one block have a shared map")
    if kind == "SwizzledSharedLayout":
        return _swizzled(layout, shape)
    if kind == "NVMMASharedLayout":
        return _nvmma(layout, shape)
    bases = tuple(tuple(vector) for vector in layout.offset_bases)
    result = LinearLayout({"offset": bases}, tuple(reversed(range(rank))))
    if tuple(result.extent(d) for d in range(rank)) != shape:
        covered = tuple(result.extent(d) for d in range(rank))
        raise ValueError(f"{kind} covers {covered}, not the buffer's {shape}: build it for that shape")
    return result


def _swizzled(layout: Any, shape: tuple[int, ...]) -> LinearLayout:
    """Columns of a row, XORed with the row's phase; rows one after the other; then the outer dimensions."""
    rank = len(shape)
    order = tuple(layout.order)
    if rank == 1:
        return LinearLayout({"offset": identity(0, shape[0], 1)}, order)
    col, row = order[:2]
    bases: list[tuple[int, ...]] = list(identity(col, shape[col], rank))
    step = 1
    while step < shape[row]:
        phase = step // layout.per_phase % layout.max_phase
        vector = [0] * rank
        vector[row] = step
        vector[col] = layout.vec * phase % shape[col]
        bases.append(tuple(vector))
        step *= 2
    result = LinearLayout({"offset": tuple(bases)}, order)
    for dim in order[2:]:
        result = result.then("offset", dim, shape[dim])
    return result


def _nvmma(layout: Any, shape: tuple[int, ...]) -> LinearLayout:
    """The layout of wgmma and TMA: atoms of 8 rows by the swizzle's width, atoms down the rows, then along them.

    A tile wider than a TMA box is laid out box after box. ``transposed`` puts the first dimension along the atoms'
    rows.
    """
    if getattr(layout, "fp4_padded", False):
        raise ValueError("NVMMASharedLayout with fp4_padded has no shared map")
    rank = len(shape)
    natural = shape[1:] + shape[:1] if layout.transposed else shape
    if layout.swizzle_byte_width == 0:
        # Triton gives a transposed tile without a swizzle no layout of its own: it is row-major too.
        plain: Bases = ()
        for dim in reversed(range(rank)):
            plain += identity(dim, min(shape[dim], TMA_BOX), rank)
        return LinearLayout({"offset": plain}, tuple(range(rank))).fitted(shape, "offset")
    bases = _nvmma_box(layout, _tma_box(layout, natural), shape)
    if layout.transposed:
        bases = tuple(vector[-1:] + vector[:-1] for vector in bases)
    return LinearLayout({"offset": bases}, tuple(range(rank))).fitted(shape, "offset")


def _tma_box(layout: Any, natural: tuple[int, ...]) -> tuple[int, ...]:
    """One TMA box of a tile: at most 256 along a dimension, and no wider than the swizzle."""
    box = [min(extent, TMA_BOX) for extent in natural]
    if layout.swizzle_byte_width:
        box[-1] = min(box[-1], 8 * layout.swizzle_byte_width // layout.element_bitwidth)
    return tuple(box)


def _nvmma_box(layout: Any, box: tuple[int, ...], shape: tuple[int, ...]) -> Bases:
    """Bases of one swizzled box: 16-byte chunks of a row, XORed with the row (8, 4 or 2 phases)."""
    width = layout.swizzle_byte_width
    bits = layout.element_bitwidth
    cols = 8 * width // bits
    chunk = 128 // bits
    per_phase, phases = 128 // width, width // 16
    rows = 1
    for extent in box[:-1]:
        rows *= extent
    if rows < 8 or box[-1] < cols:
        raise ValueError(
            f"NVMMASharedLayout with a {width}-byte swizzle wants at least 8 rows of {cols} elements; the buffer "
            f"{shape} has {rows} of {box[-1]}: use a narrower swizzle"
        )
    rank = len(box)
    bases = list(identity(rank - 1, cols, rank))
    row = 1
    while row < rows:
        vector = [*_unravel(row, box[:-1]), 0]
        if row < 8:
            vector[-1] = chunk * (row // per_phase % phases)
        bases.append(tuple(vector))
        row *= 2
    return tuple(bases)


def _unravel(index: int, shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(int(c) for c in np.unravel_index(index, tuple(shape)))


def padded_offset(layout: Any, offset: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Element offsets with the padding put in: ``padding`` more for every whole ``interval`` before it."""
    result = offset.copy()
    for interval, padding in layout.interval_padding_pairs:
        result += offset // interval * padding
    return result


def padded_size(layout: Any, elements: int) -> int:
    """Elements that a padded buffer takes; nothing follows its last interval."""
    return elements + sum((elements - 1) // interval * padding for interval, padding in layout.interval_padding_pairs)
