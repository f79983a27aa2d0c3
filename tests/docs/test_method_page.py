"""What docs/method.md says of the method's trials on the card is what the files of those trials say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGE = " ".join((ROOT / "docs" / "method.md").read_text(encoding="utf-8").split())


def trial(name: str) -> Any:
    return json.loads((ROOT / "results" / "h200" / name).read_text(encoding="utf-8"))


def test_the_trials_of_the_method() -> None:
    method = trial("method.json")["method"]
    slower, identical, ratios = method["ten_percent_slower"], method["identical"], method["self_ratios"]
    assert f"found by compare | {slower['flagged']} of {slower['of']} |" in PAGE
    assert f"left alone | {identical['not_flagged']} of {identical['of']}, all within 0.1% |" in PAGE
    assert f"against itself, {len(ratios)} measurements | every ratio within 0.1% of 1 |" in PAGE
    assert max(abs(ratio - 1) for ratio in ratios + identical["changes"]) < 0.001
    assert f"fp32 {method['problem'].split()[0]})" in PAGE
    assert method["holds"] and method["warm_refused"] and method["warm_labelled_cold"] is False
    assert all(why for name, why in method["failures"].items() if name != "cublas")


def test_the_occupancy_trial() -> None:
    rows = trial("occupancy.json")["rows"]
    same = sum(row["blocks"] == row["cuda_blocks"] for row in rows)
    assert f"gives for {same} of {len(rows)} compiled kernels" in PAGE


def test_every_file_that_the_page_names_is_there() -> None:
    names = "choosing cublaslt tl_dot peers interleaved statistics cold events graph data clocks checking contenders"
    for name in [*names.split(), "guard", "store"]:
        assert f"`{name}.py`" in PAGE and (ROOT / "src" / "rungemm" / "bench" / f"{name}.py").exists()
