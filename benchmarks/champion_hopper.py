"""Settings of the Hopper champion against cuBLAS, a part of the shapes at a time: compile, check, time, print, write.

    PYTHONPATH=src python3 benchmarks/champion_hopper.py --out $OUT/x.json --part big

Each part is a list of problems with the settings worth trying on them. All settings of a part are compiled in parallel,
then each problem is measured with its settings interleaved with torch (cold L2, float64-checked, clocks logged). The
file is written again after every problem; a setting that fails is reported and the others go on.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from rungemm.bench.contenders import Ours, TorchMatmul
from rungemm.bench.environment import describe_environment
from rungemm.bench.interleaved import StopRule
from rungemm.bench.measurement import Measurement, Settings, measure
from rungemm.bench.statistics import spread_of
from rungemm.bench.store import measurement_record, raw_document, write_json
from rungemm.dtypes import BF16, FP32
from rungemm.hardware import DEFAULT_GPU, Gpu, detect_gpu
from rungemm.kernels.base import Unsupported
from rungemm.kernels.hopper.champion import ChampionHopper, HopperConfig
from rungemm.problem import Problem

KERNEL = ChampionHopper()
Case = tuple[Problem, dict[str, HopperConfig]]

WIDE = HopperConfig()
HALVES = replace(WIDE, schedule="halves", num_warps=4)
TALL = replace(HALVES, tile_m=256, tile_n=128, buffers=1)
TURNS = replace(WIDE, schedule="turns", num_warps=4, tile_n=128, stages=6, buffers=1)
TURNS_FLAT = replace(TURNS, tile_m=64, tile_n=256, stages=5)


def stream(config: HopperConfig, programs: int = 0) -> HopperConfig:
    return replace(config, stream=True, programs=programs)


def bf16(m: int, n: int, k: int, layout: str = "NT") -> Problem:
    return Problem.dense(m, n, k, dtype=BF16, layout=layout)


def tf32(m: int, n: int, k: int, layout: str = "NT", precision: str = "tf32") -> Problem:
    return Problem.dense(m, n, k, dtype=FP32, layout=layout, precision=precision)  # type: ignore[arg-type]


def narrow(tokens: int, tile_m: int = 128, tile_k: int = 128, **changes: object) -> HopperConfig:
    """For few rows of A: B takes wgmma's M, and the ring is as deep as fits."""
    tile_n = max(16, tokens)
    stages = min(16, 200_000 // ((tile_m + tile_n) * tile_k * 2))
    config = HopperConfig(
        tile_m=tile_m, tile_n=tile_n, tile_k=tile_k, num_warps=tile_m // 16, stages=stages, part_n=min(64, tile_n),
        buffers=1, swap=True, group=1,
    )  # fmt: skip
    return replace(config, **changes)  # type: ignore[arg-type]


def big() -> Iterator[Case]:
    every = {
        "wide": WIDE, "wide g16": replace(WIDE, group=16), "halves": HALVES, "tall": TALL, "turns": TURNS,
        "turns flat": TURNS_FLAT, "wide stream": stream(WIDE), "k128": replace(WIDE, tile_k=128, stages=2),
    }  # fmt: skip
    few = {name: every[name] for name in ("wide", "halves", "turns", "wide stream")}
    yield bf16(8192, 8192, 8192), every
    yield bf16(4096, 4096, 4096), every
    yield bf16(8192, 8192, 8192, "NN"), few
    yield bf16(4096, 4096, 4096, "NN"), few
    yield bf16(16384, 16384, 16384), few


def skinny() -> Iterator[Case]:
    for tokens in (16, 64, 1):
        for n, k in ((4096, 4096), (28672, 4096), (4096, 14336)):
            base = narrow(tokens)
            yield bf16(tokens, n, k), {
                "128 stream": stream(base),
                "128 stream 128": stream(base, 128),
                "64 stream": stream(narrow(tokens, 64)),
                "64 plain": narrow(tokens, 64),
                "64 k256 stream": stream(narrow(tokens, 64, 256)),
                "128 k64 stream": stream(narrow(tokens, 128, 64)),
            }


def llm() -> Iterator[Case]:
    square = replace(HALVES, tile_n=128, stages=6)
    for tokens in (128, 256, 1024, 4096):
        for n, k in ((4096, 4096), (28672, 4096), (4096, 14336)):
            settings = {
                "wide": WIDE, "wide stream": stream(WIDE), "halves stream": stream(HALVES),
                "square stream": stream(square), "turns": TURNS, "turns stream": stream(TURNS),
            }  # fmt: skip
            if tokens <= 256:
                swapped = replace(narrow(tokens), tile_k=64, stages=4)
                settings["swap stream"] = stream(swapped)
                settings["swap halves"] = stream(replace(swapped, num_warps=4, schedule="halves"))
            yield bf16(tokens, n, k), settings


def odd() -> Iterator[Case]:
    square = replace(HALVES, tile_n=128, stages=6)
    small = HopperConfig(tile_m=64, tile_n=64, num_warps=4, stages=8, buffers=1)
    yield bf16(4097, 4095, 4093, "NN"), {"wide": WIDE, "halves": HALVES, "wide stream": stream(WIDE), "turns": TURNS}
    yield bf16(333, 777, 555, "NN"), {"small": small, "small stream": stream(small), "square stream": stream(square)}
    thin = replace(small, tile_n=16, tile_k=128, part_n=16)
    yield bf16(64, 64, 65536), {
        "thin": stream(thin), "thin 64": stream(thin, 64), "small 32": stream(small, 32), "small 16": stream(small, 16),
    }  # fmt: skip
    yield bf16(256, 256, 16384), {
        "small": stream(small), "small 128": stream(small, 128),
        "small k128": stream(replace(small, tile_k=128, stages=6)),
        "64x32": stream(replace(small, tile_n=32, part_n=32)),
    }  # fmt: skip
    yield tf32(4097, 4095, 4093, "NN"), {
        "wide": replace(WIDE, tile_k=32, part_n=32), "halves": replace(HALVES, tile_k=32, part_n=32),
    }  # fmt: skip


def single() -> Iterator[Case]:
    wide, halves = replace(WIDE, tile_k=32, part_n=32), replace(HALVES, tile_k=32, part_n=32)
    tall = replace(TALL, tile_k=32, part_n=32)
    turns = replace(TURNS, tile_k=32, part_n=32, stages=5)
    square = replace(wide, tile_n=128, stages=6)
    yield tf32(8192, 8192, 4096), {
        "wide": wide, "halves": halves, "tall": tall, "turns": turns, "wide stream": stream(wide), "square": square,
    }  # fmt: skip
    yield tf32(8192, 8192, 4096, "NN"), {
        "swap halves": replace(halves, swap=True), "swap tall": replace(tall, swap=True), "copy wide": wide,
        "swap turns": replace(turns, swap=True), "swap wide": replace(wide, swap=True),
    }  # fmt: skip
    yield tf32(4096, 4096, 4096), {"wide": wide, "halves": halves, "turns": turns, "wide stream": stream(wide)}
    yield tf32(4096, 4096, 4096, "TN"), {"halves": halves}
    yield tf32(8192, 8192, 8192, "NN", "tf32x3"), {
        "promote 4": replace(square, promote=4), "promote 8": replace(square, promote=8),
        "halves 4": replace(halves, tile_n=128, stages=6, promote=4), "wide": wide,
    }  # fmt: skip


PARTS = {"big": big, "skinny": skinny, "llm": llm, "odd": odd, "tf32": single}


def contenders_of(problem: Problem, settings: dict[str, HopperConfig], gpu: Gpu) -> list[Ours]:
    """The settings that the kernel takes; the others are named."""
    found = []
    for name, config in settings.items():
        contender = Ours(KERNEL, gpu, config, name=name)
        try:
            contender.plan(problem)
        except Unsupported as error:
            print(f"  {problem}: {name} left out: {error}", flush=True)
            continue
        found.append(contender)
    return found


def compile_all(cases: list[tuple[Problem, list[Ours]]], gpu: Gpu, workers: int) -> None:
    """Fill the disk cache in parallel; says what spills or does not compile."""
    from rungemm.compiling import compile_many

    owners = [(problem, contender) for problem, contenders in cases for contender in contenders]
    jobs = [(contender.plan(problem), gpu.arch) for problem, contender in owners]
    for (problem, contender), result in zip(owners, compile_many(jobs, workers=workers), strict=True):
        if isinstance(result, BaseException):
            print(f"  {problem} {contender.name} does not compile: {str(result).splitlines()[0]}", flush=True)
        elif any(compiled.spill_bytes for compiled in result):
            print(f"  {problem} {contender.name} spills {[c.spill_bytes for c in result]} bytes", flush=True)


def table(found: Measurement) -> None:
    clocks = found.clocks
    print(f"{found.problem}  ({found.rounds.count} rounds, {found.wall_s:.1f} s)", flush=True)
    for name, lane in found.lanes.items():
        if lane.failure is not None:
            print(f"    {name:16} {lane.failure[:140]}", flush=True)
            continue
        median = spread_of(lane.seconds).median
        ratio = found.ratio("cublas", name)
        shown = f"{ratio.value:6.3f}x ({ratio.low:.3f}-{ratio.high:.3f})" if ratio else ""
        error = f"{lane.checked.error:.2e}" if lane.checked else ""
        weights = found.problem.minimum_bytes / median / 1e12
        speed = f"{1e6 * median:9.2f} us {lane.tflops:7.1f} TFLOPS {weights:5.2f} TB/s"
        print(f"    {name:16} {speed} {shown} {error}", flush=True)
    print(f"    clocks {clocks}"[:300], flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--part", choices=PARTS, action="append", required=True)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--budget", type=float, default=1.5, help="seconds of timing a problem")
    parser.add_argument("--limit", type=float, default=500, help="seconds after which no new problem is begun")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", default="", help="only problems whose text contains this")
    parser.add_argument("--compile-only", action="store_true")
    options = parser.parse_args()
    started = time.monotonic()
    gpu = detect_gpu() or DEFAULT_GPU
    cases = [
        (problem, contenders_of(problem, settings, gpu))
        for part in options.part
        for problem, settings in PARTS[part]()
        if options.only in str(problem)
    ]
    compile_all(cases, gpu, options.workers)
    print(f"compiled in {time.monotonic() - started:.1f} s", flush=True)
    if options.compile_only:
        return 0
    rule = StopRule(min_rounds=5, max_rounds=options.rounds, budget_s=options.budget, precision=0.0, hard=True)
    settings = Settings(rule=rule, host_time=False, warm_up_s=0.4, sample_s=0.003)
    records = []
    environment = describe_environment(gpu.title)
    for problem, contenders in cases:
        if time.monotonic() - started > options.limit:
            print(f"{problem}: not begun, {options.limit:.0f} s are over", flush=True)
            continue
        try:
            found = measure(problem, [TorchMatmul(), *contenders], gpu, settings=settings)
        except Exception as error:  # one problem's failure must not cost the others their device time
            print(f"{problem}: {type(error).__name__}: {error}"[:400], flush=True)
            if "CUDA error" in str(error) or "CudaError" in type(error).__name__:
                return 1
            continue
        table(found)
        records.append(measurement_record(found, "+".join(options.part)))
        write_json(options.out, raw_document(environment, settings, records))
    print(f"done in {time.monotonic() - started:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
