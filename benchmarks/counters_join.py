"""Records of the simulator's counters beside Nsight Compute's, each with a word on what stands between them.

``runs`` are measurements of the same launches: metrics by case. The first is the one recorded; the others tell what
belongs to the kernel from what belongs to the moment. docs/counters.md has the evidence for the words used here.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import rungemm.layouts
import rungemm.sim
from rungemm.compiling.request import request_of
from rungemm.kernels.plan import LaunchPlan, Scalar
from rungemm.sim.counter_names import COUNTERS, Counter

__all__ = ["Known", "measured_value", "read_runs", "records", "show"]

Metrics = Mapping[str, float]
Totals = Mapping[str, int]

COPIES = "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ldgsts.sum"
RULES = ("alignment", "costs", "counters", "lowering", "tally", "traffic")
"""Modules of rungemm.sim that say what is counted."""

SIDES = {
    "shared_load_wavefronts": "load", "shared_load_conflicts": "load",
    "shared_store_wavefronts": "store", "shared_store_conflicts": "store",
}  # fmt: skip


def read_runs(path: Path) -> list[dict[str, Any]]:
    """The measurements in a file: ``{"runs": [...]}``, or one alone as older files have it."""
    raw = json.loads(path.read_text())
    return list(raw["runs"]) if "runs" in raw else [raw]


def measured_value(counter: Counter, metrics: Metrics, totals: Totals | None = None) -> int | None:
    """What ncu has for a counter, in the counter's unit; ``None`` if a metric is missing that could matter."""
    total = 0.0
    for metric in counter.metrics:
        if metric in metrics:
            total += metrics[metric]
        elif metric != COPIES or totals is None or totals.get("async_copy_bytes", 0) or counter.ncu == COPIES:
            return None
    return int(total) // counter.ncu_each if counter.ncu else None


