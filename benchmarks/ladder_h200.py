"""Every rung at the ladder's shapes, interleaved with cuBLAS, in one process: compile, check, time, write, print.

    PYTHONPATH=src python3 benchmarks/ladder_h200.py --out $OUT/ladder.json \
        --shapes 4096x4096x4096,8192x8192x4096 --rungs all

Rungs are compiled in parallel first. Every contender's timed outputs are compared with float64. The raw file has every
sample; ``rungemm.bench.store.summarise`` makes summary.json of it. ``--configs N`` takes up to N configs of each rung
instead of its default alone; ``--rungs a,b@tile_m=64`` takes single configs; ``--suite NAME`` takes a suite's shapes,
and ``--contenders champion,library`` takes those instead of rungs. It is the bare version of ``rungemm bench``.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

# The lent machine has no platformdirs, which finds the cache's usual place.
os.environ.setdefault("RUNGEMM_CACHE_DIR", os.path.join(tempfile.gettempdir(), f"rungemm-cache-{os.getuid()}"))

from needs_card import need_card

from rungemm.bench.contenders import ConfigFor, Ours
from rungemm.bench.interleaved import StopRule
from rungemm.bench.measurement import Settings
from rungemm.bench.session import Done, Job, run_session
from rungemm.bench.statistics import geometric_mean, spread_of
from rungemm.bench.suites import parse_shape, suite_named
from rungemm.dtypes import dtype_named
from rungemm.hardware import DEFAULT_GPU, Gpu, detect_gpu
from rungemm.kernels import LADDER, Unsupported
from rungemm.problem import Problem


def every_config(problem: Problem, gpu: Gpu, most: int) -> list[Ours]:
    """Up to ``most`` supported configs of each rung; the first keeps the rung's name."""
    chosen = []
    for kernel in LADDER:
        legal = [c for c in kernel.configs(problem, gpu) if kernel.supports(problem, c, gpu) is None][:most]
        for index, config in enumerate(legal):
            chosen.append(Ours(kernel, gpu, config, name=kernel.name if index == 0 else f"{kernel.name}[{config}]"))
    return chosen


def takers(jobs: list[Job], gpu: Gpu) -> list[str]:
    """The rungs that take at least one of the problems; the others are named with their reason."""
    names = []
    for kernel in LADDER:
        reasons = []
        for job in jobs:
            try:
                kernel.default_config(job.problem, gpu)
            except Unsupported as error:
                reasons.append(str(error))
        if len(reasons) < len(jobs):
            names.append(kernel.name)
        else:
            print(f"left out: {reasons[0]}", flush=True)
    return names


def print_table(done: Done, reference: str) -> None:
    measurement = done.measurement
    print(f"\n{measurement.problem}: {measurement.rounds.count} rounds ({measurement.rounds.stopped_by}), "
          f"cold {measurement.cold['cold']}, {measurement.wall_s:.1f} s, clocks {measurement.clocks}")  # fmt: skip
    print(f"{'contender':<34}{'TFLOPS':>8}{'peak':>7}{'ratio':>8} {'interval':<16}{'spread':>7}{'error':>10}"
          f"{'host us':>9}{'regs':>5}{'spill':>6}{'smem':>7}")  # fmt: skip
    for name, lane in measurement.lanes.items():
        if lane.failure:
            print(f"{name:<34}FAILED  {lane.failure[:140]}")
            continue
        ratio, share = measurement.ratio(reference, name), measurement.peak_share(name)
        used = done.resources.get(name, {})
        text = f"{ratio.value:>8.3f} [{ratio.low:.3f}, {ratio.high:.3f}] " if ratio else f"{'':>8} {'':<16}"
        host = f"{1e6 * lane.host_s:.1f}" if lane.host_s is not None else "-"
        spread, error = 100 * spread_of(lane.seconds).relative, lane.checked.error if lane.checked else float("nan")
        chip = f"{used.get('registers', ''):>5}{used.get('spill_bytes', ''):>6}{used.get('shared_bytes', ''):>7}"
        rate = f"{lane.tflops or 0:>8.2f}{100 * (share or 0):>6.1f}%"
        print(f"{name[:33]:<34}{rate}{text}{spread:>6.1f}%{error:>10.2e}{host:>9}{chip}")


