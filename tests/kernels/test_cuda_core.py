"""The fp32 rungs, run in the simulator on ragged products of every layout and compared with float64."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from rungemm.hardware import DEFAULT_GPU
from rungemm.kernels import LADDER, Unsupported, find_kernel
from rungemm.kernels.cuda_core.champion import ChampionConfig
from rungemm.problem import LAYOUTS, Problem
from rungemm.sim import simulate

RUNGS = [kernel.name for kernel in LADDER if kernel.family == "cuda_core"]
SMALL_CHAMPION = ChampionConfig(4, 64, 64, 8, 8, 4, group_m=2, lanes_m=4, interleaved=True)


FEW = ChampionConfig(4, 16, 32, 16, 4, 4, group_m=1, k_groups=4, stages=3)
FEW_OF_32 = {
    "num_warps": 32, "k_groups": 32, "tile_m": 16, "tile_n": 32, "tile_k": 32, "thread_m": 4, "thread_n": 4,
}  # fmt: skip


def run(kernel, config, problem, rng):
    """D of the simulated product, and its error against float64."""

    def matrix(rows, cols, turned):
        data = rng.standard_normal((cols, rows) if turned else (rows, cols)).astype(np.float32)
        return data.T if turned else data

    a = matrix(problem.m, problem.k, problem.layout[0] == "T")
    b = matrix(problem.k, problem.n, problem.layout[1] == "T")
    c = matrix(problem.m, problem.n, False)
    d = np.full((problem.m, problem.n), np.nan, np.float32)
    kept = a.copy(), b.copy(), c.copy()
    operands = {"A": a, "B": b, "D": d} | ({"C": c} if problem.reads_c else {})
    simulate(kernel.plan(problem, config, DEFAULT_GPU), operands, count=False)
    for now, before in zip((a, b, c), kept, strict=True):
        np.testing.assert_array_equal(now, before)
    exact = problem.alpha * (a.astype(np.float64) @ b.astype(np.float64))
    if problem.reads_c:
        exact = exact + problem.beta * c
    return d, np.linalg.norm(d - exact) / max(np.linalg.norm(exact), 1e-30)


@pytest.mark.parametrize("name", RUNGS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_ragged(name, layout, rng):
    kernel = find_kernel(name)
    m, n, k = (int(x) for x in rng.integers(33, 80, 3))
    problem = Problem.dense(m, n, k, layout=layout, alpha=1.5, beta=-0.5)
    config = SMALL_CHAMPION if name == "champion_fp32" else kernel.default_config(problem, DEFAULT_GPU)
    _, error = run(kernel, config, problem, rng)
    assert error < 1e-6, (problem, config)


@pytest.mark.parametrize("name", RUNGS[6:])
def test_every_kind_of_config(name, rng):
    kernel = find_kernel(name)
    problem = Problem.dense(70, 66, 40)
    taken = [c for c in kernel.configs(problem, DEFAULT_GPU) if kernel.supports(problem, c, DEFAULT_GPU) is None]
    for config in islice(taken, 3):
        _, error = run(kernel, replace(config, group_m=2), problem, rng)
        assert error < 1e-6, config


@pytest.mark.parametrize("name", RUNGS)
def test_nothing_to_multiply_leaves_beta_c(name, rng):
    kernel = find_kernel(name)
    problem = Problem.dense(5, 3, 0, beta=2.0)
    config = SMALL_CHAMPION if name == "champion_fp32" else kernel.default_config(problem, DEFAULT_GPU)
    _, error = run(kernel, config, problem, rng)
    assert error < 1e-6


@pytest.mark.parametrize("k", [1, 7, 8, 16, 24, 37])
def test_champion_at_every_kind_of_k(k, rng):
    kernel = find_kernel("champion_fp32")
    _, error = run(kernel, SMALL_CHAMPION, Problem.dense(65, 68, k), rng)
    assert error < 1e-6


@pytest.mark.parametrize(
    "changes",
    [
        {"flush_k": 16}, {"flush_k": 32, "splits": 2}, {"flush_k": 16, "realign": True}, {"splits": 2, "realign": True},
        {"across": True}, {"tile_k": 16},
    ],
)  # fmt: skip
def test_champion_variants_at_an_edge(changes, rng):
    """A last tile that starts earlier must not store its neighbour's elements again."""
    kernel = find_kernel("champion_fp32")
    problem = Problem.dense(70, 66, 90, alpha=0.5, beta=2.0)
    assert run(kernel, replace(SMALL_CHAMPION, **changes), problem, rng)[1] < 1e-6


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(129, 63, 41), (40, 127, 24), (96, 70, 33)])
def test_operands_laid_out_anew(shape, layout, rng):
    """Larger and smaller than a tile, a multiple of one after padding, and with one operand that may stay."""
    kernel = find_kernel("champion_fp32")
    problem = Problem.dense(*shape, layout=layout, alpha=0.5, beta=2.0)
    config = replace(SMALL_CHAMPION, realign=True)
    m, n, k = shape
    pitches = (k if layout[0] == "N" else m, n if layout[1] == "N" else k)
    launches = 2 if any(pitch % 4 for pitch in pitches) else 1
    assert len(kernel.plan(problem, config, DEFAULT_GPU).launches) == launches
    assert run(kernel, config, problem, rng)[1] < 1e-6


