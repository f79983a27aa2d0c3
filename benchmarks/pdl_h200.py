"""What programmatic dependent launch gains: the champions with and without it, and cuBLAS, in interleaved rounds.

    PYTHONPATH=src python3 benchmarks/pdl_h200.py --out pdl.json               # some 60 s, after compiling
    PYTHONPATH=src python3 benchmarks/pdl_h200.py --out pdl.json --only 1x4096x4096,64x64x65536

Every product is timed twice. "alone": launches of one lane follow each other, each with the next cold operand set, so
that a launch's beginning hides behind the end of one of its own kind: the most that there is to gain. "between": after
every launch, of every lane alike, a small kernel of torch's adds 1 to a vector that nobody else uses; it neither lets
the next launch begin early nor waits itself, as most kernels of a model. Both lanes of ours run the same machine code.
Outputs of the timed launches are checked against float64. The file is rewritten after every measurement.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The lent machine has no platformdirs, which finds the cache's usual place.
os.environ.setdefault("RUNGEMM_CACHE_DIR", os.path.join(tempfile.gettempdir(), f"rungemm-cache-{os.getuid()}"))
# Both lanes of ours are wanted, whatever the environment says: a plan that is ``serialised`` does not overlap.
os.environ["RUNGEMM_PDL"] = "1"

from needs_card import need_card

from rungemm.bench.contenders import Call, Contender, Operands, Ours, TorchMatmul
from rungemm.bench.environment import describe_environment
from rungemm.bench.interleaved import StopRule
from rungemm.bench.measurement import Measurement, Settings, measure
from rungemm.bench.statistics import geometric_mean, spread_of
from rungemm.bench.store import measurement_record, write_json
from rungemm.bench.suites import parse_shape
from rungemm.compiling import CompileError, compile_many
from rungemm.dtypes import BF16, FP32
from rungemm.hardware import DEFAULT_GPU, Gpu, detect_gpu
from rungemm.kernels import LaunchPlan, find_kernel
from rungemm.problem import Problem

BF16_SHAPES = (
    "1x4096x4096 16x4096x4096 64x4096x4096 128x4096x4096 256x4096x4096 1x28672x4096 256x6144x4096 1024x4096x4096 "
    "64x64x65536 256x256x16384 4096x4096x4096"
)
FP32_SHAPES = "128 512 1024 333x777x555 64x64x65536 256x256x16384"
MODES = ("alone", "between")
SERIAL, OVERLAPPED = "serialised", "overlapping"
FOREIGN_ELEMENTS = 4096


@dataclass
class OursEitherWay(Ours):
    """One of our kernels, whose launches wait for each other at the border or overlap."""

    overlap: bool = True

    def plan(self, problem: Problem) -> LaunchPlan:
        """The plan, made once a problem; the same machine code both ways."""
        known = problem in self._plans
        plan = super().plan(problem)
        if not known and not self.overlap:
            plan = self._plans[problem] = plan.serialised()
        return plan


class FollowedByAnother(Contender):
    """A contender, each of whose launches is followed by a small kernel of torch's on a vector of its own."""

    def __init__(self, inner: Contender) -> None:
        self.inner, self.name, self.reuses_d = inner, inner.name, inner.reuses_d

    def bind(self, problem: Problem, operands: Operands) -> Call:
        import torch

        call, other = self.inner.bind(problem, operands), torch.zeros(FOREIGN_ELEMENTS, device="cuda")

        def both() -> None:
            call()
            other.add_(1)

        return both

    def record(self) -> dict[str, Any]:
        return self.inner.record()


def lanes_of(problem: Problem, gpu: Gpu) -> list[Contender]:
    kernel = find_kernel("champion_hopper" if problem.a.dtype == BF16 else "champion_fp32")
    ours = [OursEitherWay(kernel, gpu, name=name, overlap=name == OVERLAPPED) for name in (SERIAL, OVERLAPPED)]
    return [TorchMatmul(), *ours]


def row_of(text: str, mode: str, launches: int, measured: Measurement) -> dict[str, Any]:
    """What the reader wants first: medians in microseconds, the gain, and both ratios to cuBLAS."""
    row: dict[str, Any] = {"shape": text, "mode": mode, "launches": launches, "us": {}, "failures": {}}
    for name, lane in measured.lanes.items():
        if lane.seconds:
            row["us"][name] = 1e6 * spread_of(lane.seconds).median
        if lane.host_s is not None:
            row.setdefault("host_us", {})[name] = 1e6 * lane.host_s
        if lane.failure:
            row["failures"][name] = lane.failure
    for key, of, against in (
        ("gain", SERIAL, OVERLAPPED), (SERIAL, "cublas", SERIAL), (OVERLAPPED, "cublas", OVERLAPPED),
    ):  # fmt: skip
        ratio = measured.ratio(of, against)
        row[f"ratio_{key}"] = {"value": ratio.value, "half_width": ratio.half_width} if ratio is not None else None
    return row


