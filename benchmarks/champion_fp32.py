"""Explore the fp32 champion's settings on the card: compile many, check, time against cuBLAS, count with ncu.

    PYTHONPATH=src python3 benchmarks/champion_fp32.py --out $OUT/champion.json

First every setting at 4096^3 in a few rounds, then the fastest there and at other shapes in many rounds, then Nsight
Compute's counters of the three fastest and of cuBLAS. The file is written after each step, so that a run cut short
keeps what it had. ``--stage`` picks steps; ``--keep N`` says how many go on.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

# The lent machine has no platformdirs, which finds the cache's usual place.
os.environ.setdefault("RUNGEMM_CACHE_DIR", os.path.join(tempfile.gettempdir(), f"rungemm-cache-{os.getuid()}"))

from rungemm.bench.contenders import Contender, Ours, TorchMatmul
from rungemm.bench.environment import describe_environment
from rungemm.bench.interleaved import StopRule
from rungemm.bench.measurement import Measurement, Settings, measure
from rungemm.bench.statistics import spread_of
from rungemm.bench.store import measurement_record, raw_document, write_json
from rungemm.bench.suites import parse_shape
from rungemm.compiling import compile_many
from rungemm.dtypes import FP32
from rungemm.hardware import DEFAULT_GPU, Gpu, detect_gpu
from rungemm.kernels.cuda_core.champion import ChampionConfig, ChampionFp32
from rungemm.problem import Problem

KERNEL = ChampionFp32()
MAIN_SHAPE = "4096x4096x4096"
METRICS = {
    "issue": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "fma": "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active",
    "instr": "smsp__inst_executed.sum",
    "ffma": "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum",
    "conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "waves": "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "l2 hit": "lts__t_sector_hit_rate.pct",
    "us": "gpu__time_duration.sum",
    **{
        reason: f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio"
        for reason in (
            "dispatch_stall", "not_selected", "math_pipe_throttle", "short_scoreboard", "long_scoreboard", "barrier",
            "mio_throttle", "no_instruction", "wait", "branch_resolve",
        )
    },
}  # fmt: skip


def label(config: ChampionConfig) -> str:
    c = config
    text = f"{c.tile_m}x{c.tile_n}x{c.tile_k} t{c.thread_m}x{c.thread_n} w{c.num_warps} l{c.lanes_m} g{c.group_m}"
    text += (" il" if c.interleaved else "") + ("" if c.pinned else " free")
    text += f" r{c.max_registers}" if c.max_registers else ""
    return text + (f" s{c.splits}" if c.splits > 1 else "")


def big_configs() -> list[ChampionConfig]:
    """Settings for large products: about fifty, diverse."""
    base = ChampionConfig()
    found = [
        replace(base, lanes_m=lanes, interleaved=il, tile_k=k)
        for lanes, il, k in product((4, 8), (False, True), (8, 16))
    ]
    found += [replace(base, group_m=g, interleaved=True) for g in (1, 4, 16)]
    found += [replace(base, pinned=False, tile_k=k) for k in (8, 16)]
    small = replace(base, tile_m=128, tile_n=128, num_warps=4)
    found += [
        replace(small, lanes_m=lanes, interleaved=il, tile_k=k)
        for lanes, il, k in product((4, 8), (False, True), (8, 16))
    ]
    found += [replace(small, interleaved=True, group_m=g) for g in (4, 16)]
    found += [replace(small, pinned=False)]
    found += [
        replace(base, tile_m=64, tile_n=256, num_warps=4, lanes_m=lanes, interleaved=il)
        for lanes, il in product((4, 8), (False, True))
    ]
    tall = replace(base, tile_m=256, tile_n=128, thread_m=8, thread_n=16, lanes_m=8)
    found += [replace(tall, interleaved=il, lanes_m=lanes) for il, lanes in product((False, True), (4, 8))]
    wide = replace(base, tile_m=256, tile_n=128, thread_m=16, thread_n=8, lanes_m=4)
    found += [replace(wide, interleaved=il) for il in (False, True)]
    square = replace(base, tile_m=128, tile_n=128, thread_m=8, thread_n=8, num_warps=8)
    found += [
        replace(square, interleaved=il, tile_k=k, max_registers=cap)
        for il, k, cap in product((False, True), (8, 16), (0, 128))
    ]
    found += [replace(square, tile_m=256, num_warps=16, interleaved=il, max_registers=128) for il in (False, True)]
    found += [replace(square, tile_m=128, tile_n=256, num_warps=16, interleaved=True, max_registers=128)]
    found += [replace(square, pinned=False, max_registers=128)]
    return list(dict.fromkeys(found))


def small_configs(problem: Problem) -> list[ChampionConfig]:
    """Settings for products with few tiles: smaller tiles, and K split until the card is full about twice."""
    tiles = [
        ChampionConfig(4, 64, 64, 8, 8, 4, 8, 4, True), ChampionConfig(2, 64, 64, 8, 8, 8, 8, 4, True),
        ChampionConfig(4, 64, 64, 16, 8, 4, 8, 4, True), ChampionConfig(4, 64, 128, 8, 8, 8, 8, 4, True),
        ChampionConfig(4, 128, 64, 8, 8, 8, 8, 4, True), ChampionConfig(4, 128, 64, 16, 8, 8, 8, 4, True),
        ChampionConfig(8, 128, 128, 8, 8, 8, 8, 4, True), ChampionConfig(4, 128, 128, 8, 8, 16, 8, 8, True),
        ChampionConfig(8, 64, 64, 16, 4, 4, 8, 4, True), ChampionConfig(4, 32, 64, 16, 4, 4, 8, 4, True),
    ]  # fmt: skip
    found = []
    for config in tiles:
        count = -(-problem.m // config.tile_m) * -(-problem.n // config.tile_n)
        for programs in (132, 264):
            splits = max(1, round(programs / count))
            if splits == 1 or problem.k // splits >= 4 * config.tile_k:
                found.append(replace(config, splits=splits))
    return list(dict.fromkeys(found))


SMALL_SHAPES = (
    "1024x1024x1024", "512x512x512", "256x256x16384", "64x64x65536", "333x777x555",
)  # fmt: skip
LARGE_SHAPES = ("8192x8192x4096", "4097x4095x4093", "16384x4096x2048")


def contenders_for(problem: Problem, configs: list[ChampionConfig], gpu: Gpu, workers: int) -> tuple[list[Ours], dict]:
    """Those that compile, and their resources by name; the others are named."""
    chosen = []
    for config in configs:
        reason = KERNEL.supports(problem, config, gpu)
        if reason is None:
            chosen.append(Ours(KERNEL, gpu, config, name=label(config)))
        else:
            print(f"  {label(config)}: {reason}", flush=True)
    results = compile_many([(c.plan(problem), gpu.arch) for c in chosen], workers=workers)
    resources, kept = {}, []
    for contender, result in zip(chosen, results, strict=True):
        if isinstance(result, BaseException):
            print(f"  {contender.name} does not compile: {str(result).splitlines()[0]}", flush=True)
            continue
        resources[contender.name] = (result[0].registers, result[0].spill_bytes, result[0].shared_bytes)
        kept.append(contender)
    return kept, resources


def report(measurement: Measurement, resources: dict[str, tuple[int, int, int]], most: int) -> list[str]:
    """Print a table, fastest first; names of the right ones in that order."""
    lanes = measurement.lanes
    right = [n for n, lane in lanes.items() if lane.failure is None and lane.tflops]
    right.sort(key=lambda n: -(lanes[n].tflops or 0))
    rounds = measurement.rounds.count
    print(f"\n{measurement.problem}: {rounds} rounds, {measurement.wall_s:.1f} s, {measurement.clocks}")
    for name in [n for n in lanes if n not in right]:
        print(f"  FAILED {name}: {lanes[name].failure}")
    for name in right[:most] + [n for n in right[most:] if n == "cublas"]:
        ratio, lane = measurement.ratio("cublas", name), lanes[name]
        r = f"{ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]" if ratio else ""
        err = lane.checked.error if lane.checked else float("nan")
        print(f"  {name:<44}{lane.tflops:8.2f} {r:<24}{100 * spread_of(lane.seconds).relative:5.1f}% {err:.2e} "
              f"{resources.get(name, '')}")  # fmt: skip
    sys.stdout.flush()
    return [n for n in right if n != "cublas"]


def profile(names: list[ChampionConfig], shape: str, out: Path) -> list[dict[str, Any]]:
    """Counters of one launch each, by a child process under ncu."""
    command = [
        "ncu", "--clock-control", "none", "--csv", "--metrics", ",".join(METRICS.values()),
        "-k", "regex:champion_fp32|gemm|Kernel", "--launch-skip", "0", sys.executable, __file__, "--profile-child",
        json.dumps([c.to_dict() for c in names]), "--shapes", shape, "--out", str(out),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith('"')]
    if not lines:
        print(f"ncu gave nothing: {done.stdout[-1500:]} {done.stderr[-500:]}")
        return []
    by_launch: dict[str, dict[str, Any]] = {}
    back = {metric: short for short, metric in METRICS.items()}
    for row in csv.DictReader(io.StringIO("\n".join(lines))):
        entry = by_launch.setdefault(row["ID"], {"kernel": row["Kernel Name"][:48]})
        entry[back.get(row["Metric Name"], row["Metric Name"])] = float(row["Metric Value"].replace(",", ""))
    return list(by_launch.values())


def profile_child(configs: list[ChampionConfig], shape: str, gpu: Gpu) -> None:
    import torch

    problem = parse_shape(shape).problem(FP32, "NN", "ieee")
    a = torch.randn(problem.m, problem.k, device="cuda")
    b = torch.randn(problem.k, problem.n, device="cuda")
    d = torch.empty(problem.m, problem.n, device="cuda")
    operands = {"A": a, "B": b, "D": d}
    for contender in [TorchMatmul(), *(Ours(KERNEL, gpu, c) for c in configs)]:
        contender.bind(problem, operands)()
        torch.cuda.synchronize()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--stage", default="big,small,large,ncu")
    parser.add_argument("--shapes", default="")
    parser.add_argument("--keep", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--first-rounds", type=int, default=4)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--profile-child", default="")
    options = parser.parse_args()
    gpu = detect_gpu() or DEFAULT_GPU
    if options.profile_child:
        configs = [ChampionConfig.from_dict(d) for d in json.loads(options.profile_child)]
        profile_child(configs, options.shapes, gpu)
        return 0
    import torch

    started = time.monotonic()
    environment, records, counters = describe_environment(gpu.name), [], []
    stages = options.stage.split(",")

    def save(settings: Settings) -> None:
        document = raw_document(environment, settings, records)
        document["counters"] = counters
        write_json(options.out, document)

    def run(shape: str, configs: list[ChampionConfig], rounds: int, most: int, suite: str) -> list[ChampionConfig]:
        problem = parse_shape(shape).problem(FP32, "NN", "ieee")
        ours, resources = contenders_for(problem, configs, gpu, options.workers)
        print(f"{shape}: {len(ours)} compiled, {time.monotonic() - started:.0f} s", flush=True)
        settings = Settings(rule=StopRule(rounds, rounds, 20.0), host_time=False, warm_up_s=0.5)
        contenders: list[Contender] = [TorchMatmul(), *ours]
        measurement = measure(problem, contenders, gpu, settings=settings)
        record = measurement_record(measurement, suite)
        for name, used in resources.items():
            names = ("registers", "spill_bytes", "shared_bytes")
            record["lanes"][name]["resources"] = dict(zip(names, used, strict=True))
        records.append(record)
        save(settings)
        torch.cuda.empty_cache()
        by_name = {c.name: c.config for c in ours}
        return [by_name[n] for n in report(measurement, resources, most) if isinstance(by_name[n], ChampionConfig)]

    best = big_configs()
    steps: list[tuple[str, Any]] = []
    if "big" in stages:
        steps.append(("big", None))
    if "small" in stages:
        steps += [("small", shape) for shape in (options.shapes.split(",") if options.shapes else SMALL_SHAPES)]
    if "large" in stages:
        steps += [("large", shape) for shape in LARGE_SHAPES]
    for stage, shape in steps:
        try:
            if stage == "big":
                best = run(MAIN_SHAPE, best, options.first_rounds, 60, "explore")
                best = run(MAIN_SHAPE, best[: options.keep], options.rounds, 20, "explore")
            elif stage == "small":
                found = small_configs(parse_shape(shape).problem(FP32, "NN", "ieee"))
                found = run(shape, found, options.first_rounds, 8, "explore small")
                run(shape, found[:4], options.rounds, 4, "explore small")
            else:
                run(shape, best[:4], options.rounds, 6, "explore large")
        except Exception as error:  # one shape's trouble is not the end of the others
            print(f"{stage} {shape or MAIN_SHAPE} failed: {type(error).__name__}: {error}", flush=True)
    if "ncu" in stages:
        try:
            chosen = best[:3] + [c for c in best if not c.pinned][:1]
            counters += [{**row, "shape": MAIN_SHAPE} for row in profile(chosen, MAIN_SHAPE, options.out)]
            for row in counters:
                print({k: (round(v, 3) if isinstance(v, float) else v) for k, v in row.items()})
            print("configs:", [label(c) for c in chosen])
        except (OSError, subprocess.SubprocessError) as error:
            print(f"ncu failed: {error}")
    save(Settings())
    print(f"done in {time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
