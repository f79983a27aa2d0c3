"""What the card's report is made of, in one call of bounded length: the method's own trial, then suites by priority.

    PYTHONPATH=src python3 benchmarks/laboratory_h200.py --out $OUT --seconds 150

Each part is a raw file in the folder ``--out`` (8 in all, all small). They go to results/<card>/raw/, but method.json
and occupancy.json to results/<card>/. Parts run in the order of their worth; when the time is up, what is left is
named in the file and on the terminal, and ``--parts`` runs it in a later call. ``--compile-only`` compiles every plan
for sm_90 into RUNGEMM_CACHE_DIR, which needs no GPU: carried to the card's machine, it saves the first minute there.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

# The lent machine has no platformdirs, which finds the cache's usual place.
os.environ.setdefault("RUNGEMM_CACHE_DIR", os.path.join(tempfile.gettempdir(), f"rungemm-cache-{os.getuid()}"))

from needs_card import need_card

from rungemm.analysis import occupancy
from rungemm.bench.contenders import NoKernelError, Ours, contender_named
from rungemm.bench.environment import describe_environment
from rungemm.bench.interleaved import StopRule
from rungemm.bench.measurement import Settings
from rungemm.bench.session import Done, Job, run_session
from rungemm.bench.statistics import geometric_mean
from rungemm.bench.store import write_json
from rungemm.bench.suites import parse_shape, suite_named
from rungemm.compiling import CompileError, compile_many
from rungemm.dtypes import BF16, FP16, FP32, DType
from rungemm.hardware import DEFAULT_GPU, Gpu, detect_gpu
from rungemm.kernels import LADDER, Unsupported
from rungemm.problem import Precision

CHECKS = ("occupancy", "method")


@dataclass(frozen=True)
class Part:
    """Jobs and contenders of one raw file; ``rungs`` puts every rung that takes a job's problem among them."""

    name: str
    jobs: tuple[Job, ...]
    contenders: tuple[str, ...] = ("champion", "library")
    rungs: bool = False


def suite(name: str, dtype: DType, layout: str | None = None, precision: Precision = "ieee") -> list[Job]:
    return [Job(name, shape.problem(dtype, layout, precision)) for shape in suite_named(name)]


def shapes(name: str, texts: str, dtype: DType, layout: str, precision: Precision = "ieee") -> list[Job]:
    return [Job(name, parse_shape(text).problem(dtype, layout, precision)) for text in texts.split()]


def parts() -> list[Part]:
    """In the order of their worth to the report."""
    rungs = [
        *shapes("ladder", "4096 8192", BF16, "NT"),
        *shapes("ladder", "4096", FP16, "NT"),
        *shapes("ladder", "4096 8192x8192x4096", FP32, "NT", "tf32"),
    ]
    odd = [*suite("ragged", FP32), *suite("ragged", BF16, "NT"), *suite("deep", FP32), *suite("deep", BF16, "NT"),
           *suite("batch", BF16)]  # fmt: skip
    tensor = [
        *(job for dtype in (BF16, FP16) for layout in ("NT", "NN") for job in
          shapes("tensor", "4096 8192 16384", dtype, layout)),
        *(job for layout in ("NT", "NN") for job in
          shapes("tensor", "8192x8192x4096 8192 4096", FP32, layout, "tf32")),
        *shapes("tensor", "8192", FP32, "NN", "tf32x3"),
        *shapes("tensor", "4097x4095x4093 333x777x555", BF16, "NN"),
        *shapes("tensor", "4097x4095x4093", FP32, "NN", "tf32"),
        *shapes("tensor", "64x64x65536 256x256x16384 4x4096x4096 32x4096x4096", BF16, "NT"),
    ]  # fmt: skip
    return [
        Part("ladder-tensor", tuple(rungs), (), rungs=True),
        Part("tensor", tuple(tensor)),
        Part("squares", (*suite("squares", FP32), *suite("squares", BF16, "NT"))),
        Part("llm", (*suite("llm", BF16), *suite("decode", BF16), *suite("models", BF16))),
        Part("training", tuple(suite("training", BF16))),
        Part("odd", tuple(odd)),
        Part("cross27-bf16", tuple(suite("cross27", BF16, "NT"))),
        Part("peers", tuple(shapes("peers", "4096 1024", BF16, "NN")),
             ("champion", "library", "cublaslt", "tl-dot", "torch-compile")),
    ]  # fmt: skip