def show(row: dict[str, Any]) -> None:
    times = "  ".join(f"{name} {value:8.2f}" for name, value in row["us"].items())
    ratios = "  ".join(
        f"{key[6:]} {row[key]['value']:.3f}" for key in row if key.startswith("ratio_") and row[key] is not None
    )
    print(f"{row['shape']:<22}{row['mode']:<8} us: {times}   {ratios}", flush=True)
    for name, why in row["failures"].items():
        print(f"    FAILED {name}: {why}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="the JSON file")
    parser.add_argument("--only", default=None, help="shapes by commas, of those above")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--budget", type=float, default=0.7, help="seconds of timing a shape and mode")
    parser.add_argument("--seconds", type=float, default=240.0, help="of the whole call; nothing begins after them")
    parser.add_argument("--compile-only", action="store_true", help="no card needed")
    options = parser.parse_args()
    if not options.compile_only:
        need_card()
    started, gpu = time.monotonic(), detect_gpu() or DEFAULT_GPU
    only = set(options.only.split(",")) if options.only else None
    jobs = [
        (f"{dtype.name} {text}", parse_shape(text).problem(dtype, layout))
        for dtype, layout, texts in ((BF16, "NT", BF16_SHAPES), (FP32, "NN", FP32_SHAPES))
        for text in texts.split()
        if only is None or text in only
    ]
    ready = []
    for text, problem in jobs:
        try:
            lanes = lanes_of(problem, gpu)
            ready.append((text, problem, lanes, lanes[-1].plan(problem)))  # type: ignore[attr-defined]
        except Exception as error:
            print(f"{text}: no plan: {error}", flush=True)
    made = compile_many([(plan, gpu.arch) for *_, plan in ready], workers=os.cpu_count())
    bad = [text for (text, *_), result in zip(ready, made, strict=True) if isinstance(result, CompileError)]
    for text, result in zip((text for text, *_ in ready), made, strict=True):
        if isinstance(result, CompileError):
            print(f"{text}: does not compile: {str(result).splitlines()[0]}", flush=True)
    print(f"{time.monotonic() - started:6.1f} s  {len(ready)} plans compiled, {len(bad)} failed", flush=True)
    if options.compile_only:
        return 1 if bad or len(ready) < len(jobs) else 0

    from rungemm.gpu.driver import driver

    document: dict[str, Any] = {
        "environment": describe_environment(gpu.name), "overlaps": driver().overlaps, "rows": [], "records": [],
        "failures": [],
    }  # fmt: skip
    settings = Settings(rule=StopRule(12, 60, options.budget, 0.003), warm_up_s=0.2, sample_s=0.004, host_time=True)
    for text, problem, lanes, plan in ready:
        for mode in options.modes.split(","):
            if time.monotonic() - started > options.seconds:
                document["failures"].append(f"{text} {mode}: no time left")
                continue
            contenders = lanes if mode == "alone" else [FollowedByAnother(lane) for lane in lanes]
            try:
                measured = measure(problem, contenders, gpu, settings=settings)
            except Exception as error:  # one shape's trouble is not the others'
                document["failures"].append(f"{text} {mode}: {type(error).__name__}: {error}")
                print(document["failures"][-1], flush=True)
                continue
            document["rows"].append(row_of(text, mode, len(plan.launches), measured))
            document["records"].append(measurement_record(measured, f"pdl-{mode}"))
            write_json(options.out, document)
            show(document["rows"][-1])
    write_json(options.out, document)
    for mode in options.modes.split(","):
        for key in ("ratio_gain", f"ratio_{SERIAL}", f"ratio_{OVERLAPPED}"):
            values = [row[key]["value"] for row in document["rows"] if row["mode"] == mode and row[key] is not None]
            if values:
                print(f"{mode}: {key[6:]} {geometric_mean(values):.3f} of {len(values)}, least {min(values):.3f}, "
                      f"most {max(values):.3f}")  # fmt: skip
    wrong = [row for row in document["rows"] if row["failures"]]
    print(f"{time.monotonic() - started:6.1f} s  {len(document['rows'])} measured, {len(wrong)} with a failed lane")
    return 1 if wrong or document["failures"] or bad else 0


if __name__ == "__main__":
    sys.exit(main())
