"""linear + bias + gelu: the library against torch's eager functions and torch.compile, over a suite of LLM projections.

    PYTHONPATH=src python benchmarks/library_linear.py [--suite llm] [--least-m 256] [--dtype bf16] [--seconds 2]
                                                       [--mode default] [--out results/h200/linear.json]
    PYTHONPATH=src python benchmarks/library_linear.py --variants [--shapes 1024x4096x4096,...] --mode none

Contenders are interleaved in random order, on rotating operand sets (cold L2), as graph replays where kernels are
short. The library's outputs are compared with float64 first. ``--mode`` is torch.compile's: ``default`` fuses bias and
gelu behind cuBLAS's product in a second; ``max-autotune-no-cudagraphs`` tries Triton's products too, with the epilogue
in them, for half a minute a shape; ``none`` leaves it out.

``--variants`` times what an epilogue costs and what else could be chosen, on the shapes where least is gained:

- "cublas", "cublas+bias": F.linear alone and with the bias; "gelu": torch's gelu alone, on D.
- "plain": the library's fused setting without its epilogue; "bias": with the bias alone.
- "fused LABEL": settings of the champion, all with bias and gelu; "wide gelu": the library's own with the arithmetic
  that a D of fp32 gets.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from needs_card import need_card, need_torch

need_torch()
import torch
import torch.nn.functional as F

import rungemm
from rungemm.bench.cold import Rotation, sets_needed
from rungemm.bench.device import CudaDevice
from rungemm.bench.environment import describe_environment
from rungemm.bench.graph import turns_for
from rungemm.bench.interleaved import Entry, StopRule, launches_for, time_interleaved, warm_up
from rungemm.bench.statistics import geometric_mean, spread_of
from rungemm.bench.store import write_json
from rungemm.bench.suites import Shape, suite_named
from rungemm.compiling import CompileError, compile_many
from rungemm.dtypes import dtype_named
from rungemm.gpu import prepare
from rungemm.kernels import LaunchPlan
from rungemm.kernels.hopper.champion import ChampionHopper, HopperConfig
from rungemm.ops.dispatch import Decision

REFERENCES = ("eager", "torch.compile")
PARTIAL = ("cublas", "cublas+bias", "gelu", "plain", "bias")
"""Variants that leave something out."""
MODES = ("default", "max-autotune-no-cudagraphs", "none")
WEAK = (
    "1024x4096x4096,1024x6144x4096,1024x4096x14336,4096x4096x4096,256x4096x4096,256x4096x14336,256x6144x4096,"
    "4096x4096x14336,8192x4096x14336,1024x28672x4096"
)
"""Where the library gained least over eager torch; most telling first, should time run out."""
Call = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def eager(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.gelu(F.linear(x, w, bias))


def library(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return rungemm.linear(x, w, bias, "gelu")


def chosen_for(shape: Shape, dtype: torch.dtype) -> Decision:
    """What the library runs for the shape."""
    return rungemm.explain_dispatch((shape.m, shape.n, shape.k), dtype=dtype_named(dtype), layout="NT",
                                    epilogue=rungemm.Epilogue("row", "gelu"))  # fmt: skip


def settings_worth_timing(decision: Decision, count: int) -> Iterator[HopperConfig]:
    """The champion's setting for the problem, then others: finer slices, both schedules, what its model likes next."""
    kernel, problem, gpu = ChampionHopper(), decision.problem, decision.gpu
    chosen = decision.chosen.config
    first = chosen if isinstance(chosen, HopperConfig) else next(iter(kernel.configs(problem, gpu)))
    finer = replace(first, part_n=min(32, first.tile_n), buffers=2)
    found = {first: None, replace(finer, stages=kernel.most_stages(problem, finer, gpu)): None}
    seen = {(first.tile_m, first.tile_n, first.schedule, first.stream, first.splits, first.programs)}
    for config in kernel.configs(problem, gpu):
        # Another way to count tiles, walk them or lay out the ring is no other setting here.
        key = (config.tile_m, config.tile_n, config.schedule, config.stream, config.splits, config.programs)
        if key not in seen and len(found) < count:
            found[config] = None
        seen.add(key)
    yield from (config for config in found if kernel.supports(problem, config, gpu) is None)


