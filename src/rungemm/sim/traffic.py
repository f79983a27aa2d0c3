"""What a warp's memory instruction costs: sectors of global memory, wavefronts of shared memory.

Pure functions from the addresses of 32 lanes to the numbers Nsight Compute reports. A batch of instructions is one
array whose last axis is the lanes. Rules and their evidence (SIMULATOR.md, measured on an H200):

- A global request touches each 32-byte sector once, however many lanes want it.
- Shared memory has 32 banks of 4 bytes. A 4-byte access is one phase of 32 lanes, an 8-byte one two of 16, a
  16-byte one four of 8. A phase takes as many wavefronts as the busiest bank has distinct words to deliver.
- A wide LOAD needs half the phases when every lane wants the address of its neighbour lane^1, or every lane that of
  lane^2.
- ldmatrix and stmatrix take one phase for each 8x8 matrix: eight rows of 16 bytes.
- The zeros that a cp.async writes for lanes that are masked off are stored as ST would store them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = [
    "BANKS",
    "LINE",
    "SECTOR",
    "WORD",
    "conflict_lanes",
    "distinct_blocks",
    "matrix_wavefronts",
    "sectors",
    "shared_phases",
    "shared_wavefronts",
    "zero_wavefronts",
]

SECTOR = 32
LINE = 128
BANKS = 32
WORD = 4
WARP = 32

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def distinct_blocks(addresses: Ints, width: int, block: int, active: Bools | None = None) -> Ints:
    """Distinct aligned blocks of ``block`` bytes that each instruction touches.

    Args:
        addresses: int64 [..., 32], first byte of each lane; ``width`` bytes from there are touched.
        active: bool [..., 32], lanes that take part; all, if ``None``.

    Returns:
        int64 [...].
    """
    first = addresses // block
    last = (addresses + (width - 1)) // block
    touched = first if np.array_equal(first, last) else np.concatenate([first, last], axis=-1)
    if active is not None:
        if touched.shape[-1] != active.shape[-1]:
            active = np.concatenate([active, active], axis=-1)
        # An idle lane repeats the block of one that is active, so that it adds nothing.
        leader = np.take_along_axis(touched, np.argmax(active, axis=-1)[..., None], axis=-1)
        touched = np.where(active, touched, leader)
    ordered = np.sort(touched, axis=-1)
    count = 1 + np.count_nonzero(ordered[..., 1:] != ordered[..., :-1], axis=-1)
    if active is not None:
        count = np.where(active.any(axis=-1), count, 0)
    return np.asarray(count, np.int64)


def sectors(addresses: Ints, width: int, active: Bools | None = None) -> Ints:
    """32-byte sectors of each global instruction: see :func:`distinct_blocks`."""
    return distinct_blocks(addresses, width, SECTOR, active)


def shared_phases(offsets: Ints, width: int, *, load: bool) -> Ints:
    """Phases that each instruction is split into: int64 [...] for byte offsets [..., 32] of ``width`` bytes."""
    phases = np.full(offsets.shape[:-1], max(width // WORD, 1), np.int64)
    if load and width > WORD:
        lanes = np.arange(WARP)
        for distance in (1, 2):
            paired = (offsets == offsets[..., lanes ^ distance]).all(axis=-1)
            phases = np.where(paired, max(width // WORD // 2, 1), phases)
    return phases


def shared_wavefronts(offsets: Ints, width: int, *, load: bool) -> tuple[Ints, Ints]:
    """Wavefronts of ld.shared or st.shared instructions, and how many of them are bank conflicts.

    Args:
        offsets: int64 [..., 32], byte offset of each lane.
        width: bytes a lane: 1, 2, 4, 8 or 16.
        load: wide loads of paired lanes take fewer phases.

    Returns:
        two int64 [...]: wavefronts, and those beyond one a phase.
    """
    shape = offsets.shape[:-1]
    flat = offsets.reshape(-1, WARP)
    phases = shared_phases(flat, width, load=load)
    cost = np.zeros(len(flat), np.int64)
    words = max(width // WORD, 1)
    touched = flat[:, :, None] // WORD + np.arange(words)
    for count in np.unique(phases):
        chosen = phases == count
        split = touched[chosen].reshape(-1, int(count), WARP // int(count) * words)
        cost[chosen] = _busiest_bank(split).sum(axis=1)
    return cost.reshape(shape), (cost - phases).reshape(shape)


def zero_wavefronts(offsets: Ints, width: int, active: Bools) -> Ints:
    """Wavefronts in which cp.async writes zeros, for lanes that fetch nothing: those of stores by these lanes alone.

    Args:
        offsets: int64 [..., 32], byte offset of each lane.
        width: bytes a lane: 4, 8 or 16.
        active: bool [..., 32], lanes that write zeros.

    Returns:
        int64 [...].
    """
    phases = max(width // WORD, 1)
    split = (*offsets.shape[:-1], phases, WARP // phases)
    where, on = offsets.reshape(split), active.reshape(split)
    # An idle lane repeats the address of one that is active, so that it adds nothing; a phase of idle ones is none.
    leader = np.take_along_axis(where, np.argmax(on, axis=-1)[..., None], axis=-1)
    words = np.where(on, where, leader)[..., None] // WORD + np.arange(phases)
    cost = _busiest_bank(words.reshape(*split[:-1], WARP))
    return np.asarray(np.where(on.any(axis=-1), cost, 0).sum(axis=-1), np.int64)


def matrix_wavefronts(rows: Ints) -> tuple[Ints, Ints]:
    """Wavefronts and conflicts of ldmatrix or stmatrix: int64 [..., matrices, 8], byte offset of each 16-byte row."""
    touched = (rows[..., None] // WORD + np.arange(4)).reshape(*rows.shape[:-1], 32)
    cost = _busiest_bank(touched)
    return cost.sum(axis=-1), (cost - 1).sum(axis=-1)


def _busiest_bank(words: Ints) -> Ints:
    """Distinct words in the bank that has most of them: int64 [...] for word numbers [..., n]."""
    ordered = np.sort(words, axis=-1)
    fresh = np.ones(ordered.shape, bool)
    fresh[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
    groups = ordered.reshape(-1, ordered.shape[-1])
    number = np.arange(len(groups))[:, None] * BANKS + groups % BANKS
    counts = np.bincount(number[fresh.reshape(groups.shape)], minlength=len(groups) * BANKS)
    return counts.reshape(len(groups), BANKS).max(axis=1).reshape(ordered.shape[:-1]).astype(np.int64)


def conflict_lanes(offsets: Ints, width: int, *, load: bool) -> tuple[int, list[int]]:
    """The busiest bank of one instruction's worst phase, and lanes that want different words of it.

    Returns:
        the bank, and one lane for each distinct word; a list of one lane means no conflict.
    """
    flat = offsets.reshape(WARP)
    count = int(shared_phases(flat, width, load=load))
    per_phase = WARP // count
    words = max(width // WORD, 1)
    worst: tuple[int, list[int]] = (0, [])
    for phase in range(count):
        wanted: dict[int, dict[int, int]] = {}
        for lane in range(phase * per_phase, (phase + 1) * per_phase):
            for word in range(words):
                number = int(flat[lane]) // WORD + word
                wanted.setdefault(number % BANKS, {}).setdefault(number, lane)
        for bank, lanes in wanted.items():
            if len(lanes) > len(worst[1]):
                worst = (bank, list(lanes.values()))
    return worst
