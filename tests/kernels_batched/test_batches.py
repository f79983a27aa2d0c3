"""Batches: every product right and nothing of a neighbour read or written, in the simulator; and compiled, no spills.

Memory between products and beside rows is NaN, so that a value read from there shows in the result, and the simulator
faults on any access outside an operand and on any element of D that two programs write.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rungemm.compiling import compile_many
from rungemm.dtypes import BF16, FP16, FP32
from rungemm.hardware import find_gpu
from rungemm.kernels import BATCHED, LADDER, find_kernel
from rungemm.kernels.hopper.batched_operands import flattened, set_up_batch
from rungemm.kernels.hopper.champion_batched import BatchedConfig
from rungemm.kernels.tensor_core import batched
from rungemm.kernels.tensor_core.champion import MmaChampionConfig
from rungemm.problem import LAYOUTS, Matrix, Problem
from rungemm.sim import simulate

H200 = find_gpu("h200")
FEW = replace(H200, sms=3)
"""So few programs that each takes tiles of several products."""
HOPPER, MMA = find_kernel("champion_batched"), find_kernel("batched_mma")
KERNELS = {kernel.name: kernel for kernel in BATCHED}
BOUNDS = {"fp16": 5e-4, "bf16": 4e-3, "tf32": 4e-4, "tf32x3": 3e-7}
"""Of one product, which may have few elements: half a unit of D's last place, 2^-11 and 2^-8 of a value at most."""


def placed(rng, matrix, batch, fill=None):
    """Random values (or ``fill``) at the matrix's own strides, in memory whose every other element is NaN."""
    size = matrix.dtype.bytes
    shift = matrix.alignment // size % (16 // size)
    memory = np.full(shift + matrix.furthest_offset(batch) + 9, np.nan, np.float32).astype(matrix.dtype.numpy)
    view = np.lib.stride_tricks.as_strided(
        memory[shift:],
        (batch, matrix.rows, matrix.cols),
        (matrix.batch_stride * size, matrix.row_stride * size, matrix.col_stride * size),
    )
    view[...] = fill if fill is not None else rng.standard_normal(view.shape).astype(np.float32)
    return view


def computed(kernel, problem, rng, config=None, gpu=FEW, nothing_read=False, **how):
    """D from a simulated run, and what it should be in float64. ``nothing_read``: A and B (and an unread C) are NaN."""
    fill = np.nan if nothing_read else None
    a, b = (placed(rng, matrix, problem.batch, fill) for matrix in (problem.a, problem.b))
    given = {"A": a, "B": b, "D": placed(rng, problem.d, problem.batch, np.nan)}
    if problem.c is not None:
        given["C"] = placed(rng, problem.c, problem.batch, None if problem.reads_c else np.nan)
    config = config or kernel.default_config(problem, gpu)
    simulate(kernel.plan(problem, config, gpu), given, count=False, **how)
    wanted = np.zeros(given["D"].shape)
    if problem.effective_k:
        wanted = problem.alpha * (a.astype(np.float64) @ b.astype(np.float64))
    if problem.reads_c:
        wanted = wanted + problem.beta * given["C"].astype(np.float64)
    return given["D"], wanted


def error(d, wanted):
    """The largest relative error of one product, so that no product hides among others; 0 for zeros."""
    each = zip(d.astype(np.float64), wanted, strict=True)
    return max(np.linalg.norm(x - y) / (np.linalg.norm(y) or 1.0) for x, y in each)


def bound(problem):
    return BOUNDS[problem.precision if problem.a.dtype == FP32 else problem.a.dtype.name]


def hopper_config(problem, **options):
    base = {"tile_m": 64, "tile_n": 64, "tile_k": 128 // problem.a.dtype.bytes, "num_warps": 4, "stages": 3}
    return BatchedConfig(**(base | {"part_n": 32, "group": 2} | options))


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("batch", "shape"), [(1, (130, 72, 88)), (3, (77, 65, 51)), (5, (49, 49, 32)), (2, (1, 9, 3))])
def test_every_product_is_right(name, layout, batch, shape, rng):
    for dtype, options in ((BF16, {"alpha": 1.5, "beta": -0.5}), (FP16, {"out_dtype": FP32})):
        problem = Problem.dense(*shape, dtype=dtype, layout=layout, batch=batch, **options)
        d, wanted = computed(KERNELS[name], problem, rng, schedule="random", seed=int(rng.integers(1 << 30)))
        assert error(d, wanted) < bound(problem), problem


