"""The champions' fused epilogues: every activation, both biases, every way that a tile leaves, against float64."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from rungemm.compat import constexpr, gl, jit
from rungemm.compiling import compile_plan
from rungemm.dtypes import BF16, FP16, FP32, INT8
from rungemm.hardware import DEFAULT_GPU
from rungemm.kernels.epilogue import activate
from rungemm.kernels.hopper.champion import ChampionHopper, HopperConfig
from rungemm.kernels.plan import Launch, LaunchPlan, Pointer
from rungemm.problem import ACTIVATIONS, Epilogue, Matrix, Problem
from rungemm.sim import run, simulate

EXACT = {
    None: lambda x: x,
    "relu": lambda x: np.maximum(x, 0.0),
    "silu": lambda x: x / (1.0 + np.exp(-x)),
    "gelu_tanh": lambda x: x / (1.0 + np.exp(-2.0 * math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3))),
    "gelu": lambda x: x * np.vectorize(math.erfc)(-x / math.sqrt(2.0)) / 2.0,
}
"""In float64, in forms that do not cancel."""


@jit
def activate_kernel(x, y, NAME: constexpr):
    LAYOUT: constexpr = gl.BlockedLayout([1], [32], [4], [0])
    at = gl.program_id(0) * 128 + gl.arange(0, 128, LAYOUT)
    gl.store(y + at, activate(gl.load(x + at), NAME))


def activated(x: np.ndarray, name: str) -> np.ndarray:
    """An activation of 128 n values in the simulator."""
    y = np.full_like(x, np.nan)
    run(activate_kernel, x.size // 128, x, y, NAME=name)
    return y


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_are_good_to_the_last_digits_of_fp32(name, rng):
    x = np.concatenate([rng.uniform(-9.0, 9.0, 128 * 60), rng.standard_normal(128 * 20) * 1e-3]).astype(np.float32)
    want = EXACT[name](x.astype(np.float64))
    error = np.abs(activated(x, name) - want) / np.where(want == 0, 1.0, np.abs(want))
    assert error[x > 0].max() < 6e-7
    assert error[x > -6].max() < 4e-6
    assert error.max() < 1.2e-5  # of the tail's 1e-18; bf16 rounds to 4e-3


NARROW = {"gelu_to_bf16": BF16, "gelu_to_fp16": FP16}
"""gelu for a D of 16 bits, by the name the kernels know it by."""


def nearest_bf16(values: np.ndarray) -> np.ndarray:
    """Values of float64, rounded once to bf16's 8 digits (its exponents are fp32's, so normal numbers only)."""
    fraction, exponent = np.frexp(values)
    return np.ldexp(np.rint(fraction * 256.0), exponent - 8)


def torchs_gelu(x: np.ndarray) -> np.ndarray:
    """gelu as torch's formula has it in fp32, which cancels below 0; erf from float64, rounded."""
    erf = np.vectorize(math.erf)(x.astype(np.float64) * math.sqrt(0.5)).astype(np.float32)
    return x * np.float32(0.5) * (np.float32(1.0) + erf)


@pytest.mark.parametrize("name", NARROW)
def test_gelu_into_16_bits_rounds_as_well_as_torchs(name, rng):
    """At most one unit in the last place of D from the right one, or as far as torch's is, and no worse in the mean."""
    sweep = np.linspace(-10.0, 10.0, 128 * 40)
    x = np.concatenate([sweep, rng.standard_normal(128 * 60)]).astype(np.float32)
    exact = EXACT["gelu"](x.astype(np.float64))
    if NARROW[name] == FP16:
        rounded, least, digits = lambda v: v.astype(np.float16).astype(np.float64), 2.0**-24, 11
    else:
        rounded, least, digits = nearest_bf16, 0.0, 8
    right, ours, theirs = rounded(exact), rounded(activated(x, name).astype(np.float64)), rounded(torchs_gelu(x))
    ulp = np.maximum(np.ldexp(1.0, np.frexp(right)[1] - digits), least)
    assert (np.abs(ours - right) / ulp <= np.abs(theirs.astype(np.float64) - right) / ulp + 1.0).all()
    assert (np.abs(ours - right) / ulp)[x > -7].max() <= 1
    normal = slice(sweep.size, None)
    assert np.linalg.norm((ours - exact)[normal]) <= 1.01 * np.linalg.norm((theirs - exact)[normal])