def records(
    shapes: Mapping[str, str], runs: Sequence[Mapping[str, Metrics]], ours: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """One record for each case and counter that ncu measured.

    ``ours`` has totals by case, or a text that says why there are none.
    """
    result = []
    for case in runs[0]:
        found = ours.get(case, "not simulated")
        totals = None if isinstance(found, str) else found
        of_case = [run[case] for run in runs if case in run]
        for name, counter in COUNTERS.items():
            values = [measured_value(counter, metrics, totals) for metrics in of_case]
            if values[0] is None:
                continue
            record: dict[str, Any] = {"kernel": case, "shape": shapes[case], "counter": name, "metric": counter.ncu}
            record["simulated"] = None if totals is None else totals.get(name)
            record["measured"] = values[0]
            again = [value for value in values[1:] if value is not None]
            if again:
                record["measured_again"] = again
            record["why"] = found if isinstance(found, str) else why(name, found, of_case)
            result.append(record)
    return result


def why(name: str, totals: Totals, runs: Sequence[Metrics]) -> str:
    """A word on one counter of one case: "equal", or how far off and for what reason."""
    counter = COUNTERS[name]
    if name not in totals:
        return "not simulated"
    ours, theirs = totals[name], measured_value(counter, runs[0], totals)
    assert theirs is not None
    if ours == theirs:
        return "equal" if counter.ncu_each == 1 else f"equal: ncu counts each of the {counter.ncu_each} warps"
    share = f"measured {theirs - ours:+,}" + (f" ({theirs / ours - 1:+.3%})" if ours else "")
    others = [measured_value(counter, run, totals) for run in runs[1:]]
    again = "; again: " + ", ".join(f"{other - ours:+,}" for other in others if other is not None) if others else ""
    return f"{share}{again}: {_reason(name, totals, runs[0])}"


def _reason(name: str, totals: Totals, metrics: Metrics) -> str:
    if name in SIDES:
        return _shared_reason(SIDES[name], name.endswith("wavefronts"), totals, metrics)
    if name in ("shared_wavefronts", "bank_conflicts"):
        kind = "wavefronts" if name == "shared_wavefronts" else "conflicts"
        off = sum(_surplus(f"shared_{side}_{kind}", totals, metrics) for side in ("load", "store"))
        ours = totals[name]
        theirs = measured_value(COUNTERS[name], metrics, totals)
        assert theirs is not None
        rest = theirs - ours - off
        return f"the sum of those of loads and stores{f' and of cp.async ({rest:+,})' if rest else ''}"
    if name == "shared_copy_wavefronts":
        return _copies_reason(totals, metrics)
    ours, theirs = totals[name], measured_value(COUNTERS[name], metrics, totals)
    assert theirs is not None
    if name == "mma_instructions" and not ours:
        return "HFMA2.MMA, with which ptxas moves constants, counts as one: as many as the SASS has (docs/counters.md)"
    if name == "shared_store_requests" and theirs < ours:
        return "ncu leaves STSM out: the matrix probes, whose stores are all STSM, measure 0"
    if name == "shared_load_requests" and theirs > ours:
        return "ncu counts the @!PT LDS that ptxas puts before LDGSTS and that never runs, as in the ldgsts probes"
    return "unexplained"


def _surplus(name: str, totals: Totals, metrics: Metrics) -> int:
    theirs = measured_value(COUNTERS[name], metrics, totals)
    return 0 if theirs is None else theirs - totals[name]


def _shared_reason(side: str, wavefronts: bool, totals: Totals, metrics: Metrics) -> str:
    passes = _surplus(f"shared_{side}_wavefronts", totals, metrics)
    conflicts = _surplus(f"shared_{side}_conflicts", totals, metrics)
    waited = "no address asks for these: contention for the data banks, which does not repeat (docs/counters.md)"
    if min(passes, conflicts) > 0 and passes != conflicts and _same_but_for_chance(passes, conflicts):
        return f"{passes:,} wavefronts and {conflicts:,} conflicts more, measured in replays of their own; {waited}"
    if conflicts < 0 or passes < conflicts:
        return "unexplained"
    if passes == conflicts:
        return f"as many wavefronts as conflicts, so phases are equal; {waited}"
    rest = passes - conflicts
    polls = f"{rest:,} passes of no {'LDS' if side == 'load' else 'STS'}, in kernels that wait on mbarriers only"
    if not wavefronts:
        return waited
    if not totals.get("mbarrier_arrivals"):
        return "unexplained"
    return f"of {conflicts:,} {waited}; {polls}" if conflicts else polls


def _same_but_for_chance(one: int, other: int) -> bool:
    """Whether two counts of rare events, from two replays, may be of the same: within a tenth, or four deviations."""
    return abs(one - other) < max(0.1 * max(one, other), 4 * math.sqrt(one + other))


def _copies_reason(totals: Totals, metrics: Metrics) -> str:
    """Of passes that write what cp.async brought: a line at a time, or less of it."""
    name = "shared_copy_wavefronts"
    theirs = measured_value(COUNTERS[name], metrics, totals)
    sectors = measured_value(COUNTERS["global_load_sectors"], metrics, totals)
    if theirs is not None and theirs == sectors:
        return "one for each 32-byte sector, exactly, where others like it take one for each line (docs/counters.md)"
    if theirs is not None and totals[name] > theirs:
        return "two lines that arrive together may be written together"
    return "parts of a line that arrive apart are written apart"


def show(rows: Sequence[Mapping[str, Any]]) -> None:
    """A line for each record, differences marked."""
    for row in rows:
        mark = " " if row["why"].startswith("equal") else "!"
        numbers = f"{row['simulated']!s:>14}{row['measured']:>14}"
        print(f"{mark} {row['kernel']:<28}{row['counter']:<26}{numbers}  {row['why']}")


class Known:
    """Totals simulated before, in a file, each under a key of what is counted and by which rules.

    The part of the simulator that only executes is left out of the key: its tests see to it that it does not change
    what is asked of memory, and naive at 512^3 takes minutes.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.entries: dict[str, Any] = json.loads(path.read_text()) if path is not None and path.exists() else {}
        self.sources = _sources()

    def key(self, name: str, shape: str, plan: LaunchPlan, arch: int) -> str:
        """Of the counting rules' source, the kernels' source and constants, grids, arguments and shape."""
        parts = [self.sources, name, shape]
        for launch in plan.launches:
            scalars = [(name, argument.value) for name, argument in launch.arguments if isinstance(argument, Scalar)]
            parts += [request_of(launch, arch).key, repr(launch.grid), repr(scalars)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def add(self, key: str, totals: Any) -> None:
        """Keep totals, and write the file."""
        self.entries[key] = totals
        if self.path is not None:
            self.path.write_text(json.dumps(self.entries))


def _sources() -> str:
    digest = hashlib.sha256()
    rules = Path(next(iter(rungemm.sim.__path__)))
    layouts = Path(next(iter(rungemm.layouts.__path__)))
    for path in (*(rules / f"{name}.py" for name in RULES), *sorted(layouts.glob("*.py"))):
        digest.update(path.read_bytes())
    return digest.hexdigest()