@pytest.mark.parametrize("schedule", ["together", "halves", "turns"])
@pytest.mark.parametrize("swap", [False, True])
def test_schedules(schedule, swap, rng):
    for shape in ((130, 200, 88), (77, 65, 51), (264, 40, 200)):
        problem = Problem.dense(*shape, dtype=FP16, batch=5, alpha=0.5, beta=2.0)
        warps = 8 if schedule == "together" else 4
        config = hopper_config(problem, tile_m=128, schedule=schedule, num_warps=warps, swap=swap, buffers=2)
        if schedule == "turns":
            config = replace(config, tile_m=64)
        d, wanted = computed(HOPPER, problem, rng, config, schedule="random", seed=int(rng.integers(1 << 30)))
        assert error(d, wanted) < bound(problem)


@pytest.mark.parametrize("k", [1, 32, 64, 65, 300])
@pytest.mark.parametrize("stages", [2, 3, 5])
def test_ring_across_products(k, stages, rng):
    problem = Problem.dense(40, 72, k, dtype=BF16, batch=7)
    for schedule in ("together", "turns"):
        config = hopper_config(problem, stages=stages, schedule=schedule)
        d, wanted = computed(HOPPER, problem, rng, config, schedule="random", seed=int(rng.integers(1 << 30)))
        assert error(d, wanted) < bound(problem)


@pytest.mark.parametrize("layout", ["NN", "NT", "TT"])
def test_tf32(layout, rng):
    for shape in ((68, 72, 40), (77, 65, 51)):
        for kernel in (HOPPER, MMA):
            problem = Problem.dense(*shape, dtype=FP32, precision="tf32", layout=layout, batch=3)
            d, wanted = computed(kernel, problem, rng, schedule="random", seed=int(rng.integers(1 << 30)))
            assert error(d, wanted) < bound(problem)


def test_tf32x3(rng):
    problem = Problem.dense(33, 50, 70, dtype=FP32, precision="tf32x3", batch=3)
    d, wanted = computed(MMA, problem, rng)
    assert error(d, wanted) < bound(problem)
    assert "tf32" in HOPPER.supports(problem, hopper_config(problem), H200)


@pytest.mark.parametrize("name", KERNELS)
def test_operands_that_all_products_share(name, rng):
    for shape in ((72, 40, 64), (77, 65, 51)):
        problem = Problem.dense(*shape, dtype=BF16, batch=4, beta=1.0)
        for role in ("a", "b", "c"):
            shared = replace(problem, **{role: replace(getattr(problem, role), batch_stride=0)})
            d, wanted = computed(KERNELS[name], shared, rng)
            assert error(d, wanted) < bound(problem), (role, shape)


@pytest.mark.parametrize("name", KERNELS)
def test_heads_lie_between_one_another(name, rng):
    """(tokens, heads, width): a head's rows are a whole token apart, heads a width."""
    heads, tokens, width = 3, 40, 64
    between = Matrix(tokens, width, FP16, heads * width, 1, width)
    keys = Matrix(width, tokens, FP16, 1, heads * width, width)
    scores = Problem(a=between, b=keys, c=None, d=Matrix.dense(tokens, tokens, FP16), batch=heads)
    values = Problem(a=scores.d, b=between, c=None, d=between, batch=heads)
    for problem in (scores, values):
        d, wanted = computed(KERNELS[name], problem, rng)
        assert error(d, wanted) < bound(problem)


