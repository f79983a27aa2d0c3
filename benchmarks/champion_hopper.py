"""Settings of the Hopper champion against cuBLAS, part by part: compile, check, time, one line a problem.

    PYTHONPATH=src python3 benchmarks/champion_hopper.py --out $OUT/hopper --part skinny --part llm

Each part is a list of problems with the settings worth trying on them: the first few that the champion's own model
proposes, and some that it does not. All are compiled in parallel, then each problem's are interleaved with torch (cold
L2, float64-checked, clocks logged). A part runs in a process of its own: one that says nothing for ``--hang`` seconds
is stopped, the problem is named, and a new process goes on with the next. Files: ``OUT.PART.START.json``, written again
after every problem. ``*`` marks the champion's own first choice, ``!`` an error above 1.02 times cuBLAS's.
"""

from __future__ import annotations

import argparse
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

# The lent machine has no platformdirs, which finds the cache's usual place.
os.environ.setdefault("RUNGEMM_CACHE_DIR", os.path.join(tempfile.gettempdir(), f"rungemm-cache-{os.getuid()}"))

from needs_card import need_card

from rungemm.bench.contenders import Ours, TorchMatmul
from rungemm.bench.environment import describe_environment
from rungemm.bench.interleaved import StopRule
from rungemm.bench.measurement import Measurement, Settings, measure
from rungemm.bench.statistics import geometric_mean, spread_of
from rungemm.bench.store import measurement_record, raw_document, write_json
from rungemm.bench.suites import suite_named
from rungemm.dtypes import BF16, FP16, FP32
from rungemm.hardware import DEFAULT_GPU, Gpu, detect_gpu
from rungemm.kernels.base import Unsupported
from rungemm.kernels.hopper.champion import ChampionHopper, HopperConfig
from rungemm.problem import Problem

KERNEL = ChampionHopper()
SHALLOW = 1
"""Stages of a setting whose ring is still to be made as deep as there is room."""
Case = tuple[Problem, list[HopperConfig]]
STAGE, BEGIN, RATIO = "\x01stage ", "\x01begin ", "\x01ratio "
"""Lines from a part's process to its parent that are not for the reader."""


def proposed(problem: Problem, gpu: Gpu, count: int) -> list[HopperConfig]:
    """The model's first ``count`` that differ in more than the group."""
    found: dict[tuple[object, ...], HopperConfig] = {}
    for config in KERNEL.configs(problem, gpu):
        key = (config.tile_m, config.tile_n, config.tile_k, config.schedule, config.stream, config.programs,
               config.promote)  # fmt: skip
        # Another way to count: a square problem is the same both ways round.
        found.setdefault(key, config)
        if len(found) == count:
            break
    return list(found.values())


