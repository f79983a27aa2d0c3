"""The shipped table of tuned settings: every entry is legal and comes first on its own problem; neighbours borrow."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from rungemm.dtypes import BF16, FP16, FP32
from rungemm.hardware import DEFAULT_GPU
from rungemm.kernels.hopper.champion import CLEARLY_BETTER, POOR, ChampionHopper, HopperConfig
from rungemm.kernels.hopper.tuned import FORMAT, nearest, path_for
from rungemm.problem import Problem

KERNEL = ChampionHopper()
DOCUMENT = json.loads(path_for(DEFAULT_GPU).read_text())


def problem_of(entry):
    """The problem that an entry was measured on."""
    dtype = FP32 if entry["bits"] == 32 else BF16
    options = {"precision": entry["precision"]} if dtype == FP32 else {}
    return Problem.dense(entry["m"], entry["n"], entry["k"], dtype=dtype, layout=entry["layout"], **options)


def test_every_entry_comes_first_on_its_own_problem_unless_it_did_poorly_and_the_model_knows_better():
    assert DOCUMENT["format"] == FORMAT and DOCUMENT["entries"]
    left = 0
    for entry in DOCUMENT["entries"]:
        problem, config = problem_of(entry), HopperConfig.from_dict(entry["config"])
        first = KERNEL.default_config(problem, DEFAULT_GPU)
        if first != config:
            left += 1
            promised = 1e6 * KERNEL.estimate(problem, first, DEFAULT_GPU)
            assert entry["ratio"] < POOR and promised < CLEARLY_BETTER * entry["us"], entry
    assert 0 < left < len(DOCUMENT["entries"]) / 10


def test_a_setting_that_did_poorly_is_not_borrowed():
    entry = min(DOCUMENT["entries"], key=lambda e: e["ratio"])
    problem = problem_of(entry)
    near = replace(problem, a=replace(problem.a, rows=problem.m - 8), d=replace(problem.d, rows=problem.m - 8))
    anything, worthy = nearest(near, DEFAULT_GPU), nearest(near, DEFAULT_GPU, POOR)
    assert anything and anything[0].config == entry["config"]
    assert worthy is None or worthy[0].ratio >= POOR


def test_neighbours_borrow_and_strangers_do_not():
    entry = max(DOCUMENT["entries"], key=lambda e: e["m"] * (e["bits"] == 16))
    problem = problem_of(entry)
    m, n, k = problem.m, problem.n, problem.k
    found = nearest(problem, DEFAULT_GPU)
    assert found and found[1]
    near = nearest(Problem.dense(m - 64, n, k, dtype=FP16, layout="TN"), DEFAULT_GPU)
    assert near and not near[1] and near[0].config == entry["config"]
    assert nearest(Problem.dense(16 * m, 16 * n, 16 * k, dtype=BF16, layout="NT"), DEFAULT_GPU) is None
    assert nearest(problem, replace(DEFAULT_GPU, name="another card")) is None


@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
def test_three_products_always_promote(layout):
    problem = Problem.dense(700, 900, 800, dtype=FP32, precision="tf32x3", layout=layout)
    configs = list(KERNEL.configs(problem, DEFAULT_GPU))
    assert configs and all(config.promote for config in configs)