@pytest.mark.parametrize("name", KERNELS)
def test_gaps_and_starts_that_tma_does_not_like(name, rng):
    m, n, k = 40, 48, 56
    problem = Problem.dense(m, n, k, dtype=FP16, batch=3)
    a, b, d = problem.a, problem.b, problem.d
    cases = (
        replace(problem, a=replace(a, batch_stride=a.batch_stride + 1)),  # products begin anywhere
        replace(problem, b=replace(b, alignment=2)),
        replace(problem, d=replace(d, batch_stride=d.batch_stride + 1)),
        replace(problem, d=replace(d, batch_stride=d.batch_stride + 8)),
        replace(problem, d=replace(d, row_stride=n + 3, batch_stride=m * (n + 3))),
        replace(problem, a=replace(a, row_stride=k + 8, batch_stride=m * (k + 8) + 16)),
        replace(problem, b=replace(b, row_stride=n + 1, batch_stride=k * (n + 1))),
    )
    for case in cases:
        if name == HOPPER.name and case is cases[0]:
            # Lines at no single stride, and none that TMA takes: refused, with the reason.
            assert "16 bytes" in HOPPER.supports(case, HOPPER.default_config(problem, FEW), FEW)
            continue
        got, wanted = computed(KERNELS[name], case, rng)
        assert error(got, wanted) < bound(case), case


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(
    "options", [{"beta": 0.0, "alpha": 0.0}, {"beta": 2.0, "alpha": 0.0}, {"k": 0}, {"k": 0, "beta": 0.5}], ids=str
)
def test_nothing_to_multiply(name, options, rng):
    """A and B are NaN there, and so is C where beta is 0."""
    given = {"k": 24, "alpha": 1.0, "beta": 0.0} | options
    problem = Problem.dense(70, 33, given["k"], dtype=BF16, batch=3, alpha=given["alpha"], beta=given["beta"])
    d, wanted = computed(KERNELS[name], problem, rng, nothing_read=True)
    assert error(d, wanted) < bound(problem)


@pytest.mark.parametrize("name", KERNELS)
def test_c_is_not_read_when_beta_is_0(name, rng):
    problem = Problem.dense(40, 33, 24, dtype=FP16, batch=3)
    problem = replace(problem, c=problem.d)
    d, wanted = computed(KERNELS[name], problem, rng)
    assert error(d, wanted) < bound(problem)


@pytest.mark.parametrize("name", KERNELS)
def test_nan_and_infinity_stay_in_their_product(name, rng):
    problem = Problem.dense(40, 33, 51, dtype=BF16, batch=3)
    kernel = KERNELS[name]
    a, b = placed(rng, problem.a, 3), placed(rng, problem.b, 3)
    a[1, 39, 50], b[1, 50, 32] = np.nan, np.inf
    d = placed(rng, problem.d, 3, np.nan)
    simulate(kernel.plan(problem, kernel.default_config(problem, FEW), FEW), {"A": a, "B": b, "D": d}, count=False)
    assert np.isfinite(d[[0, 2]].astype(np.float32)).all()
    assert np.isnan(d[1, 39].astype(np.float32)).all() and np.isfinite(d[1, :39, :32].astype(np.float32)).all()


def test_more_products_than_a_grid_is_wide(monkeypatch, rng):
    """The second dimension holds 65535; here, 4: the third takes the rest, and its last plane sticks out."""
    monkeypatch.setattr(batched, "GRID_LIMIT", 4)
    problem = Problem.dense(9, 7, 5, dtype=FP16, batch=14)
    plan = MMA.plan(problem, MMA.default_config(problem, FEW), FEW)
    assert plan.launches[0].grid[1:] == (4, 4)
    d, wanted = computed(MMA, problem, rng)
    assert error(d, wanted) < bound(problem)


def test_grids_of_65536_products():
    for shape in ((8, 8, 64), (225, 1, 4)):
        problem = Problem.dense(*shape, dtype=FP16, batch=65536)
        grids = [
            kernel.plan(problem, kernel.default_config(problem, H200), H200).launches[-1].grid for kernel in BATCHED
        ]
        assert all(y <= 65535 and z <= 65535 for _, y, z in grids)
        assert grids[0][1] * grids[0][2] >= 65536 and grids[1][1:] == (1, 1)


def test_strides_beyond_32_bits():
    problem = Problem.dense(4096, 4096, 64, dtype=FP16, batch=200)
    for kernel in BATCHED:
        launch = kernel.plan(problem, kernel.default_config(problem, H200), H200).launches[-1]
        assert dict(launch.arguments)["d_batch"].kind == "i64"


