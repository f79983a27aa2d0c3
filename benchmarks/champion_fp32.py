"""Explore the fp32 champion's settings on the card: compile many, check, time against cuBLAS, count with ncu.

    PYTHONPATH=src python3 benchmarks/champion_fp32.py --out $OUT/champion.json

Steps, of which ``--stage`` picks: settings for large products (big, then large), for a ragged one, for small ones; the
rungs, and other settings of those whose best is not settled (variants); the 27 large shapes with the champion's own
choice; candidates for floors that were missed (retry); sizes that the choice among few tiles rests on (cubes);
what shorter sums cost (flush), and the errors of the champion's choice and of cuBLAS everywhere (survey); Nsight
Compute's counters of the fastest and of cuBLAS. The file is written after each measurement, so that a run cut short
keeps what it had.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

# The lent machine has no platformdirs, which finds the cache's usual place.
os.environ.setdefault("RUNGEMM_CACHE_DIR", os.path.join(tempfile.gettempdir(), f"rungemm-cache-{os.getuid()}"))

from needs_card import need_card

from rungemm.bench.contenders import Contender, Ours, TorchMatmul
from rungemm.bench.environment import describe_environment
from rungemm.bench.interleaved import StopRule
from rungemm.bench.measurement import Measurement, Settings, measure
from rungemm.bench.statistics import spread_of
from rungemm.bench.store import measurement_record, raw_document, write_json
from rungemm.bench.suites import parse_shape, suite_named
from rungemm.compiling import compile_many
from rungemm.dtypes import FP32
from rungemm.hardware import DEFAULT_GPU, Gpu, detect_gpu
from rungemm.kernels import find_kernel
from rungemm.kernels.cuda_core.champion import ChampionConfig, ChampionFp32
from rungemm.kernels.cuda_core.champion_choice import few_settings
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
    text += (" across" if c.across else "") + (f" f{c.flush_k}" if c.flush_k else "")
    text += (f" r{c.max_registers}" if c.max_registers else "") + (" realign" if c.realign else "")
    text += (f" k{c.k_groups} st{c.stages}" if c.k_groups > 1 else "") + (" strips" if c.strips else "")
    text += f" p{c.parts}" if c.parts > 1 else ""
    return text + (f" s{c.splits}" if c.splits > 1 else "")


BASE = ChampionConfig()
CAPPED = replace(BASE, max_registers=128)


def big_configs() -> list[ChampionConfig]:
    """Settings for large products: what won at 4096^3 on 29 November, and its neighbours."""
    wide = replace(BASE, tile_m=64, tile_n=256, thread_n=16, num_warps=4)
    found = [replace(CAPPED, across=across, interleaved=il) for across, il in product((False, True), (False, True))]
    found += [replace(CAPPED, group_m=g) for g in (4, 16, 32)]
    found += [replace(CAPPED, lanes_m=8), replace(CAPPED, lanes_m=8, across=True)]
    found += [wide, replace(wide, across=True), replace(CAPPED, tile_m=256, num_warps=16)]
    return found


def ragged_configs() -> list[ChampionConfig]:
    """Where nothing divides anything: operands laid out anew or not, the sum along K cut for exactness or not."""
    anew = replace(CAPPED, realign=True)
    found = [replace(anew, flush_k=flush, lanes_m=lanes) for flush, lanes in product((1376, 0), (4, 8))]
    found += [replace(anew, flush_k=1376, interleaved=True), replace(anew, flush_k=1376, across=True)]
    return [*found, replace(CAPPED, flush_k=1376, interleaved=True), replace(anew, splits=3)]


def rung_variants() -> list[tuple[str, dict[str, Any]]]:
    """Rungs and what to change in their default."""
    found: list[tuple[str, dict[str, Any]]] = [("coalesced", {}), ("coalesced", {"num_warps": 32, "tile_m": 32})]
    found += [("coalesced", {"num_warps": 8, "tile_m": 8}), ("coalesced", {"group_m": 128})]
    changes: list[dict[str, Any]] = [
        {}, {"down": False}, {"group_m": 4}, {"group_m": 16}, {"pinned": False}, {"max_registers": 120},
    ]  # fmt: skip
    found += [("double_buffer", change) for change in changes]
    return [*found, ("double_buffer_k16", {}), ("cp_async", {}), ("autotuned", {}), ("split_k", {}), ("warp_tile", {})]


def small_configs(problem: Problem) -> list[ChampionConfig]:
    """Settings for products with few tiles: K split until every SM holds as many blocks as the tile leaves room for."""
    tile = ChampionConfig()
    s64 = ChampionConfig(4, 64, 64, 16, 8, 4)
    tiles: list[tuple[ChampionConfig, tuple[int, ...]]] = [
        (replace(tile, max_registers=128), (1, 2)),
        (replace(tile, num_warps=4, tile_m=64, max_registers=128), (2, 4)),
        (replace(tile, num_warps=2, tile_m=64, tile_n=64, max_registers=128), (4, 8)),
        (replace(tile, num_warps=2, tile_m=64, tile_n=64, tile_k=16, max_registers=128), (4, 8)),
        (s64, (2, 3, 4, 6)), (replace(s64, tile_k=32), (2, 4)), (replace(s64, tile_k=8), (4,)),
        (replace(s64, num_warps=8, thread_m=4), (2, 3, 4)),
        (replace(s64, tile_m=32, thread_m=4), (2, 4, 6)), (replace(s64, tile_m=32, thread_m=4, tile_k=32), (2, 4, 6)),
        (replace(s64, num_warps=2, tile_m=32, tile_n=32, thread_m=4, tile_k=32), (4, 8)),
    ]  # fmt: skip
    found = []
    for config, blocks in tiles:
        count = -(-problem.m // config.tile_m) * -(-problem.n // config.tile_n)
        for on_an_sm in blocks:
            splits = max(1, int(132 * on_an_sm / count))
            if splits == 1 or problem.k // splits >= 2 * config.tile_k:
                found.append(replace(config, splits=splits))
    return list(dict.fromkeys(found))


SPREAD, TINY, FEW = few_settings(BASE, unaligned=False)[:3]


def retry_configs() -> dict[str, list[ChampionConfig]]:
    """Where floors are missed: copies between multiply-adds, beside the same with all copies first (one part)."""
    strips = replace(SPREAD, stages=3, strips=True)
    square = replace(SPREAD, tile_m=64, k_groups=4, stages=3, splits=8)
    sixteen = replace(square, num_warps=16, k_groups=8, across=True, max_registers=128)
    large = replace(sixteen, tile_m=128, tile_n=128, tile_k=32, k_groups=2, splits=33)
    return {
        "333x777x555": [
            strips, replace(strips, across=True), replace(strips, num_warps=16, thread_n=4, max_registers=128),
            replace(strips, parts=1), replace(SMALL_BEFORE, splits=6),
        ],
        "256x256x16384": [
            square, replace(square, tile_k=32, parts=2, stages=4), sixteen, large, replace(large, across=False),
            replace(square, parts=1), replace(CAPPED, splits=66),
        ],
    }  # fmt: skip


def cube_configs() -> dict[str, list[ChampionConfig]]:
    """What the choice among few tiles rests on: K split between a block's warps or between blocks, at several sizes.

    First the search space's own first pick, which the others must beat.
    """
    half, quarter = replace(CAPPED, num_warps=4, tile_m=64), replace(CAPPED, num_warps=2, tile_m=64, tile_n=64)
    narrow = replace(FEW, num_warps=16, thread_n=4, max_registers=128)
    found: dict[str, list[ChampionConfig]] = {}
    for size in (128, 256, 384, 512, 640, 768, 1024):
        few = [FEW, replace(FEW, interleaved=False), replace(FEW, tile_k=32), SPREAD, narrow]
        few += [TINY, replace(TINY, interleaved=False)] if size <= 512 else []
        parts = sorted({max(1, blocks * 132 // ((size // 64) * max(1, size // 128))) for blocks in (2, 3, 4)})
        few += [replace(half, splits=min(size // 16, count)) for count in parts] if size >= 256 else []
        found[f"{size}x{size}x{size}"] = few
    found["768x768x768"] += [replace(half, splits=6), replace(CAPPED, splits=7), replace(CAPPED, splits=6)]
    found["1024x1024x1024"] = [replace(CAPPED, splits=s) for s in (2, 4)] + [replace(half, splits=s) for s in (2, 4)]
    found["1536x1536x1536"] = [
        replace(quarter, flush_k=512), quarter, replace(half, splits=3), replace(half, flush_k=512),
        *(replace(CAPPED, splits=s) for s in (3, 5)), replace(half, splits=5), replace(quarter, splits=3),
    ]  # fmt: skip
    found["333x777x555"] = [replace(SMALL_BEFORE, splits=6), replace(SPREAD, stages=3, strips=True), FEW]
    found["256x256x16384"] = [
        replace(CAPPED, splits=66), replace(CAPPED, splits=66, across=True), replace(SPREAD, stages=3, splits=4),
    ]  # fmt: skip
    deep = ChampionConfig(4, 64, 64, 32, 8, 4)
    found["64x64x65536"] = [replace(deep, splits=s) for s in (528, 396, 264)]
    for shape, configs in found.items():
        problem = parse_shape(shape).problem(FP32, "NN", "ieee")
        first = next(config for config in KERNEL.configs(problem, DEFAULT_GPU) if isinstance(config, ChampionConfig))
        found[shape] = list(dict.fromkeys([first, *configs]))
    return found


def flush_configs() -> dict[str, list[ChampionConfig]]:
    """What shorter sums cost: one sum for all of K, sums of the length allowed, and of half and twice that."""
    eight = replace(CAPPED, lanes_m=8)
    kinds = [CAPPED, eight, replace(CAPPED, across=True), replace(CAPPED, interleaved=True)]
    found: dict[str, list[ChampionConfig]] = {}
    for shape, length in (
        ("2048x2048x2048", 512), ("3072x3072x3072", 768), ("4096x4096x4096", 1024), ("6144x6144x6144", 1344),
        ("8192x8192x4096", 1024), ("8192x4096x8192", 1344), ("12288x12288x12288", 1344), ("16384x16384x8192", 1344),
    ):  # fmt: skip
        few = shape[:2] in ("61", "12", "16")
        flushed = [replace(config, flush_k=length) for config in (kinds[:2] if few else kinds)]
        found[shape] = [eight, *([] if few else [CAPPED]), *flushed]
        if not few:
            found[shape] += [replace(CAPPED, flush_k=length // 2), replace(CAPPED, flush_k=2 * length)]
    found["3072x3072x3072"] += [replace(CAPPED, splits=4), replace(CAPPED, splits=2, flush_k=768)]
    anew = [replace(config, realign=True) for config in kinds]
    found["4097x4095x4093"] = [replace(c, flush_k=f) for c, f in product((anew[0], anew[2]), (768, 1344, 0))]
    return found


SMALL_BEFORE = ChampionConfig(4, 64, 64, 8, 8, 4)
SMALL_SHAPES = ("1024x1024x1024", "512x512x512", "256x256x16384", "64x64x65536", "333x777x555")
LARGE_SHAPES = ("8192x8192x4096", "16384x4096x2048")
RAGGED_SHAPE = "4097x4095x4093"
RUNGS = (
    "coalesced", "bank_conflict_free", "double_buffer", "double_buffer_k16", "cp_async", "autotuned", "warp_tile",
    "split_k", "champion_fp32",
)  # fmt: skip


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
    return that_compile(zip(chosen, results, strict=True))


def that_compile(compiled: Iterable[tuple[Ours, Any]]) -> tuple[list[Ours], dict]:
    """Contenders whose compiler's result is code, and its resources by name; the others are named."""
    resources, kept = {}, []
    for contender, result in compiled:
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
        "-k", "regex:champion_fp32|gemm|Kernel|add_up|splitK", "--launch-skip", "0",
        sys.executable, __file__, "--profile-child",
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
        try:
            value = float(row["Metric Value"].replace(",", ""))
        except ValueError:  # "n/a": this ncu has the name but not the metric
            continue
        entry[back.get(row["Metric Name"], row["Metric Name"])] = value
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
    parser.add_argument("--stage", default="big,ragged,small,rungs,suite,ncu")
    parser.add_argument("--shapes", default="")
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
    need_card()
    import torch

    started = time.monotonic()
    environment = describe_environment(gpu.name)
    records: list[dict[str, Any]] = []
    counters: list[dict[str, Any]] = []
    surveyed: list[dict[str, Any]] = []
    stages = options.stage.split(",")

    def save(settings: Settings) -> None:
        document = raw_document(environment, settings, records)
        document["counters"] = counters
        document["surveyed_errors"] = surveyed
        write_json(options.out, document)

    def beside_cublas(
        problem: Problem, ours: list[Ours], resources: dict, settings: Settings, suite: str
    ) -> Measurement:
        """Time them, and save all that is known so far."""
        contenders: list[Contender] = [TorchMatmul(), *ours]
        measurement = measure(problem, contenders, gpu, settings=settings)
        record = measurement_record(measurement, suite)
        for name, used in resources.items():
            names = ("registers", "spill_bytes", "shared_bytes")
            record["lanes"][name]["resources"] = dict(zip(names, used, strict=True))
        records.append(record)
        save(settings)
        torch.cuda.empty_cache()
        return measurement

    def run(shape: str, configs: list[ChampionConfig], rounds: int, most: int, suite: str) -> list[ChampionConfig]:
        problem = parse_shape(shape).problem(FP32, "NN", "ieee")
        ours, resources = contenders_for(problem, configs, gpu, options.workers)
        print(f"{shape}: {len(ours)} compiled, {time.monotonic() - started:.0f} s", flush=True)
        settings = Settings(rule=StopRule(rounds, rounds, 20.0), host_time=False, warm_up_s=0.5)
        measurement = beside_cublas(problem, ours, resources, settings, suite)
        by_name = {c.name: c.config for c in ours if isinstance(c.config, ChampionConfig)}
        return [by_name[n] for n in report(measurement, resources, most)]

    best = big_configs()

    def suite_run(shapes: list[str], kernels: list[Any], rounds: int, suite: str) -> None:
        """Kernels by their own choice of settings against cuBLAS; the geometric mean of the champion's ratios."""
        ratios = []
        for shape in shapes:
            problem = parse_shape(shape).problem(FP32, "NN", "ieee")
            contenders: list[Contender] = [TorchMatmul(), *(Ours(kernel, gpu) for kernel in kernels)]
            settings = Settings(rule=StopRule(rounds, rounds, 30.0), host_time=False, warm_up_s=0.3)
            measurement = measure(problem, contenders, gpu, settings=settings)
            records.append(measurement_record(measurement, suite))
            save(settings)
            torch.cuda.empty_cache()
            report(measurement, {}, 20)
            ratio = measurement.ratio("cublas", KERNEL.name)
            ratios += [ratio.value] if ratio else []
        if len(ratios) > 1:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            print(f"{suite}: geometric mean of {len(ratios)} ratios {mean:.4f}, lowest {min(ratios):.4f}", flush=True)

    def variants() -> None:
        problem = parse_shape(MAIN_SHAPE).problem(FP32, "NN", "ieee")
        contenders: list[Contender] = [TorchMatmul()]
        for name, changes in rung_variants():
            kernel: Any = find_kernel(name)
            text = " ".join([name, *(f"{key}={value}" for key, value in changes.items())])
            contenders.append(Ours(kernel, gpu, replace(kernel.default, **changes), name=text))
        plans = [contender.plan(problem) for contender in contenders if isinstance(contender, Ours)]
        compile_many([(plan, gpu.arch) for plan in plans], workers=options.workers)
        settings = Settings(rule=StopRule(options.rounds, options.rounds, 30.0), host_time=False, warm_up_s=0.3)
        measurement = measure(problem, contenders, gpu, settings=settings)
        records.append(measurement_record(measurement, "variants"))
        save(settings)
        report(measurement, {}, 30)

    def retry(candidates: dict[str, list[ChampionConfig]], suite: str) -> None:
        """Everything compiled at once, then each shape's candidates beside cuBLAS."""
        lists: dict[Problem, list[Ours]] = {}
        for shape in options.shapes.split(",") if options.shapes else candidates:
            problem = parse_shape(shape).problem(FP32, "NN", "ieee")
            taken = [config for config in candidates[shape] if KERNEL.supports(problem, config, gpu) is None]
            lists[problem] = [Ours(KERNEL, gpu, config, name=label(config)) for config in taken]
        jobs = [(problem, ours) for problem, found in lists.items() for ours in found]
        results = compile_many([(ours.plan(problem), gpu.arch) for problem, ours in jobs], workers=options.workers)
        print(f"{len(jobs)} compiled, {time.monotonic() - started:.0f} s", flush=True)
        settings = Settings(rule=StopRule(options.rounds, options.rounds, 10.0), host_time=False, warm_up_s=0.3)
        for problem in lists:
            mine = ((ours, result) for (owner, ours), result in zip(jobs, results, strict=True) if owner is problem)
            kept, resources = that_compile(mine)
            measurement = beside_cublas(problem, kept, resources, settings, suite)
            report(measurement, resources, 20)

    def survey() -> None:
        """The error of the champion's own choice and of cuBLAS for every shape of these suites, from some rows of D."""
        shapes = [
            shape for suite in ("squares", "cross27", "ragged", "deep", "models") for shape in suite_named(suite)
        ]  # fmt: skip
        problems = list(dict.fromkeys(shape.problem(FP32, None, "ieee") for shape in shapes))
        ours = [Ours(KERNEL, gpu) for _ in problems]
        plans = [(contender.plan(problem), gpu.arch) for contender, problem in zip(ours, problems, strict=True)]
        compile_many(plans, workers=options.workers)
        print(f"{len(plans)} compiled, {time.monotonic() - started:.0f} s", flush=True)
        torch.backends.cuda.matmul.allow_tf32 = False
        above = 0
        for problem in problems:
            contender = ours.pop(0)  # and its workspaces with it
            torch.manual_seed(problem.m + problem.n + problem.k)
            a, b = torch.randn(problem.m, problem.k, device="cuda"), torch.randn(problem.k, problem.n, device="cuda")
            if problem.b.col_stride != 1:
                b = torch.randn(problem.n, problem.k, device="cuda").t()
            d = torch.empty(problem.m, problem.n, device="cuda")
            rows = torch.randperm(problem.m, device="cuda")[:64]
            exact = a[rows].double() @ b.double()
            errors = []
            for one in (TorchMatmul(), contender):
                d.fill_(float("nan"))
                one.bind(problem, {"A": a, "B": b, "D": d})()
                errors.append(float((d[rows].double() - exact).norm() / exact.norm()))
            ratio = errors[1] / errors[0]
            above += not ratio <= 1.1
            text = f"{problem.m}x{problem.n}x{problem.k} {problem.layout}"
            print(f"{text:<26} cublas {errors[0]:.2e} champion {errors[1]:.2e} {ratio:.2f} "
                  f"{'' if ratio <= 1.1 else '<<<'}", flush=True)  # fmt: skip
            surveyed.append({"shape": text, "cublas": errors[0], "champion": errors[1], "rows": len(rows)})
            del a, b, d, exact
            torch.cuda.empty_cache()
        save(Settings())
        print(f"{above} of {len(problems)} above 1.1", flush=True)

    def big() -> None:
        nonlocal best
        best = run(MAIN_SHAPE, best, options.rounds, 20, "explore")

    def large() -> None:
        for shape in LARGE_SHAPES:
            run(shape, best[:4], options.rounds, 6, "explore large")

    def small() -> None:
        for shape in options.shapes.split(",") if options.shapes else SMALL_SHAPES:
            found = run(shape, small_configs(parse_shape(shape).problem()), options.first_rounds, 12, "explore small")
            run(shape, found[:4], options.rounds, 4, "explore small")
            small_best[shape] = found[0]

    def ncu() -> None:
        for shape, chosen in [(MAIN_SHAPE, best[:2]), *((shape, [config]) for shape, config in small_best.items())]:
            rows = profile(chosen, shape, options.out)
            counters.extend({**row, "shape": shape} for row in rows)
            print(f"ncu {shape}: {[label(c) for c in chosen]}")
            for row in rows:
                print("  ", {k: (round(v, 3) if isinstance(v, float) else v) for k, v in row.items()}, flush=True)

    small_best: dict[str, ChampionConfig] = {}
    steps = {
        "big": big,
        "ragged": lambda: run(RAGGED_SHAPE, ragged_configs(), options.rounds, 20, "explore ragged"),
        "small": small,
        "large": large,
        "variants": variants,
        "retry": lambda: retry(retry_configs(), "retry"),
        "cubes": lambda: retry(cube_configs(), "few tiles"),
        "flush": lambda: retry(flush_configs(), "flush"),
        "survey": survey,
        "rungs": lambda: suite_run([MAIN_SHAPE], [find_kernel(name) for name in RUNGS], options.rounds, "ladder"),
        "suite": lambda: suite_run([str(s) for s in suite_named("cross27")], [KERNEL], options.rounds, "cross27"),
        "ncu": ncu,
    }
    for stage in stages:
        try:
            steps[stage]()
        except Exception as error:  # one step's trouble is not the end of the others
            print(f"{stage} failed: {type(error).__name__}: {error}", flush=True)
    save(Settings())
    print(f"done in {time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