def test_flushing_makes_a_long_sum_more_exact(rng):
    kernel = find_kernel("champion_fp32")
    problem = Problem.dense(17, 18, 1500)
    seed = int(rng.integers(1 << 30))
    plain, cut = (
        run(kernel, replace(SMALL_CHAMPION, flush_k=flush), problem, np.random.default_rng(seed))[1]
        for flush in (0, 128)
    )
    assert cut < 0.7 * plain


@pytest.mark.parametrize("shape", [(20, 30, 150), (3, 700, 64), (40, 36, 900)])
@pytest.mark.parametrize("splits", [3, 8, 40])
def test_partial_sums_of_any_shape_add_up(shape, splits, rng):
    kernel = find_kernel("champion_fp32")
    problem = Problem.dense(*shape, alpha=0.5, beta=1.0)
    config = replace(SMALL_CHAMPION, tile_m=32, tile_n=32, num_warps=2, thread_m=4, thread_n=4, splits=splits)
    assert run(kernel, config, problem, rng)[1] < 1e-6


@pytest.mark.parametrize("name", ["split_k", "champion_fp32"])
def test_split_k_gives_the_same_bits_each_time(name, rng):
    kernel = find_kernel(name)
    problem = Problem.dense(20, 30, 150, beta=1.0)
    config = SMALL_CHAMPION if name == "champion_fp32" else kernel.default
    config = replace(config, splits=4)
    assert len(kernel.plan(problem, config, DEFAULT_GPU).launches) == 2
    seed = int(rng.integers(1 << 30))
    first, error = run(kernel, config, problem, np.random.default_rng(seed))
    second, _ = run(kernel, config, problem, np.random.default_rng(seed))
    assert error < 1e-6
    np.testing.assert_array_equal(first, second)


def test_atomic_split_k_needs_no_workspace(rng):
    kernel = find_kernel("split_k")
    problem = Problem.dense(20, 30, 150, alpha=0.5, beta=1.0)
    config = replace(kernel.default, splits=4, atomic=True)
    assert kernel.plan(problem, config, DEFAULT_GPU).workspaces == ()
    assert run(kernel, config, problem, rng)[1] < 1e-6


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(53, 75, 39), (16, 64, 48), (5, 9, 50), (36, 84, 20), (37, 30, 7)])
@pytest.mark.parametrize("strips", [False, True])
def test_groups_of_warps_split_k(shape, layout, strips, rng):
    """With strips of every kind (below, on the right, both, none), and matrices smaller than a tile."""
    kernel = find_kernel("champion_fp32")
    problem = Problem.dense(*shape, layout=layout, alpha=0.5, beta=2.0)
    assert run(kernel, replace(FEW, strips=strips), problem, rng)[1] < 1e-6


@pytest.mark.parametrize(
    "changes",
    [
        {"thread_m": 8, "thread_n": 8, "tile_m": 32, "tile_n": 64, "k_groups": 8, "num_warps": 8, "strips": True},
        {"thread_m": 16, "tile_m": 64, "stages": 2}, {"thread_n": 16, "tile_n": 128, "lanes_m": 2, "across": True},
        {"num_warps": 8, "tile_m": 32, "interleaved": True, "pinned": False}, {"splits": 3}, {"stages": 8},
        {"parts": 2}, {"parts": 4, "tile_k": 32, "strips": True}, {"parts": 2, "stages": 2, "splits": 4},
    ],
)  # fmt: skip
def test_groups_of_warps_of_every_kind(changes, rng):
    kernel = find_kernel("champion_fp32")
    problem = Problem.dense(69, 80, 131, alpha=0.5, beta=2.0)
    assert run(kernel, replace(FEW, **changes), problem, rng)[1] < 1e-6


