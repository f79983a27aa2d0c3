"""Rungs with something in flight, long enough along K that every slot of their rings is filled again and again.

``test_ladder.py`` has the shapes that break edges; here K is a few tiles more than the stages, there are two tiles for
each program of a persistent rung, and completions come late and at random moments.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from rungemm.hardware import find_gpu
from rungemm.kernels import LADDER, Config, Kernel, LaunchPlan, Unsupported
from rungemm.operands import problem_of_arrays
from rungemm.problem import Problem
from rungemm.sim import SimulationFault, simulate
from rungemm.sim.context import MACHINE
from rungemm.sim.launch import ASYNCHRONOUS
from rungemm.sim.reglobal import operations_reached
from rungemm.sim.removal import sites_of
from rungemm.verify import verify

TWO_SMS = replace(find_gpu("h200"), sms=2)
"""A persistent rung starts a program for each: two for the four tiles of the shapes here."""

PERSISTENT = ("persistent", "subtiled_epilogue", "ping_pong", "stream_k", "champion_hopper")


@dataclass
class Posed:
    problem: Problem
    config: Config
    plan: LaunchPlan
    operands: dict[str, np.ndarray]


def pose(kernel: Kernel[Any], shape: tuple[int, int, int], rng: np.random.Generator) -> Posed:
    m, n, k = shape
    element = kernel.dtypes[0].numpy
    a, b, c, d = (rng.standard_normal(s).astype(element) for s in ((m, k), (k, n), (m, n), (m, n)))
    for precision in ("ieee", "tf32"):
        problem = problem_of_arrays(a, b, c, d, alpha=1.5, beta=-0.5, precision=precision)
        try:
            config = kernel.default_config(problem, TWO_SMS)
        except Unsupported:
            continue
        return Posed(problem, config, kernel.plan(problem, config, TWO_SMS), {"A": a, "B": b, "C": c, "D": d})
    raise AssertionError(f"{kernel.name} takes neither precision at {shape}")


def ring_of(kernel: Kernel[Any], rng: np.random.Generator) -> Posed:
    """The rung at a shape that suits the config it takes there: two ragged tiles each way, (stages + 2) K steps."""
    shape = (136, 136, 40)
    for _ in range(4):
        posed = pose(kernel, shape, rng)
        config: Any = posed.config
        depth = (getattr(config, "stages", 2) + 2) * config.tile_k + 8
        wanted = (config.tile_m + 8, config.tile_n + 8, depth)
        if all(have >= need for have, need in zip(shape, wanted, strict=True)):
            return posed
        shape = tuple(max(pair) for pair in zip(shape, wanted, strict=True))  # type: ignore[assignment]
    raise AssertionError(f"{kernel.name} takes a larger config at every shape")


def in_flight(kernel: Kernel[Any]) -> bool:
    """Whether the rung has anything asynchronous, on which a schedule could tell."""
    plan = pose(kernel, (136, 136, 40), np.random.default_rng(0)).plan
    return any(ASYNCHRONOUS & operations_reached(launch.function) for launch in plan.launches)


FLYING = [kernel for kernel in LADDER if in_flight(kernel)]


@pytest.mark.parametrize("kernel", FLYING, ids=lambda k: k.name)
def test_a_ring_goes_round(kernel: Kernel[Any], rng: np.random.Generator, seed: int) -> None:
    posed = ring_of(kernel, rng)
    seeds = (seed,) if kernel.family == "cuda_core" else (seed, seed + 1, seed + 2)
    results = []
    for schedule, number in (("late", 0), *(("random", each) for each in seeds)):
        posed.operands["D"][...] = np.nan
        simulate(posed.plan, posed.operands, count=False, schedule=schedule, seed=number)
        verdict = verify(posed.problem, posed.operands)
        assert verdict.correct, f"{verdict.why} [schedule {schedule}, seed {number}]"
        results.append(posed.operands["D"].tobytes())
    assert len(set(results)) == 1, f"D depends on the schedule; seeds {seeds}"


@pytest.mark.parametrize("name", PERSISTENT)
def test_the_ring_is_long_enough_to_miss_a_release(name: str, rng: np.random.Generator) -> None:
    """The shapes above are no shorter than they must be: with any one release left out, partitions wait forever."""
    posed = ring_of(next(kernel for kernel in LADDER if kernel.name == name), rng)
    assert posed.plan.launches[-1].programs == 2
    releases = [place for place in sites_of(posed.plan, posed.operands) if place[2] == "mbarrier_arrive"]
    assert len(releases) >= 2
    for place in releases:
        MACHINE.removed = frozenset([place])
        try:
            with pytest.raises(SimulationFault) as caught:
                simulate(posed.plan, posed.operands, count=False)
        finally:
            MACHINE.removed = frozenset()
        assert caught.value.kind == "deadlock", f"without line {place[1]}: {caught.value}"
        assert caught.value.message.count("waits at") >= 2, "the partition that fills and those that use the ring"