@pytest.mark.parametrize("name", [*ACTIVATIONS, *NARROW])
def test_activations_of_what_is_no_number_and_of_the_largest(name):
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 3e38, -3e38, 100.0] * 16, np.float32)
    y = activated(x, name)[:8]
    assert np.isnan(y[0]) and y[1] == np.inf and y[3] == y[4] == 0 and y[5] == np.float32(3e38) and y[7] == 100
    assert y[6] == 0
    # As torch has them: minus infinity times 0.
    assert y[2] == 0 if name == "relu" else np.isnan(y[2])


FFMAS = {"relu": 0, "silu": 0, "gelu_tanh": 1, "gelu": 9, "gelu_to_bf16": 7, "gelu_to_fp16": 9}


@pytest.mark.parametrize(("name", "ffmas"), FFMAS.items())
def test_the_simulator_counts_an_activations_multiply_adds_as_the_compiler_makes_them(name, ffmas, rng):
    arguments = (("x", Pointer("A", FP32)), ("y", Pointer("D", FP32)))
    plan = LaunchPlan(name, (Launch(activate_kernel, (3, 1, 1), arguments, (("NAME", name),), 4),))
    assert compile_plan(plan, 90)[0].sass.get("FFMA", 0) == ffmas  # every thread passes each once, with one element
    operands = {"A": rng.standard_normal(384).astype(np.float32), "D": np.full(384, np.nan, np.float32)}
    assert simulate(plan, operands).counters["fmas"] == 384 * ffmas


SMALL = HopperConfig(tile_m=64, tile_n=64, tile_k=64, num_warps=4, stages=2, buffers=1)
WIDE = replace(SMALL, tile_m=128, part_n=32)
NT = {"dtype": BF16, "layout": "NT"}
CASES = {
    "turns": (replace(WIDE, schedule="turns", programs=3), NT, (200, 136, 136), Epilogue("row", "gelu")),
    "halves": (replace(WIDE, schedule="halves", programs=2), NT, (200, 136, 136), Epilogue("col", "silu", scale=2.0)),
    # Of the last tile's four slices three lie outside of D; a program's next tile goes on with the buffers' turns.
    "slices left out": (replace(WIDE, part_n=16, buffers=2, programs=1), NT, (200, 136, 72), Epilogue("row", "gelu")),
    "together, two buffers": (replace(WIDE, buffers=2), NT, (72, 136, 72), Epilogue(None, "gelu_tanh")),
    "turned over": (replace(SMALL, swap=True), NT, (72, 136, 72), Epilogue("row", "gelu")),
    "turned over, column": (replace(SMALL, swap=True), {"dtype": FP16, "layout": "NN"}, (72, 136, 72),
                            Epilogue("col", "relu")),
    "stream": (replace(SMALL, stream=True, programs=4), NT, (120, 136, 320), Epilogue("row", "gelu")),
    "splits": (replace(SMALL, splits=2), NT, (72, 136, 200), Epilogue("row", "gelu", scale=0.5)),
    "splits, column": (replace(SMALL, splits=3, swap=True), NT, (72, 136, 200), Epilogue("col", "silu")),
    "ragged": (SMALL, NT, (67, 77, 51), Epilogue("row", "gelu")),
    "ragged, column": (replace(SMALL, swap=True), NT, (67, 77, 51), Epilogue("col", "gelu_tanh")),
    "scale alone": (SMALL, NT, (64, 72, 64), Epilogue(scale=-3.0)),
    "bias alone": (SMALL, NT, (64, 72, 64), Epilogue("row")),
    "tf32": (replace(SMALL, tile_k=32, part_n=32), {"dtype": FP32, "precision": "tf32", "layout": "NT"}, (72, 68, 64),
             Epilogue("row", "gelu")),
    "promoted": (replace(SMALL, tile_k=32, part_n=32, promote=2),
                 {"dtype": FP32, "precision": "tf32x3", "layout": "NN"}, (72, 68, 40), Epilogue("col", "silu")),
    "nothing to multiply": (SMALL, NT, (67, 77, 0), Epilogue("row", "gelu")),
}  # fmt: skip


