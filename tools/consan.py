"""Triton's own concurrency sanitizer (ConSan) on a card, beside the simulator's verdicts.

    python tools/consan.py [OUT.json]                    the gallery of faults
    python tools/consan.py [OUT.json] --rungs [NAME...]  rungs of the ladder, all if none is named

Every exhibit that ConSan covers runs twice, broken and repaired; the table says whether ConSan and the simulator
agree. Rungs run at a ragged shape and at one that goes round every stage of their rings, results compared with
float64. Each launch has a process of its own (a report traps the kernel, and a hang is ended), several at a time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "sim"), str(ROOT / "tools")]

SANITIZED = {
    "TRITON_INSTRUMENTATION_MODE": "consan",
    # Triton's cache does not tell instrumented code from plain code.
    "TRITON_ALWAYS_COMPILE": "1",
    "CUDA_LAUNCH_BLOCKING": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONPATH": os.pathsep.join([*sys.path[:2], os.environ.get("PYTHONPATH", "")]),
}


def child(arguments: Sequence[str], seconds: float) -> tuple[int | None, list[str]]:
    """Exit status (``None``: ended at the limit) and the lines said by a process of ours with the sanitizer on."""
    command = [sys.executable, *arguments]
    try:
        done = subprocess.run(
            command, env={**os.environ, **SANITIZED}, capture_output=True, text=True, timeout=seconds, errors="replace"
        )
    except subprocess.TimeoutExpired as late:
        said = (late.stdout or b"", late.stderr or b"")  # bytes, whatever text= says
        return None, "\n".join(p.decode(errors="replace") if isinstance(p, bytes) else p for p in said).splitlines()
    return done.returncode, (done.stdout + done.stderr).strip().splitlines()


def telling(lines: Sequence[str]) -> str:
    """The line that says what happened: the sanitizer's assertion, the compiler's error, or else the last one."""
    for sign in ("Assertion `", "LLVM ERROR", "error: ", "PassManager::run failed", "Error"):
        found = next((line for line in lines if sign in line), None)
        if found is not None:
            return found.strip()[:400]
    return lines[-1].strip()[:400] if lines else ""


def in_parallel(jobs: Sequence[Any], work: Callable[[Any], dict[str, Any]], workers: int) -> Iterator[dict[str, Any]]:
    """Each job's result, in the jobs' order, as soon as it and those before it are there."""
    with ThreadPoolExecutor(workers) as threads:
        yield from threads.map(work, jobs)


# --- the gallery -------------------------------------------------------------------------------------------------


def exhibit_on_card(name: str, fixed: bool) -> None:
    """Launch one exhibit; runs in a child."""
    import torch
    import triton
    from gallery import GALLERY
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    from rungemm.sim import TensorMap

    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    exhibit = next(e for e in GALLERY if e.name == name)

    def argument(value: Any) -> Any:
        if isinstance(value, TensorMap):
            return TensorDescriptor.from_tensor(argument(value.array), list(value.block), value.layout)
        return torch.from_numpy(value.copy()).cuda() if hasattr(value, "shape") else value

    exhibit.kernel[(exhibit.grid,)](*[argument(v) for v in exhibit.arguments()], FIXED=fixed, num_warps=4)
    torch.cuda.synchronize()


def simulated(name: str, fixed: bool) -> dict[str, Any]:
    from gallery import GALLERY

    from rungemm.sim import SimulationFault, run

    exhibit = next(e for e in GALLERY if e.name == name)
    try:
        run(exhibit.kernel, exhibit.grid, *exhibit.arguments(), FIXED=fixed)
    except SimulationFault as fault:
        return {"reported": True, "words": str(fault)}
    return {"reported": False, "words": ""}


def gallery(workers: int, seconds: float) -> tuple[list[dict[str, Any]], bool]:
    """Every exhibit's rows, and whether ConSan and the simulator agree on all."""
    from gallery import GALLERY

    def under_consan(job: tuple[str, bool]) -> dict[str, Any]:
        status, lines = child([__file__, "--exhibit", job[0], str(int(job[1]))], seconds)
        if status is None:
            return {"reported": True, "words": f"hangs ({seconds:.0f} s)"}
        return {"reported": status != 0, "words": telling(lines) if status else ""}

    jobs = [(exhibit.name, fixed) for exhibit in GALLERY if exhibit.consan for fixed in (False, True)]
    rows = []
    for (name, fixed), consan in zip(jobs, in_parallel(jobs, under_consan, workers), strict=True):
        ours = simulated(name, fixed)
        agree = consan["reported"] == ours["reported"]
        rows.append({"exhibit": name, "fixed": fixed, "agree": agree, "consan": consan, "simulator": ours})
        which, verdict = "repaired" if fixed else "broken", "agree" if agree else "DIFFER"
        print(f"{name:26} {which:9} {verdict:7} {consan['words'][:90]}", flush=True)
    return rows, all(row["agree"] for row in rows)