def test_strips_need_no_more_programs_than_their_area():
    """333x777 in 32x64 tiles is 11x13; as 10x12 and two strips of 2048 elements a tile it is one a multiprocessor."""
    kernel = find_kernel("champion_fp32")
    config = ChampionConfig(8, 32, 64, 32, 8, 8, k_groups=8, stages=3)
    problem = Problem.dense(333, 777, 555)
    plans = [kernel.plan(problem, replace(config, strips=strips), DEFAULT_GPU) for strips in (False, True)]
    assert [plan.launches[0].programs for plan in plans] == [11 * 13, 10 * 12 + 7 + 3]


def test_few_tiles_go_where_they_measured_fastest():
    """One tile of 32x64 for each multiprocessor at 512^3, in strips where operands are unaligned; K split over blocks
    where K is long, and where the tiles would need a third round."""
    kernel = find_kernel("champion_fp32")

    def groups(*shape: int) -> int:
        return kernel.default_config(Problem.dense(*shape), DEFAULT_GPU).k_groups

    winner = kernel.default_config(Problem.dense(512, 512, 512), DEFAULT_GPU)
    assert (winner.tile_m, winner.tile_n, winner.tile_k, winner.k_groups, winner.stages) == (32, 64, 64, 8, 4)
    assert [groups(*shape) for shape in ((256, 256, 256), (384, 384, 384), (16, 16, 16))] == [8, 8, 8]
    odd = kernel.default_config(Problem.dense(333, 777, 555), DEFAULT_GPU)
    assert (odd.k_groups, odd.strips) == (8, True) and winner.parts == odd.parts == 4
    split = [(256, 256, 16384), (768, 768, 768), (1024, 1024, 1024), (64, 64, 65536), (4096,) * 3]
    assert [groups(*shape) for shape in split] == [1] * len(split)


def test_copies_between_multiply_adds_are_the_same_copies(rng):
    """In parts or all at once, 16 bytes a lane of B and 4 of A."""
    kernel, problem = find_kernel("champion_fp32"), Problem.dense(16, 32, 96)
    found = []
    for parts in (1, 4):
        config = replace(FEW, tile_k=32, parts=parts)
        a, b = (rng.standard_normal(shape, dtype=np.float32) for shape in ((16, 96), (96, 32)))
        operands = {"A": a, "B": b, "D": np.full((16, 32), np.nan, np.float32)}
        report = simulate(kernel.plan(problem, config, DEFAULT_GPU), operands, count=True)
        found.append({name: report.counters[name] for name in ("global_load_requests", "global_load_sectors")})
    # A: 16 x 96 elements, 32 a request of 4 rows; B: 32 x 96, 128 a request. Every sector once.
    assert found[0] == found[1] == {"global_load_requests": 48 + 24, "global_load_sectors": 192 + 384}


def test_search_space_is_large_and_says_why_it_rejects():
    kernel = find_kernel("autotuned")
    problem = Problem.dense(4096, 4096, 4096)
    reasons = [kernel.supports(problem, c, DEFAULT_GPU) for c in kernel.configs(problem, DEFAULT_GPU)]
    assert 300 <= reasons.count(None) <= 500
    assert all(reason is None or "warps" in reason or "threads" in reason or "fit" in reason for reason in reasons)


@pytest.mark.parametrize(
    ("name", "changes", "says"),
    [
        ("cp_async", {"pad": 4}, "padded"),
        ("double_buffer", {"pad": 2}, "multiple of 4"),
        ("double_buffer", {"thread_m": 16, "thread_n": 16, "num_warps": 2}, "registers"),
        ("warp_tile", {"warp_m": 256, "warp_n": 16}, "does not divide"),
        ("split_k", {"splits": 0}, "splits"),
        ("champion_fp32", {"thread_m": 2, "num_warps": 32}, "thread_m"),
        ("champion_fp32", FEW_OF_32, "k_groups"),
        ("champion_fp32", {"k_groups": 2, "num_warps": 16, "stages": 9}, "stages"),
        ("champion_fp32", {"k_groups": 2, "num_warps": 16, "splits": 2, "strips": True}, "strips"),
        ("champion_fp32", {"k_groups": 2, "num_warps": 16, "parts": 2}, "parts"),
    ],
)
def test_predicate_names_the_fault(name, changes, says):
    kernel = find_kernel(name)
    problem = Problem.dense(256, 256, 256)
    with pytest.raises(Unsupported, match=says):
        kernel.plan(problem, replace(kernel.default, **changes), DEFAULT_GPU)
