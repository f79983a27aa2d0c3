"""``python -m rungemm.ops.generate CARD [RESULTS]``: write the shipped table of a card from its measured results.

Every measurement under ``RESULTS/CARD/raw`` that timed cuBLAS and at least one of our kernels on the same problem, with
a cold L2, gives the best of ours and its ratio; of several measurements of one class the newest counts.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..bench.statistics import paired_ratio
from ..bench.store import load_raw, write_json
from ..dtypes import dtype_named
from ..errors import UserError
from ..hardware import find_gpu
from ..problem import Problem
from .table import FORMAT, TABLES, class_of, load_table

__all__ = ["entries_of", "main"]


def entries_of(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """The table's records from raw results files, sorted.

    Raises:
        UserError: a file is no results file.
    """
    newest: dict[tuple[Any, ...], tuple[str, dict[str, Any]]] = {}
    for path in paths:
        document = load_raw(path)
        date = document["environment"]["date"]
        for measurement in document["measurements"]:
            record = _best(measurement)
            if record is None:
                continue
            record["source"] = path.name
            key = tuple(record[name] for name in _KEY)
            if key not in newest or date >= newest[key][0]:
                newest[key] = date, record
    return [newest[key][1] for key in sorted(newest)]


_KEY = ("dtype", "out_dtype", "precision", "layout", "aligned", "reads_c", "batch", "m", "n", "k")


def _best(measurement: dict[str, Any]) -> dict[str, Any] | None:
    lanes = measurement["lanes"]
    base = lanes.get("cublas")
    if base is None or base["failure"] or not base["us"] or not measurement["cold_l2"]["cold"]:
        return None
    best = None
    for lane in lanes.values():
        if not lane.get("kernel") or lane.get("config") is None or lane["failure"] or not lane["us"]:
            continue
        ratio = paired_ratio(base["us"], lane["us"]).value
        if best is None or ratio > best["ratio"]:
            best = {"kernel": lane["kernel"], "config": lane["config"], "ratio": round(ratio, 4)}
    if best is None:
        return None
    asked = measurement["problem"]
    problem = Problem.dense(
        asked["m"], asked["n"], asked["k"], dtype=dtype_named(asked["dtype"]),
        out_dtype=dtype_named(asked["out_dtype"]), layout=asked["layout"], batch=asked["batch"],
        alpha=asked["alpha"], beta=asked["beta"], precision=asked["precision"],
    )  # fmt: skip
    dtype, out_dtype, precision, layout, aligned, reads_c = class_of(problem)
    return {
        "dtype": dtype, "out_dtype": out_dtype, "precision": precision, "layout": layout, "aligned": aligned,
        "reads_c": reads_c, "batch": problem.batch, "m": problem.m, "n": problem.n, "k": problem.k, **best,
    }  # fmt: skip


def main(arguments: list[str]) -> int:
    """Write the table and say how many entries it has."""
    if not 1 <= len(arguments) <= 2:
        print("usage: python -m rungemm.ops.generate CARD [RESULTS]", file=sys.stderr)
        return 2
    try:
        card = find_gpu(arguments[0]).name
        folder = Path(arguments[1] if len(arguments) == 2 else "results") / card
        entries = entries_of(sorted((folder / "raw").glob("*.json")))
    except (UserError, ValueError) as error:
        print(f"rungemm: {error}", file=sys.stderr)
        return 2
    path = TABLES / f"{card}.json"
    write_json(path, {"format": FORMAT, "card": card, "entries": entries})
    load_table(path)
    ahead = sum(entry["ratio"] >= 1 for entry in entries)
    print(f"{path}: {len(entries)} problem classes, ours ahead of cuBLAS in {ahead}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