# --- the rungs ---------------------------------------------------------------------------------------------------


def rungs(names: list[str], workers: int, seconds: float, compile_only: bool) -> tuple[list[dict[str, Any]], bool]:
    """Every rung's rows, and whether all are clean and right."""
    from consan_rungs import jobs_of

    def one(job: tuple[str, str]) -> dict[str, Any]:
        start = time.monotonic()
        script = str(ROOT / "tools" / "consan_rungs.py")
        status, lines = child([script, *job, *(["--compile"] if compile_only else [])], seconds)
        row = {"rung": job[0], "case": job[1], "shape": None, "config": None, "dtype": None}
        for line in lines:
            if line.startswith("ABOUT "):
                row |= json.loads(line.removeprefix("ABOUT "))
        result = next((line.removeprefix("RESULT ") for line in lines if line.startswith("RESULT ")), None)
        if status is None:
            row |= {"outcome": "hangs", "words": f"ended after {seconds:.0f} s; {telling(lines)}"}
        elif status == 0 and result is not None:
            row |= json.loads(result)
        else:
            words = telling(lines)
            row["outcome"] = "reported" if "Assertion `" in words else "failed"
            row |= {"words": words, "status": status, "said": lines[-40:]}
        return row | {"seconds": round(time.monotonic() - start, 1)}

    rows = []
    print(f"{'rung':22} {'case':10} {'shape':>15} {'type':5} {'outcome':9} {'s':>6}  error or report")
    # The top of the ladder takes longest to compile (a minute of CPU and more with the sanitizer), so it comes first.
    for row in in_parallel(jobs_of(names)[::-1], one, workers):
        rows.append(row)
        shape = "x".join(map(str, row["shape"] or ()))
        words = row["words"] or ("" if row.get("error") is None else f"{row['error']:.2e}")
        known = f"{row['rung']:22} {row['case']:10} {shape:>15} {row['dtype'] or '':5} {row['outcome']:9}"
        print(f"{known} {row['seconds']:6.1f}  {words[:120]}", flush=True)
    good = [row for row in rows if row["outcome"] in ("clean", "compiles")]
    print(f"{len(good)} of {len(rows)} launches {'compile' if compile_only else 'clean and right'}")
    return rows, len(good) == len(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", nargs="?", type=Path, metavar="OUT.json", help="write every row there")
    parser.add_argument("--rungs", nargs="*", metavar="NAME", help="these rungs of the ladder, or all of them")
    parser.add_argument("--workers", type=int, default=8, help="processes at a time (8)")
    parser.add_argument("--seconds", type=float, default=300, help="a launch, with compiling, hangs after that (300)")
    parser.add_argument("--compile-only", action="store_true", help="rungs: only whether ConSan's pass takes them")
    parser.add_argument("--exhibit", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.exhibit:
        exhibit_on_card(asked.exhibit[0], asked.exhibit[1] == "1")
        return 0
    if asked.rungs is None:
        rows, good = gallery(asked.workers, asked.seconds)
    else:
        try:
            rows, good = rungs(asked.rungs, asked.workers, asked.seconds, asked.compile_only)
        except ValueError as error:
            parser.error(str(error))
    if asked.out:
        asked.out.write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