def variant_plans(decision: Decision, count: int) -> dict[str, LaunchPlan]:
    """Plans by the names that the module's text gives them."""
    kernel, problem, gpu = ChampionHopper(), decision.problem, decision.gpu
    plans = {}
    for index, config in enumerate(settings_worth_timing(decision, count)):
        label = f"fused {config.label}" + (f" {config.part_n}x{config.buffers}" if config.buffers > 1 else "")
        plans[label] = kernel.plan(problem, config, gpu)
        if index == 0:
            *before, launch = plans[label].launches
            constants = tuple((k, "gelu" if k == "ACTIVATION" else v) for k, v in launch.constants)
            wide = replace(launch, constants=constants)
            plans["wide gelu"] = replace(plans[label], launches=(*before, wide))
            bare = replace(problem, epilogue=None, bias_dtype=None, bias_alignment=16)
            plans["plain"] = kernel.plan(bare, config, gpu)
            plans["bias"] = kernel.plan(replace(problem, epilogue=rungemm.Epilogue("row")), config, gpu)
    return plans


def call_of(plan: LaunchPlan) -> Call:
    """A plan as a function of x, w and bias."""
    prepared = prepare(plan)

    def call(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        d = torch.empty((x.shape[0], w.shape[0]), dtype=x.dtype, device=x.device)
        prepared.run({"A": x, "B": w.mT, "D": d, "bias": bias})
        return d

    return call


def variant_calls(decision: Decision, count: int) -> dict[str, Call]:
    """What ``--variants`` times beside eager torch and the library."""
    problem = decision.problem
    d = torch.randn((problem.m, problem.n), device="cuda").to(getattr(torch, problem.d.dtype.torch))
    calls: dict[str, Call] = {
        "cublas": lambda x, w, bias: F.linear(x, w),
        "cublas+bias": F.linear,
        "gelu": lambda x, w, bias: F.gelu(d),
    }
    for name, plan in variant_plans(decision, count).items():
        try:
            calls[name] = call_of(plan)
        except CompileError as error:
            print(f"{name}: {error}".splitlines()[0], file=sys.stderr)
    return calls


def compile_ahead(shapes: list[Shape], dtype: torch.dtype, variants: int = 0) -> None:
    """All of the library's kernels on all cores: one by one, as calls would, takes 10 seconds each."""
    decisions = [chosen_for(shape, dtype) for shape in shapes]
    plans = [plan for decision in decisions if (plan := decision.chosen.plan) is not None]
    if variants:
        plans += [plan for decision in decisions for plan in variant_plans(decision, variants).values()]
    results = compile_many([(plan, 90) for plan in plans])
    failed = [result for result in results if isinstance(result, CompileError)]
    print(f"{len(plans)} kernels compiled, {len(failed)} failed", *failed, file=sys.stderr, flush=True)


def measure(
    shape: Shape, dtype: torch.dtype, device: CudaDevice, seconds: float, compiled: Any, variants: int = 0
) -> dict[str, Any]:
    """Medians, ratios and the library's error for one shape."""
    m, n, k = shape.m, shape.n, shape.k
    size = (m * k + n * k + n + m * n) * dtype.itemsize
    count = sets_needed(size, device.l2_bytes)
    sets = [
        tuple(torch.randn(s, device="cuda").to(dtype) for s in ((m, k), (n, k), (n,)))
        for _ in range(count)
    ]  # fmt: skip
    rows = slice(0, min(m, 256))
    x, w, bias = sets[0]
    want = F.gelu(x[rows].double() @ w.double().mT + bias.double())
    errors = {}
    decision = chosen_for(shape, dtype)
    calls: dict[str, Call] = {"eager": eager, "torch.compile": compiled, "library": library}
    if compiled is None:
        del calls["torch.compile"]
    if variants:
        calls.update(variant_calls(decision, variants))
    entries: dict[str, Entry] = {}
    took: dict[str, float] = {}
    launches: dict[str, Any] = {}
    for name, call in list(calls.items()):
        try:
            got = call(x, w, bias)
        except Exception as error:  # torch.compile needs a C compiler; without it the others still count
            if name != "torch.compile":
                raise
            print(f"torch.compile: {type(error).__name__}: {error}".splitlines()[0], file=sys.stderr)
            del calls[name]
            continue
        if name not in PARTIAL:
            errors[name] = float((got[rows].double() - want).norm() / want.norm())

        def launch(index: int, call: Any = call) -> None:
            call(*sets[index])

        torch.cuda.synchronize()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for index in range(3):
            launch(index % count)
        end.record()
        torch.cuda.synchronize()
        took[name], launches[name] = start.elapsed_time(end) / 3e3, launch
    # All lanes as replays or none: a replay begins with the first set, where a lane launched singly may have ended.
    short = max(took.values()) < 300e-6
    for name, launch in launches.items():
        entries[name] = Entry(launch, launches_for(took[name], 0.01))
        if short:
            turns = turns_for(count)
            inside = turns * count
            entries[name] = Entry(launch, max(inside, entries[name].launches // inside * inside),
                                  device.capture(launch, count, turns), turns)  # fmt: skip
    rotation = Rotation(count, size, device.l2_bytes)
    warm_up(entries, device.clock, rotation, budget_s=0.5)
    rounds = time_interleaved(entries, device.clock, rotation, reference="eager", rule=StopRule(10, 100, seconds))
    rotation.verdict()
    record = {
        "m": m, "n": n, "k": k, "dtype": dtype_named(dtype).name, "label": shape.label,
        "chosen": decision.chosen.name, "config": str(decision.chosen.config),
        "fused": decision.chosen.is_ours and decision.chosen.after is None,
        "us": {name: round(1e6 * spread_of(rounds.seconds[name]).median, 2) for name in calls}, "errors": errors,
        "samples_us": {name: [round(1e6 * s, 3) for s in rounds.seconds[name]] for name in calls},
    }  # fmt: skip
    for reference in REFERENCES:
        if reference not in calls:
            continue
        ratio = rounds.ratio(reference, "library")
        record[f"ratio to {reference}"] = [round(x, 4) for x in (ratio.value, ratio.low, ratio.high)]
    return record


def geometric_means(records: list[dict[str, Any]]) -> dict[str, float]:
    """Of the ratios to each reference, over the shapes that have one."""
    means = {}
    for name in REFERENCES:
        ratios = [record[f"ratio to {name}"][0] for record in records if f"ratio to {name}" in record]
        if ratios:
            means[name] = geometric_mean(ratios)
    return means


def document_of(records: list[dict[str, Any]], mode: str) -> dict[str, Any]:
    return {
        "what": "gelu(linear(x, w, bias))", "environment": describe_environment(torch.cuda.get_device_name()),
        "torch.compile mode": mode, "geomean": geometric_means(records), "records": records,
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--suite", default="llm")
    parser.add_argument("--least-m", type=int, default=256)
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--seconds", type=float, default=2.0, help="of timing for each shape")
    parser.add_argument("--limit", type=int, default=0, help="shapes; 0 for all")
    parser.add_argument("--mode", choices=MODES, default=MODES[0], help="of torch.compile")
    parser.add_argument("--variants", type=int, nargs="?", const=5, default=0, metavar="N",
                        help="time N settings of the champion too, and what an epilogue costs")  # fmt: skip
    parser.add_argument("--shapes", help="as 1024x4096x4096,256x6144x4096; with --variants those that gain least")
    parser.add_argument("--stop-after", type=float, default=1e9, help="begin no shape after so many seconds")
    parser.add_argument("--out", type=Path, help="JSON, written anew after each shape")
    arguments = parser.parse_args()
    need_card()
    dtype = getattr(torch, dtype_named(arguments.dtype).torch)
    compiled = None
    if arguments.mode != "none":
        compiled = torch.compile(eager, mode=arguments.mode, dynamic=False)
        torch._dynamo.config.cache_size_limit = 256
    named = arguments.shapes or (WEAK if arguments.variants else None)
    if named:
        shapes = [Shape(*map(int, text.split("x"))) for text in named.split(",")]
    else:
        shapes = [shape for shape in suite_named(arguments.suite) if shape.m >= arguments.least_m]
    shapes = shapes[: arguments.limit or None]
    device, records = CudaDevice(), []
    began = time.monotonic()
    compile_ahead(shapes, dtype, arguments.variants)
    with torch.no_grad():
        for shape in shapes:
            if time.monotonic() - began > arguments.stop_after:
                print(f"stopped before {shape!s}", file=sys.stderr)
                break
            record = measure(shape, dtype, device, arguments.seconds, compiled, arguments.variants)
            records.append(record)
            known = [name for name in REFERENCES if f"ratio to {name}" in record]
            ratios = "  ".join(f"{record[f'ratio to {name}'][0]:.3f}x {name}" for name in known)
            fused = "fused" if record["fused"] else "not fused"
            print(f"{shape!s:20} {record['us']['library']:9.1f} us  {ratios}  {record['chosen']} ({fused})", flush=True)
            if arguments.variants:
                print("   ", "  ".join(f"{name} {us:.1f}" for name, us in record["us"].items()), flush=True)
            torch.cuda.empty_cache()
            if arguments.out:
                write_json(arguments.out, document_of(records, arguments.mode))
    means = geometric_means(records)
    print("geometric mean: " + ", ".join(f"{value:.3f}x {name}" for name, value in means.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
