"""What was done on the card to see whether the method itself holds, from the files beside the measurements.

``method.json`` is benchmarks/method_h200.py's: kernels made slower on purpose, contenders that are wrong. A folder
``repeat/`` holds raw files of a second run, an hour or a machine away, of what ``raw/`` has. ``occupancy.json`` holds
our occupancy calculator against CUDA's own.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..bench.compare import agreement
from ..bench.store import StoreError, load_raw

__all__ = ["trust"]


def trust(folder: Path, raw: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The trials' results by name ("method", "occupancy", "repeat"); one that was not made is not there.

    Args:
        folder: a card's results.
        raw: the raw documents that its summary names, by their path in the folder.

    Raises:
        StoreError: a file is broken.
    """
    found: dict[str, Any] = {}
    method = _read(folder / "method.json")
    if method is not None:
        found["method"] = method["method"] | {"date": method["environment"]["date"]}
    occupancy = _read(folder / "occupancy.json")
    if occupancy is not None:
        rows = occupancy["rows"]
        wrong = [row for row in rows if row["blocks"] != row["cuda_blocks"]]
        found["occupancy"] = {"same": len(rows) - len(wrong), "of": len(rows), "wrong": wrong}
    repeats = [load_raw(path) for path in sorted((folder / "repeat").glob("*.json"))]
    if repeats:
        pairs = [pair for old in raw.values() for new in repeats for pair in agreement(old, new)]
        if pairs:
            found["repeat"] = {
                "dates": sorted({document["environment"]["date"] for document in repeats}),
                "pairs": [{"what": f"{pair.contender} on {pair.problem}", "change": pair.change, "low": pair.low,
                           "high": pair.high} for pair in pairs],
            }  # fmt: skip
    return found


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise StoreError(f"{path} is not JSON ({error}): measure again") from None
    if not isinstance(found, dict) or not {"method", "rows"} & found.keys():
        raise StoreError(f"{path} holds no trial: write it by benchmarks/laboratory_h200.py")
    return found
