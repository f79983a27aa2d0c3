"""The simulator's counters beside Nsight Compute's, on the same launches: every rung once, in one ncu process.

    PYTHONPATH=src python3 benchmarks/counters_ncu.py --shape 512x512x512 --out $OUT/counters.json

writes records {kernel, shape, counter, simulated, measured, why}. ncu runs this file again (--launch) as the program
it profiles; the simulator counts meanwhile, in processes of its own. Where the machine with the card cannot simulate,
or for another look at an old measurement: ``--measure-only`` writes the measured numbers and the launch order, and
``--measured FILE`` joins them with the simulator's anywhere. ``--probes`` adds the small kernels of counter_probes.py.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The lent machine has no platformdirs, which finds the cache's usual place.
os.environ.setdefault("RUNGEMM_CACHE_DIR", os.path.join(tempfile.gettempdir(), f"rungemm-cache-{os.getuid()}"))
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent))

import numpy as np

from rungemm.hardware import DEFAULT_GPU, Gpu, detect_gpu, find_gpu
from rungemm.kernels import LADDER
from rungemm.kernels.plan import LaunchPlan
from rungemm.ladder.pose import Posed, Task, pose
from rungemm.sim.counter_names import COUNTERS, ncu_metrics

SEED = 20261129
CLOSE = 0.01
"""Share of the measured value within which a difference is put down to the reasons in REASONS."""

SURE = ("global_op_ld.sum", "global_op_st.sum", "mem_shared.sum", "pred_on.sum", "executed.sum", "read.sum")
"""Endings of metrics that ncu was seen to know on the H200, whether or not its list has them."""

EXTRA_METRICS = ("smsp__inst_executed.sum", "dram__bytes_read.sum", "launch__registers_per_thread")

REASONS = {
    "global_load_sectors": "LDGSTS: one more sector a 128-byte line, fitted",
    "global_load_requests": "see the note on the kernel",
}


@dataclass
class Case:
    """One thing to launch: a rung on its problem, or a probe."""

    name: str
    plan: LaunchPlan
    shape: str
    posed: Posed | None = None
    out: tuple[int, int] = (0, 0)

    @property
    def functions(self) -> list[str]:
        """Names of the kernels it launches, in order."""
        return [launch.function.fn.__name__ for launch in self.plan.launches]


def cases(shape: tuple[int, int, int], names: Sequence[str], probes: bool, card: Gpu) -> Iterator[Case]:
    """The rungs named (all, if none is) that take the shape, then the probes."""
    task = Task.random(*shape, seed=SEED)
    for kernel in LADDER:
        if names and kernel.name not in names:
            continue
        posed = pose(kernel, task, card)
        if isinstance(posed, Posed):
            yield Case(kernel.name, posed.plan, "x".join(map(str, shape)), posed)
        else:
            print(f"{kernel.name}: left out, {posed.why}", file=sys.stderr)
    if probes:
        import counter_probes

        for name, plan, out in counter_probes.probes():
            yield Case(f"probe:{name}", plan, f"{counter_probes.PROGRAMS} programs", None, out)


def probe_operands(case: Case) -> dict[str, np.ndarray]:
    """A of a probe, and its D."""
    import counter_probes

    size = counter_probes.ROW
    return {"A": np.arange(size * size, dtype="f4").reshape(size, size), "D": np.zeros(case.out, "f4")}


def launch_all(everything: Sequence[Case], shape: tuple[int, int, int], card: Gpu) -> None:
    """What ncu watches: each case once, on the card, in order."""
    import torch

    from rungemm.gpu import run_plan
    from rungemm.ladder.runners import GpuRunner

    task = Task.random(*shape, seed=SEED)
    for case in everything:
        if case.posed is not None:
            outcome = GpuRunner(card).run(case.posed, task)
            if not outcome.correct:
                print(f"{case.name}: WRONG on the card: {outcome.why}", file=sys.stderr)
        else:
            operands = {role: torch.from_numpy(x).cuda() for role, x in probe_operands(case).items()}
            run_plan(case.plan, operands)
    torch.cuda.synchronize()


def simulated(case: Case, shape: tuple[int, int, int]) -> dict[str, int] | str:
    """The simulator's totals, or why there are none."""
    from rungemm.sim import SimulationFault, simulate

    try:
        if case.posed is not None:
            operands = Task.random(*shape, seed=SEED).operands(case.posed.problem.a.dtype)
        else:
            operands = probe_operands(case)
        return dict(simulate(case.plan, operands).counters)
    except (SimulationFault, ValueError, ImportError, NotImplementedError) as error:
        return f"not simulated: {' '.join(str(error).split())[:300]}"