def names_of(part: Part, gpu: Gpu) -> list[str]:
    if not part.rungs:
        return ["cublas", *part.contenders]
    names = []
    for kernel in LADDER:
        for job in part.jobs:
            try:
                kernel.default_config(job.problem, gpu)
            except Unsupported:
                continue
            names.append(kernel.name)
            break
    return ["cublas", *names]


def compile_all(chosen: Iterable[Part], gpu: Gpu) -> int:
    """Every plan of ours in the cache; the number that did not compile."""
    plans = []
    for part in chosen:
        for job in part.jobs:
            for name in names_of(part, gpu):
                if name in ("cublas", "cublaslt", "tl-dot", "torch-compile"):
                    continue
                if name == "library":
                    from rungemm.ops.dispatch import decide

                    chosen_plan = decide(job.problem, gpu, all_rungs=False).chosen.plan
                    plans += [chosen_plan] if chosen_plan is not None else []
                    continue
                try:
                    contender = contender_named(name, gpu, job.problem)
                    assert isinstance(contender, Ours)
                    plans.append(contender.plan(job.problem))
                except (NoKernelError, Unsupported):
                    continue
    start, done = time.monotonic(), 0

    def count(index: int, result: object) -> None:
        nonlocal done
        done += 1
        if isinstance(result, CompileError):
            print(f"{plans[index].kernel}: {str(result).splitlines()[0]}", flush=True)

    results = compile_many([(plan, gpu.arch) for plan in plans], on_done=count)
    failed = sum(isinstance(result, CompileError) for result in results)
    print(f"{len(plans)} plans compiled in {time.monotonic() - start:.0f} s, {failed} failed", flush=True)
    return failed


def occupancy_rows(gpu: Gpu) -> list[dict[str, Any]]:
    """Each rung's default at 4096^3, by type: blocks an SM by our calculator and by CUDA, for each of its launches."""
    from rungemm.gpu.occupancy import ask_cuda

    plans = {}
    for kernel in LADDER:
        for dtype, precision in ((FP32, "ieee"), (FP32, "tf32"), (FP32, "tf32x3"), (FP16, "ieee"), (BF16, "ieee")):
            problem = parse_shape("4096").problem(dtype, "NT", precision)  # type: ignore[arg-type]
            try:
                plans[kernel.name, dtype.name, precision] = kernel.plan(
                    problem, kernel.default_config(problem, gpu), gpu
                )
            except Unsupported:
                continue
    rows = []
    for key, result in zip(plans, compile_many([(plan, gpu.arch) for plan in plans.values()]), strict=True):
        for code in result if not isinstance(result, CompileError) else ():
            said = ask_cuda(code)
            used = {"threads": 32 * code.num_warps, "registers": code.registers, "shared_bytes": code.shared_bytes}
            ours = occupancy(gpu, **used)
            rows.append({"kernel": key[0], "dtype": key[1], "precision": key[2], "launch": code.name, **used,
                         "blocks": ours.blocks, "limiter": ours.limiter, "cuda_blocks": said.blocks,
                         "cuda_registers": said.registers})  # fmt: skip
    return rows


