"""The cost of one warp instruction, against figures worked out by hand and a slow definition."""

from __future__ import annotations

import numpy as np
import pytest

from rungemm.sim.traffic import conflict_lanes, matrix_wavefronts, sectors, shared_wavefronts, zero_wavefronts

LANES = np.arange(32, dtype=np.int64)


def cost(offsets: np.ndarray, width: int, load: bool = True) -> tuple[int, int]:
    wavefronts, conflicts = shared_wavefronts(offsets[None], width, load=load)
    return int(wavefronts[0]), int(conflicts[0])


def test_float4_of_32_neighbours_is_four_wavefronts_without_conflict() -> None:
    assert cost(16 * LANES, 16) == (4, 0)


def test_float4_at_a_128_byte_stride_is_32_wavefronts() -> None:
    assert cost(128 * LANES, 16) == (32, 28)


@pytest.mark.parametrize("stride_words, ways", [(1, 1), (2, 2), (4, 4), (32, 32), (33, 1), (36, 4), (0, 1)])
def test_word_strides(stride_words: int, ways: int) -> None:
    assert cost(4 * stride_words * LANES, 4) == (ways, ways - 1)
    assert cost(4 * stride_words * LANES, 4, load=False) == (ways, ways - 1)


def test_paired_lanes_halve_a_wide_load_but_not_a_store() -> None:
    paired = 16 * (LANES // 2)
    assert cost(paired, 16) == (2, 0)
    assert cost(paired, 16, load=False) == (4, 0)
    assert cost(16 * (LANES % 8), 16) == (4, 0)  # the same eight addresses, but neighbours differ
    assert cost(8 * LANES, 8) == (2, 0)


def test_bytes_and_halves_share_a_word() -> None:
    assert cost(LANES, 1) == (1, 0)
    assert cost(2 * LANES, 2) == (1, 0)


def test_ldmatrix_is_one_wavefront_a_matrix_and_conflicts_by_row() -> None:
    rows = np.arange(32, dtype=np.int64).reshape(1, 4, 8)
    assert [int(x[0]) for x in matrix_wavefronts(16 * rows)] == [4, 0]
    assert [int(x[0]) for x in matrix_wavefronts(64 * rows)] == [16, 12]  # eight rows 64 bytes apart: 4 ways
    assert [int(x[0]) for x in matrix_wavefronts(128 * rows)] == [32, 28]


def test_sectors_are_distinct_32_byte_blocks() -> None:
    assert sectors(4 * LANES, 4) == 4
    assert sectors(4 * LANES + 4, 4) == 5
    assert sectors(16 * LANES, 16) == 16
    assert sectors(4096 * LANES, 4) == 32
    assert sectors(0 * LANES, 4) == 1
    assert sectors(4 * LANES, 4, LANES < 9) == 2
    assert sectors(4 * LANES, 4, LANES < 0) == 0


def test_sectors_match_the_definition(rng: np.random.Generator) -> None:
    width = int(rng.choice([1, 2, 4, 8, 16]))
    addresses = width * rng.integers(0, 200, (50, 32))
    active = rng.random((50, 32)) < rng.random((50, 1))
    expected = [
        len({int(a) // 32 for a, on in zip(row, mask, strict=True) if on})
        for row, mask in zip(addresses, active, strict=True)
    ]
    assert sectors(addresses, width, active).tolist() == expected


def test_wavefronts_match_the_definition(rng: np.random.Generator) -> None:
    for width, phases in ((4, 1), (8, 2), (16, 4)):
        offsets = width * rng.integers(0, 64, (40, 32))
        wavefronts, _ = shared_wavefronts(offsets, width, load=False)
        for row, found in zip(offsets, wavefronts, strict=True):
            total = 0
            for phase in np.split(row, phases):
                words = {int(a) // 4 + w for a in phase for w in range(width // 4)}
                banks = [sum(1 for word in words if word % 32 == bank) for bank in range(32)]
                total += max(banks)
            assert int(found) == total


def test_conflict_lanes_names_lanes_that_collide() -> None:
    bank, lanes = conflict_lanes(4 * 8 * LANES, 4, load=True)
    assert len(lanes) == 8
    assert {8 * lane % 32 for lane in lanes} == {bank}
    assert len(conflict_lanes(4 * LANES, 4, load=True)[1]) == 1


@pytest.mark.parametrize("width, dense", [(4, 1), (8, 2), (16, 4)])
def test_zeros_are_written_as_stores_write(width: int, dense: int, rng: np.random.Generator) -> None:
    every, none = np.ones(32, bool), np.zeros(32, bool)
    assert zero_wavefronts(width * LANES, width, every) == dense
    assert zero_wavefronts(width * LANES, width, none) == 0
    assert zero_wavefronts(128 * LANES, width, every) == 32
    # One lane takes one pass, the lanes of one phase (half of them conflicting) as many as they are.
    assert zero_wavefronts(128 * LANES, width, LANES == 13) == 1
    per_phase = 32 // dense
    assert zero_wavefronts(128 * LANES, width, LANES // per_phase == 0) == per_phase
    places = rng.integers(0, 64, (20, 32)) * width
    assert np.array_equal(
        zero_wavefronts(places, width, np.ones((20, 32), bool)), shared_wavefronts(places, width, load=False)[0]
    )
