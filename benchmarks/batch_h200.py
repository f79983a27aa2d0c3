"""Batches: our two kernels of them against torch.bmm (cuBLAS); compile, time cold, check against float64, write.

    PYTHONPATH=src python3 benchmarks/batch_h200.py --out $OUT/batch.json                 # some 60 s on 16 cores
    PYTHONPATH=src python3 benchmarks/batch_h200.py --out $OUT/batch.json --configs 3     # settings to choose among
    PYTHONPATH=src python3 benchmarks/batch_h200.py --compile-only                        # no card needed

The suite "batch" in bf16 and fp16, and shapes that models have or that no library likes. With ``--configs N``, of each
kernel the best setting by its model of each of N tiles (for the dispatcher's table: the fastest is what it will call).
All is compiled before anything is timed; a job that would begin after ``--seconds`` is left out and named.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("RUNGEMM_CACHE_DIR", os.path.join(tempfile.gettempdir(), f"rungemm-cache-{os.getuid()}"))

from needs_card import need_card

from rungemm.bench.interleaved import StopRule
from rungemm.bench.measurement import Settings
from rungemm.bench.session import Done, Job, run_session
from rungemm.bench.statistics import geometric_mean, spread_of
from rungemm.bench.store import write_json
from rungemm.bench.suites import SUITES, parse_shape
from rungemm.compiling import CompileError, compile_many
from rungemm.dtypes import BF16, FP16, FP32, DType
from rungemm.hardware import DEFAULT_GPU, Gpu, detect_gpu
from rungemm.kernels import BATCHED, Kernel
from rungemm.kernels.base import Config
from rungemm.problem import Problem

MODELS = (
    # Swin attention's windows; ViT-L heads' scores and values; Whisper's encoder; tiny products by the thousand.
    ("256x49x49x32", "NT", FP16), ("256x49x32x49", "NN", FP16), ("256x577x577x64", "NT", BF16),
    ("256x577x64x577", "NN", BF16), ("64x1500x1500x64", "NT", FP16), ("64x1500x64x1500", "NN", FP16),
    ("4096x16x16x64", "NN", FP16), ("65536x8x8x64", "NN", FP16), ("65536x225x1x4", "NN", FP16),
    ("2048x32x32x32", "NN", BF16),
)  # fmt: skip
RAGGED = (
    ("64x127x129x65", "NN", FP16), ("32x333x777x555", "NN", FP16), ("32x333x777x555", "NT", BF16),
    ("16x4097x128x4097", "NN", BF16), ("8x1023x1025x1027", "NN", BF16), ("512x63x65x33", "NN", FP16),
)  # fmt: skip
TF32 = (("32x512x512x512", "NT", FP32), ("32x333x777x555", "NN", FP32))


def jobs() -> list[Job]:
    """In the order of their worth."""
    suite = list(SUITES["batch"][1]())
    found = [Job("batch", shape.problem(BF16, "NN")) for shape in suite]
    found += [Job("batch-ragged", _problem(*entry)) for entry in RAGGED]
    found += [Job("batch-models", _problem(*entry)) for entry in MODELS]
    found += [Job("batch", shape.problem(FP16, "NN")) for shape in suite]
    return found + [Job("batch-tf32", _problem(*entry)) for entry in TF32]


def _problem(shape: str, layout: str, dtype: DType) -> Problem:
    return parse_shape(shape).problem(dtype, layout, "tf32" if dtype == FP32 else "ieee")


def settings_of(kernel: Kernel[Any], problem: Problem, gpu: Gpu, count: int) -> list[Config]:
    """The kernel's first choice, then its best of each other tile and schedule; none where it takes no setting."""
    found: dict[tuple[object, ...], Config] = {}
    for config in kernel.configs(problem, gpu):
        if kernel.supports(problem, config, gpu) is not None:
            continue
        kind = tuple(getattr(config, name, None) for name in ("tile_m", "tile_n", "schedule", "crowd", "num_warps"))
        found.setdefault(kind, config)
        if len(found) == count:
            break
    return list(found.values())


def spec(kernel: Kernel[Any], config: Config) -> str:
    """The contender as ``rungemm bench`` takes it."""
    return f"{kernel.name}@" + ",".join(f"{key}={value}" for key, value in config.to_dict().items())


