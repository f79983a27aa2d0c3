"""The mma.sync rungs: proven in the simulator under any order of arrival, and compiled for every card they are for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rungemm.compiling import compile_many
from rungemm.dtypes import BF16, FP16, FP32
from rungemm.hardware import find_gpu
from rungemm.kernels import find_kernel
from rungemm.kernels.tensor_core.mma_warp_specialised import SpecialisedConfig
from rungemm.kernels.tensor_core.rung import MmaConfig
from rungemm.problem import LAYOUTS, Problem
from rungemm.sim import simulate

from .ttgir import still_barriers, ttgir

CARDS = {80: find_gpu("a100"), 86: find_gpu("a6000"), 89: find_gpu("rtx4090"), 90: find_gpu("h200")}
TF32, MULTISTAGE, SPECIALISED = (find_kernel(n) for n in ("tf32_mma", "mma_multistage", "mma_warp_specialised"))
RUNGS = (TF32, MULTISTAGE, SPECIALISED)
SMALL = {"tile_m": 64, "tile_n": 64, "num_warps": 4, "warps_m": 2}


def small(kernel, **options):
    return kernel.config_type(**(SMALL | {"tile_k": 16 if kernel is TF32 else 32} | options))


def problem_for(kernel, m, n, k, **options):
    tf32 = kernel is TF32
    options.setdefault("dtype", FP32 if tf32 else BF16)
    return Problem.dense(m, n, k, precision="tf32" if tf32 else "ieee", **options)


def matrix(rng, rows, cols, dtype, turned=False):
    values = rng.standard_normal((cols, rows) if turned else (rows, cols)).astype(np.float32).astype(dtype.numpy)
    return values.T if turned else values


def operands_of(rng, problem):
    turned = [letter == "T" for letter in problem.layout]
    a = matrix(rng, problem.m, problem.k, problem.a.dtype, turned[0])
    b = matrix(rng, problem.k, problem.n, problem.b.dtype, turned[1])
    c = matrix(rng, problem.m, problem.n, problem.d.dtype)
    return {"A": a, "B": b} | ({"C": c} if problem.reads_c else {})


def run(plan, given, problem, **how):
    d = np.full((problem.m, problem.n), np.nan, np.float32).astype(problem.d.dtype.numpy)
    simulate(plan, given | {"D": d}, count=False, **how)
    return d


def exact(given, problem):
    product = problem.alpha * (given["A"].astype(np.float64) @ given["B"].astype(np.float64))
    return product + (problem.beta * given["C"].astype(np.float64) if "C" in given else 0.0)


def error(d, wanted):
    return np.linalg.norm(d.astype(np.float64) - wanted) / np.linalg.norm(wanted)


# Roundings of D's type, and of the operands to tf32 (11 bits to nearest: 2.9e-4 on normal data, cut off: 7.7e-4).
BOUNDS = {"fp32": 4e-4, "bf16": 2.5e-3, "fp16": 3.2e-4}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kernel", RUNGS, ids=lambda k: k.name)
def test_right_whenever_copies_land(kernel, layout, rng):
    for shape, options in (
        ((133, 77, 155), {"alpha": 1.5, "beta": -0.5}),
        ((64, 128, 160), {} if kernel is TF32 else {"dtype": FP16}),
    ):
        problem = problem_for(kernel, *shape, layout=layout, **options)
        plan = kernel.plan(problem, small(kernel, stages=3, group=2), CARDS[90])
        given = operands_of(rng, problem)
        before = {role: array.copy() for role, array in given.items()}
        results = [
            run(plan, given, problem, schedule=schedule, seed=int(rng.integers(1 << 30)))
            for schedule in ("late", "random")
        ]
        assert error(results[0], exact(given, problem)) < BOUNDS[problem.a.dtype.name]
        assert len({np.ascontiguousarray(d).tobytes() for d in results}) == 1
        for role, array in before.items():
            assert array.tobytes() == given[role].tobytes(), f"{role} was written to"


@pytest.mark.parametrize("kernel", RUNGS, ids=lambda k: k.name)
@pytest.mark.parametrize("stages", [2, 5])
@pytest.mark.parametrize("k", [1, 16, 33, 64, 200])
def test_rings_longer_and_shorter_than_k(kernel, stages, k, rng):
    problem = problem_for(kernel, 48, 80, k)
    plan = kernel.plan(problem, small(kernel, stages=stages), CARDS[80])
    given = operands_of(rng, problem)
    d = run(plan, given, problem, schedule="random", seed=int(rng.integers(1 << 30)))
    assert error(d, exact(given, problem)) < BOUNDS[problem.a.dtype.name]


@pytest.mark.parametrize(
    ("kernel", "config", "dtype"),
    [
        (TF32, {"tile_k": 64, "stages": 2}, FP32),
        (TF32, {"tile_k": 32, "num_warps": 8, "warps_m": 4}, FP32),
        (MULTISTAGE, {"tile_k": 64, "stages": 2}, BF16),
        (MULTISTAGE, {"accumulate": "fp16", "stages": 4}, FP16),
        (MULTISTAGE, {"tile_n": 128, "num_warps": 8, "warps_m": 1}, FP16),
        (SPECIALISED, {"producers": 4, "stages": 4}, BF16),
        (SPECIALISED, {"tile_k": 64, "stages": 2}, BF16),
        (SPECIALISED, {"producer_registers": 80}, BF16),
        (SPECIALISED, {"accumulate": "fp16", "tile_n": 128, "producers": 2}, FP16),
    ],
    ids=lambda value: value.name if hasattr(value, "name") else str(value),
)
def test_other_configs(kernel, config, dtype, rng):
    problem = problem_for(kernel, 100, 144, 96, dtype=dtype)
    plan = kernel.plan(problem, small(kernel, **config), CARDS[90])
    given = operands_of(rng, problem)
    d = run(plan, given, problem, schedule="random", seed=int(rng.integers(1 << 30)))
    # fp16 accumulators round after each of mma.sync's steps; K is short here.
    assert error(d, exact(given, problem)) < BOUNDS[dtype.name] * (3 if config.get("accumulate") == "fp16" else 1)


def test_tf32_keeps_infinities_and_nan(rng):
    problem = problem_for(TF32, 16, 16, 16)
    given = operands_of(rng, problem)
    given["A"][1, 2], given["A"][3, 4] = np.inf, np.nan
    d = run(TF32.plan(problem, small(TF32), CARDS[80]), given, problem)
    with np.errstate(invalid="ignore"):
        wanted = given["A"].astype(np.float64) @ given["B"].astype(np.float64)
    assert np.isnan(d[3]).all() and np.isinf(d[1]).all()
    assert (np.sign(d[1]) == np.sign(wanted[1])).all()
    assert np.isfinite(np.delete(d, [1, 3], axis=0)).all()


def test_only_what_cp_async_cannot_move_is_copied_first():
    for shape, copies in (((128, 128, 64), 0), ((128, 128, 63), 1), ((128, 127, 64), 1), ((128, 127, 63), 2)):
        for kernel in (MULTISTAGE, SPECIALISED):
            plan = kernel.plan(problem_for(kernel, *shape, layout="NN"), small(kernel), CARDS[90])
            assert len(plan.workspaces) == copies, shape
    shifted = problem_for(MULTISTAGE, 128, 128, 64)
    shifted = replace(shifted, a=replace(shifted.a, alignment=2))
    assert [w.name for w in MULTISTAGE.plan(shifted, small(MULTISTAGE), CARDS[90]).workspaces] == ["copy_A"]
    assert not TF32.plan(problem_for(TF32, 127, 125, 63), small(TF32), CARDS[90]).workspaces


@pytest.mark.parametrize(
    ("kernel", "config", "card", "says"),
    [
        (SPECIALISED, SpecialisedConfig(producer_registers=80), 80, "only sm_90 can share registers out, make it 0"),
        (SPECIALISED, SpecialisedConfig(producers=3), 90, "producers is 3: 1, 2 or 4"),
        (SPECIALISED, SpecialisedConfig(tile_n=256, warps_m=2), 90, "registers a thread"),
        (MULTISTAGE, MmaConfig(tile_k=16), 90, "tile_k is 16: from 32"),
        (TF32, MmaConfig(tile_k=8), 90, "tile_k is 8: from 16"),
        (MULTISTAGE, MmaConfig(stages=1), 90, "stages is 1"),
        (MULTISTAGE, MmaConfig(stages=9), 86, "bytes of shared memory"),
        (MULTISTAGE, MmaConfig(accumulate="fp16"), 90, "accumulate is 'fp16' for bf16"),
        (MULTISTAGE, MmaConfig(tile_m=32), 90, "4x2 warps cannot share 32x128"),
        (TF32, MmaConfig(tile_k=24), 90, "tile_k is 24: Triton wants a power of two"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_the_predicate_says_why(kernel, config, card, says):
    reason = kernel.supports(problem_for(kernel, 256, 256, 256), config, CARDS[card])
    assert reason is not None and says in reason


def test_fp32_without_tf32_is_refused():
    reason = TF32.supports(Problem.dense(64, 64, 64), MmaConfig(), CARDS[90])
    assert reason == "tf32_mma takes fp32 with precision 'tf32'; it is 'ieee'"


def test_default_configs_compile_without_spills():
    jobs, names = [], []
    cases = ((TF32, 89, "NN"), (MULTISTAGE, 86, "NN"), (SPECIALISED, 80, "NN"), (SPECIALISED, 90, "NN"))
    for kernel, arch, layout in (*cases, (SPECIALISED, 90, "NT")):
        problem = problem_for(kernel, 4096, 4096, 4096, layout=layout)
        jobs.append((kernel.plan(problem, kernel.default_config(problem, CARDS[arch]), CARDS[arch]), arch))
        names.append(f"{kernel.name} sm_{arch} {layout}")
    for name, made in zip(names, compile_many(jobs, workers=2), strict=True):
        assert isinstance(made, tuple), f"{name}: {made}"
        code = made[-1]
        assert code.spill_bytes == 0, name
        product = "HMMA.1688.F32.TF32" if "tf32" in name else "HMMA.16816.F32"
        assert any(opcode.startswith(product) for opcode in code.sass), name
        assert any(opcode.startswith("LDSM") for opcode in code.sass), name
        copies = [opcode for opcode in code.sass if opcode.startswith("LDGSTS")]
        assert copies and all(opcode.endswith("128") for opcode in copies), (name, copies)


@pytest.mark.parametrize("arch", [80, 90])
def test_every_slot_moves_in_tritons_code(arch, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    plan = SPECIALISED.plan(problem_for(SPECIALISED, 640, 640, 640), small(SPECIALISED), CARDS[arch])
    text = ttgir(plan.launches[-1], arch)
    assert not still_barriers(text)
    assert text.count("ttng.wait_barrier") >= 3 and "ttng.async_copy_mbarrier_arrive" in text
