"""The simulator's counters beside Nsight Compute's, on the same launches: every rung, in one ncu process each time.

    PYTHONPATH=src python3 benchmarks/counters_ncu.py --shape 512x512x512 --out $OUT/counters.json

writes records {kernel, shape, counter, metric, simulated, by_ncus_definition, measured, measured_again, why}
(counters_join.py). ncu runs
this file again (--launch) as the program it profiles: --repeat times for the metrics that were seen to work on an
H200, and once more for the rest, which may fail. Where the machine with the card cannot simulate, or for another look
at an old measurement: ``--measure-only`` writes the measured numbers, and ``--measured FILE`` joins them with the
simulator's anywhere; ``--simulated FILE`` keeps the simulator's for the next time, as long as neither the kernel nor
the simulator changes. ``--probes`` adds the small kernels of counter_probes.py, or those whose names begin with what is
given. ``--kernels`` takes rungs, and rungs with settings of their own: mma_multistage@stages=3+tile_k=32.
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
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The lent machine has no platformdirs, which finds the cache's usual place.
os.environ.setdefault("RUNGEMM_CACHE_DIR", os.path.join(tempfile.gettempdir(), f"rungemm-cache-{os.getuid()}"))
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent))

import numpy as np
from counters_code import code_of
from counters_join import LDGSTS, STSM, Known, read_runs, records, show

from rungemm.hardware import DEFAULT_GPU, Gpu, detect_gpu, find_gpu
from rungemm.kernels import LADDER
from rungemm.kernels.plan import LaunchPlan
from rungemm.ladder.pose import Posed, Task, pose
from rungemm.sim.counter_names import ncu_metrics

SEED = 20261129

SURE = (
    "global_op_ld.sum", "global_op_st.sum", "mem_shared.sum", "lsu_mem_shared_op_ld.sum", "lsu_mem_shared_op_st.sum",
    "ffma_pred_on.sum", "smsp__inst_executed.sum", "bytes_read.sum", "launch__registers_per_thread",
)  # fmt: skip
"""Endings of metrics that ncu was seen to know on the H200, whether or not its list has them."""

UNLISTED = ("memory_l1_", "launch__")
"""Beginnings of metrics that ncu knows but does not list."""

TOTALS = (
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum", "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "smsp__inst_executed.sum", "dram__bytes_read.sum", "launch__registers_per_thread",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum", "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
)  # fmt: skip
"""Recorded for docs/counters.md: what these mean is more than any counter."""

LAUNCH = (
    "launch__grid_size", "launch__block_size", "launch__registers_per_thread", "profiler__replayer_passes",
    "launch__shared_mem_config_size", "launch__shared_mem_per_block", "launch__shared_mem_per_block_dynamic",
)  # fmt: skip

BY_INSTRUCTION = (
    "memory_l1_wavefronts_shared", "memory_l1_wavefronts_shared_ideal", "smsp__inst_executed_op_ldgsts.sum",
    "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ldsm.sum",
    "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "smsp__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op_ldgsts.sum",
    "smsp__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    "smsp__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "smsp__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared.sum", "launch__shared_mem_config_size",
    "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_stsm.sum", "smsp__inst_executed_op_stsm.sum",
)  # fmt: skip
"""More ways in which ncu counts shared memory, for comparison."""


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


def cases(shape: tuple[int, int, int], names: Sequence[str], probes: str | None, card: Gpu) -> Iterator[Case]:
    """The rungs named ("all", or none: every one) that take the shape, then probes named ``probes`` and on."""
    task = Task.random(*shape, seed=SEED)
    for kernel in LADDER:
        wanted = [name for name in names if name.split("@")[0] == kernel.name]
        if not names or "all" in names:
            wanted = [kernel.name, *(name for name in wanted if "@" in name)]
        posed = pose(kernel, task, card) if wanted else None
        for name in wanted:
            if isinstance(posed, Posed):
                chosen = _with_settings(posed, name.partition("@")[2], card)
                yield Case(name, chosen.plan, "x".join(map(str, shape)), chosen)
            elif posed is not None:
                print(f"{name}: left out, {posed.why}", file=sys.stderr)
    if probes is not None:
        import counter_probes

        for name, plan, out in counter_probes.probes():
            if name.startswith(probes):
                yield Case(f"probe:{name}", plan, f"{counter_probes.PROGRAMS} programs", None, out)


def _with_settings(posed: Posed, settings: str, card: Gpu) -> Posed:
    """The rung with "key=value+key=value" in place of its default's.

    Raises:
        ValueError: it has no such setting, or does not take it.
    """
    if not settings:
        return posed
    changed = {key: int(value) for key, _, value in (item.partition("=") for item in settings.split("+"))}
    config = posed.kernel.config_type.from_dict({**posed.config.to_dict(), **changed})
    return Posed(posed.kernel, posed.problem, config, posed.kernel.plan(posed.problem, config, card))


def probe_operands(case: Case) -> dict[str, np.ndarray]:
    """A of a probe, and its D."""
    from counter_probes import ROW, SOURCE_ROWS

    return {"A": np.arange(SOURCE_ROWS * ROW, dtype="f4").reshape(SOURCE_ROWS, ROW), "D": np.zeros(case.out, "f4")}


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
        report = simulate(case.plan, operands)
        instructions = report.observer.instruction_totals()
        kept = {
            key: sum(n for name, n in instructions.items() if name.split(".")[0] == opcode)
            for key, opcode in ((STSM, "STSM"), (LDGSTS, "LDGSTS"))
        }
        return dict(report.counters) | kept
    except (SimulationFault, ValueError, ImportError, NotImplementedError) as error:
        return f"not simulated: {' '.join(str(error).split())[:300]}"


def _simulate_named(name: str, shape: tuple[int, int, int], gpu: str) -> tuple[str, Any, float]:
    """In a child process, which finds the case by its name."""
    start = time.perf_counter()
    _, is_probe, probe = name.partition("probe:")
    everything = cases(shape, ["-"] if is_probe else [name], probe if is_probe else None, find_gpu(gpu))
    case = next(found for found in everything if found.name == name)
    return name, simulated(case, shape), time.perf_counter() - start


def simulate_all(
    everything: Sequence[Case], shape: tuple[int, int, int], card: Gpu, workers: int, known: Known
) -> dict[str, Any]:
    """Every case's totals by name: those known, the others from processes that share the work."""
    keys = {case.name: known.key(case.name, str(shape), case.plan, card.arch) for case in everything}
    found = {name: known.entries[key] for name, key in keys.items() if key in known.entries}
    with ProcessPoolExecutor(workers) as pool:
        jobs = [
            pool.submit(_simulate_named, case.name, shape, card.name)
            for case in everything
            if case.name not in found
        ]
        for job in as_completed(jobs):
            name, totals, seconds = job.result()
            found[name] = totals
            known.add(keys[name], totals)
            print(f"simulated {name} in {seconds:.1f} s", file=sys.stderr, flush=True)
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
        if metric.split(".")[0] in known or metric.endswith(SURE) or metric.startswith(UNLISTED)
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
            if metric is None or not ("__" in metric or metric.startswith(UNLISTED)):
                continue
            number = _number(value)
            if number is not None:
                metrics[metric] = number
    return list(found.values())


