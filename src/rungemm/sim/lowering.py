"""Which machine instructions the compiler makes of one tile access, predicted from the layouts.

Triton decides from the layouts alone how wide a shared access is and whether ldmatrix or stmatrix can do it; and
from the layouts and what it can prove of the addresses, how wide a global one is. These are its rules (Triton 3.6,
compared with its PTX over random layouts in ``tests/sim/test_lowering.py``), and ptxas's rule for neighbouring loads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ..layouts import register_map
from ..layouts.distributed import distributed_linear
from ..layouts.shared import padded_offset
from .events import Alignment

__all__ = [
    "SharedInstructions",
    "bits_set",
    "global_vector",
    "merge_neighbours",
    "shared_instructions",
    "thread_offsets",
]

Ints = npt.NDArray[np.int64]
WIDEST = 16
"""Bytes that one lane moves in one instruction at most."""


@dataclass(frozen=True, eq=False)
class SharedInstructions:
    """Shared-memory instructions of one kind and width, all warps.

    Attributes:
        kind: "lds" and "sts" move ``width`` bytes a lane; "ldsm" and "stsm" (ldmatrix, stmatrix) ``width`` matrices.
        width: bytes a lane, or 8x8 matrices of 16-bit pairs.
        offsets: byte offsets int64 [instructions, warps, 32 lanes], or of rows [instructions, warps, matrices, 8].
        padded: the layout is padded: instructions of one access are not merged with each other.
    """

    kind: Literal["lds", "sts", "ldsm", "stsm"]
    width: int
    offsets: Ints
    padded: bool = False

    @property
    def count(self) -> int:
        """Instructions of one warp."""
        return len(self.offsets)


def shared_instructions(
    offsets: Ints, element_bytes: int, *, load: bool, shared_layout: Any, sliced: int = 0, arch: int = 90
) -> SharedInstructions:
    """The instructions of a shared load or store of one tile.

    Args:
        offsets: byte offset of each register's element, int64 [warps, 32, registers].
        element_bytes: 1, 2, 4 or 8.
        shared_layout: the allocation's layout; padding bounds the width and excludes ldmatrix.
        sliced: element-offset bits that the position of a slice can set; 0 for a view of the whole.
        arch: stmatrix needs sm_90.
    """
    unpadded = offsets // element_bytes
    padded = type(shared_layout).__name__ == "PaddedSharedLayout"
    widest = max(WIDEST // element_bytes, 1)
    if padded:
        unpadded = _without_padding(unpadded, shared_layout)
        widest = min(widest, *(interval for interval, _ in shared_layout.interval_padding_pairs))
    lanes, warps, registers = _bases(unpadded)
    # Registers that only repeat others are not moved again.
    keep = [bit for bit, basis in enumerate(registers) if basis]
    held = {bit: registers[bit] for bit in keep}
    others = lanes + warps
    if not padded and element_bytes <= 4 and (load or arch >= 90):
        matrix = _matrix(offsets, held, lanes, warps, element_bytes, load, sliced)
        if matrix is not None:
            return matrix
    if sliced:
        widest = min(widest, sliced & -sliced)
    width, inner = _widest_vector(held, others, widest, reorder=not padded)
    firsts = _combinations([bit for bit in keep if bit not in inner])
    where = offsets[:, :, firsts].transpose(2, 0, 1)
    return SharedInstructions("lds" if load else "sts", width * element_bytes, where, padded)


def _without_padding(elements: Ints, layout: Any) -> Ints:
    total = 1
    for extent in layout.shape:
        total *= extent
    reach = int(np.max(elements)) + 1
    table = padded_offset(layout, np.arange(max(total, reach), dtype=np.int64))
    return np.searchsorted(table, elements).astype(np.int64)


def _bases(elements: Ints) -> tuple[list[int], list[int], list[int]]:
    """What each bit of lane, warp and register adds (by XOR) to the element offset."""
    warps, lanes, registers = elements.shape
    origin = int(elements[0, 0, 0])

    def along(count: int, at: Any) -> list[int]:
        return [int(elements[at(1 << bit)]) ^ origin for bit in range(count.bit_length() - 1)]

    return (
        along(lanes, lambda i: (0, i, 0)),
        along(warps, lambda i: (i, 0, 0)),
        along(registers, lambda i: (0, 0, i)),
    )


def _widest_vector(
    held: dict[int, int], others: Sequence[int], widest: int, *, reorder: bool
) -> tuple[int, tuple[int, ...]]:
    """Elements a lane moves at once, and the register bits inside such a vector.

    A vector of v wants register bits that step by 1, 2, .. v/2 elements, and everything else in whole vectors.
    Triton may reorder registers for it, but does not where padding bounds the width.
    """
    width = widest
    while width > 1:
        steps = [1 << bit for bit in range(width.bit_length() - 1)]
        inner = [next((bit for bit, basis in held.items() if basis == step), -1) for step in steps]
        if -1 not in inner and (reorder or inner == list(held)[: len(inner)]):
            rest = [basis for bit, basis in held.items() if bit not in inner]
            if all(basis % width == 0 for basis in (*rest, *others)):
                return width, tuple(inner)
        width //= 2
    return 1, ()


def _matrix(
    offsets: Ints,
    held: dict[int, int],
    lanes: Sequence[int],
    warps: Sequence[int],
    element_bytes: int,
    load: bool,
    sliced: int,
) -> SharedInstructions | None:
    """The access as ldmatrix or stmatrix, plain or transposed, if the layout is made of their 8x8 matrices.

    Plain: four lanes side by side hold 16 contiguous bytes, eight such rows a matrix. Transposed (16-bit elements):
    the eight lanes 4 apart hold them. Up to four matrices an instruction, by the next register bits.
    """
    row = 16 // element_bytes
    if sliced & (row - 1):
        return None
    packed = 4 // element_bytes
    steps = [1 << bit for bit in range(packed.bit_length() - 1)]
    inner = [next((bit for bit, basis in held.items() if basis == step), -1) for step in steps]
    rest = [basis for bit, basis in held.items() if bit not in inner]
    if -1 not in inner and list(lanes[:2]) == [packed, 2 * packed]:
        if any(basis % row for basis in (*rest, *lanes[2:], *warps)):
            return None
        outer = [bit for bit in held if bit not in inner]
        rows_lane = 4 * np.arange(8)
        rows_register = np.zeros(8, np.int64)
    elif element_bytes == 2 and list(lanes[2:]) == [1, 2, 4] and held:
        if any(basis % row for basis in (*held.values(), *lanes[:2], *warps)):
            return None
        first, *outer = held
        rows_lane = np.arange(8) >> 1
        rows_register = (np.arange(8) & 1) << first
    else:
        return None
    together, apart = outer[:2], outer[2:]
    firsts = _combinations(apart)
    matrices = _combinations(together)
    register = firsts[:, None, None] + matrices[None, :, None] + rows_register
    rows = offsets[:, np.broadcast_to(rows_lane, register.shape), register]
    return SharedInstructions("ldsm" if load else "stsm", len(matrices), np.moveaxis(rows, 0, 1))


def _combinations(bits: Sequence[int]) -> npt.NDArray[np.int64]:
    """Every register number that these bits can make, in order."""
    result = np.zeros(1, np.int64)
    for bit in bits:
        result = np.concatenate([result, result + (1 << bit)])
    return result


def global_vector(
    layout: Any,
    shape: Sequence[int],
    element_bytes: int,
    alignment: Alignment | None,
    mask_alignment: Alignment | None = None,
) -> tuple[int, npt.NDArray[np.int64]]:
    """Elements that a lane moves in one global instruction, and the first register of each instruction.

    Triton takes the dimension that registers walk first; a vector is as long as a thread's contiguous run there, as
    the addresses provably are contiguous and aligned, and as the mask provably is constant.
    """
    return _global_vector(layout, tuple(shape), element_bytes, alignment, mask_alignment)


@lru_cache(maxsize=4096)
def _global_vector(
    layout: Any,
    shape: tuple[int, ...],
    element_bytes: int,
    alignment: Alignment | None,
    mask_alignment: Alignment | None,
) -> tuple[int, npt.NDArray[np.int64]]:
    linear = distributed_linear(layout, shape)
    registers = [(bit, basis) for bit, basis in enumerate(linear.bases["register"]) if any(basis)]
    order = next((max(range(len(shape)), key=lambda d: basis[d] != 0) for _, basis in registers), len(shape) - 1)
    run: list[int] = []
    for bit, basis in registers:
        if basis[order] == 1 << len(run) and sum(basis) == basis[order]:
            run.append(bit)
        else:
            break
    width = min(1 << len(run), max(WIDEST // element_bytes, 1))
    if alignment is not None:
        provable = max(alignment.divisibility[order] // element_bytes, 1)
        width = min(width, _power_of_two(min(provable, alignment.contiguity[order])))
    else:
        width = 1
    if mask_alignment is not None:
        width = min(width, _power_of_two(mask_alignment.constancy[order]))
    inner = run[: width.bit_length() - 1]
    firsts = _combinations([bit for bit, _ in registers if bit not in inner])
    firsts.flags.writeable = False
    return width, firsts


def bits_set(values: Ints) -> int:
    """Every bit that is set in any of the values."""
    result = 0
    for value in np.unique(values):
        result |= int(value)
    return result


def _power_of_two(value: int) -> int:
    return 1 << (max(value, 1).bit_length() - 1)


def thread_offsets(layout: Any, shape: Sequence[int], num_warps: int, per_element: Ints) -> Ints:
    """Each register's entry of a tile-shaped array: int64 [warps, 32, registers]."""
    return per_element.reshape(-1)[register_map(layout, shape, num_warps).index]


