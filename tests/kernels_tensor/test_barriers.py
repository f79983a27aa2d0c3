"""In Triton's own code, every mbarrier of a ring is another one in the next step; only a turn's barrier stays.

The simulator runs the Python source and cannot see what Triton's front end loses (docs/log.md); this can.
"""

from __future__ import annotations

import pytest

from rungemm.dtypes import BF16, FP32
from rungemm.hardware import DEFAULT_GPU
from rungemm.kernels.hopper.champion import ChampionHopper, HopperConfig
from rungemm.problem import Problem

from .ttgir import still_barriers, ttgir

SINGLE = {"dtype": FP32, "precision": "tf32", "layout": "NN"}
CASES = [
    (HopperConfig(schedule="turns", num_warps=4, tile_n=128, buffers=1, stream=True), {"dtype": BF16}, 4),
    (HopperConfig(schedule="halves", num_warps=4, buffers=1), {"dtype": BF16}, 0),
    (HopperConfig(schedule="halves", num_warps=4, buffers=1, tile_k=32, part_n=32, swap=True), SINGLE, 0),
    (HopperConfig(tile_n=128, buffers=1, tile_k=32, part_n=32, promote=4), SINGLE | {"precision": "tf32x3"}, 0),
]


@pytest.mark.parametrize(("config", "options", "turns"), CASES, ids=["turns", "halves", "registers", "promoted"])
def test_slots_move(config, options, turns, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    plan = ChampionHopper().plan(Problem.dense(640, 640, 640, **options), config, DEFAULT_GPU)
    text = ttgir(plan.launches[-1])
    still = still_barriers(text)
    assert len(still) == turns, still
    assert text.count("ttng.wait_barrier") + text.count("ttng.arrive_barrier") > turns + 3


def test_a_ring_of_one_stage_is_refused_where_it_would_wait_for_itself():
    kernel, one = ChampionHopper(), HopperConfig(tile_m=64, tile_n=64, num_warps=4, buffers=1, stages=1)
    assert "stages is 1" in kernel.supports(Problem.dense(64, 64, 65, dtype=BF16), one, DEFAULT_GPU)
    assert kernel.supports(Problem.dense(64, 64, 64, dtype=BF16), one, DEFAULT_GPU) is None
