"""``python -m rungemm.ops.generate CARD [RESULTS]``: write the shipped table of a card from its measured results.

Every measurement under ``RESULTS/CARD/raw`` and ``tuning`` counts that timed cuBLAS and one of our kernels on the same
problem, with a cold L2: of several of one kernel and config the newest, and of their ratios the best. A setting whose
error is too far beyond cuBLAS's on the same operands does not count; where no other was timed, the table says cuBLAS.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..bench.statistics import paired_ratio
from ..bench.store import load_raw, write_json
from ..dtypes import dtype_named
from ..errors import UserError
from ..hardware import find_gpu
from ..kernels import find_kernel
from ..problem import Problem
from .model import CUBLAS
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
            for record in _records(measurement):
                record["source"] = path.name
                key = *(record[name] for name in _KEY), record["kernel"], tuple(record["config"].items())
                if key not in newest or date >= newest[key][0]:
                    newest[key] = date, record
    best: dict[tuple[Any, ...], dict[str, Any]] = {}
    for _, record in newest.values():
        key = tuple(record[name] for name in _KEY)
        if key not in best or _worth(record) > _worth(best[key]):
            best[key] = record
    return [best[key] for key in sorted(best)]


_KEY = ("dtype", "out_dtype", "precision", "layout", "aligned", "reads_c", "batch", "m", "n", "k")

ERROR_LIMIT = {"tf32x3": 2.0}
"""A setting counts up to this ratio of its error to cuBLAS's; 1.1 elsewhere (issue 7)."""


def _records(measurement: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A record of every setting of ours that was timed beside cuBLAS."""
    lanes = measurement["lanes"]
    base = lanes.get("cublas")
    if base is None or base["failure"] or not base["us"] or not measurement["cold_l2"]["cold"]:
        return
    asked = measurement["problem"]
    problem = Problem.dense(
        asked["m"], asked["n"], asked["k"], dtype=dtype_named(asked["dtype"]),
        out_dtype=dtype_named(asked["out_dtype"]), layout=asked["layout"], batch=asked["batch"],
        alpha=asked["alpha"], beta=asked["beta"], precision=asked["precision"],
    )  # fmt: skip
    dtype, out_dtype, precision, layout, aligned, reads_c = class_of(problem)
    limit = ERROR_LIMIT.get(precision, 1.1) * (base.get("error") or math.inf)
    for lane in lanes.values():
        if not lane.get("kernel") or lane.get("config") is None or lane["failure"] or not lane["us"]:
            continue
        config = _as_today(lane["kernel"], lane["config"])
        if config is None:
            continue
        exact = (lane.get("error") or 0.0) <= limit
        yield {
            "dtype": dtype, "out_dtype": out_dtype, "precision": precision, "layout": layout, "aligned": aligned,
            "reads_c": reads_c, "batch": problem.batch, "m": problem.m, "n": problem.n, "k": problem.k,
            "kernel": lane["kernel"] if exact else CUBLAS, "config": config if exact else {},
            "ratio": round(paired_ratio(base["us"], lane["us"]).value, 4) if exact else 1.0,
            "cublas_us": round(statistics.median(base["us"]), 2),
        }  # fmt: skip


def _worth(record: dict[str, Any]) -> tuple[bool, float]:
    return record["kernel"] != CUBLAS, record["ratio"]


def _as_today(kernel: str, config: dict[str, Any]) -> dict[str, Any] | None:
    """A config with all the fields that it has now; ``None`` where it names others, or the kernel is gone."""
    try:
        return find_kernel(kernel).config_type.from_dict(config).to_dict()
    except (TypeError, ValueError):
        return None


def main(arguments: list[str]) -> int:
    """Write the table and say how many entries it has."""
    if not 1 <= len(arguments) <= 2:
        print("usage: python -m rungemm.ops.generate CARD [RESULTS]", file=sys.stderr)
        return 2
    try:
        card = find_gpu(arguments[0]).name
        folder = Path(arguments[1] if len(arguments) == 2 else "results") / card
        entries = entries_of([*sorted((folder / "raw").glob("*.json")), *sorted((folder / "tuning").glob("*.json"))])
    except (UserError, ValueError) as error:
        print(f"rungemm: {error}", file=sys.stderr)
        return 2
    path = TABLES / f"{card}.json"
    write_json(path, {"format": FORMAT, "card": card, "entries": entries})
    load_table(path)
    ahead = sum(entry["kernel"] != CUBLAS and entry["ratio"] >= 1 for entry in entries)
    print(f"{path}: {len(entries)} problem classes, ours ahead of cuBLAS in {ahead}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
