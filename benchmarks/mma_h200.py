"""The mma.sync rungs and their champion against cuBLAS at one shape: compile, check, time, write, print.

    PYTHONPATH=src python3 benchmarks/mma_h200.py --out $OUT                       # some 40 s on 16 cores
    PYTHONPATH=src python3 benchmarks/mma_h200.py --out $OUT --per-rung 10 --champion 0 --dtypes fp32,fp16

``--per-rung N`` takes up to N configs of each rung, ``--champion N`` the best of each of the champion's N best tiles by
its model, and the first of them with its fragments early or late, whichever it had not; in bf16, where the code is
fp16's but for a letter, half as many. All is compiled before anything is timed, so that every core has work.

fp16 accumulators miss the bench's tolerance, which is that of fp32 sums; such a lane is marked "fp16 sums", with its
error, and counts as wrong only beyond ``FP16_SUMS``.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

os.environ.setdefault("RUNGEMM_CACHE_DIR", os.path.join(tempfile.gettempdir(), f"rungemm-cache-{os.getuid()}"))

from needs_card import need_card

from rungemm.bench.interleaved import StopRule
from rungemm.bench.measurement import Settings
from rungemm.bench.session import Done, Job, run_session
from rungemm.bench.statistics import spread_of
from rungemm.bench.suites import parse_shape
from rungemm.compiling import compile_many
from rungemm.dtypes import dtype_named
from rungemm.hardware import DEFAULT_GPU, Gpu, detect_gpu
from rungemm.kernels import LaunchPlan, find_kernel
from rungemm.kernels.tensor_core.champion import MmaChampionConfig
from rungemm.problem import Problem

FP16_SUMS = 0.1
"""Relative error allowed with fp16 accumulators: the original's was 6.5e-2 at K = 8192 (LADDER.md)."""


def spec(name: str, config: dict[str, object]) -> str:
    """The contender as ``rungemm bench`` takes it."""
    return f"{name}@" + ",".join(f"{key}={value}" for key, value in config.items())


def best_of_tiles(problem: Problem, gpu: Gpu, count: int) -> list[MmaChampionConfig]:
    """The champion's best config, by its model, of each of its ``count`` best tiles; and a twin of the first."""
    found: dict[tuple[int, int, int], MmaChampionConfig] = {}
    kernel = find_kernel("champion_mma")
    for config in kernel.configs(problem, gpu):
        found.setdefault((config.tile_m, config.tile_n, config.num_warps), config)
    chosen = list(found.values())[:count]
    twins = [replace(config, early=not config.early) for config in chosen[:1]]
    return chosen + [config for config in twins if kernel.supports(problem, config, gpu) is None]


def show(done: Done) -> int:
    """Print a line a lane; how many are wrong."""
    print(f"\n{done.measurement.problem}: {done.measurement.rounds.count} rounds, {done.measurement.wall_s:.1f} s, "
          f"clocks {done.measurement.clocks}")  # fmt: skip
    wrong, problem = 0, done.measurement.problem
    for name, lane in done.measurement.lanes.items():
        error = lane.checked.error if lane.checked else float("nan")
        ratio, used = done.measurement.ratio("cublas", name), done.resources.get(name, {})
        note = lane.failure or ""
        if "accumulate=fp16" in name and lane.checked and error < FP16_SUMS and not lane.checked.mismatched:
            note = "fp16 sums"
        elif lane.failure:
            wrong += 1
        against = f"{ratio.value:.3f}" if ratio else "-"
        median = spread_of(lane.seconds).median if len(lane.seconds) else 0.0
        rate = 2e-12 * problem.m * problem.n * problem.k / median if median else 0.0
        print(f"{rate:8.1f} TFLOPS {against:>6} error {error:.1e} regs {used.get('registers', '-'):>4} "
              f"spill {used.get('spill_bytes', '-'):>4}  {name}  {note[:160]}")  # fmt: skip
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of mma_fp32.json and mma_fp16.json")
    parser.add_argument("--shape", default="4096x4096x4096")
    parser.add_argument("--layout", default="NN")
    parser.add_argument("--dtypes", default="fp32,fp16,bf16", help="fp32 is tf32")
    parser.add_argument("--precision", default="tf32", help="of fp32: tf32 or tf32x3 (the champion only)")
    parser.add_argument("--per-rung", type=int, default=1)
    parser.add_argument("--champion", type=int, default=6, help="of the champion's tiles; 0 leaves it out")
    parser.add_argument("--rungs", default="tf32_mma,mma_multistage,mma_warp_specialised,champion_mma")
    parser.add_argument("--budget", type=float, default=3.0, help="seconds of timing a dtype")
    parser.add_argument("--compile-only", action="store_true", help="no card needed: compile and say what spills")
    options = parser.parse_args()
    if not options.compile_only:
        need_card()
    options.out.mkdir(parents=True, exist_ok=True)
    gpu = detect_gpu() or DEFAULT_GPU
    shape = parse_shape(options.shape)
    start, wrong = time.monotonic(), 0
    finished: list[Done] = []
    work: list[tuple[str, Problem, list[str]]] = []
    plans: list[LaunchPlan] = []
    labels: list[str] = []
    for text in options.dtypes.split(","):
        dtype = dtype_named(text)
        problem = shape.problem(dtype, options.layout, options.precision if text == "fp32" else "ieee")
        names = ["cublas"]
        for rung in options.rungs.split(","):
            kernel = find_kernel(rung)
            configs = list(kernel.configs(problem, gpu))[: options.per_rung] if dtype in kernel.dtypes else []
            if rung == "champion_mma":
                configs = best_of_tiles(problem, gpu, -(-options.champion // 2) if text == "bf16" else options.champion)
            for config in configs:
                if kernel.supports(problem, config, gpu) is None:
                    names.append(spec(rung, config.to_dict()))
                    plans.append(kernel.plan(problem, config, gpu))
                    labels.append(f"{text} {names[-1]}")
        if len(names) > 1:
            work.append((text, problem, names))
    made = compile_many([(plan, gpu.arch) for plan in plans], workers=os.cpu_count())
    print(f"{time.monotonic() - start:6.1f} s: {len(plans)} compiled", flush=True)
    if options.compile_only:
        for label, result in zip(labels, made, strict=True):
            code = max(result, key=lambda launch: launch.registers) if isinstance(result, tuple) else None
            print(f"{code.registers:4} registers {code.spill_bytes:5} spilled" if code else str(result)[:200], label)
        return 0
    for text, problem, names in work:
        settings = Settings(rule=StopRule(8, 30, options.budget), data="normal", warm_up_s=0.5)
        run_session(
            [Job("mma", problem)], names, gpu, settings=settings, out=options.out / f"mma_{text}.json",
            workers=os.cpu_count(), on_done=finished.append,
            on_failure=lambda job, why: print(f"{job.problem}: {why}", flush=True),
        )  # fmt: skip
        print(f"{time.monotonic() - start:6.1f} s", flush=True)
    for done in finished:
        wrong += show(done)
    return 1 if wrong or not finished else 0


if __name__ == "__main__":
    sys.exit(main())
