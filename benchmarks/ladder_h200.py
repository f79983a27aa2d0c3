"""Every rung at the ladder's shapes, interleaved with cuBLAS, in one process: compile, check, time, write, print.

    PYTHONPATH=src python3 benchmarks/ladder_h200.py --out $OUT/ladder.json \
        --shapes 4096x4096x4096,8192x8192x4096 --rungs all

Rungs are compiled in parallel first. Every contender's timed outputs are compared with float64. The raw file has every
sample; ``rungemm.bench.store.summarise`` makes summary.json of it. ``--configs N`` takes up to N configs of each rung
instead of its default alone; ``--rungs a,b@tile_m=64`` takes single configs.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

from rungemm.bench.contenders import Contender, Ours, TorchMatmul, contender_named
from rungemm.bench.environment import describe_environment
from rungemm.bench.interleaved import StopRule
from rungemm.bench.measurement import Measurement, Settings, measure
from rungemm.bench.statistics import spread_of
from rungemm.bench.store import measurement_record, raw_document, write_json
from rungemm.bench.suites import parse_shape
from rungemm.dtypes import dtype_named
from rungemm.hardware import DEFAULT_GPU, Gpu, detect_gpu
from rungemm.kernels import LADDER, Unsupported
from rungemm.problem import Problem


def rungs_for(problem: Problem, gpu: Gpu, names: str, configs: int) -> list[Ours]:
    """Our contenders for the problem; a rung that does not take it is named and left out."""
    chosen: list[Ours] = []
    if names == "all":
        wanted = [Ours(kernel, gpu) for kernel in LADDER]
    else:
        found = [contender_named(name, gpu) for name in names.split(",")]
        wanted = [contender for contender in found if isinstance(contender, Ours)]
    for contender in wanted:
        if configs > 1 and contender.config is None:
            kernel = contender.kernel
            every = [c for c in kernel.configs(problem, gpu) if kernel.supports(problem, c, gpu) is None][:configs]
            chosen += [
                Ours(kernel, gpu, config, name=kernel.name if index == 0 else f"{kernel.name}[{config}]")
                for index, config in enumerate(every)
            ]
            continue
        try:
            contender.plan(problem)
        except Unsupported as error:
            print(f"  left out: {error}", flush=True)
            continue
        chosen.append(contender)
    return chosen


def compile_all(contenders: list[Ours], problems: list[Problem], gpu: Gpu, workers: int) -> dict[str, dict[str, int]]:
    """Compile every plan in parallel; resources by contender, failures reported."""
    from rungemm.compiling import compile_many

    owners, jobs = [], []
    for contender in contenders:
        for problem in problems:
            try:
                jobs.append((contender.plan(problem), gpu.arch))
                owners.append(contender.name)
            except Unsupported:
                continue
    resources: dict[str, dict[str, int]] = {}
    for owner, result in zip(owners, compile_many(jobs, workers=workers), strict=True):
        if isinstance(result, BaseException):
            print(f"  {owner} does not compile: {str(result).splitlines()[0]}", flush=True)
        elif result:
            first = result[0]
            resources[owner] = {
                "registers": first.registers, "spill_bytes": first.spill_bytes, "shared_bytes": first.shared_bytes,
            }  # fmt: skip
    return resources


def print_table(measurement: Measurement, resources: dict[str, dict[str, int]], reference: str) -> None:
    print(f"\n{measurement.problem}: {measurement.rounds.count} rounds ({measurement.rounds.stopped_by}), "
          f"cold {measurement.cold['cold']}, {measurement.wall_s:.1f} s, clocks {measurement.clocks}")  # fmt: skip
    print(f"{'contender':<34}{'TFLOPS':>8}{'peak':>7}{'ratio':>8} {'interval':<16}{'spread':>7}{'error':>10}"
          f"{'host us':>9}{'regs':>5}{'spill':>6}{'smem':>7}")  # fmt: skip
    for name, lane in measurement.lanes.items():
        if lane.failure:
            print(f"{name:<34}FAILED  {lane.failure[:140]}")
            continue
        ratio, share = measurement.ratio(reference, name), measurement.peak_share(name)
        used = resources.get(name, {})
        text = f"{ratio.value:>8.3f} [{ratio.low:.3f}, {ratio.high:.3f}] " if ratio else f"{'':>8} {'':<16}"
        host = f"{1e6 * lane.host_s:.1f}" if lane.host_s is not None else "-"
        spread, error = 100 * spread_of(lane.seconds).relative, lane.checked.error if lane.checked else float("nan")
        chip = f"{used.get('registers', ''):>5}{used.get('spill_bytes', ''):>6}{used.get('shared_bytes', ''):>7}"
        rate = f"{lane.tflops or 0:>8.2f}{100 * (share or 0):>6.1f}%"
        print(f"{name[:33]:<34}{rate}{text}{spread:>6.1f}%{error:>10.2e}{host:>9}{chip}")


# The lent machine has no platformdirs, which finds the cache's usual place.
os.environ.setdefault("RUNGEMM_CACHE_DIR", os.path.join(tempfile.gettempdir(), f"rungemm-cache-{os.getuid()}"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--shapes", default="4096x4096x4096,8192x8192x4096")
    parser.add_argument("--rungs", default="all")
    parser.add_argument("--configs", type=int, default=1, help="up to this many configs of each rung")
    parser.add_argument("--dtype", default="fp32")
    parser.add_argument("--precision", default="ieee", choices=["ieee", "tf32", "tf32x3"])
    parser.add_argument("--layout", default="NN")
    parser.add_argument("--suite", default="ladder", help="the suite's name in the records")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--max-rounds", type=int, default=60)
    parser.add_argument("--budget", type=float, default=50.0, help="seconds of timing a shape, beyond the least rounds")
    parser.add_argument("--data", default="normal")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    options = parser.parse_args()

    import torch

    if not torch.cuda.is_available():
        print("no CUDA device: run this on a machine with a GPU", file=sys.stderr)
        return 2
    gpu = detect_gpu() or DEFAULT_GPU
    problems = [
        parse_shape(text).problem(dtype_named(options.dtype), options.layout, options.precision)
        for text in options.shapes.split(",")
    ]
    by_problem = {problem: rungs_for(problem, gpu, options.rungs, options.configs) for problem in problems}
    start = time.monotonic()
    resources = {}
    for problem in problems:
        resources[problem] = compile_all(by_problem[problem], [problem], gpu, options.workers)
    print(f"compiled {sum(map(len, resources.values()))} plans in {time.monotonic() - start:.1f} s", flush=True)

    settings = Settings(rule=StopRule(options.rounds, options.max_rounds, options.budget), data=options.data)
    environment, records, measurements = describe_environment(gpu.name), [], []
    for problem in problems:
        contenders: list[Contender] = [TorchMatmul(), *by_problem[problem]]
        measurement = measure(problem, contenders, gpu, settings=settings)
        measurements.append(measurement)
        record = measurement_record(measurement, options.suite)
        for name, used in resources[problem].items():
            record["lanes"][name]["resources"] = used
        records.append(record)
        write_json(options.out, raw_document(environment, settings, records))
        torch.cuda.empty_cache()
        print(f"{problem}: {measurement.wall_s:.1f} s", flush=True)
    for problem, measurement in zip(problems, measurements, strict=True):
        print_table(measurement, resources[problem], "cublas")
    failed = sum(lane.failure is not None for m in measurements for lane in m.lanes.values())
    print(f"\nwrote {options.out}; {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
