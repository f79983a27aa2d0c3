"""What the ladder does not measure: the controls that settle the originals' claims (docs/claims.md).

    PYTHONPATH=src python3 benchmarks/claims_h200.py --out results/h200/raw/claims.json

Each job is one interleaved run of several settings and cuBLAS: cold L2, normal data, every output compared with
float64. Two settings that differ in one thing answer one question. ``--compile-only`` needs no GPU: it compiles all of
them for sm_90; ``--simulate`` also runs each at a small shape in the simulator and compares it with float64.
``tools/rung_pages.py`` makes the verdicts of the raw file.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

# The lent machine has no platformdirs, which finds the cache's usual place.
os.environ.setdefault("RUNGEMM_CACHE_DIR", os.path.join(tempfile.gettempdir(), f"rungemm-cache-{os.getuid()}"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from claims_kernels import ColumnReads, PaddedBoth
from needs_card import need_card

from rungemm.bench.contenders import Contender, Ours, TorchMatmul
from rungemm.bench.environment import describe_environment
from rungemm.bench.interleaved import StopRule
from rungemm.bench.measurement import Measurement, Settings, measure
from rungemm.bench.statistics import spread_of
from rungemm.bench.store import measurement_record, raw_document, write_json
from rungemm.bench.suites import parse_shape
from rungemm.compiling import CompileError, compile_many
from rungemm.dtypes import dtype_named
from rungemm.hardware import DEFAULT_GPU, Gpu, detect_gpu
from rungemm.kernels import LADDER, Kernel, find_kernel
from rungemm.problem import Problem

SUITE = "claims"
STAGES = (2, 3, 4, 5)
GROUPS = (1, 8, 16)


@dataclass(frozen=True)
class Setting:
    """One kernel with one config; the name says what sets it apart."""

    name: str
    kernel: Kernel[Any]
    config: Any


@dataclass(frozen=True)
class Job:
    """Settings timed in one interleaved run."""

    shape: str
    dtype: str
    precision: str
    layout: str
    settings: tuple[Setting, ...]

    def problem(self, shape: str | None = None) -> Problem:
        return parse_shape(shape or self.shape).problem(dtype_named(self.dtype), self.layout, self.precision)


def of(name: str, **changes: Any) -> Setting:
    """A rung's default with some fields changed; they make the name."""
    kernel = find_kernel(name)
    config = replace(kernel.default, **changes)  # type: ignore[attr-defined]
    return Setting(" ".join([name, *(f"{key}={value}" for key, value in changes.items())]), kernel, config)


def fp32_settings() -> tuple[Setting, ...]:
    """Padding, reads by column, double buffering and tile order on the CUDA-core rungs."""
    both, column = PaddedBoth(), ColumnReads()
    found = [
        Setting(f"padded_both together={t} pad={a} pad_b={b}", both, replace(both.default, together=t, pad=a, pad_b=b))
        for t in (4, 8) for a in (0, 4) for b in (0, 4)
    ]  # fmt: skip
    # A thread's 8 rows and a tile of 64 columns: 4 lanes of a warp lie down the tile.
    found += [Setting(f"column_reads pad={pad}", column, replace(column.default, pad=pad)) for pad in (0, 1)]
    # The double buffer's multiply-adds are pinned and its tiles walked in groups, so what it is compared with is too.
    found += [
        Setting(
            f"padded_both together=4 pad={pad} pinned", both, replace(both.default, pad=pad, pinned=True, group_m=8)
        )
        for pad in (0, 4)
    ]
    # And its walk is theirs, row by row.
    buffered = [of("double_buffer", pad=pad, pinned=pinned) for pad in (0, 4) for pinned in (False, True)]
    found += [replace(setting, config=replace(setting.config, down=False)) for setting in buffered]
    for name in ("thread_tile_2d", "vectorised", "double_buffer", "champion_fp32"):
        found += [of(name, group_m=group) for group in GROUPS]
    return tuple(found)


def hopper_settings(tile_k: int) -> tuple[Setting, ...]:
    """Stages, warp specialisation at equal tile, and tile order on the Hopper rungs."""
    found = [of("tma_pipeline", tile_k=tile_k, stages=stages) for stages in STAGES[:3]]
    found.append(of("warp_specialised", tile_k=tile_k, stages=4))
    for name in ("tma_pipeline", "warp_specialised"):
        found += [of(name, tile_n=128, tile_k=tile_k, stages=stages) for stages in (2, 3, 4, 5)]
    found += [of("persistent", tile_k=tile_k, group=group) for group in GROUPS]
    return tuple(found)


def mma_settings(problem: Problem, gpu: Gpu) -> tuple[Setting, ...]:
    """The mma.sync rungs that take the problem: their default, 2 to 5 stages, and each tile order."""
    found = []
    for kernel in LADDER:
        if kernel.family != "tensor_core":
            continue
        configs = [c for c in kernel.configs(problem, gpu) if kernel.supports(problem, c, gpu) is None]
        if not configs:
            continue
        fields = configs[0].to_dict()
        group = next((name for name in ("group", "group_m") if name in fields), None)
        found.append(Setting(kernel.name, kernel, configs[0]))
        if "stages" in fields:
            found += [Setting(f"{kernel.name} stages={s}", kernel, replace(configs[0], stages=s)) for s in STAGES]
        if group is not None:
            found += [Setting(f"{kernel.name} {group}={g}", kernel, replace(configs[0], **{group: g})) for g in GROUPS]
    return tuple(s for s in found if s.kernel.supports(problem, s.config, gpu) is None)


