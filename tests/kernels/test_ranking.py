"""Ranking many candidates as arrays gives what asking for each one alone gives: order, estimates, fields."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from rungemm.dtypes import BF16, FP16, FP32
from rungemm.hardware import DEFAULT_GPU, ZOO
from rungemm.kernels import find_kernel
from rungemm.kernels.columns import Columns, cheapest_first, choose, least, most
from rungemm.kernels.hopper.champion import HopperConfig
from rungemm.kernels.tensor_core.champion import MmaChampionConfig
from rungemm.problem import LAYOUTS, Epilogue, Problem

KINDS = ((BF16, "ieee"), (FP16, "ieee"), (FP32, "tf32"), (FP32, "tf32x3"))
CARDS = {"champion_hopper": ("h200", "h100"), "champion_batched": ("h200", "h100"),
         "champion_mma": ("h200", "a100-80", "rtx4090"), "batched_mma": ("h200", "l4")}  # fmt: skip


def problems(rng: np.random.Generator, name: str, count: int):
    """Random extents, aligned and not, small and large, in all types and layouts that the kernel may take."""
    for _ in range(count):
        unit = int(rng.choice([1, 8, 64]))
        m, n, k = (max(1, int(2 ** rng.uniform(0, 13.5))) // unit * unit or unit for _ in range(3))
        dtype, precision = KINDS[rng.integers(len(KINDS))]
        batched = "batched" in name
        epilogue = Epilogue("row", "gelu") if not batched and rng.random() < 0.3 else None
        yield Problem.dense(m, n, k, dtype=dtype, precision=precision, layout=str(rng.choice(LAYOUTS)),
                            batch=int(rng.choice([2, 32, 300])) if batched else 1, epilogue=epilogue)  # fmt: skip


def candidates_of(kernel, problem, gpu):
    return (kernel.candidates_of if hasattr(kernel, "candidates_of") else kernel.candidates)(problem, gpu)


@pytest.mark.parametrize("name", CARDS)
def test_the_order_is_that_of_the_estimates_of_each(name, rng):
    kernel = find_kernel(name)
    for problem in problems(rng, name, 12):
        gpu = ZOO[str(rng.choice(CARDS[name]))]
        if kernel.refuses(problem, gpu) is not None:
            continue
        candidates = candidates_of(kernel, problem, gpu)
        every = dict.fromkeys(candidates.config(row) for row in range(len(candidates)))
        legal = [config for config in every if kernel.supports(problem, config, gpu) is None]
        alone = sorted(legal, key=lambda config: kernel.estimate(problem, config, gpu))
        found = list(kernel.configs(problem, gpu))
        if name == "champion_hopper":  # one that was measured near may come first
            assert [c for c in found if c != found[0]] == [c for c in alone if c != found[0]], (str(problem), gpu.name)
        elif legal:
            assert found == alone, (str(problem), gpu.name)
        for config in found:
            # What arrays leave in a config must be plain numbers: they are written as JSON and compiled in.
            assert all(type(value) in (int, bool, str) for value in config.to_dict().values()), config


def test_refused_problems_are_not_ranked(monkeypatch):
    """The reason is the predicate's, and no candidate is looked at for it."""
    cases = {"champion_hopper": {"batch": 2, "dtype": BF16}, "champion_mma": {"batch": 2, "dtype": BF16},
             "champion_batched": {"precision": "ieee"}, "batched_mma": {"precision": "ieee"}}  # fmt: skip
    for name, options in cases.items():
        kernel, problem = find_kernel(name), Problem.dense(64, 64, 64, **options)
        for method in ("candidates", "candidates_of"):
            if hasattr(kernel, method):
                monkeypatch.setattr(kernel, method, lambda *_: pytest.fail("ranked"))
        (config,) = kernel.configs(problem, DEFAULT_GPU)
        reason = kernel.refuses(problem, DEFAULT_GPU)
        assert reason is not None and kernel.supports(problem, config, DEFAULT_GPU) == reason


def test_columns_are_the_configs_fields_and_properties():
    configs = [HopperConfig(tile_m=64, schedule="turns"), HopperConfig(tile_m=256, schedule="halves", swap=True)]
    columns = Columns(configs, cost=np.array([2.0, 1.0]))
    assert columns.tile_m.tolist() == [64, 256] and columns.owners.tolist() == [c.owners for c in configs]
    part = columns.where(np.array([1, 1, 0]), splits=np.array([4, 5, 6]))
    assert part.part_m.tolist() == [128, 128, 64] and part.cost.tolist() == [1.0, 1.0, 2.0] and len(part) == 3
    again = part.where(np.array([2, 1]), programs=np.array([7, 8]))
    assert again.splits.tolist() == [6, 5]
    assert again.config(0) == replace(configs[0], splits=6, programs=7)
    assert again.config(1) == replace(configs[1], splits=5, programs=8)
    with pytest.raises(AttributeError):
        _ = columns.no_such_field


def test_a_copy_with_changes_is_what_replace_makes():
    config = MmaChampionConfig(tile_m=64)
    assert config.with_(splits=3, early=False) == replace(config, splits=3, early=False)
    assert hash(config.with_(splits=3)) == hash(replace(config, splits=3)) and config.splits == 1


def test_cheapest_first_drops_doubles_and_what_is_not_supported():
    kernel, problem = find_kernel("champion_hopper"), Problem.dense(4096, 4096, 4096, dtype=BF16)
    good, other = HopperConfig(tile_m=128, tile_n=128), HopperConfig(tile_m=64, tile_n=128, num_warps=4)
    columns = Columns([other, HopperConfig(stages=16), good, other, HopperConfig(tile_m=64, num_warps=4)])
    cost = np.array([2.0, 0.0, 1.0, 2.0, math.inf])
    assert list(cheapest_first(kernel, problem, DEFAULT_GPU, columns, cost)) == [(good, 1.0), (other, 2.0)]


def test_numbers_stay_numbers_and_arrays_become_arrays():
    x, y = np.array([1, 5]), np.array([3, 3])
    assert type(least(1, 2)) is int and type(most(1, 2)) is int and choose(True, 1, 2) == 1
    assert least(x, y).tolist() == [1, 3] and most(x, 3).tolist() == [3, 5] and least(2, x).tolist() == [1, 2]
    assert choose(x > 2, x, 0).tolist() == [0, 5]