def test_lines_of_all_products_as_one_matrix():
    rows = Matrix(7, 5, FP16, 6, 1, 42)
    assert flattened(rows, 3, False) == Matrix(21, 5, FP16, 6, 1, 0)
    assert flattened(rows, 3, True) is None
    columns = Matrix(5, 7, FP16, 1, 6, 42)
    assert flattened(columns, 3, True) == Matrix(5, 21, FP16, 1, 6, 0)
    assert flattened(replace(rows, batch_stride=43), 3, False) is None
    assert flattened(replace(rows, rows=1, batch_stride=43), 3, False) == Matrix(3, 5, FP16, 43, 1, 0)
    assert flattened(replace(rows, batch_stride=0), 3, False) == replace(rows, batch_stride=0)


def test_no_copy_where_tma_reaches():
    for layout in LAYOUTS:
        for swap in (False, True):
            setup = set_up_batch(Problem.dense(64, 72, 80, dtype=FP16, layout=layout, batch=4), swap)
            assert not setup.copies and setup.d is not None


@pytest.mark.parametrize("name", KERNELS)
def test_reasons(name):
    kernel, problem = KERNELS[name], Problem.dense(64, 64, 64, dtype=FP16, batch=3)
    config = kernel.default_config(problem, H200)
    assert kernel.supports(problem, config, H200) is None
    one_place = replace(problem, d=replace(problem.d, batch_stride=0))
    assert "batch stride 0" in kernel.supports(one_place, config, H200)
    assert "fp32" in kernel.supports(Problem.dense(64, 64, 64, batch=3), config, H200)
    if kernel is HOPPER:
        assert "sm_90" in kernel.supports(problem, config, find_gpu("a100"))
        fp32 = Problem.dense(64, 64, 64, dtype=FP32, precision="tf32", layout="TN", batch=3)
        assert "K" in kernel.supports(fp32, replace(config, tile_k=32), H200)
    else:
        assert kernel.supports(problem, config, find_gpu("a100")) is None
        assert "splits" in kernel.supports(problem, MmaChampionConfig(splits=2), H200)


def test_they_are_no_rungs():
    assert not set(BATCHED) & set(LADDER) and {kernel.name for kernel in BATCHED} == set(KERNELS)


def test_default_configs_compile_without_spills():
    cases = (
        (8, (1024, 1024, 1024), "NN"), (512, (64, 64, 64), "NN"), (32, (333, 777, 555), "NN"),
        (64, (127, 129, 65), "NT"), (256, (49, 49, 49), "NT"), (65536, (8, 8, 64), "NN"), (65536, (225, 1, 4), "NN"),
    )  # fmt: skip
    jobs, labels = [], []
    for batch, shape, layout in cases:
        problem = Problem.dense(*shape, dtype=FP16, layout=layout, batch=batch)
        for kernel in BATCHED:
            jobs.append((kernel.plan(problem, kernel.default_config(problem, H200), H200), 90))
            labels.append(f"{kernel.name} {problem}")
    problem = Problem.dense(512, 512, 512, dtype=FP32, precision="tf32", batch=8)
    jobs.append((HOPPER.plan(problem, HOPPER.default_config(problem, H200), H200), 90))
    labels.append(f"tf32 {problem}")
    problem, a100 = Problem.dense(127, 129, 65, dtype=FP16, batch=64), find_gpu("a100")
    jobs.append((MMA.plan(problem, MMA.default_config(problem, a100), a100), 80))
    labels.append(f"batched_mma on sm_80 {problem}")
    for label, made in zip(labels, compile_many(jobs, workers=2), strict=True):
        assert isinstance(made, tuple), f"{label}: {made}"
        assert all(code.spill_bytes == 0 for code in made), label
        main = made[-1]
        if "batched_mma" in label:
            assert any(opcode.startswith("HMMA.16816.F32") for opcode in main.sass), label
        else:
            assert any("GMMA" in opcode for opcode in main.sass), label
            assert any(opcode.startswith("UTMALDG.3D") for opcode in main.sass), label
