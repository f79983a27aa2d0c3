"""What the page shows, gathered from a card's results folder: records, their samples, and what the rungs are.

Nothing is measured or compiled here. Everything comes from ``summary.json``, from the raw files that it names, from
what :mod:`.rungs` counted, from the trials of the method that :mod:`.trust` reads, and from the kernels' own
descriptions, so the same folder always gives the same page.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..bench.statistics import spread_of
from ..bench.store import StoreError, load_raw
from ..hardware import Gpu, find_gpu
from ..kernels import LADDER, Kernel
from .rungs import is_current, load_rungs
from .sessions import in_their_sessions
from .trust import trust

__all__ = ["load_summary", "page_data"]


def load_summary(folder: Path) -> list[dict[str, Any]]:
    """The records of ``folder/summary.json``.

    Raises:
        StoreError: it is not there, not JSON, or no list of records.
    """
    path = folder / "summary.json"
    try:
        records = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise StoreError(
            f"{path}: {error.strerror}: measure first (rungemm bench --out {folder}/raw/NAME.json)"
        ) from None
    except ValueError as error:
        raise StoreError(
            f"{path} is not JSON ({error}): make it anew with rungemm report --summarise {folder}"
        ) from None
    if not isinstance(records, list) or not all(isinstance(record, dict) and "kernel" in record for record in records):
        raise StoreError(f"{path} is no list of records: make it anew with rungemm report --summarise {folder}")
    return records


def page_data(folder: Path) -> dict[str, Any]:
    """Everything that the page's script reads, as plain data.

    Raises:
        StoreError: the summary or a raw file that it names is missing or broken, or the card is unknown.
    """
    records = in_their_sessions(load_summary(folder), folder)
    gpu = _card(folder)
    raw: dict[str, dict[str, Any]] = {}
    for record in records:
        if record["raw"] not in raw:
            raw[record["raw"]] = load_raw(folder / record["raw"])
    samples: dict[str, dict[str, Any]] = {}
    shown = []
    for record in records:
        measurement = raw[record["raw"]]["measurements"][record["index"]]
        key = f"{record['raw']}#{record['index']}"
        if key not in samples:
            samples[key] = _samples(measurement)
        lane = _lane_of(record, measurement)
        spread = spread_of(lane["us"]) if lane else None
        shown.append(
            {
                **record,
                "samples": key,
                "us_low": spread.low if spread else None,
                "us_high": spread.high if spread else None,
            }
        )
    newest = max(records, key=lambda record: record["date"], default=None)
    return {
        "card": _card_record(gpu),
        "environment": _environment(raw[newest["raw"]]) if newest else {},
        "rungs": [_rung(kernel, position) for position, kernel in enumerate(LADDER, start=1)],
        "figures": [row | {"current": is_current(row, gpu)} for row in load_rungs(folder)],
        "records": shown,
        "samples": samples,
        "trust": trust(folder, raw),
    }


def _card(folder: Path) -> Gpu:
    try:
        return find_gpu(folder.resolve().name)
    except ValueError as error:
        raise StoreError(f"{folder}: a results folder is named after its card; {error}") from None


def _card_record(gpu: Gpu) -> dict[str, Any]:
    return {
        "name": gpu.name,
        "title": gpu.title,
        "sms": gpu.sms,
        "boost_mhz": gpu.boost_mhz,
        "dram_gbs": gpu.dram_gbs,
        "l2_mib": gpu.l2_bytes / 2**20,
        "peaks": {kind: round(value, 1) for kind, value in gpu.peaks.items()},
        "source": gpu.source,
    }


def _environment(document: dict[str, Any]) -> dict[str, Any]:
    environment = document["environment"]
    return {key: environment.get(key) for key in ("date", "torch", "triton", "cuda", "driver", "cublas", "commit")}


def _rung(kernel: Kernel[Any], position: int) -> dict[str, Any]:
    return {
        "name": kernel.name,
        "position": position,
        "family": kernel.family,
        "idea": kernel.idea,
        "expects": kernel.expects,
        "below": kernel.below,
    }


def _samples(measurement: dict[str, Any]) -> dict[str, Any]:
    """A measurement's samples in microseconds, and the state of the card while they were taken."""
    lanes = measurement["lanes"]
    return {
        "clocks": measurement.get("clocks", {}),
        "stopped_by": measurement.get("stopped_by"),
        "us": {
            name: [float(f"{us:.4g}") for us in lane["us"]]
            for name, lane in lanes.items()
            if lane["us"] and not lane["failure"]
        },
        "failed": {name: lane["failure"] for name, lane in lanes.items() if lane["failure"]},
    }


def _lane_of(record: dict[str, Any], measurement: dict[str, Any]) -> dict[str, Any] | None:
    """The lane that a summary record was made of: by its name, or by the label that it has there."""
    lanes = measurement["lanes"]
    if record["kernel"] in lanes:
        return lanes[record["kernel"]]
    return next((lane for lane in lanes.values() if lane.get("label") == record["kernel"]), None)