def deep(problem: Problem, gpu: Gpu, config: HopperConfig, limit: int | None = None) -> HopperConfig:
    """The config with rows of 128 bytes (unless it says), staging that fits D, and as deep a ring as there is room."""
    part_n = min(128 // problem.d.dtype.bytes, config.tile_n)
    config = replace(config, part_n=part_n, buffers=1)
    return replace(config, stages=KERNEL.most_stages(problem, config, gpu, limit))


def tile(m: int, n: int, schedule: str = "together", k: int = 64, **changes: object) -> HopperConfig:
    warps = m // 16 if schedule == "together" else 4
    base = HopperConfig(tile_m=m, tile_n=n, tile_k=k, num_warps=warps, schedule=schedule, stages=SHALLOW)
    return replace(base, **changes)  # type: ignore[arg-type]


def bf16(m: int, n: int, k: int, layout: str = "NT") -> Problem:
    return Problem.dense(m, n, k, dtype=BF16, layout=layout)


def tf32(m: int, n: int, k: int, layout: str = "NT", precision: str = "tf32") -> Problem:
    return Problem.dense(m, n, k, dtype=FP32, layout=layout, precision=precision)  # type: ignore[arg-type]


def case(problem: Problem, gpu: Gpu, count: int, *extra: HopperConfig) -> Case:
    full = [deep(problem, gpu, config) if config.stages == SHALLOW else config for config in extra]
    return problem, list(dict.fromkeys([*proposed(problem, gpu, count), *full]))


def big(gpu: Gpu) -> Iterator[Case]:
    few = (tile(128, 128, "turns"), tile(128, 256, "halves"), tile(128, 256, "turns", stream=True))
    for dtype in (BF16, FP16):
        for layout in ("NT", "NN"):
            for size in (4096, 8192, 16384):
                yield case(Problem.dense(size, size, size, dtype=dtype, layout=layout), gpu, 2, *few[:2])


def few_rows(problem: Problem, gpu: Gpu) -> list[HopperConfig]:
    """For M up to 64: narrow tiles of the weights, whole or shared along K, one or two programs an SM."""
    m, n = problem.m, max(16, problem.m)
    tiles = -(-problem.n // 64)
    shares = max(1, gpu.sms // tiles)
    two = gpu.shared_per_sm // 2 - 1024
    found = [
        deep(problem, gpu, tile(64, n, k=128, swap=True, group=1)),
        deep(problem, gpu, tile(64, n, k=128, swap=True, group=1, stream=True)),
        deep(problem, gpu, tile(128, n, k=128, swap=True, group=1, stream=True)),
        deep(problem, gpu, tile(64, n, k=128, swap=True, group=1, stream=True, programs=2 * gpu.sms), two),
    ]
    if shares > 1:
        found.append(deep(problem, gpu, tile(64, n, k=128, swap=True, group=1, stream=True, programs=shares * tiles)))
    if m <= 64:
        flat = tile(64, 32, k=128, group=1)
        found.append(deep(problem, gpu, flat))
        found.append(deep(problem, gpu, replace(flat, programs=-(-problem.n // 32)), two))
    return found


def skinny(gpu: Gpu) -> Iterator[Case]:
    for tokens in (1, 4, 16, 32, 64):
        problem = bf16(tokens, 4096, 4096)
        yield problem, list(dict.fromkeys([*few_rows(problem, gpu), *proposed(problem, gpu, 2)]))


def llm(gpu: Gpu) -> Iterator[Case]:
    turns = tile(128, 128, "turns")
    for shape in suite_named("llm"):
        problem = shape.problem(BF16)
        if problem.m <= 64:
            if (problem.n, problem.k) != (4096, 4096):  # that one is in the part "skinny"
                yield problem, list(dict.fromkeys([*proposed(problem, gpu, 1), *few_rows(problem, gpu)[:5]]))
        elif problem.m <= 256:
            extra = [
                turns, replace(turns, stream=True), tile(128, 128, "halves", stream=True),
                tile(64, problem.m, swap=True, stream=True),
            ]  # fmt: skip
            yield case(problem, gpu, 3, *extra)
        elif problem.m <= 1024:
            yield case(problem, gpu, 2, turns, tile(128, 256, "halves"), tile(128, 256, "halves", stream=True))
        else:
            yield case(problem, gpu, 1, turns, replace(turns, group=16), tile(128, 256, "halves"))


def odd(gpu: Gpu) -> Iterator[Case]:
    yield case(bf16(4097, 4095, 4093, "NN"), gpu, 2, tile(128, 128, "turns"), tile(128, 256, "halves"))
    small = tile(64, 64)
    yield case(bf16(333, 777, 555, "NN"), gpu, 4, small, replace(small, stream=True), tile(64, 64, k=128))
    yield case(bf16(64, 64, 65536), gpu, 3, tile(64, 16, k=128, stream=True, programs=64),
               tile(64, 32, k=128, stream=True), tile(64, 32, k=128, stream=True, programs=64))  # fmt: skip
    yield case(bf16(256, 256, 16384), gpu, 3, tile(64, 64, k=128, stream=True, programs=64),
               tile(64, 32, k=128, stream=True, programs=128), tile(128, 64, stream=True, programs=128))  # fmt: skip
    yield case(tf32(4097, 4095, 4093, "NN"), gpu, 2, tile(128, 128, "turns", 32), tile(128, 256, "halves", 32))


def single(gpu: Gpu) -> Iterator[Case]:
    wide, halves, tall = tile(128, 256, k=32), tile(128, 256, "halves", 32), tile(256, 128, "halves", 32)
    turns = tile(128, 128, "turns", 32)
    for m, n, k in ((8192, 8192, 4096), (4096, 4096, 4096), (8192, 8192, 8192)):
        yield case(tf32(m, n, k), gpu, 1, turns, halves, wide, tall)
        swapped = [replace(config, swap=True) for config in (halves, tall, turns)]
        yield case(tf32(m, n, k, "NN"), gpu, 1, turns, halves, *swapped)


def triple(gpu: Gpu) -> Iterator[Case]:
    square, turns = tile(128, 128, k=32), tile(128, 128, "turns", 32)
    yield case(
        tf32(8192, 8192, 8192, "NN", "tf32x3"), gpu, 1, turns, replace(square, promote=4), replace(square, promote=16),
        tile(128, 128, "halves", 32, promote=4), tile(128, 128, "halves", 32, promote=8),
    )  # fmt: skip


def crowded(problem: Problem, gpu: Gpu, config: HopperConfig, on_an_sm: int) -> HopperConfig:
    """A program for every tile, so many at once on an SM, each with its share of the shared memory."""
    tiles = KERNEL.tiles(problem, config)
    return deep(problem, gpu, replace(config, programs=tiles), gpu.shared_per_sm // on_an_sm - 1024)


def retry(gpu: Gpu) -> Iterator[Case]:
    """Where an earlier round fell short, the first choices that changed, and settings not yet timed."""
    thin, wide = tile(64, 16, k=128, swap=True, group=1), tile(128, 256)
    turns, halves, tall = tile(128, 128, "turns"), tile(128, 256, "halves"), tile(256, 128, "halves")
    flat = tile(64, 256, "turns")
    # Few tiles and a long K: a second launch that adds up.
    split = [tile(64, 64, k=128, splits=s) for s in (66, 128, 132)]
    yield case(bf16(64, 64, 65536), gpu, 1, *split, tile(64, 32, k=128, splits=66), tile(64, 64, k=256, splits=128),
               tile(64, 16, k=128, splits=33))  # fmt: skip
    yield case(bf16(256, 256, 16384), gpu, 1, tile(64, 64, k=128, splits=8), tile(64, 128, splits=16),
               tile(128, 128, splits=33), tile(128, 128, splits=32), tile(128, 64, splits=16), tile(64, 64, splits=8),
               tile(64, 64, k=128, splits=16, programs=128))  # fmt: skip
    # Tiles that do not fill the SMs.
    problem = bf16(256, 6144, 4096)
    yield case(problem, gpu, 1, tile(64, 128), crowded(problem, gpu, tile(64, 128), 2), tile(128, 128, splits=4),
               crowded(problem, gpu, tile(128, 64), 2), tile(128, 64, stream=True), flat,
               crowded(problem, gpu, tile(64, 64, k=128), 2))  # fmt: skip
    problem = bf16(128, 6144, 4096)
    yield case(problem, gpu, 1, tile(64, 64, k=128), crowded(problem, gpu, tile(64, 64, k=128), 2),
               crowded(problem, gpu, tile(64, 64), 3), tile(64, 128, swap=True), tile(64, 64, k=128, swap=True),
               tile(128, 128, splits=8))  # fmt: skip
    problem = bf16(64, 6144, 4096)
    yield case(problem, gpu, 1, tile(64, 64, k=256, swap=True, group=1), tile(64, 32, k=128, swap=True),
               crowded(problem, gpu, tile(64, 32, k=128, swap=True), 2), crowded(problem, gpu, tile(64, 32, k=128), 2),
               )  # fmt: skip
    problem = bf16(512, 6144, 4096)
    yield case(problem, gpu, 2, tile(128, 128, "turns"), crowded(problem, gpu, tile(64, 128), 2), tile(128, 256))
    problem = bf16(333, 777, 555, "NN")
    yield case(problem, gpu, 1, crowded(problem, gpu, tile(64, 32, k=128), 2), crowded(problem, gpu, tile(64, 32), 2))
    yield case(bf16(64, 4096, 4096), gpu, 1, tile(64, 32, k=128, swap=True), tile(64, 32, k=128, swap=True, group=1),
               tile(64, 32, k=256))  # fmt: skip
    problem = bf16(256, 28672, 4096)
    yield case(problem, gpu, 1, halves, tall, flat, replace(halves, swap=True), crowded(problem, gpu, tile(128, 64), 2))
    yield case(bf16(256, 128256, 4096), gpu, 1, halves, tall, replace(halves, swap=True), replace(flat, swap=True))
    yield case(bf16(128, 128256, 4096), gpu, 1, wide, flat, replace(turns, swap=True), replace(tall, swap=True))
    yield case(bf16(128, 28672, 4096), gpu, 1, flat, replace(turns, swap=True), replace(tall, swap=True))
    # fp32.
    for m, n, k in ((8192, 8192, 4096), (8192, 8192, 8192), (4096, 4096, 4096)):
        half, turn = tile(128, 256, "halves", 32), tile(128, 128, "turns", 32)
        settings = [
            half, replace(half, group=16), replace(half, group=4), replace(turn, group=16),
            tile(256, 128, "halves", 32, group=4), tile(128, 256, k=32, stream=True), tile(64, 256, "turns", 32),
        ]  # fmt: skip
        yield case(tf32(m, n, k), gpu, 1, *settings, tile(128, 256, "halves", 16))
        swapped = replace(half, swap=True)
        yield case(tf32(m, n, k, "NN"), gpu, 1, swapped, replace(swapped, group=16), replace(swapped, group=4),
                   tile(128, 256, k=32, swap=True), tile(64, 256, "turns", 32, swap=True))  # fmt: skip
    # Few rows.
    for tokens in (1, 16):
        for n in (4096, 6144, 28672):
            problem = bf16(tokens, n, 4096)
            more = [] if n < 64 * gpu.sms else [crowded(problem, gpu, thin, on_an_sm) for on_an_sm in (2, 3)]
            broad = [tile(128, 16, k=128, swap=True, group=1)] if n == 28672 else []
            yield case(problem, gpu, 1, replace(thin, tile_k=256), *more, *broad)
    yield case(bf16(32, 4096, 4096), gpu, 1, tile(64, 32, k=256, swap=True, group=1))
    # Large.
    for m, n, k in ((1024, 4096, 4096), (1024, 4096, 14336), (4096, 4096, 4096), (4096, 6144, 4096)):
        yield case(bf16(m, n, k), gpu, 1, turns, halves, tall, wide, replace(halves, group=4), replace(tall, group=4))
    for layout in ("NT", "NN"):
        yield case(bf16(8192, 8192, 8192, layout), gpu, 1, replace(turns, group=16), replace(wide, stream=True), halves)
    square = tile(128, 128, k=32, promote=16)
    yield case(tf32(8192, 8192, 8192, "NN", "tf32x3"), gpu, 1, square, replace(square, promote=32),
               replace(square, group=16))  # fmt: skip


def training(gpu: Gpu) -> Iterator[Case]:
    """Forward and both gradients: A and B in every order, D from 256 to 14336 wide."""
    for shape in suite_named("training"):
        problem = shape.problem(BF16)
        settings = [tile(128, 128, "turns"), tile(128, 256, "halves"), tile(256, 128, "halves")]
        tiles = -(-problem.m // 128) * -(-problem.n // 256)
        if tiles < 4 * gpu.sms:  # the last round's share is large
            half = tile(128, 256, "halves", stream=True)
            settings += [half, replace(half, tile_n=128), tile(64, 256, "turns")]
        if tiles < gpu.sms:
            settings += [tile(128, 128, "halves", splits=2), tile(128, 256, "halves", splits=4)]
        yield case(problem, gpu, 3, *settings)


PARTS = {
    "training": training, "retry": retry, "big": big, "skinny": skinny, "llm": llm, "odd": odd, "tf32": single,
    "tf32x3": triple,
}  # fmt: skip


def contenders_of(problem: Problem, configs: list[HopperConfig], gpu: Gpu) -> list[Ours]:
    """The settings that the kernel takes; the others are named."""
    first = KERNEL.default_config(problem, gpu)
    found = []
    for config in configs:
        contender = Ours(KERNEL, gpu, config, name=config.label + ("*" if config == first else ""))
        try:
            contender.plan(problem)
        except Unsupported as error:
            print(f"  {problem}: {contender.name} left out: {error}", flush=True)
            continue
        if all(contender.name != other.name for other in found):
            found.append(contender)
    return found


def compile_all(cases: list[tuple[Problem, list[Ours]]], gpu: Gpu, workers: int) -> None:
    """Fill the disk cache in parallel; says what spills or does not compile."""
    from rungemm.compiling import compile_many

    owners = [(problem, contender) for problem, contenders in cases for contender in contenders]
    jobs = [(contender.plan(problem), gpu.arch) for problem, contender in owners]
    said = set()
    done = compile_many(jobs, workers=workers, on_done=lambda *_: print(STAGE + "compiling", flush=True))
    for (problem, contender), result in zip(owners, done, strict=True):
        text = ""
        if isinstance(result, BaseException):
            text = f"does not compile: {str(result).splitlines()[0]}"
        elif any(compiled.spill_bytes for compiled in result):
            text = f"spills {[c.spill_bytes for c in result]} bytes"
        if text and contender.name not in said:
            said.add(contender.name)
            print(f"  {problem} {contender.name} {text}"[:200], flush=True)


def line(found: Measurement) -> None:
    """One line: cuBLAS's time, then each setting's ratio to it, best first."""
    problem, lanes = found.problem, found.lanes
    base = lanes["cublas"]
    head = f"{problem}{' x3' if problem.precision == 'tf32x3' else ''} {found.rounds.count}r {found.wall_s:.1f}s"
    if base.failure is not None:
        print(f"{head} cublas {base.failure}"[:200], flush=True)
        return
    median = spread_of(base.seconds).median
    print(f"{head} | cublas {1e6 * median:.2f}us {base.tflops:.0f}TF {problem.minimum_bytes / median / 1e12:.2f}TB/s",
          end="", flush=True)  # fmt: skip
    reference = base.checked.error if base.checked else 0.0
    shown = []
    for name, lane in lanes.items():
        if name == "cublas":
            continue
        if lane.failure is not None:
            print(f"\n   {name}: {lane.failure}"[:180], end="")
            continue
        ratio = found.ratio("cublas", name)
        error = lane.checked.error if lane.checked else 0.0
        mark = f"!{error / reference:.2f}" if reference and error > 1.02 * reference else ""
        if ratio:
            shown.append((ratio.value, f"{name} {ratio.value:.3f}{mark}", 1e6 * spread_of(lane.seconds).median))
    shown.sort(reverse=True)
    texts = [f"{text} ({us:.2f}us)" if index == 0 else text for index, (_, text, us) in enumerate(shown)]
    print("".join(f" | {text}" for text in texts), flush=True)
    if shown:
        first = next((value for value, text, _ in shown if "*" in text), shown[-1][0])
        print(f"{RATIO}{shown[0][0]} {first}", flush=True)


def run_part(options: argparse.Namespace, part: str) -> int:
    """The child: one part, from problem number ``--start`` on."""
    started = time.monotonic()
    gpu = detect_gpu() or DEFAULT_GPU
    cases = [
        (problem, contenders_of(problem, configs, gpu))
        for problem, configs in PARTS[part](gpu)
        if options.only in str(problem)
    ][options.start :]
    compile_all(cases, gpu, options.workers)
    print(f"{part}: {len(cases)} problems, {sum(len(c) for _, c in cases)} settings, compiled in "
          f"{time.monotonic() - started:.1f} s", flush=True)  # fmt: skip
    if options.compile_only:
        return 0
    rule = StopRule(min_rounds=6, max_rounds=options.rounds, budget_s=options.budget, precision=0.0, hard=True)
    settings = Settings(rule=rule, host_time=False, warm_up_s=options.warm_up, sample_s=options.sample)
    records = []
    environment = describe_environment(gpu.title)
    for number, (problem, contenders) in enumerate(cases, start=options.start):
        print(f"{BEGIN}{number}", flush=True)
        try:
            found = measure(problem, [TorchMatmul(), *contenders], gpu, settings=settings,
                            on_stage=lambda text: print(STAGE + text, flush=True))  # fmt: skip
        except Exception as error:  # one problem's failure must not cost the others their device time
            print(f"{problem}: {type(error).__name__}: {error}"[:300], flush=True)
            if "CUDA error" in str(error) or "CudaError" in type(error).__name__:
                return 3  # the context is lost: the parent begins anew behind this problem
            continue
        line(found)
        records.append(measurement_record(found, part))
        write_json(Path(f"{options.out}.{part}.{options.start}.json"), raw_document(environment, settings, records))
    return 0


def watch(part: str, options: argparse.Namespace, deadline: float) -> list[tuple[float, float]]:
    """The parent: runs a part's process, prints what it says, stops it when it hangs and goes on behind."""
    start, ratios = 0, []
    while time.monotonic() < deadline:
        command = [
            sys.executable, __file__, "--out", str(options.out), "--part", part, "--child", "--start", str(start),
            "--rounds", str(options.rounds), "--budget", str(options.budget), "--workers", str(options.workers),
            "--only", options.only, "--warm-up", str(options.warm_up), "--sample", str(options.sample),
            *(["--compile-only"] if options.compile_only else []),
        ]  # fmt: skip
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        lines: queue.Queue[str | None] = queue.Queue()

        def pump(child: subprocess.Popen[str] = child, lines: queue.Queue[str | None] = lines) -> None:
            assert child.stdout is not None
            for text in child.stdout:
                lines.put(text.rstrip("\n"))
            lines.put(None)

        threading.Thread(target=pump, daemon=True).start()
        stage, number = "starting", start - 1
        while True:
            try:
                text = lines.get(timeout=max(0.1, min(options.hang, deadline - time.monotonic())))
            except queue.Empty:
                late = time.monotonic() >= deadline
                print(f"{part}: problem {number} {'cut short by --limit' if late else 'HANGS'} at: {stage}", flush=True)
                child.kill()
                break
            if text is None:
                break
            if text.startswith(STAGE):
                stage = text[len(STAGE) :]
            elif text.startswith(BEGIN):
                number = int(text[len(BEGIN) :])
            elif text.startswith(RATIO):
                best, first = text[len(RATIO) :].split()
                ratios.append((float(best), float(first)))
            else:
                print(text, flush=True)
        if child.wait() == 0 or number < start:
            break
        start = number + 1
    return ratios


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="stem of the result files")
    parser.add_argument("--part", choices=PARTS, action="append", required=True)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--budget", type=float, default=0.7, help="seconds of timing a problem, beyond which it ends")
    parser.add_argument("--warm-up", type=float, default=0.25, help="most seconds of warm-up a problem")
    parser.add_argument("--sample", type=float, default=0.002, help="seconds of a contender's sample in a round")
    parser.add_argument("--limit", type=float, default=130, help="seconds after which everything is stopped")
    parser.add_argument("--hang", type=float, default=25, help="seconds of silence after which a process is stopped")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", default="", help="only problems whose text contains this")
    parser.add_argument("--compile-only", action="store_true")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--start", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return run_part(options, options.part[0])
    if not options.compile_only:
        need_card()
    started = time.monotonic()
    for part in options.part:
        ratios = watch(part, options, started + options.limit)
        if ratios:
            best, first = zip(*ratios, strict=True)
            print(f"== {part}: best setting geomean {geometric_mean(best):.3f} least {min(best):.3f}; champion's first "
                  f"choice geomean {geometric_mean(first):.3f} least {min(first):.3f}; {len(ratios)} problems; "
                  f"{time.monotonic() - started:.1f} s", flush=True)  # fmt: skip
    print(f"done in {time.monotonic() - started:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
