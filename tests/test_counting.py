"""Counts of one tile: those of the whole problem where all tiles are alike, and a long K told from two short ones."""

from __future__ import annotations

import dataclasses

import pytest

from rungemm.hardware import ZOO
from rungemm.kernels import find_kernel
from rungemm.ladder import counting
from rungemm.ladder.pose import Posed, Task, pose
from rungemm.sim import simulate

H200 = ZOO["h200"]


def posed(name: str, *shape: int) -> tuple[Posed, Task]:
    task = Task.random(*shape, seed=1)
    found = pose(find_kernel(name), task, H200)
    assert isinstance(found, Posed)
    return found, task


@pytest.mark.parametrize("name", ["naive", "shared_tile", "thread_tile_1d"])
def test_one_tile_stands_for_all(name):
    """Row pitches are multiples of a sector, so every tile asks for the same."""
    item, task = posed(name, 128, 64, 32)
    operands = task.operands(item.problem.a.dtype)
    whole = counting.count_whole(item.problem, simulate(item.plan, operands))
    tile = counting.count_tile(item, H200)
    assert tile is not None and tile.counted_on.startswith("one tile, ") and tile.elements < whole.elements
    for field in ("loads_per_c", "shared_loads_per_c", "sector_bytes_per_c", "wavefronts_per_c", "conflicts_per_c"):
        assert getattr(tile, field) == pytest.approx(getattr(whole, field), rel=1e-12), field


@pytest.mark.parametrize("name", ["coalesced", "vectorised", "double_buffer"])
def test_a_long_k_from_two_short_ones(name, monkeypatch):
    """Exact, for a K that no step divides: the whole walk is made by a period that it does not reach."""
    item, _ = posed(name, 128, 128, 3 * 64 + 64 + 37)
    monkeypatch.setattr(counting, "PERIOD", 64)
    inferred = counting.count_tile(item, H200)
    monkeypatch.setattr(counting, "PERIOD", 4096)
    assert dataclasses.asdict(inferred) == dataclasses.asdict(counting.count_tile(item, H200))


@pytest.mark.parametrize("alignment", [4, 8, 16])
@pytest.mark.parametrize("strides", [(100, 1), (1, 100), (-100, 1), (0, 1), (-7, -3)])
def test_blank_operands_lie_as_the_real_ones(strides, alignment):
    from rungemm.dtypes import FP32
    from rungemm.operands import matrix_of
    from rungemm.problem import Matrix

    blank = counting._blank(Matrix(50, 60, FP32, *strides, 0, alignment), 20, 30)
    blank[...] = 1  # every element is inside its memory
    found = matrix_of("A", blank)
    assert (found.row_stride, found.col_stride, found.alignment) == (*strides, alignment)
    assert (found.rows, found.cols) == (20, 30)
