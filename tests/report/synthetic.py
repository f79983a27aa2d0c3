"""A results folder with made-up numbers of the right shape: it exists only in tests' temporary folders."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np

from rungemm.bench.store import SCHEMA, VERSION, summarise, write_json
from rungemm.bench.suites import Shape, suite_named
from rungemm.dtypes import BF16, FP32, DType
from rungemm.hardware import ZOO
from rungemm.kernels import LADDER
from rungemm.problem import Problem
from rungemm.report.rungs import posed_rungs

H200 = ZOO["h200"]


def lane(rng: np.random.Generator, problem: Problem, rate: float, noise: float, **more: Any) -> dict[str, Any]:
    us = 1e6 * problem.flops / (rate * 1e12) * np.exp(noise * rng.standard_normal(24))
    peak = H200.peaks["fp32" if problem.a.dtype == FP32 else problem.a.dtype.name]
    return {
        "us": [float(f"{x:.6g}") for x in us], "launches": 2, "graph": False, "tflops": round(rate, 3),
        "peak_share": round(rate / peak, 4), "error": 2.1e-7, "mismatched": 0, "tolerance": 1e-5, "host_us": 12.5,
        "failure": None,
    } | more  # fmt: skip


def measurement(
    rng: np.random.Generator, suite: str, shape: Shape, dtype: DType, lanes: dict[str, Any]
) -> dict[str, Any]:
    problem = shape.problem(dtype)
    return {
        "suite": suite, "data": "normal", "seed": 1, "stopped_by": "precision", "wall_s": 3.0, "flags": {},
        "problem": {"m": problem.m, "n": problem.n, "k": problem.k, "batch": problem.batch, "dtype": dtype.name,
                    "out_dtype": dtype.name, "precision": "ieee", "layout": problem.layout, "alpha": 1.0, "beta": 0.0},
        "cold_l2": {"cold": True, "sets": 2, "set_bytes": 1 << 28, "l2_bytes": 60 << 20,
                    "closest_reuse_bytes": 1 << 28},
        "clocks": {"source": "nvml", "samples": 100, "sm_mhz": {"min": 1900, "median": 1980, "max": 1980},
                   "watts": {"min": 500.0, "median": 640.0, "max": 699.0},
                   "celsius": {"min": 40, "median": 55, "max": 60}, "throttle": {"software power cap": 0.25},
                   "trace": {"seconds": [round(0.02 * n, 2) for n in range(60)],
                             "sm_mhz": [int(1980 - 40 * rng.random()) for _ in range(60)],
                             "watts": [round(690 - 300 * 0.9**n, 1) for n in range(60)],
                             "celsius": [40 + n // 10 for n in range(60)]}},
        "lanes": lanes,
    }  # fmt: skip


def results(folder: Path, rng: np.random.Generator) -> Path:
    """Write ``folder/h200`` with raw files for the ladder and some suites, and its summary."""
    card = folder / "h200"
    measurements = []
    for shape in suite_named("ladder"):
        problem = shape.problem()
        fp32 = [k for k in LADDER if FP32 in k.dtypes and k.family == "cuda_core"]
        speeds = [0.5, 6, 9, 17, 30, 33, 38, 45, 47, 48, 49, 50, 49, 51, 52, 53, 54]
        lanes: dict[str, Any] = {"cublas": lane(rng, problem, 51.0, 0.002)}
        for kernel, speed in zip(fp32, itertools.chain(speeds, itertools.repeat(50.0)), strict=False):
            lanes[kernel.name] = lane(
                rng, problem, speed, 0.004, kernel=kernel.name,
                config=kernel.default_config(problem, H200).to_dict(),
                resources={"registers": 128, "spill_bytes": 0, "shared_bytes": 16384, "warps": 8},
            )  # fmt: skip
        lanes["broken"] = lane(rng, problem, 60.0, 0.004, failure="wrong result: too large an error", tflops=None)
        measurements.append(measurement(rng, "ladder", shape, FP32, lanes))
    bf16 = Shape(4096, 4096, 4096, layout="NT")
    lanes = {"cublas": lane(rng, bf16.problem(BF16), 680.0, 0.004)}
    for number, kernel in enumerate(kernel for kernel in LADDER if BF16 in kernel.dtypes):
        lanes[kernel.name] = lane(rng, bf16.problem(BF16), 380.0 + 30 * number, 0.004, kernel=kernel.name)
    measurements.append(measurement(rng, "ladder", bf16, BF16, lanes))
    for suite, dtype, base in (("squares", FP32, 51.0), ("squares", BF16, 700.0), ("cross27", FP32, 51.0),
                               ("ragged", FP32, 45.0), ("llm", BF16, 600.0)):  # fmt: skip
        for shape in suite_named(suite):
            problem = shape.problem(dtype)
            fill = 1 / (1 + 3e9 / problem.flops)
            lanes = {
                "cublas": lane(rng, problem, base * fill, 0.004),
                "champion": lane(rng, problem, base * fill * float(rng.uniform(0.92, 1.25)), 0.004,
                                 kernel="champion_fp32", label="champion", config={"tile_m": 128}),
                "library": lane(rng, problem, base * fill * float(rng.uniform(0.97, 1.2)), 0.004),
            }  # fmt: skip
            measurements.append(measurement(rng, suite, shape, dtype, lanes))
    environment = {"date": "2026-11-30T00:00:00+00:00", "commit": "abc123def456", "torch": "2.11.0", "triton": "3.6.0",
                   "cuda": "13.0", "driver": "580.159.03", "cublas": "13.1"}  # fmt: skip
    document = {"schema": SCHEMA, "version": VERSION, "environment": environment, "measurements": measurements}
    write_json(card / "raw" / "made-up.json", document)
    summarise(card)
    write_json(card / "rungs.json", figures(rng))
    write_json(card / "method.json", document | {"measurements": [], "method": METHOD})
    row = {"kernel": "naive", "blocks": 2, "cuda_blocks": 2}
    write_json(card / "occupancy.json", {"environment": environment, "rows": [row, {**row, "kernel": "coalesced"}]})
    again = [{**one, "lanes": {name: {**each, "us": [us * float(rng.normal(1, 0.004)) for us in each["us"]]}
                               for name, each in one["lanes"].items()}} for one in measurements[:40]]  # fmt: skip
    write_json(card / "repeat" / "made-up.json", document | {"measurements": again})
    return card


METHOD: dict[str, Any] = {
    "problem": "2048x2048x2048 fp32 NN", "self_ratios": [1.0, 0.999, 1.002],
    "identical": {"not_flagged": 20, "of": 20}, "ten_percent_slower": {"flagged": 19, "of": 20},
    "warm_refused": "the L2 was warm", "warm_labelled_cold": False, "holds": False,
    "failures": {"cublas": None, "writes a NaN": "wrong result", "writes nothing": "wrong result"},
}  # fmt: skip


def figures(rng: np.random.Generator) -> list[dict[str, Any]]:
    """A row of rungs.json for every rung and arithmetic that it takes."""
    rows = []
    for item in posed_rungs(H200):
        bytes_per_c = float(np.exp(rng.uniform(2, 11)))
        intensity = 2 * item.problem.k / bytes_per_c
        resources = {"registers": int(rng.integers(32, 255)), "spill_bytes": 0, "shared_bytes": 16384, "threads": 256,
                     "blocks_per_sm": 2, "warps_per_sm": 16, "max_warps_per_sm": 64, "limiter": "registers",
                     "programs": 1024, "waves": 4, "wave_efficiency": 0.97}  # fmt: skip
        counts = {"loads_per_c": 128.0, "shared_loads_per_c": 1024.0, "sector_bytes_per_c": bytes_per_c,
                  "wavefronts_per_c": float(rng.uniform(1, 60)), "conflicts_per_c": 0.0}  # fmt: skip
        rows.append({
            "kernel": item.kernel.name, "dtype": item.problem.a.dtype.name, "precision": item.problem.precision,
            "layout": item.problem.layout, "m": 4096, "n": 4096, "k": 4096, "config": item.config.to_dict(),
            "resources": resources, "counts": counts,
            "bounds": {"counted_intensity": intensity, "uncached_tflops": min(66.9, 4.8 * intensity)},
        })  # fmt: skip
    return rows
