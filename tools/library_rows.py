"""The library against torch.matmul over all its suites, in one number each: what README and docs/library.md say of it.

    python tools/library_rows.py [results/h200]

reads raw/library-*.json, and says of how many products today's table chooses another kernel than the one timed there,
and what the mean would be if those that went to cuBLAS since were exactly as fast as torch's.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from rungemm.bench.statistics import geometric_mean, paired_ratio
from rungemm.bench.store import load_raw
from rungemm.dtypes import dtype_named
from rungemm.hardware import find_gpu
from rungemm.ops.dispatch import decide
from rungemm.ops.model import CUBLAS
from rungemm.problem import Problem


def problem_of(asked: dict[str, Any]) -> Problem:
    return Problem.dense(
        asked["m"], asked["n"], asked["k"], dtype=dtype_named(asked["dtype"]), batch=asked["batch"],
        out_dtype=dtype_named(asked["out_dtype"]), layout=asked["layout"], precision=asked["precision"],
    )  # fmt: skip


def main() -> int:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "results/h200")
    gpu = find_gpu(folder.name)
    ratios: list[float] = []
    today: list[float] = []
    suites, moved, inexact = set(), [], 0
    least: list[tuple[float, str]] = []
    for path in sorted((folder / "raw").glob("library-*.json")):
        for measurement in load_raw(path)["measurements"]:
            cublas, library = measurement["lanes"]["cublas"], measurement["lanes"]["library"]
            problem = problem_of(measurement["problem"])
            ratio = paired_ratio(cublas["us"], library["us"]).value
            now = decide(problem, gpu, all_rungs=False).chosen.name
            if now != library["kernel"]:
                moved.append(ratio)
            ratios.append(ratio)
            today.append(1.0 if now == CUBLAS != library["kernel"] else ratio)
            least.append((ratio, f"{problem} by {library['kernel']}"))
            suites.add(measurement["suite"])
            inexact += bool(cublas.get("error")) and library["error"] > 1.1 * cublas["error"]
    mean = geometric_mean(ratios)
    print(f"{len(ratios)} products, {len(suites)} suites: geometric mean {mean:.3f}, most {max(ratios):.2f}")
    print("least: " + "; ".join(f"{ratio:.3f} {what}" for ratio, what in sorted(least)[:3]))
    print(f"{inexact} with more than 1.1 times cuBLAS's error")
    if moved:
        low, high = min(moved), max(moved)
        print(f"today's table chooses another kernel for {len(moved)} ({low:.3f} to {high:.3f} when timed)")
        print(f"with 1 for those that are cuBLAS's now: geometric mean {geometric_mean(today):.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