def _number(text: str | None) -> float | None:
    """The number that a cell begins with; metrics with instances have more behind it."""
    try:
        return float((text or "").split(";")[0].split(" ")[0].replace(",", ""))
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


def measure_all(everything: Sequence[Case], arguments: Sequence[str], repeat: int) -> list[dict[str, Any]]:
    """Metrics by case name, ``repeat`` times; the first time with those that may fail."""
    ncu = shutil.which("ncu")
    if ncu is None:
        raise SystemExit("ncu is not on the PATH: install Nsight Compute, or use --measured FILE")
    wanted = list(dict.fromkeys([*ncu_metrics(), *TOTALS]))
    sure = [metric for metric in wanted if metric.endswith(SURE) and not metric.startswith("smsp__sass_l1tex")]
    runs = [measure(everything, arguments, ncu, available(sure, ncu)) for _ in range(repeat)]
    more = available([*(metric for metric in wanted if metric not in sure), *BY_INSTRUCTION], ncu)
    listed = [metric for metric in more if not metric.startswith(UNLISTED)]
    for choice in (more, listed):
        if not choice:
            continue
        try:
            for case, metrics in measure(everything, arguments, ncu, choice).items():
                runs[0][case].update({name: value for name, value in metrics.items() if name not in runs[0][case]})
            break
        except (ValueError, subprocess.TimeoutExpired) as error:
            print(f"metrics left out ({len(choice)}): {error}", file=sys.stderr)
    return runs


