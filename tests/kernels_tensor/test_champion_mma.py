"""The mma.sync champion: right in the simulator whenever copies land, for any shape, stride and alignment, with every
part of its search space; and compiled without spills for every card that it is for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rungemm.compiling import compile_many
from rungemm.dtypes import BF16, FP16, FP32
from rungemm.hardware import find_gpu
from rungemm.kernels import find_kernel
from rungemm.kernels.tensor_core.champion import MmaChampionConfig
from rungemm.kernels.tensor_core.ways import way_of
from rungemm.ops.dispatch import decide
from rungemm.problem import LAYOUTS, Epilogue, Matrix, Problem
from rungemm.sim import simulate

CARDS = {80: find_gpu("a100"), 86: find_gpu("a6000"), 89: find_gpu("rtx4090"), 90: find_gpu("h200")}
KERNEL = find_kernel("champion_mma")
KINDS = ((FP16, "ieee"), (BF16, "ieee"), (FP32, "tf32"), (FP32, "tf32x3"))
BOUNDS = {"fp16": 3.2e-4, "bf16": 2.5e-3, "tf32": 4e-4, "tf32x3": 3e-7}
"""Roundings of D's type, and of operands to tf32; three products are as exact as fp32 sums of the simulator."""


def small(problem, **options):
    base = {"tile_m": 64, "tile_n": 64, "tile_k": 64 // problem.a.dtype.bytes, "num_warps": 4, "warps_m": 2}
    return MmaChampionConfig(**(base | {"group": 2} | options))


def bound(problem):
    return BOUNDS[problem.precision if problem.a.dtype == FP32 else problem.a.dtype.name]


def placed(rng, matrix):
    """Random values at the matrix's own strides, in memory whose every other element is NaN."""
    first = max(0, -(matrix.rows - 1) * matrix.row_stride) + max(0, -(matrix.cols - 1) * matrix.col_stride)
    last = sum(max(0, (n - 1) * s) for n, s in ((matrix.rows, matrix.row_stride), (matrix.cols, matrix.col_stride)))
    shift = matrix.alignment // matrix.dtype.bytes % (16 // matrix.dtype.bytes)
    memory = np.full(shift + first + last + 8, np.nan, np.float32).astype(matrix.dtype.numpy)
    size = matrix.dtype.bytes
    view = np.lib.stride_tricks.as_strided(
        memory[shift + first :], (matrix.rows, matrix.cols), (matrix.row_stride * size, matrix.col_stride * size)
    )
    view[...] = rng.standard_normal(view.shape).astype(np.float32).astype(matrix.dtype.numpy)
    return view


def operands_of(rng, problem):
    given = {"A": placed(rng, problem.a), "B": placed(rng, problem.b)}
    return given | ({"C": placed(rng, problem.c)} if problem.reads_c else {})


def run(plan, given, problem, **how):
    d = np.full((problem.m, problem.n), np.nan, np.float32).astype(problem.d.dtype.numpy)
    if problem.d.is_col_major:
        d = np.asfortranarray(d)
    simulate(plan, given | {"D": d}, count=False, **how)
    return d


def exact(given, problem):
    product = problem.alpha * (given["A"].astype(np.float64) @ given["B"].astype(np.float64))
    return product + (problem.beta * given["C"].astype(np.float64) if "C" in given else 0.0)


def error(d, wanted):
    return np.linalg.norm(d.astype(np.float64) - wanted) / np.linalg.norm(wanted)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("dtype", "precision"), KINDS, ids=lambda v: str(v))
