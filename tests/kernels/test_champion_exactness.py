"""The fp32 champion's running sums are short enough for cuBLAS's own error: by the rule, and by what was measured."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rungemm.bench.suites import suite_named
from rungemm.dtypes import FP32
from rungemm.hardware import DEFAULT_GPU
from rungemm.kernels import find_kernel
from rungemm.kernels.cuda_core.champion import ChampionConfig, unaligned
from rungemm.kernels.cuda_core.champion_choice import FLUSHES, as_exact, longest_allowed, longest_sum
from rungemm.problem import Problem

CHAMPION = find_kernel("champion_fp32")
ROOT = Path(__file__).resolve().parents[2]
ERROR_OF_ONE = 1.79e-8
"""Of a running sum of k products of normal data, over sqrt(k): what cuBLAS and the champion measured at 2048 and up."""


def default(problem: Problem) -> ChampionConfig:
    config = CHAMPION.default_config(problem, DEFAULT_GPU)
    assert isinstance(config, ChampionConfig)
    return config


def allowed(problem: Problem) -> int:
    return longest_allowed(problem, unaligned(problem), DEFAULT_GPU)


def exact(problem: Problem, config: ChampionConfig) -> ChampionConfig:
    return as_exact(problem, config, allowed(problem))


@pytest.mark.parametrize("layout", ["NN", "NT", "TN"])
def test_a_k_too_short_to_cut_is_one_sum(rng, layout):
    """Shorter than the shortest stretch between totals, and no multiple of every tile_k."""
    for k in (200, 300, *rng.integers(1, min(FLUSHES), 8).tolist()):
        problem = Problem.dense(8192, 8192, k, layout=layout)
        found = list(CHAMPION.configs(problem, DEFAULT_GPU))
        assert found and all(config.flush_k == 0 for config in found), k


@pytest.mark.parametrize("suite", ["squares", "cross27", "ragged", "deep", "models"])
def test_every_default_keeps_the_rule(suite):
    for shape in suite_named(suite):
        problem = shape.problem(FP32)
        config = default(problem)
        assert longest_sum(problem, config) <= allowed(problem), (str(shape), config)


def measured_errors_of_cublas() -> dict[tuple[int, int, int, str], float]:
    found: dict[tuple[int, int, int, str], float] = {}
    for survey in json.loads((ROOT / "results/h200/tuning/fp32-fourth.json").read_text())["surveyed_errors"]:
        shape, layout = survey["shape"].split()
        m, n, k = map(int, shape.split("x"))
        found[m, n, k, layout] = survey["cublas"]
    for file in sorted((ROOT / "results" / "h200" / "raw").glob("*.json")):
        for record in json.loads(file.read_text()).get("measurements", []):
            p, lane = record["problem"], record["lanes"].get("cublas")
            plain = (p["dtype"], p["out_dtype"], p["precision"], p["layout"], p["batch"]) == (
                "fp32", "fp32", "ieee", "NN", 1,
            )  # fmt: skip
            if plain and p["alpha"] == 1 and p["beta"] == 0 and lane and lane.get("error") and not lane["failure"]:
                key = (p["m"], p["n"], p["k"], "NN")
                found[key] = min(lane["error"], found.get(key, 1.0))
    return found


def test_predicted_error_is_at_most_that_of_cublas_wherever_it_was_measured():
    errors = measured_errors_of_cublas()
    assert len(errors) >= 90
    for (m, n, k, layout), cublas in errors.items():
        problem = Problem.dense(m, n, k, layout=layout)
        predicted = ERROR_OF_ONE * longest_sum(problem, default(problem)) ** 0.5
        assert predicted <= 1.1 * cublas, (m, n, k, layout, default(problem), predicted, cublas)


def test_the_law_of_the_error_holds_for_sums_in_fp32(rng):
    """The test above rests on it: here k products summed one after the other, and in four parts."""
    k, columns = 4096, 2000
    a, b = rng.standard_normal((2, k, columns)).astype(np.float32)
    exact = (a.astype(np.float64) * b).sum(0)

    def error(parts: int) -> float:
        total = np.zeros(columns, np.float32)
        for rows in np.split(np.arange(k), parts):
            part = np.zeros(columns, np.float32)
            for i in rows:
                # A product of two fp32 is exact in float64, so one rounding, as a fused multiply-add has.
                part = (a[i].astype(np.float64) * b[i] + part).astype(np.float32)
            total += part
        return float(np.linalg.norm(total - exact) / np.linalg.norm(exact))

    assert error(1) == pytest.approx(ERROR_OF_ONE * k**0.5, rel=0.15)
    assert error(4) == pytest.approx(ERROR_OF_ONE * (k / 4) ** 0.5, rel=0.15)


def test_a_setting_is_cut_by_totals_or_by_splits():
    large, small, thin = Problem.dense(8192, 8192, 8192), Problem.dense(256, 256, 2048), Problem.dense(16, 4096, 28672)
    tile = CHAMPION.default
    assert isinstance(tile, ChampionConfig)
    assert exact(large, tile).flush_k in FLUSHES and exact(large, tile).splits == 1
    assert exact(small, tile).splits == 7 and exact(small, tile).flush_k == 0
    few = ChampionConfig(tile_m=16, tile_n=32, tile_k=64, thread_m=4, thread_n=4, group_m=1, k_groups=8, stages=4)
    assert exact(thin, few).splits > 1
    for problem, config in ((large, tile), (small, tile), (thin, few)):
        assert longest_sum(problem, exact(problem, config)) <= allowed(problem)
    for k in (1537, 2048, 3000, 4093, 5003, 70000):
        problem = Problem.dense(4096, 4096, k)
        found = exact(problem, tile)
        assert found.flush_k in (0, *FLUSHES) and longest_sum(problem, found) <= allowed(problem)
    assert exact(large, replace(tile, flush_k=512)) == replace(tile, flush_k=512)
