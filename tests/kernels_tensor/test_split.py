"""The Hopper champion with every tile cut along K and a second launch that adds up: in the simulator, against float64.

Both ways round, every schedule, ragged K, C read; data as late as is legal, and programs at random.
"""

from __future__ import annotations

import numpy as np
import pytest

from rungemm.dtypes import BF16, FP32
from rungemm.hardware import DEFAULT_GPU
from rungemm.kernels.hopper.champion import ChampionHopper, HopperConfig
from rungemm.problem import Problem
from rungemm.sim import simulate

HALF = {"tile_n": 64, "tile_m": 64, "tile_k": 64, "buffers": 1, "num_warps": 4, "stages": 2}
CASES = [
    ("together", HopperConfig(**HALF, splits=3), {"dtype": BF16, "layout": "NT"}, (70, 100, 304)),
    ("odd", HopperConfig(**HALF, splits=2), {"dtype": BF16, "layout": "NT"}, (67, 101, 128)),
    ("odd swapped", HopperConfig(**HALF, splits=2, swap=True), {"dtype": BF16, "layout": "NT"}, (67, 101, 128)),
    ("swapped", HopperConfig(**HALF, splits=4, swap=True), {"dtype": BF16, "layout": "NN"}, (72, 136, 264)),
    ("turns", HopperConfig(**HALF, splits=3, schedule="turns", programs=4),
     {"dtype": BF16, "layout": "NT"}, (128, 136, 320)),
    ("halves", HopperConfig(**{**HALF, "tile_m": 128}, splits=2, schedule="halves", programs=3),
     {"dtype": BF16, "layout": "TN"}, (136, 72, 256)),
    ("registers", HopperConfig(**{**HALF, "tile_k": 32, "part_n": 32}, splits=2, swap=True),
     {"dtype": FP32, "precision": "tf32", "layout": "NN"}, (64, 68, 132)),
]  # fmt: skip


def operands_of(problem, rng):
    def matrix(rows, cols, turned, dtype):
        data = rng.standard_normal((cols, rows) if turned else (rows, cols)).astype(dtype.numpy)
        return data.T if turned else data

    dtype = problem.a.dtype
    return {
        "A": matrix(problem.m, problem.k, problem.layout[0] == "T", dtype),
        "B": matrix(problem.k, problem.n, problem.layout[1] == "T", dtype),
        "D": np.full((problem.m, problem.n), np.nan).astype(dtype.numpy),
    }


@pytest.mark.parametrize("schedule", ["late", "random"])
@pytest.mark.parametrize(("config", "options", "shape"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_split_against_float64(config, options, shape, schedule, rng):
    reads = options["dtype"] == BF16 and config.schedule == "together"
    problem = Problem.dense(*shape, **options, alpha=1.5, beta=-0.5 if reads else 0.0)
    operands = operands_of(problem, rng)
    exact = 1.5 * operands["A"].astype(np.float64) @ operands["B"].astype(np.float64)
    if reads:
        operands["C"] = rng.standard_normal(shape[:2]).astype(problem.c.dtype.numpy)
        exact = exact - 0.5 * operands["C"].astype(np.float64)
    plan = ChampionHopper().plan(problem, config, DEFAULT_GPU)
    assert len(plan.launches) == 2  # no copies: the product, then the sum
    simulate(plan, operands, count=False, schedule=schedule, seed=int(rng.integers(1 << 30)))
    error = np.linalg.norm(operands["D"].astype(np.float64) - exact) / np.linalg.norm(exact)
    assert error < (3e-3 if options["dtype"] == BF16 else 6e-4), error