def test_right_whenever_copies_land(dtype, precision, layout, rng):
    # Neighbours that no cp.async moves, 4 bytes, and 16 bytes with tiles that are not full.
    for shape, options in (
        ((133, 77, 155), {"alpha": 1.5, "beta": -0.5}),
        ((70, 130, 66), {}),
        ((136, 72, 168), {"out_dtype": FP32}),
    ):
        problem = Problem.dense(*shape, dtype=dtype, precision=precision, layout=layout, **options)
        plan = KERNEL.plan(problem, small(problem, early=layout[0] == "N"), CARDS[80])
        given = operands_of(rng, problem)
        before = {role: array.copy() for role, array in given.items()}
        results = [
            run(plan, given, problem, schedule=schedule, seed=int(rng.integers(1 << 30)))
            for schedule in ("late", "random")
        ]
        assert error(results[0], exact(given, problem)) < bound(problem), shape
        assert len({np.ascontiguousarray(d).tobytes() for d in results}) == 1, shape
        for role, array in before.items():
            assert array.tobytes() == np.ascontiguousarray(given[role]).tobytes(), f"{role} was written to"


@pytest.mark.parametrize("stages", [2, 3, 5])
@pytest.mark.parametrize("k", [1, 2, 16, 33, 64, 200])
def test_rings_longer_and_shorter_than_k(stages, k, rng):
    for dtype, precision in (KINDS[1], KINDS[2]):
        problem = Problem.dense(48, 80, k, dtype=dtype, precision=precision)
        given = operands_of(rng, problem)
        plan = KERNEL.plan(problem, small(problem, stages=stages), CARDS[80])
        d = run(plan, given, problem, schedule="random", seed=int(rng.integers(1 << 30)))
        assert error(d, exact(given, problem)) < bound(problem)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("splits", [2, 5])
def test_split_along_k(splits, layout, rng):
    for shape, (dtype, precision) in (((60, 68, 333), KINDS[1]), ((33, 50, 162), KINDS[2]), ((64, 64, 328), KINDS[3])):
        problem = Problem.dense(*shape, dtype=dtype, precision=precision, layout=layout, alpha=1.5, beta=-0.5)
        plan = KERNEL.plan(problem, small(problem, splits=splits), CARDS[80])
        assert len(plan.launches) == 2 and plan.launches[0].grid[1] in (splits, splits - 1)
        given = operands_of(rng, problem)
        first, second = (run(plan, given, problem, schedule="random", seed=seed) for seed in (1, 2))
        assert error(first, exact(given, problem)) < bound(problem)
        assert first.tobytes() == second.tobytes()


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ({"tile_m": 16, "tile_n": 128, "warps_m": 1}, (3, 200, 100)),
        ({"tile_m": 128, "tile_n": 16, "warps_m": 4}, (200, 5, 100)),
        ({"tile_m": 32, "tile_n": 32}, (40, 40, 72)),
        ({"tile_k": 64, "stages": 2}, (64, 64, 200)),
        ({"tile_k": 16, "stages": 6}, (64, 64, 200)),
        ({"tile_n": 128, "num_warps": 8, "warps_m": 4, "max_registers": 128}, (100, 100, 100)),
        ({"realign": True}, (77, 65, 51)),
    ],
    ids=str,
)
def test_other_configs(options, shape, rng):
    for dtype, precision in (KINDS[0], KINDS[2]):
        problem = Problem.dense(*shape, dtype=dtype, precision=precision)
        plan = KERNEL.plan(problem, small(problem, **options), CARDS[90])
        given = operands_of(rng, problem)
        d = run(plan, given, problem, schedule="random", seed=int(rng.integers(1 << 30)))
        assert error(d, exact(given, problem)) < bound(problem)


