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
from typing import TYPE_CHECKING, Any

import rungemm.layouts
import rungemm.sim
from rungemm.compiling.request import request_of
from rungemm.kernels.plan import LaunchPlan, Scalar
from rungemm.sim.counter_names import COUNTERS, Counter

if TYPE_CHECKING:
    from counters_code import Code

__all__ = ["LDGSTS", "STSM", "Known", "definition", "measured_value", "read_runs", "records", "show"]

Metrics = Mapping[str, float]
Totals = Mapping[str, int]

COPIES = "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ldgsts.sum"
STSM = "stmatrix_requests"
"""Kept with the simulator's totals: of ``shared_store_requests``, those that are STSM."""

LDGSTS = "cp_async_instructions"
"""Kept with them: LDGSTS that fetch for some lane, or write zeros for one."""

GUARDED, GUARDED_EACH = "LTC128B", 32
"""An LDGSTS of this kind that its guard switches off, for which ncu has 32 wavefronts by instruction, and L1 one."""

RULES = ("alignment", "costs", "counters", "lowering", "tally", "traffic")
"""Modules of rungemm.sim that say what is counted."""

ALONE = "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_st.sum"
ALL, IDEAL = "memory_l1_wavefronts_shared", "memory_l1_wavefronts_shared_ideal"
EXECUTED_COPIES = "smsp__inst_executed_op_ldgsts.sum"
AT_L1 = {
    "load": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "store": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
}
"""L1's own count of passes: those of the instructions, and what contention adds."""

LINE = 128
"""Bytes of a pass of shared memory."""


def read_runs(path: Path) -> list[dict[str, Any]]:
    """The measurements in a file: ``{"runs": [...]}``, or one alone as older files have it."""
    raw = json.loads(path.read_text())
    return list(raw["runs"]) if "runs" in raw else [raw]


def measured_value(counter: Counter, metrics: Metrics, totals: Totals | None = None) -> int | None:
    """What ncu has for a counter, in the counter's unit; ``None`` if a metric is missing that could matter."""
    total = 0.0
    for metric, sign in counter.terms:
        if metric in metrics:
            total += sign * metrics[metric]
        elif metric != COPIES or totals is None or totals.get("async_copy_bytes", 0) or counter.ncu == COPIES:
            return None
    return int(total) // counter.ncu_each if counter.ncu else None


def records(
    shapes: Mapping[str, str],
    runs: Sequence[Mapping[str, Metrics]],
    ours: Mapping[str, Any],
    codes: Mapping[str, Code] | None = None,
) -> list[dict[str, Any]]:
    """One record for each case and counter that ncu measured.

    ``ours`` has totals by case, or a text that says why there are none; ``codes`` the machine code, where it was read.
    Where ncu's metric is known to count something besides, "by_ncus_definition" is what it then ought to be.
    """
    result = []
    for case in runs[0]:
        found = ours.get(case, "not simulated")
        totals = None if isinstance(found, str) else found
        code = (codes or {}).get(case)
        of_case = [run[case] for run in runs if case in run]
        for name, counter in COUNTERS.items():
            values = [measured_value(counter, metrics, totals) for metrics in of_case]
            if values[0] is None:
                continue
            record: dict[str, Any] = {"kernel": case, "shape": shapes[case], "counter": name, "metric": counter.ncu}
            record["simulated"] = None if totals is None else totals.get(name)
            meant = definition(name, totals, of_case[0], code) if totals is not None and name in totals else None
            if meant is not None:
                record["by_ncus_definition"] = meant[0]
            record["measured"] = values[0]
            again = [value for value in values[1:] if value is not None]
            if again:
                record["measured_again"] = again
            record["why"] = found if isinstance(found, str) else why(name, found, of_case, code)
            result.append(record)
    return result


def definition(name: str, totals: Totals, metrics: Metrics, code: Code | None) -> tuple[int, str] | None:
    """What ncu's metric ought to be where it counts more or less than the counter does, and what that is.

    Known from the simulator and the machine code, not from the metric itself; ``None`` where nothing is known of it.
    """
    ours, wgmma, read = totals[name], totals.get("wgmma_instructions", 0), totals.get("wgmma_shared_bytes", 0)
    if name == "mma_instructions":
        parts = [(moves * warps, f"{moves} HFMA2.MMA in the code, which move constants, in each of {warps:,} warps")
                 for moves, warps in (code.moves if code is not None else ()) if moves]  # fmt: skip
        parts += [(4 * wgmma, f"the four warps of {wgmma:,} wgmma")] if wgmma else []
        if not parts:
            return None
        return ours + sum(count for count, _ in parts), "it counts " + " and ".join(text for _, text in parts)
    if name == "shared_store_requests" and totals.get(STSM):
        return ours - totals[STSM], f"it leaves {totals[STSM]:,} STSM out"
    if name == "shared_load_requests" and code is not None and code.idle_loads and metrics.get(EXECUTED_COPIES):
        copies = int(metrics[EXECUTED_COPIES])
        idle = code.idle_loads * copies
        if idle.denominator == 1:
            each = f"{code.idle_loads} for each of {copies:,} LDGSTS"
            return ours + int(idle), f"it counts @!PT LDS, which never run: {each}"
    if name == "shared_load_requests" and code is not None and code.apart and metrics.get(EXECUTED_COPIES):
        once, copies_once, each_inside = code.apart
        looped = int(metrics[EXECUTED_COPIES]) - copies_once
        idle = each_inside * looped
        if looped >= 0 and idle.denominator == 1:
            text = f"{once:,} outside loops, {each_inside} for each of {looped:,} LDGSTS in them"
            return ours + once + int(idle), f"it counts @!PT LDS, which never run: {text}"
    if name in ("shared_copy_wavefronts", "shared_wavefronts") and (off := _switched_off(totals, metrics, code)):
        return ours + GUARDED_EACH * off, f"it counts {GUARDED_EACH} for each of {off:,} LDGSTS switched off by a guard"
    if name in ("shared_store_wavefronts", "shared_wavefronts") and read:
        return ours + read // LINE, f"{read // LINE:,} passes in which wgmma reads its operands are in it"
    return None