def show(done: Done) -> tuple[float | None, int]:
    """Print a line a lane; the best ratio of ours to cuBLAS, and how many lanes are wrong."""
    problem, ratios, wrong = done.measurement.problem, [], 0
    print(f"\n{problem} {done.job.suite}: {done.measurement.rounds.count} rounds, {done.measurement.wall_s:.1f} s")
    for name, lane in done.measurement.lanes.items():
        ratio = done.measurement.ratio("cublas", name)
        if lane.failure:
            wrong += 1
        elif ratio is not None and name != "cublas":
            ratios.append(ratio.value)
        microseconds = 1e6 * spread_of(lane.seconds).median if len(lane.seconds) else 0.0
        error = lane.checked.error if lane.checked else float("nan")
        used = done.resources.get(name, {})
        print(f"{microseconds:10.2f} us {f'{ratio.value:.3f}' if ratio else '-':>6} error {error:.1e} "
              f"spill {used.get('spill_bytes', '-'):>3}  {name[:150]}  {(lane.failure or '')[:150]}")  # fmt: skip
    return max(ratios, default=None), wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("batch.json"), help="the raw document")
    parser.add_argument("--configs", type=int, default=1, help="settings of each kernel")
    parser.add_argument("--only", default="", help="suites by commas: batch, batch-ragged, batch-models, batch-tf32")
    parser.add_argument("--seconds", type=float, default=60.0, help="of the whole call; no job begins after them")
    parser.add_argument("--budget", type=float, default=0.4, help="seconds of timing a shape, beyond the least rounds")
    parser.add_argument("--compile-only", action="store_true")
    options = parser.parse_args()
    if not options.compile_only:
        need_card()
    started, gpu = time.monotonic(), detect_gpu() or DEFAULT_GPU
    only = [name for name in options.only.split(",") if name]
    chosen = [job for job in jobs() if not only or job.suite in only]
    lanes: dict[Job, list[str]] = {}
    plans, labels = [], []
    for job in chosen:
        lanes[job] = ["cublas"]
        for kernel in BATCHED:
            for config in settings_of(kernel, job.problem, gpu, options.configs):
                lanes[job].append(spec(kernel, config))
                plans.append((kernel.plan(job.problem, config, gpu), gpu.arch))
                labels.append(f"{job.problem} {lanes[job][-1]}")
    made = compile_many(plans, workers=os.cpu_count())
    failed = [(label, result) for label, result in zip(labels, made, strict=True) if isinstance(result, CompileError)]
    print(f"{time.monotonic() - started:6.1f} s: {len(plans)} compiled, {len(failed)} failed", flush=True)
    for label, result in failed:
        print(f"{label}: {str(result).splitlines()[0]}")
    if options.compile_only:
        for label, result in zip(labels, made, strict=True):
            if not isinstance(result, CompileError):
                print([(code.registers, code.spill_bytes) for code in result], label)
        return 1 if failed else 0
    # One operand set would stay in L2; the least time that shows a clock's drift is kept short on purpose.
    settings = Settings(
        rule=StopRule(8, 25, options.budget), data="normal", warm_up_s=0.15, sample_s=0.004, host_time=False
    )
    document: dict[str, Any] = {}
    finished: list[Done] = []
    left_out, wrong = [], len(failed)
    for job in chosen:
        if time.monotonic() - started > options.seconds:
            left_out.append(f"{job.suite} {job.problem}")
            continue
        made_now = run_session(
            [job], lanes[job], gpu, settings=settings, on_done=finished.append,
            on_failure=lambda job, why: print(f"{job.problem}: {why}", flush=True),
        )  # fmt: skip
        measurements = document.get("measurements", []) + made_now["measurements"]
        document = made_now | {"measurements": measurements}
        write_json(options.out, document)
    best: dict[str, list[float]] = {}
    for done in finished:
        ratio, faults = show(done)
        wrong += faults
        if ratio is not None:
            best.setdefault(f"{done.job.suite} {done.job.problem.a.dtype}", []).append(ratio)
    for name, values in best.items():
        print(f"{name}: best of ours {geometric_mean(values):.3f}x cuBLAS of {len(values)}, least {min(values):.3f}, "
              f"most {max(values):.3f}")  # fmt: skip
    if left_out:
        document["left_out"] = left_out
        write_json(options.out, document)
        print(f"left out after {options.seconds:.0f} s: {'; '.join(left_out)}")
    print(f"{time.monotonic() - started:.0f} s, {wrong} wrong or failed")
    return 1 if wrong or not finished else 0


if __name__ == "__main__":
    sys.exit(main())
