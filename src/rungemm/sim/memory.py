"""Global memory: the operands and workspaces of a plan, each knowing which of its bytes it owns.

A buffer sees an array of any strides as the flat span of memory from its lowest to its highest element, so that
pointer arithmetic works as on the card, and an access between two rows of a view is a fault, not a lucky read.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .faults import fault_at
from .types import ElementType, of_numpy

__all__ = ["AddressSpace", "Buffer", "strided"]


def strided(array: np.ndarray, shape: tuple[int, ...], strides: tuple[int, ...], writable: bool) -> np.ndarray:
    """Memory from an array's first element on, with other extents and strides in bytes.

    Through unsigned integers, because NumPy's own function does not know ml_dtypes' types.
    """
    plain = array.view(f"u{array.dtype.itemsize}")
    return np.lib.stride_tricks.as_strided(plain, shape, strides, writeable=writable).view(array.dtype)


class AddressSpace:
    """Hands out simulated base addresses: buffers start in blocks of 256 bytes of their own, as cudaMalloc's do."""

    def __init__(self) -> None:
        self._next = 1 << 20

    def place(self, size: int) -> int:
        """The base of ``size`` bytes: a multiple of 256."""
        base = self._next
        self._next += (size + 511) // 256 * 256
        return base


class Buffer:
    """One operand or workspace.

    Attributes:
        name: how messages and events call it.
        element: its element type.
        flat: the span of memory, one entry an element.
        first: index in ``flat`` of the array's element [0, 0, ...], where the kernel's pointer points.
        address: simulated byte address of ``flat[0]``.
        writable: whether a kernel may store to it.
        writer: for writable buffers, 0 or 1 + the number of the program of this launch that last wrote the element.
        reader: for writable buffers, the same for the last program that read it.
        poison: bool an element that is still uninitialised, or ``None`` when all are defined.
    """

    def __init__(
        self,
        name: str,
        array: np.ndarray,
        space: AddressSpace,
        *,
        writable: bool,
        poisoned: bool = False,
        alignment: int = 16,
    ) -> None:
        self.name = name
        self.element: ElementType = of_numpy(array.dtype)
        size = array.dtype.itemsize
        if any(s % size for s in array.strides):
            raise ValueError(f"{name} has strides of {array.strides} bytes: they must be multiples of {size}")
        steps = [s // size for s in array.strides]
        reach = [(n - 1) * s for n, s in zip(array.shape, steps, strict=True)]
        empty = array.size == 0
        low = 0 if empty else sum(r for r in reach if r < 0)
        high = -1 if empty else sum(r for r in reach if r > 0)
        span = high - low + 1
        self.shape = array.shape
        self.steps = tuple(steps)
        self.first = -low
        if empty:
            self.flat = np.zeros(0, array.dtype)
        else:
            start = array[tuple(slice(None, None, -1) if s < 0 else slice(None) for s in steps)]
            self.flat = strided(start, (span,), (size,), writable)
        self.owned: np.ndarray | None = None
        if not empty and span != array.size:
            self.owned = np.zeros(span, bool)
            self.owned[self._offsets(array.shape, steps).ravel() - low] = True
        # The pointer points at the array's first element, so that is what has the stated alignment.
        lead = (alignment % 16 - self.first * size) % 256
        self.address = space.place(span * size + lead) + lead
        self.writable = writable
        self.writer = np.zeros(span, np.int32) if writable else None
        self.reader = np.zeros(span, np.int32) if writable else None
        self.written = np.zeros(span, bool) if writable else None
        self.released: dict[int, set[int]] = {}  # by element: the programs whose past an atomic on it releases
        self.poison = np.ones(span, bool) if poisoned else None

    @staticmethod
    def _offsets(shape: tuple[int, ...], steps: list[int]) -> np.ndarray:
        total = np.zeros((1,) * len(shape), np.int64)
        for axis, (n, s) in enumerate(zip(shape, steps, strict=True)):
            index = [1] * len(shape)
            index[axis] = n
            total = total + (np.arange(n, dtype=np.int64) * s).reshape(index)
        return total

    def begin_launch(self) -> None:
        """Forget who wrote and read: launches on one stream are ordered."""
        if self.writer is not None and self.reader is not None:
            self.writer[:] = 0
            self.reader[:] = 0
            self.released.clear()

    def address_of(self, offset: Any) -> np.ndarray:
        """Simulated byte addresses of elements (offsets count from the array's first element)."""
        return (np.asarray(offset, np.int64) + self.first) * self.element.bytes + self.address

    def byte_of(self, offset: int) -> int:
        """Simulated byte address of one element."""
        return (int(offset) + self.first) * self.element.bytes + self.address

    def locate(self, index: int) -> str:
        """The element of the array at an offset, or how far outside it lies, for messages."""
        if self.flat.size == 0:
            return f"offset {index} of the empty {self.name}"
        shape = "x".join(str(n) for n in self.shape)
        place = index + self.first
        where = "outside"
        if 0 <= place < self.flat.size:
            where = "between the rows of"
        coordinates = ""
        order = sorted(range(len(self.shape)), key=lambda d: -abs(self.steps[d]))
        rest, at = index, {}
        for d in order:
            s = self.steps[d]
            if s == 0:
                at[d] = 0
                continue
            q = rest // s
            at[d] = q
            rest -= q * s
        if rest == 0 and at:
            coordinates = f", element [{', '.join(str(at[d]) for d in range(len(self.shape)))}]"
        return f"offset {index}{coordinates}, {where} {self.name} of {shape}"

    def check(self, offset: np.ndarray, mask: np.ndarray | None, what: str) -> np.ndarray:
        """Indices into ``flat`` for an access; masked-off elements are sent to index 0.

        Raises:
            SimulationFault: an element outside what the operand owns.
        """
        place = offset + self.first if self.first else offset
        if mask is not None:
            if not mask.any():
                return np.zeros_like(place)
            place = np.where(mask, place, self.first)
        unsigned: Any = place.view(np.uint64)  # so that what is negative is large
        if place.size and unsigned.max() < self.flat.size:
            if self.owned is None or self.owned[place].all():
                return place
            wrong = ~self.owned[place]
        else:
            wrong = (place < 0) | (place >= self.flat.size)
        flat_wrong = np.flatnonzero(wrong)
        if flat_wrong.size == 0:
            return place
        at = np.unravel_index(flat_wrong[0], place.shape)
        index = int(place[at]) - self.first
        raise fault_at(
            "out-of-bounds",
            f"{what} {self.locate(index)} (tile element {[int(i) for i in at]}; {flat_wrong.size} of {place.size} "
            f"elements): mask it",
        )
