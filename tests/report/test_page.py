from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from rungemm.bench.store import StoreError
from rungemm.kernels import LADDER
from rungemm.report.data import load_summary, page_data
from rungemm.report.page import render, write_page
from rungemm.report.rungs import is_current

from .synthetic import H200, results


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return results(tmp_path_factory.mktemp("results"), np.random.default_rng(3))


def embedded(html: str) -> dict:  # type: ignore[type-arg]
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', html, re.S)
    return json.loads(text)


def test_the_page_holds_every_record_and_its_samples(card: Path) -> None:
    data, records = embedded(render(page_data(card))), load_summary(card)
    assert len(data["records"]) == len(records) > 200
    for record in data["records"]:
        assert record["us_low"] <= record["us"] <= record["us_high"]
        mine = data["samples"][record["samples"]]["us"]
        assert record["kernel"] in mine
    assert [rung["name"] for rung in data["rungs"]] == [kernel.name for kernel in LADDER]
    figures = {(row["kernel"], row["dtype"], row["precision"]) for row in data["figures"]}
    for kernel in LADDER:
        assert any(name == kernel.name for name, _, _ in figures), f"{kernel.name} has no figures"
    assert all(row["current"] for row in data["figures"])


def test_figures_of_a_config_that_the_rung_has_no_more_are_told(card: Path) -> None:
    rows = json.loads((card / "rungs.json").read_text())
    naive, coalesced = (next(row for row in rows if row["kernel"] == name) for name in ("naive", "coalesced"))
    assert is_current(naive, H200)
    assert not is_current(naive | {"config": {**naive["config"], "num_warps": 99}}, H200)
    assert not is_current(coalesced | {"kernel": "long_gone"}, H200)


def test_the_trials_of_the_method_are_there(card: Path) -> None:
    found = page_data(card)["trust"]
    assert found["occupancy"] == {"same": 2, "of": 2, "wrong": []}
    assert found["method"]["identical"] == {"not_flagged": 20, "of": 20} and found["method"]["date"]
    # Every contender but the reference of the forty products that were measured twice, the failed one left out.
    assert len(found["repeat"]["pairs"]) > 60
    assert all(abs(pair["change"] - 1) < 0.02 for pair in found["repeat"]["pairs"])
    (card / "occupancy.json").rename(card / "away")
    try:
        assert "occupancy" not in page_data(card)["trust"]
        (card / "occupancy.json").write_text("[]")
        with pytest.raises(StoreError, match="holds no trial"):
            page_data(card)
    finally:
        (card / "away").rename(card / "occupancy.json")


def test_a_failed_contender_is_shown_as_failed_and_has_no_figure(card: Path) -> None:
    data = page_data(card)
    assert all(record["kernel"] != "broken" for record in data["records"])
    (failed,) = {json.dumps(item["failed"]) for item in data["samples"].values() if item["failed"]}
    assert "wrong result" in failed
    assert all("broken" not in item["us"] for item in data["samples"].values())


def test_the_page_asks_the_network_for_nothing(card: Path) -> None:
    html = render(page_data(card))
    without_data = re.sub(r'<script type="application/json".*?</script>', "", html, flags=re.S)
    assert set(re.findall(r"https?://[^\"' )]+", without_data)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"<(link|img|iframe)|@import|\bimport\b|fetch\(|XMLHttpRequest", without_data)
    assert "default-src 'none'" in html
    assert "/*DATA*/" not in html and "/*SCRIPT*/" not in html and "/*STYLE*/" not in html


def test_the_page_is_the_same_every_time(card: Path, tmp_path: Path) -> None:
    assert write_page(card, tmp_path / "a.html") == write_page(card, tmp_path / "deep" / "b.html")
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "deep" / "b.html").read_bytes()


def test_text_from_results_cannot_break_out_of_the_data(card: Path) -> None:
    data = page_data(card)
    data["records"][0]["kernel"] = "</script><script>alert(1)</script>"
    html = render(data)
    assert "<script>alert" not in html and embedded(html)["records"][0]["kernel"].startswith("</script>")


def test_missing_and_broken_results_are_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"summary\.json: No such file"):
        page_data(tmp_path)
    (tmp_path / "summary.json").write_text("{}")
    with pytest.raises(StoreError, match="no list of records"):
        page_data(tmp_path)
    (tmp_path / "summary.json").write_text("[]")
    with pytest.raises(StoreError, match="named after its card"):
        page_data(tmp_path)