@pytest.mark.parametrize(("dtype", "precision"), KINDS[1:], ids=lambda v: str(v))
@pytest.mark.parametrize("case", range(8))
def test_any_stride_and_alignment(case, dtype, precision, rng):
    m, n, k = 50, 72, 88
    line = 16 // dtype.bytes
    a, b, d = Matrix.dense(m, k, dtype), Matrix.dense(k, n, dtype), Matrix.dense(m, n, dtype)
    a, b, d = (
        (replace(a, row_stride=k + line), replace(b, row_stride=n + 8 * line), d),  # lines end early
        (replace(a, row_stride=k + 1), replace(b, row_stride=n + 2), d),
        (replace(a, alignment=dtype.bytes), b, d),
        (a, replace(b, row_stride=2 * n, col_stride=2), d),  # no neighbours at all
        (replace(a, row_stride=-k), b, d),
        (replace(a, row_stride=0), replace(b, row_stride=1, col_stride=k + 4), d),  # every row the same
        (replace(a, row_stride=3, col_stride=3 * m), b, replace(d, row_stride=1, col_stride=m)),
        (Matrix.dense(m, k, dtype, True), replace(b, row_stride=1, col_stride=0), d),
    )[case]
    problem = Problem(a, b, None, d, precision=precision)
    given = operands_of(rng, problem)
    wanted = exact(given, problem)
    for realign in (False, True):
        plan = KERNEL.plan(problem, small(problem, realign=realign), CARDS[80])
        assert error(run(plan, given, problem), wanted) < bound(problem), realign


def test_nothing_to_multiply_and_c_unread(rng):
    problem = Problem.dense(40, 30, 0, dtype=BF16, beta=2.0)
    given = operands_of(rng, problem)
    d = run(KERNEL.plan(problem, small(problem), CARDS[80]), given, problem)
    assert (d == (2 * given["C"].astype(np.float32)).astype(d.dtype)).all()
    assert KERNEL.plan(Problem.dense(0, 8, 8, dtype=BF16), MmaChampionConfig(), CARDS[80]).launches == ()
    for splits in (1, 2):
        unread = Problem.dense(40, 30, 70, dtype=BF16)
        given = operands_of(rng, unread)
        poison = np.full((40, 30), np.nan, np.float32).astype(BF16.numpy)
        d = run(KERNEL.plan(unread, small(unread, splits=splits), CARDS[80]), given | {"C": poison}, unread)
        assert error(d, exact(given, unread)) < bound(unread)


@pytest.mark.parametrize("splits", [1, 2])
@pytest.mark.parametrize("bias", ["row", "col"])
def test_the_epilogue_is_fused(bias, splits, rng):
    epilogue = Epilogue(bias, "silu", scale=2.0)
    problem = Problem.dense(70, 91, 100, dtype=BF16, layout="NT", alpha=0.5, beta=0.5, epilogue=epilogue)
    given = operands_of(rng, problem)
    vector = rng.standard_normal(91 if bias == "row" else 70).astype(np.float32).astype(BF16.numpy)
    d = run(KERNEL.plan(problem, small(problem, splits=splits), CARDS[80]), given | {"bias": vector}, problem)
    wide = vector.astype(np.float64)
    value = exact(given, problem) + (wide[None, :] if bias == "row" else wide[:, None])
    assert error(d, 2 * value / (1 + np.exp(-value))) < bound(problem)


@pytest.mark.parametrize("precision", ["tf32", "tf32x3"])
def test_infinities_and_nan(precision, rng):
    problem = Problem.dense(32, 32, 64, dtype=FP32, precision=precision)
    given = operands_of(rng, problem)
    given["A"][1, 2], given["A"][3, 4], given["B"][5, 6] = np.inf, np.nan, -np.inf
    # The NaN that arithmetic on a GPU makes has all bits set, so that adding to its bits would carry.
    given["A"][7, 8] = np.array([0x7FFFFFFF], np.uint32).view(np.float32)[0]
    d = run(KERNEL.plan(problem, small(problem), CARDS[80]), given, problem)
    with np.errstate(invalid="ignore"):
        wanted = given["A"].astype(np.float64) @ given["B"].astype(np.float64)
    assert (np.isnan(d) == np.isnan(wanted)).all()
    at = np.isinf(wanted)
    assert at.any() and (d[at] == wanted[at]).all() and np.isinf(d).sum() == at.sum()