def print_suite(finished: list[Done], reference: str) -> None:
    """One line a shape and contender, and the geometric means: for suites of many shapes."""
    ratios: dict[str, list[float]] = {}
    for done in finished:
        base = done.measurement.lanes.get(reference)
        for name, lane in done.measurement.lanes.items():
            if name == reference:
                continue
            ratio = done.measurement.ratio(reference, name)
            if ratio is None:
                print(f"{done.job.problem!s:<34}{name[:24]:<25}{(lane.failure or 'no ratio')[:110]}")
                continue
            ratios.setdefault(name, []).append(ratio.value)
            print(f"{done.job.problem!s:<34}{name[:24]:<25}{lane.tflops or 0:>8.2f} vs {base.tflops or 0:>8.2f}"
                  f"{ratio.value:>8.3f} [{ratio.low:.3f}, {ratio.high:.3f}] {done.measurement.rounds.count:>4}r "
                  f"err {lane.checked.error if lane.checked else -1:.2e}")  # fmt: skip
    for name, values in ratios.items():
        print(f"{name}: geomean {geometric_mean(values):.4f}, least {min(values):.3f}, {len(values)} shapes")


def tuned_configs() -> ConfigFor:
    """Configs from this machine's tuning database, where it has any."""
    from rungemm.tune import TuningDatabase

    database = TuningDatabase()

    def config_for(kernel, problem, gpu):  # type: ignore[no-untyped-def]
        tuned = database.load(kernel, problem, gpu)
        return tuned.config if tuned is not None else None

    return config_for


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--shapes", default=None, help="4096x4096x4096,8192x8192x4096 if neither this nor --suite")
    parser.add_argument("--rungs", default=None, help="rungs or rung@config, by commas; all by default")
    parser.add_argument("--contenders", default=None, help="any contenders of rungemm bench instead of rungs")
    parser.add_argument("--configs", type=int, default=1, help="up to this many configs of each rung")
    parser.add_argument("--dtype", default="fp32")
    parser.add_argument("--precision", default="ieee", choices=["ieee", "tf32", "tf32x3"])
    parser.add_argument("--layout", default=None)
    parser.add_argument("--suite", default=None, help="a suite's shapes; with --shapes only the records' name")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--max-rounds", type=int, default=60)
    parser.add_argument("--budget", type=float, default=50.0, help="seconds of timing a shape, beyond the least rounds")
    parser.add_argument("--warm-up", type=float, default=1.0, help="most seconds of warm-up a shape")
    parser.add_argument("--data", default="normal")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    options = parser.parse_args()
    need_card()

    gpu = detect_gpu() or DEFAULT_GPU
    if options.shapes is None and options.suite is not None:
        shapes = suite_named(options.suite)
    else:
        shapes = [parse_shape(text) for text in (options.shapes or "4096x4096x4096,8192x8192x4096").split(",")]
    dtype = dtype_named(options.dtype)
    jobs = [Job(options.suite or "ladder", shape.problem(dtype, options.layout, options.precision)) for shape in shapes]
    extra: list[Ours] = []
    if options.contenders is not None:
        names = ["cublas", *options.contenders.split(",")]
    elif options.configs > 1:
        names, extra = ["cublas"], every_config(jobs[0].problem, gpu, options.configs)
    else:
        rungs = takers(jobs, gpu) if options.rungs in (None, "all") else options.rungs.split(",")
        names = ["cublas", *rungs]
    settings = Settings(
        rule=StopRule(options.rounds, options.max_rounds, options.budget), data=options.data, warm_up_s=options.warm_up
    )
    finished: list[Done] = []
    start = time.monotonic()

    def done(result: Done) -> None:
        finished.append(result)
        print(f"{time.monotonic() - start:7.1f} s  {result.job.problem}: {result.measurement.wall_s:.1f} s", flush=True)

    run_session(
        jobs, names, gpu, settings=settings, out=options.out, workers=options.workers, config_for=tuned_configs(),
        on_done=done, on_failure=lambda job, why: print(f"{job.problem}: {why}", flush=True), extra=extra,
    )  # fmt: skip
    if len(finished) <= 3:
        for result in finished:
            print_table(result, names[0])
    else:
        print_suite(finished, names[0])
    failed = [lane for result in finished for lane in result.measurement.lanes.values() if lane.failure is not None]
    print(f"\nwrote {options.out}; {len(finished)} of {len(jobs)} shapes, {len(failed)} contenders failed")
    return 1 if failed or len(finished) < len(jobs) else 0


if __name__ == "__main__":
    sys.exit(main())