def tell(part: str, finished: list[Done]) -> None:
    """Geometric means by suite and contender, and what failed."""
    ratios: dict[tuple[str, str, str], list[float]] = {}
    failures: dict[tuple[str, str], list[str]] = {}
    for done in finished:
        problem = done.job.problem
        kind = f"{problem.a.dtype.name}{'' if problem.precision == 'ieee' else ' ' + problem.precision}"
        for name, lane in done.measurement.lanes.items():
            ratio = done.measurement.ratio("cublas", name)
            if lane.failure:
                failures.setdefault((name, lane.failure[:110]), []).append(str(problem))
            elif ratio is not None and name != "cublas":
                ratios.setdefault((done.job.suite, kind, name), []).append(ratio.value)
    for (suite_name, kind, name), values in ratios.items():
        print(f"  {suite_name:<9}{kind:<11}{name:<22}{geometric_mean(values):.3f}x cuBLAS of {len(values):>2}, "
              f"least {min(values):.3f}, most {max(values):.3f}")  # fmt: skip
    for (name, why), where in failures.items():
        print(f"  FAILED {name} on {len(where)} (first {where[0]}): {why}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("."), help="a folder")
    parser.add_argument("--seconds", type=float, default=150.0, help="of the whole call; no job begins after them")
    parser.add_argument("--parts", default=None, help="by commas, all by default; --list names them")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--compile-only", action="store_true")
    parser.add_argument("--contenders", default=None, help="instead of a part's own, by commas, such as champion")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--budget", type=float, default=1.5, help="seconds of timing a shape, beyond the least rounds")
    parser.add_argument("--least-gflop", type=float, default=0.0, help="leave out smaller products")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds that the card rests before each sample")
    options = parser.parse_args()
    started = time.monotonic()
    known = {part.name: part for part in parts()}
    wanted = options.parts.split(",") if options.parts else [*CHECKS, *known]
    unknown = [name for name in wanted if name not in known and name not in CHECKS]
    if unknown:
        parser.error(f"no part {', '.join(unknown)}: there are {', '.join([*CHECKS, *known])}")
    chosen = [known[name] for name in wanted if name not in CHECKS]
    if options.contenders:
        others = tuple(options.contenders.split(","))
        chosen = [part if part.rungs else replace(part, contenders=others) for part in chosen]
    if options.least_gflop:
        chosen = [replace(part, jobs=tuple(job for job in part.jobs if job.problem.flops >= 1e9 * options.least_gflop))
                  for part in chosen]  # fmt: skip
    if options.list:
        for part in chosen:
            print(f"{part.name:<15}{len(part.jobs):>3} products  {', '.join(names_of(part, DEFAULT_GPU))}")
        return 0
    if options.compile_only:
        return 1 if compile_all(chosen, DEFAULT_GPU) else 0
    need_card()

    def left() -> float:
        return options.seconds - (time.monotonic() - started)

    gpu, code = detect_gpu() or DEFAULT_GPU, 0
    options.out.mkdir(parents=True, exist_ok=True)
    compile_all(chosen, gpu)
    print(f"{time.monotonic() - started:6.1f} s  compiled", flush=True)
    if "occupancy" in wanted:
        rows = occupancy_rows(gpu)
        same = sum(row["blocks"] == row["cuda_blocks"] for row in rows)
        write_json(options.out / "occupancy.json", {"environment": describe_environment(gpu.name), "rows": rows})
        print(f"{time.monotonic() - started:6.1f} s  occupancy: {same} of {len(rows)} launches as CUDA says")
        code |= same < len(rows)
    if "method" in wanted:
        from method_h200 import check_method

        document, good = check_method()
        write_json(options.out / "method.json", document)
        for key, value in document["method"].items():
            print(f"  {key}: {value}")
        print(f"{time.monotonic() - started:6.1f} s  {'the method holds' if good else 'THE METHOD DOES NOT HOLD'}")
        code |= not good
    settings = Settings(
        rule=StopRule(options.rounds, 60, options.budget), warm_up_s=0.2, sample_s=0.005, host_time=not options.pause,
        pause_s=options.pause,
    )
    go_on: Callable[[], bool] = lambda: left() > 0  # noqa: E731
    for part in chosen:
        if left() <= 0:
            print(f"{time.monotonic() - started:6.1f} s  no time for {part.name}", flush=True)
            continue
        finished: list[Done] = []
        document = run_session(
            part.jobs, names_of(part, gpu), gpu, settings=settings, out=options.out / f"{part.name}.json",
            on_done=finished.append, on_failure=lambda job, why: print(f"  {job.problem}: {why}", flush=True),
            go_on=go_on,
        )  # fmt: skip
        print(f"{time.monotonic() - started:6.1f} s  {part.name}: {len(finished)} of {len(part.jobs)}", flush=True)
        tell(part.name, finished)
        if "left_out" in document:
            print(f"  no time for {len(document['left_out'])} of its products", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
