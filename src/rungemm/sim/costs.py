"""What one event costs: an access's instructions, sectors and wavefronts, an operation's multiply-adds."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ..layouts import register_map, shared_map
from ..layouts.distributed import distributed_linear
from ..layouts.shared import shared_rank
from .events import Event
from .exchange import exchange
from .lowering import SharedInstructions, bits_set, global_vector, shared_instructions, thread_offsets
from .traffic import (
    LINE,
    conflict_lanes,
    distinct_blocks,
    matrix_wavefronts,
    sectors,
    shared_wavefronts,
    zero_wavefronts,
)

__all__ = [
    "Conflict",
    "convert_cost",
    "fma_cost",
    "global_cost",
    "hand_over_cost",
    "instruction_cost",
    "mma_cost",
    "shared_access",
]

Counts = Counter[str]
Ints = npt.NDArray[np.int64]

MMA_K_BITS = 256
"""Bits of K that one mma.sync or wgmma instruction takes of an operand: 8 tf32, 16 half, 32 eight-bit elements."""


@dataclass(frozen=True)
class Conflict:
    """The worst bank conflict of an access.

    Attributes:
        degree: wavefronts of its worst phase; 1 is none.
        bank: where.
        lanes: one lane for each distinct word of that bank.
        instruction: mnemonic.
    """

    degree: int
    bank: int
    lanes: tuple[int, ...]
    instruction: str


def mnemonic(kind: str, width: int) -> str:
    """As SASS writes it: LDS.128, STS, LDSM.4 (matrices), LDG.64."""
    name = kind.upper()
    if name in ("LDSM", "STSM"):
        return f"{name}.{width}" if width > 1 else name
    suffix = {1: ".8", 2: ".16", 4: "", 8: ".64", 16: ".128"}[width]
    return name + suffix


def global_cost(event: Event) -> Counts:
    """Requests, sectors and bytes of a global load, store, atomic or cp.async.

    A load is made by every lane, replicas included; a store, an atomic and cp.async by one owner of each element.
    """
    size = event.element_bytes
    if event.layout is None:
        return _scalar_cost(event)
    store = event.kind != "global_load"
    owners = register_map(event.layout, event.shape, event.num_warps)
    width, firsts = global_vector(event.layout, event.shape, size, event.alignment, event.mask_alignment)
    if event.kind == "atomic":
        width, firsts = global_vector(event.layout, event.shape, size, None)
    if event.kind == "async_copy":
        width, firsts = _copy_vector(event, width, firsts)
    assert event.global_bytes is not None
    addresses = thread_offsets(event.layout, event.shape, event.num_warps, event.global_bytes())[:, :, firsts]
    active = np.ones(addresses.shape, bool)
    if event.mask is not None:
        active &= np.broadcast_to(event.mask, event.shape).reshape(-1)[owners.index[:, :, firsts]]
    if store:
        active &= owners.unique[:, :, firsts]
    addresses, active = addresses.transpose(0, 2, 1), active.transpose(0, 2, 1)
    requests = int(active.any(axis=-1).sum())
    touched = int(sectors(addresses, width * size, active).sum())
    moved = int(active.sum()) * width
    counts: Counts = Counter()
    if event.kind == "global_load":
        counts.update(global_load_requests=requests, global_load_sectors=touched, l2_read_bytes=32 * touched)
        counts.update(global_load_elements=moved, global_load_bytes=moved * size)
        counts[mnemonic("LDG", width * size)] += requests
    elif event.kind == "async_copy":
        counts.update(global_load_requests=requests, global_load_sectors=touched, l2_read_bytes=32 * touched)
        counts.update(global_load_elements=moved, global_load_bytes=moved * size, async_copy_bytes=moved * size)
        # Written line by line as they were read.
        wavefronts = int(distinct_blocks(addresses, width * size, LINE, active).sum())
        issued = requests
        if event.mask is not None and not np.all(event.mask):
            # A lane that the mask leaves out fetches nothing and writes zeros; one that owns nothing is switched off.
            idle = owners.unique[:, :, firsts].transpose(0, 2, 1) & ~active
            assert event.shared_bytes is not None
            places = thread_offsets(event.layout, event.shape, event.num_warps, event.shared_bytes())[:, :, firsts]
            wavefronts += int(zero_wavefronts(places.transpose(0, 2, 1), width * size, idle).sum())
            issued = int((active | idle).any(axis=-1).sum())
        counts.update(shared_copy_wavefronts=wavefronts, shared_wavefronts=wavefronts)
        counts[mnemonic("LDGSTS", width * size)] += issued
    elif event.kind == "global_store":
        counts.update(global_store_requests=requests, global_store_sectors=touched, l2_write_bytes=32 * touched)
        counts.update(global_store_elements=moved, global_store_bytes=moved * size)
        counts[mnemonic("STG", width * size)] += requests
    else:
        counts.update(atomic_requests=requests, l2_write_bytes=32 * touched, global_store_elements=moved)
        counts["ATOM"] += requests
    return counts


def _scalar_cost(event: Event) -> Counts:
    """One element without a layout: loaded by every lane of every warp, stored or updated by one thread."""
    size = event.element_bytes
    if event.mask is not None and not np.all(event.mask):
        return Counter()
    if event.kind == "global_load":
        warps = event.num_warps
        counts: Counts = Counter(global_load_requests=warps, global_load_sectors=warps, l2_read_bytes=32 * warps)
        counts.update(global_load_elements=32 * warps, global_load_bytes=32 * warps * size)
        counts[mnemonic("LDG", size)] += warps
    elif event.kind == "global_store":
        counts = Counter(global_store_requests=1, global_store_sectors=1, l2_write_bytes=32)
        counts.update(global_store_elements=1, global_store_bytes=size)
        counts[mnemonic("STG", size)] += 1
    else:
        # The old value reaches the other threads through shared memory: an STS, which every warp issues and one thread
        # does, a barrier, an LDS in each warp.
        warps = event.num_warps
        counts = Counter(atomic_requests=1, l2_write_bytes=32, global_store_elements=1, ATOM=1, barriers=1)
        for side, done, name in (("store", 1, "STS"), ("load", warps, "LDS")):
            counts.update({f"shared_{side}_requests": warps, f"shared_{side}_wavefronts": done, name: warps})
            counts["shared_wavefronts"] += done
    return counts


def _copy_vector(event: Event, width: int, firsts: Ints) -> tuple[int, Ints]:
    """cp.async moves as much at once as both sides allow."""
    assert event.shared is not None and event.shared_bytes is not None
    offsets = thread_offsets(event.layout, event.shape, event.num_warps, event.shared_bytes())
    region = event.shared
    shared = shared_instructions(
        offsets, event.element_bytes, load=False, shared_layout=region.layout, sliced=sliced_bits(event), arch=80
    )
    plain = shared.width // event.element_bytes if shared.kind == "sts" else width
    if plain >= width:
        return width, firsts
    inner = np.arange(width // plain) * plain
    registers = register_map(event.layout, event.shape, event.num_warps).registers
    starts = np.unique((firsts[:, None] + inner).reshape(-1))
    return plain, starts[starts < registers]


def sliced_bits(event: Event) -> int:
    """Bits of the element offset that the position of the accessed slice can set: 0 for a view of a whole buffer.

    Found from the addresses: a bit of a coordinate that the view never moves along, but the buffer has.
    """
    region = event.shared
    assert region is not None and event.shared_bytes is not None
    if region.element_bytes != event.element_bytes:
        return 0
    whole = shared_map(region.layout, region.shape, region.element_bytes)
    rank = shared_rank(region.layout)
    index = _inverse(region.layout, region.shape, region.element_bytes)
    at = index[event.shared_bytes().reshape(-1) // region.element_bytes]
    coordinates = np.unravel_index(at, region.shape)
    result = 0
    for dim in range(len(region.shape) - rank, len(region.shape)):
        along = np.asarray(coordinates[dim], np.int64)
        moved = bits_set(along ^ along[0])
        bit = 1
        while bit < region.shape[dim]:
            if not moved & bit:
                place = [0] * len(region.shape)
                place[dim] = bit
                result |= int(whole.offset[tuple(place)]) // region.element_bytes
            bit *= 2
    return result


@lru_cache(maxsize=256)
def _inverse(layout: Any, shape: tuple[int, ...], element_bytes: int) -> Ints:
    """Flat element index of each element offset; -1 in padding."""
    found = shared_map(layout, shape, element_bytes)
    result = np.full(found.bytes // element_bytes, -1, np.int64)
    result[found.offset.reshape(-1) // element_bytes] = np.arange(found.offset.size)
    return result


def shared_access(event: Event, arch: int) -> SharedInstructions:
    """The instructions of a shared load or store, before neighbours are merged."""
    assert event.shared is not None and event.shared_bytes is not None
    offsets = thread_offsets(event.layout, event.shape, event.num_warps, event.shared_bytes())
    return shared_instructions(
        offsets,
        event.element_bytes,
        load=event.kind == "shared_load",
        shared_layout=event.shared.layout,
        sliced=sliced_bits(event),
        arch=arch,
    )


def instruction_cost(access: SharedInstructions) -> tuple[Counts, Conflict | None]:
    """Wavefronts and conflicts of shared instructions, and the worst conflict if there is one."""
    load = access.kind in ("lds", "ldsm")
    name = mnemonic(access.kind, access.width)
    requests = access.offsets.shape[0] * access.offsets.shape[1]
    conflict: Conflict | None = None
    if access.kind in ("ldsm", "stsm"):
        wavefronts, extra = matrix_wavefronts(access.offsets)
        if extra.any():
            worst = access.offsets.reshape(-1, 8)
            costs = matrix_wavefronts(worst[:, None, :])[0]
            degree = int(np.max(costs))
            rows = worst[int(np.argmax(costs))]
            banks = rows // 4 % 32
            bank = int(np.argmax(np.bincount(banks)))
            conflict = Conflict(degree, bank, tuple(int(i) for i in np.flatnonzero(banks == bank)), name)
    else:
        wavefronts, extra = shared_wavefronts(access.offsets, access.width, load=load)
        if extra.any():
            worst_warp = access.offsets.reshape(-1, 32)[int(np.argmax(extra))]
            bank, lanes = conflict_lanes(worst_warp, access.width, load=load)
            conflict = Conflict(len(lanes), bank, tuple(lanes), name)
    side = "load" if load else "store"
    total, conflicts = int(wavefronts.sum()), int(extra.sum())
    counts: Counts = Counter({name: requests})
    counts[f"shared_{side}_requests"] += requests
    counts[f"shared_{side}_wavefronts"] += total
    counts[f"shared_{side}_conflicts"] += conflicts
    counts.update(shared_wavefronts=total, bank_conflicts=conflicts)
    return counts, conflict


def fma_cost(event: Event) -> Counts:
    """Multiply-adds by threads: every register of every lane, but registers that repeat others only once."""
    per_lane = sum(any(basis) for basis in distributed_linear(event.layout, event.shape).bases["register"])
    done = (1 << per_lane) * 32 * event.num_warps * event.k
    if event.element_bytes != 4 or (event.operands and event.operands[0] not in ("fp32", "float32")):
        return Counter(other_fmas=done)
    return Counter({"fmas": done, "FFMA": done // 32})


def mma_cost(event: Event, element_bits: int) -> Counts:
    """Instructions of mma.sync (16x8) or wgmma (64 rows of the layout's N), by what each warp's registers hold."""
    k_step = MMA_K_BITS // element_bits
    steps = -(-event.k // k_step)
    registers = register_map(event.layout, event.shape, event.num_warps).registers
    kind = "x".join(dict.fromkeys(event.operands)) or f"{element_bits}bit"
    if event.kind == "mma":
        count = registers // 4 * steps * event.num_warps
        name = f"mma.m16n8k{k_step}.{kind}"
        return Counter({"mma_instructions": count, name: count, "tensor_macs": count * 16 * 8 * k_step})
    columns = min(event.layout.instr_shape[1], event.shape[-1])
    count = registers // (columns // 2) * steps * (event.num_warps // 4)
    name = f"wgmma.m64n{columns}k{k_step}.{kind}"
    rows_read = columns if event.a_in_registers else columns + 64
    counts = Counter({"wgmma_instructions": count, name: count, "tensor_macs": count * 64 * columns * k_step})
    counts["wgmma_shared_bytes"] = count * rows_read * MMA_K_BITS // 8
    return counts


def hand_over_cost(event: Event, rounds: int) -> Counts:
    """Starting worker partitions (``rounds`` times) or ending them: which function a worker warp runs next.

    Every default warp stores the words that hold one byte for each worker warp; each worker warp reads its own. What
    the kernel computed and hands to the workers goes the same way, ``event.bytes`` of it, once.
    """
    words = event.count // 4
    widths = [16] * (words // 4) + [4 * part for part in (2, 1) if words % 4 & part]
    stores = event.num_warps * rounds
    counts: Counts = Counter({"LDS.8": event.count * rounds})
    for width in widths:
        counts[mnemonic("STS", width)] += stores
    counts.update(shared_store_requests=stores * len(widths), shared_store_wavefronts=stores * words)
    counts.update(shared_load_requests=event.count * rounds, shared_load_wavefronts=event.count * rounds)
    for width in _vectors(event.bytes):
        counts[mnemonic("STS", width)] += event.num_warps
        counts[mnemonic("LDS", width)] += event.count
        # All lanes store to one place, phase by phase; a load that all lanes want takes half the phases.
        counts.update(shared_store_requests=event.num_warps, shared_load_requests=event.count)
        counts["shared_store_wavefronts"] += event.num_warps * (width // 4)
        counts["shared_load_wavefronts"] += event.count * max(width // 8, 1)
    counts["shared_wavefronts"] = counts["shared_store_wavefronts"] + counts["shared_load_wavefronts"]
    return counts


def _vectors(size: int) -> list[int]:
    """Bytes in as few stores as there can be, widest first."""
    return [16] * (size // 16) + [part for part in (8, 4) if size % 16 & part]


def convert_cost(event: Event, arch: int) -> Counts:
    """A change of register layout: nothing inside a thread, shuffles inside a warp, else through shared memory.

    Through shared memory Triton chooses a swizzle free of conflicts; :func:`.exchange.exchange` has the instructions.
    """
    source = register_map(event.source_layout, event.shape, event.num_warps).index
    target = register_map(event.layout, event.shape, event.num_warps).index
    if _contained(source, target, 2):
        return Counter()
    if _contained(source, target, 1):
        moved = target.shape[2] * -(-event.element_bytes // 4) * event.num_warps
        return Counter(shuffles=moved)
    layouts = [distributed_linear(layout, event.shape) for layout in (event.source_layout, event.layout)]
    counts: Counts = Counter(barriers=1)
    for side, (kind, width, number) in zip(
        ("store", "load"), exchange(layouts[0], layouts[1], event.element_bytes, arch), strict=True
    ):
        requests = number * event.num_warps
        # A matrix is 128 bytes, one wavefront; an ordinary instruction takes one for each 4 bytes of a lane.
        matrix = kind in ("stsm", "ldsm")
        wavefronts = requests * (width if matrix else max(width // 4, 1))
        moved = requests * 32 * (4 * width if matrix else width)
        counts.update({f"shared_{side}_requests": requests, f"shared_{side}_wavefronts": wavefronts})
        counts.update({f"shared_{side}_bytes": moved, f"shared_{side}_elements": moved // event.element_bytes})
        counts["shared_wavefronts"] += wavefronts
        counts[mnemonic(kind, width)] += requests
    return counts


def _contained(source: npt.NDArray[np.int32], target: npt.NDArray[np.int32], axes: int) -> bool:
    """Whether every warp (axes=1) or thread (axes=2) already holds the elements it is to hold."""
    if source.shape[:axes] != target.shape[:axes]:
        return False
    owners = prod(source.shape[:axes])
    have, want = source.reshape(owners, -1), target.reshape(owners, -1)
    return all(np.isin(w, h).all() for h, w in zip(have, want, strict=True))