def merge_neighbours(accesses: Sequence[tuple[Any, SharedInstructions]]) -> list[tuple[Any, SharedInstructions]]:
    """Neighbouring ld.shared or st.shared of one straight stretch of code, merged as LLVM and ptxas merge them.

    Accesses whose addresses differ by the same few bytes in every lane of every warp become one of up to 16 bytes
    where the first is aligned to that. Of a load, three quarters of an aligned 16 bytes are enough.

    Args:
        accesses: (owner, instructions) in program order; all "lds" or all "sts", of one allocation.

    Returns:
        the instructions that remain, each with the owner of its first part.
    """
    groups: dict[bytes, list[_Part]] = {}
    position = 0
    for owner, access in accesses:
        separate = separate_base(access.offsets[0])
        for number, offsets in enumerate(access.offsets):
            first = int(offsets[0, 0])
            # Padding is added by shifts of the address, which hides most neighbours inside one access from LLVM.
            apart = (separate, number if access.padded else -1)
            pattern = (offsets - first).tobytes() + repr(apart).encode()
            groups.setdefault(pattern, []).append(_Part(position, first, access.width, owner, offsets))
            position += 1
    kind = accesses[0][1].kind
    merged: list[_Part] = []
    for group in groups.values():
        # Whole chunks only where every thread's addresses are the first thread's plus a multiple of the chunk.
        steps = group[0].offsets - group[0].first
        chunk = bits_set(steps) | WIDEST
        merged += _merge_group(group, chunk & -chunk, kind == "lds")
    merged.sort(key=lambda part: part.position)
    return [(part.owner, SharedInstructions(kind, part.width, part.offsets[None])) for part in merged]


