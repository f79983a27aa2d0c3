"""``python -m rungemm.ops.generate CARD [RESULTS]``: write the shipped table of a card from its measured results.

Every measurement under ``RESULTS/CARD/raw``, ``tuning`` and ``repeat`` counts that timed cuBLAS and one of our kernels
on the same problem with a cold L2, the library's own calls among them. Of a kernel and config that was timed in several
runs (files) the least ratio of the newest few counts: machines differ, and a choice must do no harm on any. Of several
configs the best so folded counts; what was also timed on a card that paused (``RESULTS/CARD/rested``) counts by the
mean of both. A setting whose error is too far beyond cuBLAS's on the same operands does not count; where no other was
timed, the table says cuBLAS. What benchmarks/library_linear.py timed of fused epilogues (``RESULTS/CARD/linear.json``)
goes in beside them.
"""

from __future__ import annotations

import ast
import json
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

__all__ = ["FOLDERS", "entries_of", "fused_of", "main", "measurements_of"]


def entries_of(paths: Iterable[Path], rested: Iterable[Path] = ()) -> list[dict[str, Any]]:
    """The table's records from raw results files, sorted.

    Args:
        rested: files of a card that paused before every sample. A setting that was timed there too counts by the
            geometric mean of both: the card at its power cap, which an endless row of large products brings it to, and
            the card at its full clock are both what users have.

    Raises:
        UserError: a file is no results file.
    """
    found, at_rest = _by_setting(paths), _by_setting(rested)
    folded = {setting: _folded(records) for setting, records in found.items()}
    # A setting that was not timed at rest is taken to change there as those of its problem that were, if for the worse.
    changes: dict[tuple[Any, ...], list[float]] = {}
    for setting, record in folded.items():
        if setting in at_rest:
            record["sustained"], record["rested"] = record["ratio"], _folded(at_rest[setting])["ratio"]
            changes.setdefault(setting[:-2], []).append(record["rested"] / record["sustained"])
    best: dict[tuple[Any, ...], dict[str, Any]] = {}
    for setting, record in folded.items():
        if setting[:-2] in changes:
            change = math.prod(changes[setting[:-2]]) ** (1 / len(changes[setting[:-2]]))
            if "rested" not in record:
                record["sustained"], record["guessed"] = record["ratio"], True
                record["rested"] = round(record["ratio"] * min(1.0, change), 4)
            record["ratio"] = round(math.sqrt(record["sustained"] * record["rested"]), 4)
        key = tuple(record[name] for name in _KEY)
        if key not in best or _worth(record) > _worth(best[key]):
            best[key] = record
    return [best[key] for key in sorted(best)]


def _by_setting(paths: Iterable[Path]) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    found: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for record in _all_records(paths):
        key = *(record[name] for name in _KEY), record["kernel"], tuple(record["config"].items())
        found.setdefault(key, []).append(record)
    return found


_KEY = ("dtype", "out_dtype", "precision", "layout", "aligned", "reads_c", "batch", "m", "n", "k")

FOLDERS = ("raw", "tuning", "repeat")
"""Where a card's measurements lie."""

RESTED = "rested"
"""And those of a card that paused before every sample."""

RUNS = 3
"""So many of the newest runs of a setting count: kernels improve, and old runs are of old ones."""


def _all_records(paths: Iterable[Path]) -> Iterator[dict[str, Any]]:
    for path in paths:
        for date, measurement in measurements_of(path):
            for record in _records(measurement):
                yield {**record, "source": path.name, "date": date}