def jobs(gpu: Gpu) -> list[Job]:
    """The runs, the most telling first."""
    found = [
        Job("4096x4096x4096", "fp32", "ieee", "NN", fp32_settings()),
        Job("4096x4096x4096", "fp32", "tf32", "NN", hopper_settings(32)),
        Job("8192x8192x8192", "bf16", "ieee", "NN", hopper_settings(64)),
        Job("4096x4096x4096", "fp16", "ieee", "NN", ()),
    ]
    # bf16 is fp16's speed on mma.sync: once is enough.
    with_mma = [
        job if job.dtype == "bf16" else replace(job, settings=job.settings + mma_settings(job.problem(), gpu))
        for job in found
    ]
    return [job for job in with_mma if job.settings]


def contenders_of(job: Job, gpu: Gpu) -> list[Ours]:
    """The settings that take the job's problem; others are named with the predicate's reason."""
    problem, found = job.problem(), []
    for setting in job.settings:
        reason = setting.kernel.supports(problem, setting.config, gpu)
        if reason is None:
            found.append(Ours(setting.kernel, gpu, setting.config, name=setting.name, label=setting.name))
        else:
            print(f"  {job.dtype} {setting.name}: {reason}", flush=True)
    return found


def compile_all(work: list[tuple[Job, list[Ours]]], gpu: Gpu, workers: int | None) -> dict[tuple[int, str], dict]:
    """What each compiled setting takes, by job and name; what does not compile is dropped and named."""
    owners = [(index, job, ours) for index, (job, members) in enumerate(work) for ours in members]
    results = compile_many([(ours.plan(job.problem()), gpu.arch) for _, job, ours in owners], workers=workers)
    resources = {}
    for (index, job, ours), result in zip(owners, results, strict=True):
        if isinstance(result, CompileError):
            print(f"  {job.dtype} {ours.name} does not compile: {str(result).splitlines()[0]}", flush=True)
            work[index][1].remove(ours)
            continue
        resources[index, ours.name] = {
            "registers": max(item.registers for item in result),
            "spill_bytes": sum(item.spill_bytes for item in result),
            "shared_bytes": max(item.shared_bytes for item in result),
            "warps": max(item.num_warps for item in result),
        }
    return resources


def simulate_all(work: list[tuple[Job, list[Ours]]], gpu: Gpu) -> int:
    """Run each setting on a small ragged product in the simulator; how many are wrong."""
    from rungemm.ladder.pose import Task
    from rungemm.operands import problem_of_arrays
    from rungemm.sim import simulate
    from rungemm.verify import verify

    task, wrong = Task.random(257, 300, 130, seed=7), 0
    for job, members in work:
        for ours in members:
            operands = task.operands(dtype_named(job.dtype))
            problem = problem_of_arrays(operands["A"], operands["B"], None, operands["D"], precision=job.precision)
            simulate(ours.kernel.plan(problem, ours.config, gpu), operands, count=False)
            verdict = verify(problem, operands)
            wrong += not verdict.correct
            print(f"  {job.dtype} {job.precision} {ours.name}: {verdict.error:.1e} {verdict.why}", flush=True)
    return wrong


def show(measurement: Measurement, resources: dict[str, dict]) -> None:
    """A table, in the order of the settings."""
    rounds = measurement.rounds
    print(f"\n{measurement.problem}: {rounds.count} rounds, {measurement.wall_s:.1f} s, {measurement.clocks}")
    for name, lane in measurement.lanes.items():
        if lane.failure:
            print(f"  FAILED {name}: {lane.failure[:140]}")
            continue
        ratio = measurement.ratio("cublas", name)
        text = f"{ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]" if ratio else ""
        print(f"  {name:<46}{lane.tflops or 0:8.2f} {text:<24}{100 * spread_of(lane.seconds).relative:5.1f}% "
              f"{list(resources.get(name, {}).values())}")  # fmt: skip
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--compile-only", action="store_true")
    parser.add_argument("--simulate", action="store_true")
    options = parser.parse_args()
    if not (options.compile_only or options.simulate):
        need_card()
    started = time.monotonic()
    gpu = detect_gpu() or DEFAULT_GPU
    work = [(job, contenders_of(job, gpu)) for job in jobs(gpu)]
    planned = sum(len(members) for _, members in work)
    resources = compile_all(work, gpu, options.workers)
    compiled = sum(len(members) for _, members in work)
    print(f"{compiled} of {planned} settings compiled, {time.monotonic() - started:.1f} s", flush=True)
    if options.simulate:
        return 1 if simulate_all(work, gpu) else 0
    if options.compile_only:
        return 0 if compiled == planned else 1
    if options.out is None:
        parser.error("say where to write: --out FILE (or --compile-only, --simulate)")
    import torch

    rule = StopRule(options.rounds, options.rounds, 15.0)
    settings = Settings(rule=rule, host_time=False, warm_up_s=0.4, sample_s=0.006)
    environment, records, failed = describe_environment(gpu.name), [], 0
    for index, (job, members) in enumerate(work):
        contenders: list[Contender] = [TorchMatmul(), *members]
        try:
            measurement = measure(job.problem(), contenders, gpu, settings=settings)
        except Exception as error:  # one job's trouble is not the end of the others
            print(f"{job.problem()} failed: {type(error).__name__}: {error}", flush=True)
            failed += 1
            continue
        used = {name: taken for (at, name), taken in resources.items() if at == index}
        record = measurement_record(measurement, SUITE)
        for name, taken in used.items():
            record["lanes"][name]["resources"] = taken
        records.append(record)
        write_json(options.out, raw_document(environment, settings, records))
        show(measurement, used)
        failed += sum(lane.failure is not None for lane in measurement.lanes.values())
        torch.cuda.empty_cache()
    print(f"done in {time.monotonic() - started:.1f} s; {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
