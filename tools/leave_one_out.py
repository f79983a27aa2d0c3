"""What the library would choose for each measured problem, had that problem not been measured.

    PYTHONPATH=src python3 tools/leave_one_out.py [--card h200] [--results results] [--all]

One problem at a time is taken out of the library's table and of the Hopper champion's (its extents, in every type and
layout), then the dispatcher is asked. cuBLAS scores 1; a setting of ours that was measured on the problem scores what
was measured, cuBLAS's time over its own; a setting never measured there is counted apart.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from rungemm.bench.statistics import geometric_mean, paired_ratio
from rungemm.dtypes import dtype_named
from rungemm.hardware import Gpu, find_gpu
from rungemm.kernels import Config, find_kernel
from rungemm.kernels.hopper import tuned
from rungemm.ops.dispatch import Decision, decide
from rungemm.ops.generate import FOLDERS, measurements_of
from rungemm.ops.table import TABLES, Table, read_records
from rungemm.problem import Problem

HARMFUL = 0.95
"""No choice may score less (issue 7)."""


@dataclass
class Measured:
    """A problem and cuBLAS's time over that of every setting measured on it."""

    problem: Problem
    ratios: dict[tuple[str, Config], float] = field(default_factory=dict)

    @property
    def extents(self) -> tuple[int, int, int]:
        return self.problem.m, self.problem.n, self.problem.k


def read(paths: Iterable[Path]) -> list[Measured]:
    """Every problem on which cuBLAS and something of ours was timed; of a setting's runs the median counts."""
    found: dict[Problem, Measured] = {}
    runs: dict[tuple[Problem, str, Config], list[float]] = {}
    for path in paths:
        for _, record in measurements_of(path):
            p, lanes = record["problem"], record["lanes"]
            base = lanes.get("cublas")
            if base is None or not base["us"] or not record["cold_l2"]["cold"]:
                continue
            problem = Problem.dense(
                p["m"], p["n"], p["k"], dtype=dtype_named(p["dtype"]), out_dtype=dtype_named(p["out_dtype"]),
                layout=p["layout"], batch=p["batch"], alpha=p["alpha"], beta=p["beta"], precision=p["precision"],
            )  # fmt: skip
            entry = found.setdefault(problem, Measured(problem))
            for lane in lanes.values():
                if not lane.get("kernel") or lane["failure"] or not lane["us"] or lane.get("config") is None:
                    continue
                try:
                    kernel = find_kernel(lane["kernel"])
                    config = kernel.config_type.from_dict(lane["config"])
                except (TypeError, ValueError, KeyError):
                    continue  # of a kernel as it was before its fields changed
                ratios = runs.setdefault((problem, lane["kernel"], config), [])
                ratios.append(paired_ratio(base["us"], lane["us"]).value)
                entry.ratios[lane["kernel"], config] = statistics.median(ratios)
    return [entry for entry in found.values() if entry.ratios]


def without(entry: Measured, records: list[dict[str, Any]], gpu: Gpu) -> Decision:
    """The choice for a problem whose extents no table knows."""
    table = Table(read_records([r for r in records if (r["m"], r["n"], r["k"]) != entry.extents]))
    real = tuned.entries
    tuned.entries = lambda path: tuple(e for e in real(path) if (e.m, e.n, e.k) != entry.extents)
    try:
        return decide(entry.problem, gpu, table=table, all_rungs=False)
    finally:
        tuned.entries = real


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--card", default="h200")
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--all", action="store_true", help="a line for every problem, not for the harmful choices only")
    options = parser.parse_args()
    gpu = find_gpu(options.card)
    folder = options.results / gpu.name
    entries = read(path for name in FOLDERS for path in sorted((folder / name).glob("*.json")))
    records = json.loads((TABLES / f"{gpu.name}.json").read_text())["entries"]
    scores, counts, missed = [], Counter[str](), []
    for entry in entries:
        decision = without(entry, records, gpu)
        chosen, best = decision.chosen, max(entry.ratios.values())
        score = 1.0
        if chosen.is_ours:
            counts["ours"] += 1
            known = entry.ratios.get((chosen.name, chosen.config))
            if known is None:
                counts["never measured"] += 1
            score = known if known is not None else float("nan")
        else:
            counts["cuBLAS"] += 1
            if best > 1.03:
                missed.append(best)
        if score == score:
            scores.append(score)
        if options.all or score < HARMFUL:
            label = getattr(chosen.config, "label", chosen.config) if chosen.is_ours else ""
            print(f"{entry.problem}: {score:.3f} by {chosen.name} {label}; best {best:.3f} of {len(entry.ratios)}; "
                  f"{decision.why}")  # fmt: skip
    print(f"{len(entries)} problems, chosen {dict(counts)}")
    print(f"scores: geometric mean {geometric_mean(scores):.4f}, least {min(scores):.3f}, "
          f"{sum(score < HARMFUL for score in scores)} below {HARMFUL}")  # fmt: skip
    print(f"gains of more than 3% left to cuBLAS: {len(missed)}"
          + (f", geometric mean {geometric_mean(missed):.3f}" if missed else ""))  # fmt: skip
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
