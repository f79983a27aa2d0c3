"""Linear layouts: index bits to tensor coordinates, by XOR.

Every layout here is linear over GF(2): the coordinate of an index is the XOR of one basis vector for each bit that
is set in the index (the idea and the names are those of https://arxiv.org/abs/2505.23819). A distributed layout has
the input dimensions ``register``, ``lane`` and ``warp``; a shared one has ``offset``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Bases", "LinearLayout", "bits_of", "identity"]

Basis = tuple[int, ...]
Bases = tuple[Basis, ...]


def bits_of(size: int, what: str = "size") -> int:
    """log2 of a power of two.

    Raises:
        ValueError: it is not one.
    """
    if size < 1 or size & (size - 1):
        raise ValueError(f"{what} is {size}: layouts want powers of two")
    return size.bit_length() - 1


def identity(dim: int, size: int, rank: int) -> Bases:
    """Bases that walk along dimension ``dim`` one by one, ``size`` long."""
    return tuple(tuple(1 << bit if d == dim else 0 for d in range(rank)) for bit in range(bits_of(size)))


@dataclass(frozen=True)
class LinearLayout:
    """Bases of each input dimension, and the order (minor first) in which a layout is grown along the output ones.

    Attributes:
        bases: input dimension -> one coordinate vector per index bit, lowest bit first.
        order: the output dimensions, the one that is filled first in front.
    """

    bases: dict[str, Bases]
    order: tuple[int, ...]

    @property
    def rank(self) -> int:
        return len(self.order)

    def extent(self, dim: int) -> int:
        """How far the layout reaches along an output dimension: the power of two above its largest coordinate."""
        reach = 0
        for vectors in self.bases.values():
            for vector in vectors:
                reach |= vector[dim]
        return 1 << reach.bit_length()

    def size(self, name: str) -> int:
        """Indices of an input dimension."""
        return 1 << len(self.bases[name])

    def then(self, name: str, dim: int, size: int, *, broadcast: bool = False) -> LinearLayout:
        """Repeated ``size`` times along ``dim`` (``broadcast``: on the spot), by new high bits of ``name``."""
        start = self.extent(dim)
        new = tuple(
            tuple(start << bit if d == dim and not broadcast else 0 for d in range(self.rank))
            for bit in range(bits_of(size))
        )
        return LinearLayout({**self.bases, name: self.bases[name] + new}, self.order)

    def fitted(self, shape: Sequence[int], grow: str) -> LinearLayout:
        """The layout made exactly as large as ``shape``.

        Too small: repeated by new bits of ``grow``, in ``order``. Too large: bits that lead outside map to the
        origin, so that their owners hold replicas.
        """
        layout = self
        for dim in layout.order:
            missing = shape[dim] // layout.extent(dim)
            if missing > 1:
                layout = layout.then(grow, dim, missing)
        return LinearLayout(
            {
                name: tuple(tuple(c if c < shape[d] else 0 for d, c in enumerate(vector)) for vector in vectors)
                for name, vectors in layout.bases.items()
            },
            layout.order,
        )

    def coordinates(self, names: Sequence[str]) -> npt.NDArray[np.int32]:
        """The coordinates of every index: int32 [size(names[0]), size(names[1]), ..., rank]."""
        result = np.zeros((1,) * len(names) + (self.rank,), np.int32)
        for axis, name in enumerate(names):
            along = expand(self.bases[name], self.rank)
            result = result ^ along.reshape((1,) * axis + (-1,) + (1,) * (len(names) - axis - 1) + (self.rank,))
        return result


def expand(vectors: Iterable[Basis], rank: int) -> npt.NDArray[np.int32]:
    """The coordinates of indices 0, 1, 2, ... under these bases: int32 [2**bits, rank]."""
    result = np.zeros((1, rank), np.int32)
    for vector in vectors:
        result = np.concatenate([result, result ^ np.asarray(vector, np.int32)])
    return result
