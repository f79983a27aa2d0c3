"""Ladders whose rungs were timed in more than one run: which run each row is from, and cuBLAS's speed in it.

The summary keeps the newest record of every kernel, so a rung that was timed again, and cuBLAS with it, come from
another raw file than the rest. A ratio is always of one run; a table of speeds must say where its rows part.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from ..bench.store import load_raw, summary_records

__all__ = ["in_their_sessions"]

Record = dict[str, Any]
PROBLEM = ("suite", "dtype", "precision", "layout", "batch", "m", "n", "k", "cold_l2", "data")


def in_their_sessions(records: list[Record], folder: Path) -> list[Record]:
    """The records, with cuBLAS's of each of the ladder's products taken from the raw file of most of its rungs.

    A rung from another raw file gains ``apart``: cuBLAS's TFLOPS in that file, or ``None`` where it has none.

    Raises:
        StoreError: a raw file that is needed is missing or broken.
    """
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        if record["suite"] == "ladder":
            groups.setdefault(tuple(record[field] for field in PROBLEM), []).append(record)
    changed: dict[int, Record] = {}
    for problem, rows in groups.items():
        rungs = [row for row in rows if row["kernel"] != "cublas"]
        if len({row["raw"] for row in rows}) < 2 or not rungs:
            continue
        main = Counter(row["raw"] for row in rungs).most_common(1)[0][0]
        for row in rows:
            if row["raw"] != main:
                is_base = row["kernel"] == "cublas"
                base = _reference(folder, main if is_base else row["raw"], problem)
                if not is_base:
                    changed[id(row)] = row | {"apart": base["tflops"] if base else None}
                elif base is not None:
                    changed[id(row)] = base
    return [changed.get(id(record), record) for record in records]


def _reference(folder: Path, raw: str, problem: tuple[Any, ...]) -> Record | None:
    """cuBLAS's record of that problem in that raw file."""
    for record in summary_records(load_raw(folder / raw), raw):
        if record["kernel"] == "cublas" and tuple(record[field] for field in PROBLEM) == problem:
            return record
    return None