def measure(everything: Sequence[Case], arguments: Sequence[str], ncu: str, metrics: Sequence[str]) -> dict[str, Any]:
    """Metrics by case name, from one ncu process over all cases.

    Raises:
        ValueError: ncu has no table for them; its message says where its output is.
    """
    names = sorted({function for case in everything for function in case.functions})
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "ncu.csv"
        command = [
            ncu, "--clock-control", "none", "--csv", "--page", "raw", "--print-units", "base",
            "--log-file", str(log), "-k", f"regex:^({'|'.join(names)})$", "--metrics", ",".join(metrics),
            sys.executable, str(Path(__file__).resolve()), "--launch", *arguments,
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
        sys.stderr.write(done.stderr)
        text = log.read_text() if log.exists() else done.stdout
        try:
            found = assign(parse_ncu_csv(text), [(case.name, case.functions) for case in everything])
            return {
                case: {name: value for name, value in values.items() if name in metrics or name in LAUNCH}
                for case, values in found.items()
            }
        except ValueError as error:
            kept = Path(tempfile.gettempdir()) / "ncu-log.csv"
            kept.write_text(text + "\n--- stdout\n" + done.stdout + "\n--- stderr\n" + done.stderr)
            raise ValueError(f"{error} (ncu's output is in {kept})") from None


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--shape", default="512x512x512", help="MxNxK")
    parser.add_argument("--kernels", default="", help="names, comma between; all rungs if left out")
    parser.add_argument(
        "--probes", nargs="?", const="", metavar="PREFIX", help="also the small kernels of counter_probes.py"
    )
    parser.add_argument("--out", type=Path, default=Path("counters.json"))
    parser.add_argument("--workers", type=int, default=max(len(os.sched_getaffinity(0)) - 1, 1))
    parser.add_argument("--measure-only", action="store_true", help="leave the simulator out; write raw metrics")
    parser.add_argument("--measured", type=Path, help="raw metrics of an earlier --measure-only")
    parser.add_argument("--simulated", type=Path, help="file to keep the simulator's totals in, and to take them from")
    parser.add_argument("--repeat", type=int, default=2, help="measurements of the same launches")
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
        here = {case.name for case in everything}
        runs = [
            {name: metrics for name, metrics in run.items() if name in here} for run in read_runs(options.measured)
        ]
    else:
        from rungemm.compiling import compile_many

        compile_many([(case.plan, card.arch) for case in everything])  # so that ncu's child finds them in the cache
        print(f"compiled in {time.perf_counter() - start:.1f} s", file=sys.stderr)
        arguments = ["--shape", options.shape, "--kernels", options.kernels, "--gpu", card.name]
        try:
            probes = [] if options.probes is None else ["--probes", options.probes]
            runs = measure_all(everything, [*arguments, *probes], options.repeat)
        except ValueError as error:
            raise SystemExit(str(error)) from None
        print(f"measured by {time.perf_counter() - start:.1f} s", file=sys.stderr)
        options.out.with_suffix(".raw.json").write_text(json.dumps({"runs": runs}, indent=1) + "\n")
        if options.measure_only:
            return
    wanted = [case for case in everything if case.name in runs[0]]
    ours = simulate_all(wanted, shape, card, options.workers, Known(options.simulated))
    codes = {case.name: code_of(case.plan, card.arch) for case in wanted}
    rows = records({case.name: case.shape for case in everything}, runs, ours, codes)
    show(rows)
    options.out.write_text(json.dumps(rows, indent=1) + "\n")
    equal = sum(row["why"].startswith("equal") for row in rows)
    print(f"{options.out}: {len(rows)} records, {equal} equal", file=sys.stderr)


if __name__ == "__main__":
    main()