def measurements_of(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """A file's measurements, each with its date: of a benchmark, or the last of each ``rungemm tune``."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        document = None
    if isinstance(document, dict) and document.get("schema") == TUNINGS:
        for tuning in document["tunings"]:
            yield tuning["date"], tuning["final"]
        return
    if isinstance(document, dict) and document.get("what") == LINEAR:
        return  # of fused epilogues, which fused_of reads
    document = load_raw(path)
    if bool(document["settings"].get("pause_s")) != (path.parent.name == RESTED):
        raise UserError(f"{path}: files of a card that paused (bench --pause) belong into {RESTED}/, and no others")
    for measurement in document["measurements"]:
        yield document["environment"]["date"], measurement


def _folded(records: list[dict[str, Any]]) -> dict[str, Any]:
    """One record of a setting's many: each run's median ratio, and the least of the newest runs'."""
    runs: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for record in records:
        runs.setdefault((record["date"], record["source"]), []).append(record)
    newest = [runs[run] for run in sorted(runs, reverse=True)[:RUNS]]
    ratios = [statistics.median(record["ratio"] for record in run) for run in newest]
    least = newest[ratios.index(min(ratios))]
    record = {name: value for name, value in least[0].items() if name != "date"}
    return {
        **record, "ratio": round(min(ratios), 4), "runs": len(newest),
        "cublas_us": round(statistics.median(record["cublas_us"] for record in least), 2),
    }  # fmt: skip


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
        if lane.get("kernel") in (None, CUBLAS) or lane.get("config") is None or lane["failure"] or not lane["us"]:
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


def fused_of(path: Path) -> list[dict[str, Any]]:
    """The table's records of fused epilogues from library_linear's file, sorted; none if there is no such file.

    The ratio is eager torch's time over that of one launch of ours, epilogue and all.
    """
    if not path.exists():
        return []
    document = json.loads(path.read_text(encoding="utf-8"))
    found = []
    for record in document["records"]:
        config = _from_words(record["chosen"], record["config"]) if record["fused"] else None
        if config is None or record["errors"]["library"] > 1.1 * record["errors"]["eager"]:
            continue
        problem = Problem.dense(record["m"], record["n"], record["k"], dtype=dtype_named(record["dtype"]), layout="NT")
        kind = dict(zip(_KEY[:6], class_of(problem), strict=True))
        found.append({**kind, "batch": 1, "m": problem.m, "n": problem.n, "k": problem.k, "epilogue": LINEAR_EPILOGUE,
                      "kernel": record["chosen"], "config": config, "ratio": record["ratio to eager"][0],
                      "source": path.name})  # fmt: skip
    return sorted(found, key=lambda record: tuple(record[name] for name in _KEY))


TUNINGS = "rungemm.tune"
LINEAR = "gelu(linear(x, w, bias))"
LINEAR_EPILOGUE = "row bias + gelu"
"""What benchmarks/library_linear.py times."""


def _from_words(kernel: str, words: str) -> dict[str, Any] | None:
    """A config from its own text: "num_warps=8 tile_m=128 ..."."""
    values: dict[str, Any] = {}
    for word in words.split():
        name, _, value = word.partition("=")
        values[name] = value if value.isalpha() and value not in ("True", "False", "None") else ast.literal_eval(value)
    return _as_today(kernel, values)


def _worth(record: dict[str, Any]) -> tuple[bool, float]:
    return record["kernel"] != CUBLAS, record["ratio"] * (1 - LUCK / record.get("runs", 1))


LUCK = 0.03
"""What the best of many settings owes to its one run: of those timed again a quarter lost 1.5% or more."""


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
        paths = [path for name in FOLDERS for path in sorted((folder / name).glob("*.json"))]
        entries = entries_of(paths, sorted((folder / RESTED).glob("*.json")))
        fused = fused_of(folder / "linear.json")
    except (UserError, ValueError) as error:
        print(f"rungemm: {error}", file=sys.stderr)
        return 2
    path = TABLES / f"{card}.json"
    write_json(path, {"format": FORMAT, "card": card, "entries": entries, "fused": fused})
    load_table(path)
    ahead = sum(entry["kernel"] != CUBLAS and entry["ratio"] >= 1 for entry in entries)
    print(f"{path}: {len(entries)} problem classes, ours ahead of cuBLAS in {ahead}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