def _simulate_named(name: str, shape: tuple[int, int, int], probes: bool, gpu: str) -> tuple[str, Any, float]:
    """In a child process, which finds the case by its name."""
    start = time.perf_counter()
    wanted = [] if name.startswith("probe:") else [name]
    card = find_gpu(gpu)
    everything = cases(shape, wanted or ["-"], probes, card)
    case = next(found for found in everything if found.name == name)
    return name, simulated(case, shape), time.perf_counter() - start


def simulate_all(
    everything: Sequence[Case], shape: tuple[int, int, int], probes: bool, gpu: str, workers: int
) -> dict[str, Any]:
    """Every case's totals by name, from processes that share the work."""
    found: dict[str, Any] = {}
    with ProcessPoolExecutor(workers) as pool:
        jobs = [pool.submit(_simulate_named, case.name, shape, probes, gpu) for case in everything]
        for job in jobs:
            name, totals, seconds = job.result()
            found[name] = totals
            print(f"simulated {name} in {seconds:.1f} s", file=sys.stderr)
    return found


# ncu and its CSV.


def available(metrics: Sequence[str], ncu: str) -> list[str]:
    """Those that this ncu knows for the chip; all, if it does not say."""
    asked = subprocess.run([ncu, "--query-metrics", "--chips", "gh100"], capture_output=True, text=True, check=False)
    known = set(re.findall(r"^(\w+)\s", asked.stdout, re.MULTILINE))
    if not known:
        return list(metrics)
    kept = [
        metric
        for metric in metrics
        if metric.split(".")[0] in known or metric.endswith(SURE) or metric.startswith("launch__")
    ]
    for metric in sorted(set(metrics) - set(kept)):
        print(f"ncu does not know {metric}: left out", file=sys.stderr)
    return kept


def parse_ncu_csv(text: str) -> list[tuple[str, dict[str, float]]]:
    """Kernel name and metrics of each launch, in order, from ``ncu --csv`` with or without ``--page raw``.

    Raises:
        ValueError: there is no table in the text; the message has ncu's own complaint.
    """
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        complaints = [line for line in lines if line.startswith("==ERROR==")]
        raise ValueError(f"no table in ncu's output: {(complaints or lines or ['nothing'])[0]}")
    rows = list(csv.DictReader(line for line in lines[start:] if line.startswith('"')))
    found: dict[str, tuple[str, dict[str, float]]] = {}
    for row in rows:
        if not row["ID"]:  # the raw page's row of units
            continue
        name = row["Kernel Name"].split("(")[0]
        _, metrics = found.setdefault(row["ID"], (name, {}))
        named = {row["Metric Name"]: row["Metric Value"]} if "Metric Name" in row else row
        for metric, value in named.items():
            if metric is None or "__" not in metric:
                continue
            number = _number(value)
            if number is not None:
                metrics[metric] = number
    return list(found.values())


def _number(text: str | None) -> float | None:
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return None


def assign(launches: Sequence[tuple[str, dict[str, float]]], order: Sequence[tuple[str, list[str]]]) -> dict[str, Any]:
    """Metrics by case, summed over its launches; ``order`` lists the cases and their kernels as they ran.

    Raises:
        ValueError: the launches are not those of the cases, in that order.
    """
    rest = list(launches)
    found: dict[str, Any] = {}
    for case, functions in order:
        total: dict[str, float] = {}
        for function in functions:
            if not rest or rest[0][0] != function:
                raise ValueError(f"{case}: ncu saw {rest[0][0] if rest else 'nothing more'} where {function} was due")
            for metric, value in rest.pop(0)[1].items():
                total[metric] = max(total[metric], value) if metric.startswith("launch__") and metric in total else (
                    total.get(metric, 0) + value
                )  # fmt: skip
        found[case] = total
    if rest:
        raise ValueError(f"ncu saw {len(rest)} launches more than the cases have, first {rest[0][0]}")
    return found


def measure(everything: Sequence[Case], arguments: Sequence[str]) -> dict[str, Any]:
    """Metrics by case name, from one ncu process over all of them."""
    ncu = shutil.which("ncu")
    if ncu is None:
        raise SystemExit("ncu is not on the PATH: install Nsight Compute, or use --measured FILE")
    names = sorted({function for case in everything for function in case.functions})
    metrics = available([*ncu_metrics(), *EXTRA_METRICS], ncu)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "ncu.csv"
        command = [
            ncu, "--clock-control", "none", "--csv", "--page", "raw", "--print-units", "base",
            "--log-file", str(log), "-k", f"regex:^({'|'.join(names)})$", "--metrics", ",".join(metrics),
            sys.executable, str(Path(__file__).resolve()), "--launch", *arguments,
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=540)
        sys.stderr.write(done.stderr)
        text = log.read_text() if log.exists() else done.stdout
        try:
            return assign(parse_ncu_csv(text), [(case.name, case.functions) for case in everything])
        except ValueError as error:
            kept = Path(tempfile.gettempdir()) / "ncu-log.csv"
            kept.write_text(text + "\n--- stdout\n" + done.stdout + "\n--- stderr\n" + done.stderr)
            raise SystemExit(f"{error} (ncu's output is in {kept})") from None


