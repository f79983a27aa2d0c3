"""What if one line were missing? Every wait, fence, arrival and commit of a kernel is left out in turn.

``python -m rungemm.sim.removal [--kernels NAMES] [--shape MxNxK] [--json]``

A removal is *harmful* when the simulator reports a fault, or when a run without its checks (a *physical* run, which
gives old data and poison where the hardware might) computes something else or hangs, under any of the schedules. The
score is how many of the harmful removals are *caught*, that is reported as a fault. The others are *harmless*, and
each is explained.
"""

from __future__ import annotations

import argparse
import json
import linecache
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..hardware import find_gpu
from ..kernels.base import Kernel
from ..kernels.plan import LaunchPlan
from ..kernels.registry import LADDER, find_kernel
from ..problem import Problem
from .context import MACHINE
from .events import Event
from .faults import SimulationFault
from .launch import simulate

__all__ = ["REMOVABLE", "Removal", "Score", "remove_each", "sites_of"]

REMOVABLE = (
    "async_commit", "async_wait", "mbarrier_init", "mbarrier_expect", "mbarrier_arrive", "mbarrier_wait", "fence",
    "tma_store_wait", "wgmma_wait", "barrier", "grid_wait",
)  # fmt: skip

CHECKED = (("late", 0), ("eager", 0), ("random", 1), ("random", 2))
"""Schedules under which the simulator looks for a fault."""
PHYSICAL = (("late", 0), ("eager", 0), ("random", 11), ("random", 12), ("random", 13))
"""Schedules under which a physical run may go wrong."""

SHAPES = {"cuda_core": (130, 140, 90), "tensor_core": (140, 130, 300), "hopper": (300, 392, 840)}
"""By family: ragged, and enough tiles and K for persistent programs and rings of stages to go round."""

Place = tuple[str, int, str]


@dataclass(frozen=True)
class Removal:
    """One line left out.

    Attributes:
        file, line, operation, text: what was left out: the event's kind and the source line.
        verdict: "caught", "missed" (harmful, but no fault was reported) or "harmless".
        fault: the kind of the fault reported, or what went wrong in a physical run.
        report: the whole report, or why the removal is harmless.
    """

    kernel: str
    file: str
    line: int
    operation: str
    text: str
    verdict: str
    fault: str
    report: str


@dataclass(frozen=True)
class Score:
    """The removals of one kernel."""

    kernel: str
    removals: tuple[Removal, ...]

    def count(self, verdict: str) -> int:
        return sum(r.verdict == verdict for r in self.removals)

    @property
    def caught(self) -> int:
        return self.count("caught")

    @property
    def harmful(self) -> int:
        return self.caught + self.count("missed")

    @property
    def harmless(self) -> int:
        return self.count("harmless")


class _Sites:
    """An observer that notes where the removable operations are, and how often each ran."""

    def __init__(self) -> None:
        self.found: dict[Place, int] = {}

    def launch(self, name: str, grid: tuple[int, int, int], num_warps: int) -> None:
        return None

    def event(self, event: Event) -> None:
        if event.kind in REMOVABLE:
            place = (event.site.file, event.site.line, event.kind)
            self.found[place] = self.found.get(place, 0) + 1

    def spawn(self) -> _Sites:
        return _Sites()

    def merge(self, other: Any) -> None:
        for place, count in other.found.items():
            self.found[place] = self.found.get(place, 0) + count


def sites_of(plan: LaunchPlan, operands: Mapping[str, np.ndarray]) -> dict[Place, int]:
    """The removable operations that a plan runs, and how often. D is written.

    Raises:
        SimulationFault: the kernel is wrong as it stands.
    """
    sites = _Sites()
    simulate(plan, operands, observer=sites)
    return sites.found


def remove_each(name: str, plan: LaunchPlan, operands: dict[str, np.ndarray]) -> Score:
    """Leave out every removable operation of a plan in turn. D is written many times.

    Raises:
        SimulationFault: the kernel is wrong as it stands.
    """
    places = sites_of(plan, operands)
    right = operands["D"].copy()
    removals = []
    for place in sorted(places):
        verdict, fault, report = _without(place, plan, operands, right)
        file, line, operation = place
        text = linecache.getline(file, line).strip()
        removals.append(Removal(name, _relative(file), line, operation, text, verdict, fault, report))
    return Score(name, tuple(removals))


def _without(
    place: Place, plan: LaunchPlan, operands: dict[str, np.ndarray], right: np.ndarray
) -> tuple[str, str, str]:
    MACHINE.removed = frozenset([place])
    # A CTA barrier does nothing here (see _WHY_HARMLESS), so one run of each sort is enough to see that.
    few = 1 if place[2] == "barrier" else None
    try:
        for schedule, seed in CHECKED[:few]:
            try:
                simulate(plan, operands, count=False, schedule=schedule, seed=seed)
            except SimulationFault as fault:
                return "caught", fault.kind, str(fault)
        MACHINE.physical = True
        for schedule, seed in PHYSICAL[:few]:
            operands["D"][...] = 0
            how = f"{schedule}, seed {seed}" if schedule == "random" else schedule
            try:
                simulate(plan, operands, count=False, schedule=schedule, seed=seed)
            except SimulationFault as fault:
                return "missed", fault.kind, f"a physical run ({how}) fails: {fault}"
            if not np.array_equal(operands["D"], right, equal_nan=operands["D"].dtype.kind == "f"):
                return "missed", "wrong result", f"a physical run ({how}) computes another D"
    finally:
        MACHINE.removed = frozenset()
        MACHINE.physical = False
        operands["D"][...] = right
    return "harmless", "", _WHY_HARMLESS[place[2]]


