"""The two maps that everything else uses: registers to elements, and elements to shared-memory bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from .distributed import WARP_SIZE, distributed_linear, warps_of
from .shared import padded_offset, padded_size, shared_linear, shared_rank

__all__ = ["RegisterMap", "SharedMap", "register_map", "shared_map"]


@dataclass(frozen=True, eq=False)
class RegisterMap:
    """Which element of a tile each register holds. The arrays are read-only: they are cached.

    Attributes:
        shape: the tile's.
        index: int32 [warps, 32, registers]: flat row-major index into the tile.
        unique: bool [warps, 32, registers]: the first owner of each element; False for replicas.
    """

    shape: tuple[int, ...]
    index: npt.NDArray[np.int32]
    unique: npt.NDArray[np.bool_]

    @property
    def warps(self) -> int:
        return int(self.index.shape[0])

    @property
    def registers(self) -> int:
        return int(self.index.shape[2])


@dataclass(frozen=True, eq=False)
class SharedMap:
    """Where each element of a shared buffer lies. The array is read-only: it is cached.

    Attributes:
        shape: the buffer's.
        offset: int64 [shape]: byte offset of each element from the start of the allocation.
        bytes: the allocation's size.
    """

    shape: tuple[int, ...]
    offset: npt.NDArray[np.int64]
    bytes: int


def register_map(layout: Any, shape: Sequence[int], num_warps: int) -> RegisterMap:
    """The register map of a distributed layout over a tile of ``shape``, for a program of ``num_warps`` warps.

    A tile larger than the layout is covered by repeating it with more registers; in a smaller one several owners
    hold the same element.

    Raises:
        ValueError: see :func:`.distributed.distributed_linear`; or the layout is made for another number of warps.
    """
    return _register_map(layout, tuple(int(extent) for extent in shape), int(num_warps))


@lru_cache(maxsize=4096)
def _register_map(layout: Any, shape: tuple[int, ...], num_warps: int) -> RegisterMap:
    made_for = warps_of(layout) if type(layout).__name__ not in ("AutoLayout", "CoalescedLayout") else num_warps
    linear = distributed_linear(layout, shape)
    if made_for != num_warps:
        raise ValueError(f"the layout is made for {made_for} warps, the program has {num_warps}: make them equal")
    if linear.size("lane") != WARP_SIZE:
        raise ValueError(f"the layout has {linear.size('lane')} lanes: a warp has {WARP_SIZE}")
    coordinates = linear.coordinates(("warp", "lane", "register"))
    weights = np.ones(len(shape), np.int32)
    for dim in reversed(range(len(shape) - 1)):
        weights[dim] = weights[dim + 1] * shape[dim + 1]
    index = np.ascontiguousarray((coordinates * weights).sum(axis=-1, dtype=np.int32))
    first = np.zeros(index.size, bool)
    first[np.unique(index, return_index=True)[1]] = True
    unique = first.reshape(index.shape)
    index.flags.writeable = False
    unique.flags.writeable = False
    return RegisterMap(shape, index, unique)


def shared_map(layout: Any, shape: Sequence[int], element_bytes: int) -> SharedMap:
    """The byte offset of each element of a shared allocation of ``shape``.

    Dimensions that the layout does not describe come first and stack buffers one after the other.

    Raises:
        ValueError: see :func:`.shared.shared_linear`; or the layout is made for another element size.
    """
    return _shared_map(layout, tuple(int(extent) for extent in shape), int(element_bytes))


@lru_cache(maxsize=4096)
def _shared_map(layout: Any, shape: tuple[int, ...], element_bytes: int) -> SharedMap:
    rank = shared_rank(layout)
    if len(shape) < rank:
        raise ValueError(f"{type(layout).__name__} has {rank} dimensions; the buffer {shape} has {len(shape)}")
    bits = getattr(layout, "element_bitwidth", 8 * element_bytes)
    if bits != 8 * element_bytes:
        raise ValueError(f"NVMMASharedLayout is made for {bits}-bit elements; the buffer's have {8 * element_bytes}")
    stacked, inner = shape[: len(shape) - rank], shape[len(shape) - rank :]
    linear = shared_linear(layout, inner)
    coordinates = linear.coordinates(("offset",))
    one = np.empty(inner, np.int64)
    one[tuple(coordinates[:, dim] for dim in range(rank))] = np.arange(len(coordinates), dtype=np.int64)
    buffers = int(np.prod(stacked, dtype=np.int64))
    first = np.arange(buffers, dtype=np.int64).reshape(stacked + (1,) * rank) * one.size
    offset = first + one
    elements = offset.size
    if type(layout).__name__ == "PaddedSharedLayout":
        offset = padded_offset(layout, offset)
        elements = padded_size(layout, elements)
    offset = offset * element_bytes
    offset.flags.writeable = False
    return SharedMap(shape, offset, elements * element_bytes)