def case_of(problem: Problem, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Operands, D poisoned, and the exact D."""
    def matrix(m: Matrix) -> np.ndarray:
        data = rng.standard_normal((m.cols, m.rows) if m.is_col_major else (m.rows, m.cols)).astype(m.dtype.numpy)
        return data.T if m.is_col_major else data

    epilogue = problem.epilogue
    operands = {"A": matrix(problem.a), "B": matrix(problem.b), "D": matrix(problem.d)}
    operands["D"][...] = np.nan
    exact = problem.alpha * (operands["A"].astype(np.float64) @ operands["B"].astype(np.float64))
    if problem.reads_c:
        operands["C"] = matrix(problem.c)
        exact = exact + problem.beta * operands["C"].astype(np.float64)
    if epilogue.bias is not None:
        length = problem.n if epilogue.bias == "row" else problem.m
        bias = rng.standard_normal(length).astype(problem.bias_type.numpy)
        operands["bias"] = bias
        exact = exact + (bias[None, :] if epilogue.bias == "row" else bias[:, None]).astype(np.float64)
    return operands, epilogue.scale * EXACT[epilogue.activation](exact)


def limit_of(problem: Problem) -> float:
    """What the error may be: mostly D's one rounding, or tf32's of the operands."""
    return {"tf32": 8e-4, "tf32x3": 3e-6}.get(problem.precision, 3e-3 if problem.a.dtype == BF16 else 4e-4)


def error_of(problem: Problem, config, kernel, rng: np.random.Generator, schedule: str = "late") -> float:
    """Relative to float64, of the kernel in the simulator."""
    operands, exact = case_of(problem, rng)
    plan = kernel.plan(problem, config, DEFAULT_GPU)
    simulate(plan, operands, count=False, schedule=schedule, seed=int(rng.integers(1 << 30)))
    return np.linalg.norm(operands["D"].astype(np.float64) - exact) / np.linalg.norm(exact)


@pytest.mark.parametrize("name", CASES)
def test_hopper_against_float64(name, rng):
    config, options, shape, epilogue = CASES[name]
    options = {"alpha": 0.3, **options}
    problem = Problem.dense(*shape, **options, epilogue=epilogue)
    limit = limit_of(problem)
    assert error_of(problem, config, ChampionHopper(), rng, str(rng.choice(["late", "random"]))) < limit
    with_c = Problem.dense(*shape, **options, beta=-0.5, epilogue=epilogue)
    assert error_of(with_c, config, ChampionHopper(), rng) < limit


@pytest.mark.parametrize("bias_type", [FP16, BF16, FP32])
@pytest.mark.parametrize("kind", ["row", "col"])
def test_a_bias_of_any_type_and_a_d_that_lies_otherwise(bias_type, kind, rng):
    problem = replace(
        Problem.dense(72, 88, 64, **NT, epilogue=Epilogue(kind, "gelu")),
        d=Matrix.dense(72, 88, FP32, transposed=True), bias_dtype=bias_type, bias_alignment=bias_type.bytes,
    )  # fmt: skip
    assert error_of(problem, replace(SMALL, part_n=32), ChampionHopper(), rng) < 1e-5


def test_what_is_not_fused_is_said():
    kernel = ChampionHopper()
    gate = Problem.dense(64, 64, 64, **NT, epilogue=Epilogue(None, "silu", gated=True))
    assert "fuses no gate" in kernel.supports(gate, SMALL, DEFAULT_GPU)
    odd = replace(Problem.dense(64, 64, 64, **NT, epilogue=Epilogue("row")), bias_dtype=INT8)
    assert "the bias is int8" in kernel.supports(odd, SMALL, DEFAULT_GPU)


@pytest.mark.parametrize(
    ("shape", "schedule"),
    [((4096, 4096, 4096), "turns"), ((4096, 4096, 4096), "halves"), ((4097, 4095, 4093), "halves")],
)
def test_the_large_settings_do_not_spill(shape, schedule):
    """The dearest epilogue, in the settings that multiply most products of 16-bit operands; the last without TMA."""
    tile_n, stages = (128, 6) if schedule == "turns" else (256, 4)
    config = replace(WIDE, tile_n=tile_n, part_n=64, stages=stages, schedule=schedule)
    problem = Problem.dense(*shape, **NT, epilogue=Epilogue("row", "gelu"))
    compiled = compile_plan(ChampionHopper().plan(problem, config, DEFAULT_GPU), 90)
    assert all(c.spill_bytes == 0 for c in compiled)
    assert compiled[-1].registers <= 168  # 384 threads of an SM's 65536