def test_ways():
    whole = Matrix.dense(64, 64, FP16)
    assert way_of("A", whole, 1, False).wide
    assert way_of("A", replace(whole, row_stride=72), 1, False).vector == 8
    assert way_of("A", replace(whole, row_stride=68), 1, False).vector == 4
    odd = way_of("A", replace(whole, row_stride=65), 1, False)
    assert (odd.vector, odd.asynchronous, odd.copy) == (1, False, None)
    copied = way_of("A", replace(whole, row_stride=65), 1, True)
    assert copied.wide and copied.copy is not None and copied.role == "copy_A"
    assert way_of("A", replace(whole, alignment=8), 1, False).vector == 1
    assert way_of("B", Matrix.dense(63, 61, FP32), 0, False).asynchronous


@pytest.mark.parametrize(
    ("config", "card", "options", "says"),
    [
        (MmaChampionConfig(tile_k=8), 80, {}, "tile_k is 8: from 16"),
        (MmaChampionConfig(stages=1), 80, {}, "stages is 1"),
        (MmaChampionConfig(stages=9), 86, {}, "bytes of shared memory"),
        (MmaChampionConfig(tile_n=256, tile_k=64, stages=3), 89, {}, "bytes of shared memory"),
        (MmaChampionConfig(splits=9), 80, {}, "splits is 9: from 1 to the 8 K steps"),
        (MmaChampionConfig(max_registers=16), 80, {}, "max_registers is 16: from 32 to 255, or 0"),
        (MmaChampionConfig(tile_n=256, num_warps=4), 80, {}, "registers a thread"),
        (MmaChampionConfig(), 80, {"dtype": FP32}, "with precision 'tf32' or 'tf32x3'; it is 'ieee'"),
        (MmaChampionConfig(), 80, {"batch": 3}, "computes one product; batch is 3"),
        (MmaChampionConfig(), 80, {"epilogue": Epilogue(None, "silu", True)}, "fuses no gate"),
        (MmaChampionConfig(accumulate="fp16"), 80, {"dtype": BF16}, "accumulate is 'fp16' for bf16"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_the_predicate_says_why(config, card, options, says):
    reason = KERNEL.supports(Problem.dense(256, 256, 256, **({"dtype": FP16} | options)), config, CARDS[card])
    assert reason is not None and says in reason


@pytest.mark.parametrize("arch", CARDS)
@pytest.mark.parametrize(
    "shape", [(4096, 4096, 4096), (1, 4096, 4096), (64, 64, 65536), (333, 777, 555), (4097, 4095, 4093)], ids=str
)
def test_every_candidate_is_legal_and_the_first_is_the_default(arch, shape):
    for dtype, precision in KINDS:
        problem = Problem.dense(*shape, dtype=dtype, precision=precision)
        configs = list(KERNEL.configs(problem, CARDS[arch]))
        assert len(configs) > 20 and len(set(configs)) == len(configs)
        costs = [KERNEL.estimate(problem, config, CARDS[arch]) for config in configs]
        assert costs == sorted(costs) and costs[0] > problem.flops / 1e12 / CARDS[arch].peak("fp16")
        assert all(KERNEL.supports(problem, config, CARDS[arch]) is None for config in configs)


def test_the_model_divides_k_where_tiles_are_few_and_copies_what_is_large_and_odd():
    card = CARDS[80]
    assert KERNEL.default_config(Problem.dense(64, 64, 65536, dtype=BF16), card).splits > 8
    assert KERNEL.default_config(Problem.dense(4096, 4096, 4096, dtype=BF16), card).splits == 1
    assert KERNEL.default_config(Problem.dense(4097, 4095, 4093, dtype=BF16), card).realign
    assert KERNEL.default_config(Problem.dense(1, 4096, 4096, dtype=BF16), card).tile_m == 16


def test_the_library_calls_it_where_cublas_is_far_from_its_peak():
    """By the model alone, as nothing is timed there; on sm_90, where the Hopper champion is, not for large products."""

    def chosen(card, m, n, k, dtype, precision):
        return decide(Problem.dense(m, n, k, dtype=dtype, precision=precision), CARDS[card], all_rungs=False).chosen

    odd, large = (4097, 4095, 4093), (4096, 4096, 4096)
    for arch in (80, 86, 89):
        assert chosen(arch, *odd, *KINDS[1]).name == "champion_mma"
        assert chosen(arch, *large, *KINDS[1]).name == "cublas"
    assert chosen(80, *large, *KINDS[3]).name == "champion_mma"
    assert chosen(90, *odd, *KINDS[1]).name == "champion_hopper"
    assert chosen(90, *large, *KINDS[3]).name == "champion_hopper"


def test_default_configs_compile_without_spills():
    cases = (
        (80, (4096, 4096, 4096), "TN", *KINDS[1]), (80, (4096, 4096, 4096), "NN", *KINDS[2]),
        (86, (4096, 4096, 4096), "NN", *KINDS[0]), (86, (333, 777, 555), "NN", *KINDS[1]),
        (89, (4096, 4096, 4096), "TT", *KINDS[2]), (89, (16, 4096, 4096), "NT", *KINDS[1]),
        (90, (4096, 4096, 4096), "NN", *KINDS[0]), (90, (256, 256, 16384), "NT", *KINDS[3]),
    )  # fmt: skip
    jobs = []
    for arch, shape, layout, dtype, precision in cases:
        problem = Problem.dense(*shape, dtype=dtype, precision=precision, layout=layout)
        jobs.append((KERNEL.plan(problem, KERNEL.default_config(problem, CARDS[arch]), CARDS[arch]), arch))
    for case, made in zip(cases, compile_many(jobs, workers=2), strict=True):
        assert isinstance(made, tuple), f"{case}: {made}"
        assert all(code.spill_bytes == 0 for code in made), case
        product = "HMMA.1688.F32.TF32" if case[3] == FP32 else "HMMA.16816.F32"
        code = next(code for code in made if any("MMA" in opcode for opcode in code.sass))
        assert any(opcode.startswith(product) for opcode in code.sass), case
        assert any(opcode.startswith("LDSM") for opcode in code.sass), case


@pytest.mark.parametrize("layout", ["NN", "TT"])
def test_what_divides_reaches_the_compiler(layout):
    """Pitches of 8 elements, but not 16, are copied and stored 16 bytes at a time; no barrier but the step's own."""
    problem = Problem.dense(128, 136, 72, dtype=BF16, layout=layout)

    def pitched(matrix):
        return replace(matrix, **{"row_stride" if matrix.is_row_major else "col_stride": 1032})

    problem = replace(problem, a=pitched(problem.a), b=pitched(problem.b), d=pitched(problem.d))
    config = MmaChampionConfig(tile_m=64, tile_n=64, num_warps=4, stages=3)
    (made,) = compile_many([(KERNEL.plan(problem, config, CARDS[80]), 80)], workers=1)
    opcodes = made[0].sass
    copies = [opcode for opcode in opcodes if opcode.startswith("LDGSTS")]
    assert copies and all(opcode.endswith("128") for opcode in copies), copies
    stores = [opcode for opcode in opcodes if opcode.startswith("STG")]
    assert stores and all(opcode.endswith("128") for opcode in stores), stores
    assert sum(count for opcode, count in opcodes.items() if opcode.startswith("BAR")) <= 3 + 1 + 2


@pytest.mark.parametrize("layout", ["NN", "TT"])
def test_compiles_at_one_step_and_by_narrow_ways(layout):
    """K = 1, which once aborted the compiler; and operands that only loads can move."""
    jobs = []
    for arch, shape, (dtype, precision) in ((80, (64, 64, 1), KINDS[1]), (89, (1, 1, 1), KINDS[2]),
                                            (86, (65, 63, 61), KINDS[1]), (90, (65, 63, 61), KINDS[3])):  # fmt: skip
        problem = Problem.dense(*shape, dtype=dtype, precision=precision, layout=layout)
        jobs.append((KERNEL.plan(problem, small(problem, stages=2), CARDS[arch]), arch))
    for job, made in zip(jobs, compile_many(jobs, workers=2), strict=True):
        assert isinstance(made, tuple), f"{job[0].launches[0].arguments}: {made}"
