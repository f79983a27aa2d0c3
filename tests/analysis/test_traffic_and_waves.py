"""Loads for one element of C against LADDER.md's formulas, and grids cut into waves."""

from __future__ import annotations

import pytest

from rungemm.analysis import accesses_per_element, tile_efficiency, waves

K = 4096


@pytest.mark.parametrize(
    ("tile", "thread", "global_loads", "shared_loads"),
    [
        (None, (1, 1), 2 * K, 0),
        ((32, 32), (1, 1), K / 16, 2 * K),
        ((64, 64), (8, 1), K / 32, 9 * K / 8),
        ((128, 128), (8, 8), K / 64, K / 4),
    ],
)
def test_the_ladders_formulas(tile, thread, global_loads, shared_loads):
    found = accesses_per_element(K, tile=tile, thread=thread)
    assert (found.global_loads, found.shared_loads) == (global_loads, shared_loads)


def test_bad_tiles_are_refused():
    with pytest.raises(ValueError, match="tile is 0x32"):
        accesses_per_element(1, tile=(0, 32))
    with pytest.raises(ValueError, match="K is -1"):
        accesses_per_element(-1, tile=None)


def test_one_block_too_many_costs_a_wave():
    full = waves(264, sms=132, blocks_per_sm=2)
    assert (full.rounds, full.efficiency) == (1, 1.0)
    over = waves(265, sms=132, blocks_per_sm=2)
    assert over.rounds == 2
    assert over.efficiency == pytest.approx(265 / 528)
    assert waves(0, sms=132, blocks_per_sm=1).efficiency == 1.0
    with pytest.raises(ValueError, match="run nothing"):
        waves(1, sms=132, blocks_per_sm=0)


def test_ragged_edges_waste_tile_area():
    assert tile_efficiency(128, 256, 128, 128) == 1.0
    assert tile_efficiency(129, 128, 128, 128) == pytest.approx(129 / 256)
    assert tile_efficiency(0, 128, 128, 128) == 1.0
    with pytest.raises(ValueError, match="tile is 0x1"):
        tile_efficiency(1, 1, 0, 1)