_WHY_HARMLESS = {
    "barrier": "the compiler puts a barrier wherever the partition's threads exchange data through shared memory",
    "fence": "TMA and wgmma read nothing that ordinary stores wrote before it and after the fence before; an "
    "mbarrier.init alone needs none here (CUDA's guide asks for one)",
    "async_commit": "the copies are committed with a later group, and every wait for them waits for that one",
    "async_wait": "another wait covers the same copies before their data is used",
    "wgmma_wait": "another wait covers the same products before their result or their operands' memory is used again",
    "tma_store_wait": "another wait covers the same stores before their memory is used again and before the end",
    "mbarrier_wait": "what it waits for is ordered by another wait, or nothing later depends on it",
    "mbarrier_arrive": "nobody waits for the phase that it would complete",
    "mbarrier_expect": "nobody waits for the phase that it would complete",
    "mbarrier_init": "the mbarrier is not used afterwards",
    "grid_wait": "no launch of this plan may begin before the one before it has ended",
}


def _relative(file: str) -> str:
    parts = Path(file).parts
    return "/".join(parts[parts.index("rungemm") :]) if "rungemm" in parts else Path(file).name


def score_kernel(kernel: Kernel[Any], shape: tuple[int, int, int]) -> Score | None:
    """The score of one of our kernels with its default config; ``None`` if it has nothing but barriers to remove."""
    # Two SMs, so that a persistent program has more than one tile.
    gpu = replace(find_gpu("h200"), sms=2)
    rng = np.random.default_rng(0)
    dtype = kernel.dtypes[0]
    m, n, k = shape
    for precision in ("ieee", "tf32"):
        problem = Problem.dense(m, n, k, dtype=dtype, beta=0.5, precision=precision)  # type: ignore[arg-type]
        configs = [c for c in kernel.configs(problem, gpu) if kernel.supports(problem, c, gpu) is None][:1]
        if configs:
            break
    else:
        return None
    plan = kernel.plan(problem, configs[0], gpu)

    def random(rows: int, cols: int) -> np.ndarray:
        return rng.integers(-4, 5, (rows, cols)).astype(dtype.numpy)

    operands = {"A": random(m, k), "B": random(k, n), "C": random(m, n), "D": np.zeros((m, n), dtype.numpy)}
    if all(operation == "barrier" for _, _, operation in sites_of(plan, operands)):
        return None
    return remove_each(kernel.name, plan, operands)


def main(arguments: Iterable[str] | None = None) -> int:
    """The command line. Exit code 1 if fewer than 95% of the harmful removals are caught."""
    parser = argparse.ArgumentParser(prog="python -m rungemm.sim.removal", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--kernels", default="", help="rungs, with commas; all that have something to remove")
    parser.add_argument("--shape", default="", help="MxNxK of the product; by default one that suits the family")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    options = parser.parse_args(None if arguments is None else list(arguments))
    try:
        shape: tuple[int, int, int] | None = None
        if options.shape:
            m, n, k = (int(x) for x in options.shape.lower().split("x"))
            shape = (m, n, k)
        kernels = [find_kernel(name) for name in options.kernels.split(",") if name] or list(LADDER)
    except ValueError as error:
        text = str(error) if "rung" in str(error) else f"--shape {options.shape}: give MxNxK"
        print(f"error: {text}", file=sys.stderr)
        return 2
    scores = []
    for kernel in kernels:
        score = score_kernel(kernel, shape or SHAPES.get(kernel.family, SHAPES["hopper"]))
        if score is None:
            continue
        scores.append(score)
        if not options.json:
            _show(score)
            sys.stdout.flush()
    harmful = sum(s.harmful for s in scores)
    caught = sum(s.caught for s in scores)
    harmless = sum(s.harmless for s in scores)
    if options.json:
        removals = [asdict(r) for s in scores for r in s.removals]
        print(json.dumps({"harmful": harmful, "caught": caught, "harmless": harmless, "removals": removals}, indent=1))
    else:
        print(f"{harmful} harmful removals, {caught} caught; {harmless} harmless")
    return 0 if caught >= 0.95 * harmful else 1


def _show(score: Score) -> None:
    print(f"{score.kernel}: {score.harmful} harmful, {score.caught} caught, {score.harmless} harmless")
    for r in score.removals:
        print(f"  {r.verdict:8} {r.file}:{r.line}  {r.text}\n           {r.fault + ': ' if r.fault else ''}{r.report}")


if __name__ == "__main__":
    raise SystemExit(main())