# Records.


def why_of(counter: str, ours: int | None, theirs: float) -> str:
    """A word on each record."""
    if ours is None:
        return "not simulated"
    if ours == theirs:
        return "equal"
    off = abs(ours - theirs) / theirs if theirs else float("inf")
    share = f"{ours / theirs - 1:+.3%}" if theirs else "measured 0"
    reason = REASONS.get(counter, "unexplained")
    return f"{share}, {reason}" if off <= CLOSE else f"{share}, UNEXPLAINED"


def records(shapes: dict[str, str], measured: dict[str, Any], ours: dict[str, Any]) -> list[dict[str, Any]]:
    """One record for each case and counter that ncu measured."""
    result = []
    for case, metrics in measured.items():
        totals = ours.get(case)
        for name, counter in COUNTERS.items():
            if counter.ncu not in metrics:
                continue
            count = totals.get(name) if isinstance(totals, dict) else None
            why = why_of(name, count, metrics[counter.ncu]) if not isinstance(totals, str) else totals
            result.append(
                {"kernel": case, "shape": shapes[case], "counter": name, "metric": counter.ncu, "simulated": count,
                 "measured": int(metrics[counter.ncu]), "why": why}
            )  # fmt: skip
    return result


def show(rows: Sequence[dict[str, Any]]) -> None:
    """A line for each record, differences marked."""
    for row in rows:
        mark = " " if row["why"] == "equal" else "!"
        numbers = f"{row['simulated']!s:>14}{row['measured']:>14}"
        print(f"{mark} {row['kernel']:<28}{row['counter']:<26}{numbers}  {row['why']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--shape", default="512x512x512", help="MxNxK")
    parser.add_argument("--kernels", default="", help="names, comma between; all rungs if left out")
    parser.add_argument("--probes", action="store_true", help="also the small kernels of counter_probes.py")
    parser.add_argument("--out", type=Path, default=Path("counters.json"))
    parser.add_argument("--workers", type=int, default=max(len(os.sched_getaffinity(0)) - 1, 1))
    parser.add_argument("--measure-only", action="store_true", help="leave the simulator out; write raw metrics")
    parser.add_argument("--measured", type=Path, help="raw metrics of an earlier --measure-only")
    parser.add_argument("--gpu", default="", help="card the plans are made for; the card at hand if left out")
    parser.add_argument("--launch", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    m, n, k = (int(extent) for extent in options.shape.split("x"))
    shape = (m, n, k)
    card = find_gpu(options.gpu) if options.gpu else detect_gpu() or DEFAULT_GPU
    names = [name for name in options.kernels.split(",") if name]
    everything = list(cases(shape, names, options.probes, card))
    if options.launch:
        launch_all(everything, shape, card)
        return

    start = time.perf_counter()
    if options.measured:
        raw = json.loads(options.measured.read_text())
        measured = {name: metrics for name, metrics in raw.items() if name in {case.name for case in everything}}
    else:
        from rungemm.compiling import compile_many

        compile_many([(case.plan, card.arch) for case in everything])  # so that ncu's child finds them in the cache
        print(f"compiled in {time.perf_counter() - start:.1f} s", file=sys.stderr)
        arguments = ["--shape", options.shape, "--kernels", options.kernels, "--gpu", card.name]
        measured = measure(everything, [*arguments, "--probes"] if options.probes else arguments)
        print(f"measured by {time.perf_counter() - start:.1f} s", file=sys.stderr)
        options.out.with_suffix(".raw.json").write_text(json.dumps(measured, indent=1))
        if options.measure_only:
            return
    wanted = [case for case in everything if case.name in measured]
    ours = simulate_all(wanted, shape, options.probes, card.name, options.workers)
    rows = records({case.name: case.shape for case in everything}, measured, ours)
    show(rows)
    options.out.write_text(json.dumps(rows, indent=1) + "\n")
    print(f"{options.out}: {len(rows)} records, {sum(row['why'] == 'equal' for row in rows)} equal", file=sys.stderr)


if __name__ == "__main__":
    main()
