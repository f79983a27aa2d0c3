from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest

from rungemm.bench.store import write_json
from rungemm.report.bars_svg import Bar, bars_svg
from rungemm.report.data import load_summary
from rungemm.report.ranges_svg import Range, ranges_svg
from rungemm.report.readme import BEGIN, END, ReadmeError, plot_path, stale_parts, update

from .synthetic import results

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def made(tmp_path: Path) -> tuple[Path, Path]:
    card = results(tmp_path / "results", np.random.default_rng(5))
    readme = tmp_path / "README.md"
    readme.write_text(f"# Title\n\n{BEGIN}\nold\n{END}\n\nAfter.\n")
    return readme, card


def test_update_writes_once_and_then_all_is_fresh(made: tuple[Path, Path]) -> None:
    readme, card = made
    files = [readme, *(plot_path(readme, card, what) for what in ("ladder", "ladder-bf16", "suites"))]
    assert stale_parts(readme, card) == files
    assert update(readme, card) == files
    assert update(readme, card) == [] and stale_parts(readme, card) == []
    text = readme.read_text()
    assert text.startswith("# Title\n") and text.endswith("After.\n") and "\nold\n" not in text
    assert "| naive | 0.5 | " in text and "| cuBLAS | 51.0 |" in text and "docs/img/ladder-h200.svg" in text
    assert "| cross27 | fp32 NN | champion | 27 | " in text
    assert "| mma multistage | " in text and "docs/img/ladder-bf16-h200.svg" in text
    for path in files[1:]:
        ElementTree.fromstring(path.read_text())


def test_a_changed_figure_or_an_edited_table_is_stale(made: tuple[Path, Path]) -> None:
    readme, card = made
    update(readme, card)
    records = load_summary(card)
    naive = next(r for r in records if r["kernel"] == "naive" and r["k"] == 4096 and r["m"] == 4096)
    naive["tflops"] = 0.7
    write_json(card / "summary.json", records)
    assert set(stale_parts(readme, card)) == {readme, plot_path(readme, card)}
    update(readme, card)
    readme.write_text(readme.read_text().replace("| 0.7 |", "| 99.9 |"))
    assert stale_parts(readme, card) == [readme]


def test_a_readme_without_its_markers_says_what_to_add(made: tuple[Path, Path]) -> None:
    readme, card = made
    readme.write_text("# Nothing\n")
    with pytest.raises(ReadmeError, match="put the lines"):
        update(readme, card)


def test_ranges() -> None:
    text = ranges_svg("a < b", [Range("x & y", "fp32", 1.05, 0.9, 1.3, 27), Range("z", "bf16", 0.98, 0.9, 1.0, 3)])
    root = ElementTree.fromstring(text)
    dots = [(float(dot.get("cx", "0")), dot.get("class")) for dot in root.iter("{http://www.w3.org/2000/svg}circle")]
    lines = root.iter("{http://www.w3.org/2000/svg}line")
    (one,) = [float(line.get("x1", "0")) for line in lines if line.get("class") == "one"]
    assert [kind for _, kind in dots] == ["up", "down"] and dots[0][0] > one > dots[1][0]
    with pytest.raises(ValueError, match="at least one"):
        ranges_svg("t", [])


def test_bars() -> None:
    text = bars_svg("a < b", [Bar("x & y", 2.0, "2"), Bar("ref", 1.0, "1", True)], [("peak", 4.0)])
    root = ElementTree.fromstring(text)
    widths = [
        float(r.get("width", "0"))
        for r in root.iter("{http://www.w3.org/2000/svg}rect")
        if r.get("class") in ("bar", "ref")
    ]
    assert widths[0] == pytest.approx(2 * widths[1], abs=0.2)
    with pytest.raises(ValueError, match="longer than 0"):
        bars_svg("t", [Bar("x", 0.0, "")])


@pytest.mark.parametrize("card", sorted(path.parent.name for path in ROOT.glob("results/*/summary.json")))
def test_the_readme_of_this_repository_agrees_with_its_results(card: str) -> None:
    folder = ROOT / "results" / card
    assert stale_parts(ROOT / "README.md", folder) == [], f"run: rungemm report results/{card} --readme README.md"
