"""Results on disk: one raw JSON file a run, and the one summary per card that everything published is made from.

A raw file holds the environment, the settings and, for every measurement, every contender's samples of every round
(microseconds a product; index r of all contenders is the same round). ``summary.json`` is derived: :func:`summarise`
reads the raw files of a card's folder and writes the newest record of each key, so it can always be made again.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..kernels import find_kernel
from .measurement import Measurement
from .statistics import paired_ratio, spread_of

__all__ = [
    "SCHEMA",
    "VERSION",
    "StoreError",
    "load_raw",
    "measurement_record",
    "raw_document",
    "summarise",
    "summary_records",
    "write_json",
]

SCHEMA = "rungemm.bench"
VERSION = 1

KEY = ("kernel", "suite", "dtype", "precision", "layout", "batch", "m", "n", "k", "contender", "cold_l2", "data")
"""What a summary record is about; the newest measurement of a key replaces older ones."""


class StoreError(UserError):
    """A results file is not what it should be; the message names the file and what is wrong."""


def write_json(path: Path, document: Any) -> None:
    """Write atomically: a reader sees the old file or the new one. Lists of numbers stay on one line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(document, indent=1, allow_nan=False)
    text = re.sub(r"\[\s+([^][{}\"]*?)\s+\]", lambda match: "[" + re.sub(r"\s+", " ", match[1]) + "]", text)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text + "\n")
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def measurement_record(measurement: Measurement, suite: str) -> dict[str, Any]:
    """One measurement as it lies in a raw file."""
    problem = measurement.problem
    lanes = {}
    for name, lane in measurement.lanes.items():
        lanes[name] = {
            **lane.record,
            "us": [round(1e6 * seconds, 3) for seconds in lane.seconds],
            "launches": lane.launches,
            "graph": lane.graph,
            "tflops": _rounded(lane.tflops, 5),
            "peak_share": _rounded(measurement.peak_share(name), 5) if lane.tflops else None,
            "error": _rounded(lane.checked.error, 4) if lane.checked else None,
            "mismatched": lane.checked.mismatched if lane.checked else None,
            "tolerance": _rounded(lane.checked.tolerance, 4) if lane.checked else None,
            "host_us": _rounded(1e6 * lane.host_s, 4) if lane.host_s is not None else None,
            "failure": lane.failure,
        }
    return {
        "suite": suite,
        "problem": {
            "m": problem.m,
            "n": problem.n,
            "k": problem.k,
            "batch": problem.batch,
            "dtype": problem.a.dtype.name,
            "out_dtype": problem.d.dtype.name,
            "precision": problem.precision,
            "layout": problem.layout,
            "alpha": problem.alpha,
            "beta": problem.beta,
        },
        "data": measurement.data,
        "seed": measurement.seed,
        "stopped_by": measurement.rounds.stopped_by,
        "cold_l2": measurement.cold,
        "clocks": measurement.clocks,
        "flags": measurement.flags,
        "wall_s": round(measurement.wall_s, 2),
        "lanes": lanes,
    }


def _rounded(value: float | None, digits: int) -> float | None:
    """To so many significant digits; what is not finite becomes ``None`` (JSON has no such number)."""
    if value is None or value != value or value in (float("inf"), float("-inf")):
        return None
    return float(f"{value:.{digits}g}")


def raw_document(environment: dict[str, Any], settings: Any, measurements: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """A raw file's contents."""
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "environment": environment,
        "settings": asdict(settings),
        "measurements": list(measurements),
    }


def load_raw(path: Path) -> dict[str, Any]:
    """A raw file.

    Raises:
        StoreError: it cannot be read, or is of another schema or a newer version.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror or error}: name a results file that rungemm bench wrote") from error
    except ValueError as error:
        raise StoreError(f"{path} is not JSON ({error}): name a results file that rungemm bench wrote") from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise StoreError(f"{path} is no {SCHEMA} file: name a results file that rungemm bench wrote")
    if document.get("version", 0) > VERSION:
        raise StoreError(
            f"{path} has version {document['version']}; this rungemm reads up to {VERSION}: upgrade rungemm"
        )
    return document


def summary_records(document: dict[str, Any], raw: str, reference: str = "cublas") -> list[dict[str, Any]]:
    """The summary records of a raw file: one for every contender but the reference that has a figure, and the
    reference's own (``kernel`` "cublas", ratio 1) so that plots can show it.

    Raises:
        StoreError: a figure is over the card's dense peak.
    """
    environment = document["environment"]
    records = []
    for index, measurement in enumerate(document["measurements"]):
        lanes, problem = measurement["lanes"], measurement["problem"]
        base = lanes.get(reference)
        base = base if base and not base["failure"] and base["us"] else None
        for name, lane in lanes.items():
            if lane["failure"] or not lane["us"]:
                continue
            if lane["peak_share"] is not None and lane["peak_share"] > 1:
                raise StoreError(
                    f"{raw}: {name} on {problem['m']}x{problem['n']}x{problem['k']} has {lane['tflops']} TFLOPS, over "
                    "the card's dense peak: that is no result; take the file out and measure again"
                )
            ratio = paired_ratio(base["us"], lane["us"]) if base else None
            records.append(
                {
                    "kernel": lane.get("label") or _kernel_name(name, lane),
                    "config": lane.get("config"),
                    "suite": measurement["suite"],
                    "dtype": problem["dtype"],
                    "precision": problem["precision"],
                    "layout": problem["layout"],
                    "batch": problem["batch"],
                    "m": problem["m"],
                    "n": problem["n"],
                    "k": problem["k"],
                    "tflops": lane["tflops"],
                    "peak_share": lane["peak_share"],
                    "contender": reference,
                    "ratio": _rounded(ratio.value, 5) if ratio else None,
                    "ratio_low": _rounded(ratio.low, 5) if ratio else None,
                    "ratio_high": _rounded(ratio.high, 5) if ratio else None,
                    "error": lane["error"],
                    "contender_error": base["error"] if base else None,
                    "us": _rounded(spread_of(lane["us"]).median, 6),
                    "host_us": lane["host_us"],
                    "rounds": len(lane["us"]),
                    "cold_l2": bool(measurement["cold_l2"]["cold"]),
                    "data": measurement["data"],
                    "commit": environment["commit"],
                    "date": environment["date"],
                    "raw": raw,
                    "index": index,
                }
            )
    return records


def _kernel_name(name: str, lane: dict[str, Any]) -> str:
    """A rung's name for one of our kernels with its default config, else the contender's own name."""
    kernel = lane.get("kernel")
    if kernel is None or name != kernel:
        return name
    return find_kernel(kernel).name if _known(kernel) else kernel


def _known(kernel: str) -> bool:
    try:
        find_kernel(kernel)
    except ValueError:
        return False
    return True


def summarise(folder: Path) -> list[dict[str, Any]]:
    """Write ``folder/summary.json`` from the raw files under ``folder/raw``; returns its records, sorted by key.

    Raises:
        StoreError: a raw file is broken, or holds what the card cannot do.
    """
    newest: dict[tuple[Any, ...], dict[str, Any]] = {}
    for path in sorted((folder / "raw").glob("*.json")):
        for record in summary_records(load_raw(path), f"raw/{path.name}"):
            key = tuple(record[field] for field in KEY)
            if key not in newest or record["date"] >= newest[key]["date"]:
                newest[key] = record
    records = [newest[key] for key in sorted(newest, key=lambda key: tuple(map(str, key)))]
    write_json(folder / "summary.json", records)
    return records