def _switched_off(totals: Totals, metrics: Metrics, code: Code | None) -> int:
    """LDGSTS that were executed with every lane off and for which ncu has wavefronts nevertheless."""
    if code is None or not code.guarded or not all(GUARDED in opcode.split(".") for opcode in code.guarded):
        return 0
    if LDGSTS not in totals or EXECUTED_COPIES not in metrics:
        return 0
    return int(metrics[EXECUTED_COPIES]) - totals[LDGSTS]


def why(name: str, totals: Totals, runs: Sequence[Metrics], code: Code | None = None) -> str:
    """A word on one counter of one case: "equal", or how far off and for what reason."""
    counter = COUNTERS[name]
    if name not in totals:
        return "not simulated"
    ours, theirs = totals[name], measured_value(counter, runs[0], totals)
    assert theirs is not None
    meant = definition(name, totals, runs[0], code)
    if ours == theirs and meant is None:
        return "equal" if counter.ncu_each == 1 else f"equal: ncu counts each of the {counter.ncu_each} warps"
    if meant is not None and meant[0] == theirs:
        return f"equal by ncu's definition: {meant[1]}"
    if name == "shared_store_wavefronts" and not totals.get(STSM) and runs[0].get(ALONE) == ours:
        return "equal where STS are counted alone; cp.async's passes, taken off the total here, vary between replays"
    share = f"measured {theirs - ours:+,}" + (f" ({theirs / ours - 1:+.3%})" if ours else "")
    others = [measured_value(counter, run, totals) for run in runs[1:]]
    again = "; again: " + ", ".join(f"{other - ours:+,}" for other in others if other is not None) if others else ""
    by = f"by ncu's definition {meant[0]:,}, as {meant[1]}; " if meant is not None else ""
    return f"{share}{again}: {by}{_reason(name, totals, runs[0])}"


def _reason(name: str, totals: Totals, metrics: Metrics) -> str:
    if name in ("shared_load_conflicts", "shared_store_conflicts"):
        return _contention("load" if "load" in name else "store", totals, metrics)
    if name == "bank_conflicts":
        both = "the sum of those of loads and stores"
        if not totals.get("async_copy_bytes") and {ALL, IDEAL} <= set(metrics):
            by_instruction = int(metrics[ALL] - metrics[IDEAL])
            both += f"; counted by instruction, all passes less the ideal ones, {by_instruction:,}"
        return both
    if name == "shared_copy_wavefronts":
        return _copies_reason(totals, metrics)
    copies = _surplus("shared_copy_wavefronts", totals, metrics)
    if name == "shared_wavefronts" and copies:
        return f"those of cp.async ({copies:+,})"
    return "unexplained"


def _surplus(name: str, totals: Totals, metrics: Metrics) -> int:
    theirs = measured_value(COUNTERS[name], metrics, totals)
    return 0 if theirs is None or name not in totals else theirs - totals[name]


def _contention(side: str, totals: Totals, metrics: Metrics) -> str:
    """Of conflicts that no address asks for: L1 counts as many passes more than the instructions take."""
    conflicts = _surplus(f"shared_{side}_conflicts", totals, metrics)
    taken = totals[f"shared_{side}_wavefronts"]
    counter = COUNTERS[f"shared_{side}_wavefronts"]
    if conflicts < 0 or AT_L1[side] not in metrics or measured_value(counter, metrics, totals) is None:
        return "unexplained"
    if not why(counter.name, totals, [metrics]).startswith("equal"):
        return "unexplained"
    passes = int(metrics[AT_L1[side]]) - taken
    if passes < conflicts and not _same_but_for_chance(passes, conflicts):
        return "unexplained"
    return (
        f"contention: counted by instruction there are the {taken:,} passes that were simulated; L1 counts {passes:,} "
        "more, for banks that another warp or an arriving line had taken, and no two replays as many (docs/counters.md)"
    )


def _same_but_for_chance(one: int, other: int) -> bool:
    """Whether two counts of rare events, from two replays, may be of the same: within a tenth, or four deviations."""
    return abs(one - other) < max(0.1 * max(one, other), 4 * math.sqrt(one + other))


def _copies_reason(totals: Totals, metrics: Metrics) -> str:
    """Of passes that write what cp.async brought: a line at a time, or less of it."""
    name = "shared_copy_wavefronts"
    theirs = measured_value(COUNTERS[name], metrics, totals)
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