@dataclass(frozen=True, eq=False)
class _Part:
    """One instruction while merging: its place in the program, the first thread's byte, all offsets [warps, 32]."""

    position: int
    first: int
    width: int
    owner: Any
    offsets: Ints

    def widened(self, parts: Sequence[_Part], start: int, width: int) -> _Part:
        """This and other parts as one access of ``width`` bytes from byte ``start``."""
        earliest = min(parts, key=lambda part: part.position)
        return _Part(earliest.position, start, width, earliest.owner, self.offsets + (start - self.first))


def _merge_group(parts: Sequence[_Part], chunk: int, load: bool) -> list[_Part]:
    """Parts of one pattern, merged inside aligned chunks of at most ``chunk`` bytes."""
    if chunk < 2:
        return list(parts)
    boxes: dict[int, list[_Part]] = {}
    for part in parts:
        boxes.setdefault(part.first // chunk, []).append(part)
    result: list[_Part] = []
    for number, box in boxes.items():
        if len(box) == 1:
            result += box
            continue
        covered = {byte for part in box for byte in range(part.first, part.first + part.width)}
        enough = 3 * chunk // 4 if load and chunk == WIDEST and box[0].width == 4 else chunk
        if len(covered) >= enough:
            result.append(box[0].widened(box, number * chunk, chunk))
        else:
            result += _merge_group(box, chunk // 2, load)
    return result


def separate_base(offsets: Ints) -> bool:
    """Whether LLVM gives this access an address of its own, so that ptxas cannot see its neighbours.

    The thread's part of an address is ``(thread << s) & mask``, and a slice's position c is put in by OR. Where c
    sets every bit that the mask clears, LLVM drops the mask: ``(thread << s) | c`` is no longer the common base plus
    a constant. Takes the offsets of the access's first register, [warps, 32]; the others are that plus constants.
    """
    warps, _lanes = offsets.shape
    origin = int(offsets[0, 0])
    bits = [int(offsets[0, 1 << bit]) ^ origin for bit in range(5)]
    bits += [int(offsets[1 << bit, 0]) ^ origin for bit in range(warps.bit_length() - 1)]
    shifts = {step.bit_length() - 1 - bit for bit, step in enumerate(bits) if step}
    if len(shifts) != 1 or any(step & (step - 1) for step in bits):
        return False
    (shift,) = shifts
    cleared = sum(1 << (bit + shift) for bit, step in enumerate(bits) if not step and bit + shift >= 0)
    return cleared != 0 and origin & cleared == cleared
