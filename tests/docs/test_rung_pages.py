"""The rung pages, the claims and their data agree with the kernels, the results and the simulator of today."""

from __future__ import annotations

import json
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from rungemm.compat import TRITON_VERSION
from rungemm.kernels import LADDER, find_kernel

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import claims_page  # noqa: E402
import rung_data  # noqa: E402
import rung_notes  # noqa: E402
import rung_pages  # noqa: E402
from rung_layouts import layouts_of  # noqa: E402

DATA = rung_data.load()
ANEW = "run: python tools/rung_pages.py"

needs_same_triton = pytest.mark.skipif(
    DATA["triton"] != TRITON_VERSION, reason=f"the pages are of Triton {DATA['triton']}"
)


@needs_same_triton
def test_nothing_is_stale():
    assert rung_pages.stale(DATA) == [], ANEW


@needs_same_triton
@pytest.mark.parametrize("name", ["thread_tile_1d", "vectorised", "tma"])
def test_counts_and_drawings_are_what_the_simulator_says_today(name):
    posed = rung_data.posed_for_docs(find_kernel(name), config=None)
    entry = DATA["rungs"][name]
    assert rung_data.count(posed)["counters"] == entry["counters"], f"{ANEW} --everything"
    drawn = [found.svg for found in layouts_of(*rung_data.one_tile(posed))]
    kept = [(rung_pages.IMAGES / drawing["file"]).read_text(encoding="utf-8") for drawing in entry["drawings"]]
    assert drawn == kept, f"{ANEW} --everything"


def test_every_rung_has_a_page_with_code_drawings_and_costs():
    for position, kernel in enumerate(LADDER, 1):
        text = (rung_pages.RUNGS / f"{position:02d}-{kernel.name}.md").read_text(encoding="utf-8")
        assert text.count("```python") >= 1 and "## What it costs" in text and "## Measured" in text, kernel.name
        assert re.search(r"img/[a-z_]+-[0-9a-f]{10}\.svg", text), kernel.name
        assert "registers a thread" in text, kernel.name


def test_links_and_images_lead_somewhere():
    for page in (*rung_pages.RUNGS.glob("*.md"), *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#\s]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if not target.startswith(("http://", "https://")):
                assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"
    used = {drawing["file"] for entry in DATA["rungs"].values() for drawing in entry["drawings"]}
    assert {path.name for path in rung_pages.IMAGES.glob("*.svg")} == used
    for name in sorted(used)[:3]:
        ElementTree.fromstring((rung_pages.IMAGES / name).read_text(encoding="utf-8"))


def test_the_index_leads_to_every_document():
    text = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name == "index.md" or f"]({page.name})" in text, f"docs/index.md does not lead to {page.name}"


def test_a_changed_page_and_a_changed_kernel_are_stale(monkeypatch, tmp_path):
    changed = json.loads(json.dumps(DATA))
    changed["rungs"]["naive"]["fingerprint"] = "0"
    changed["rungs"]["coalesced"]["counters"]["global_load_sectors"] += 1
    found = rung_pages.stale(changed)
    assert any(line.startswith("naive: ") for line in found)
    assert any(line.endswith("02-coalesced.md") for line in found)


def test_a_quote_that_is_gone_says_so(monkeypatch, tmp_path):
    (tmp_path / "naive.md").write_text("quote: cuda_core/naive.py | acc = gl.fma | no such line\n")
    monkeypatch.setattr(rung_notes, "NOTES", tmp_path)
    kernel = find_kernel("naive")
    with pytest.raises(ValueError, match="no line with 'no such line'"):
        list(rung_notes.code_of(kernel, rung_notes.KERNELS / "cuda_core" / "naive.py"))
    (tmp_path / "naive.md").write_text("# speed\nfast\n")
    with pytest.raises(ValueError, match="must be costs, measured or slower"):
        rung_notes.notes_of("naive")


def record(kernel: str, tflops: float, **changes):
    return {
        "kernel": kernel, "suite": "ladder", "dtype": "fp32", "precision": "ieee", "layout": "NN", "batch": 1,
        "m": 4096, "n": 4096, "k": 4096, "tflops": tflops, "peak_share": tflops / 66.9, "ratio": tflops / 51,
        "ratio_low": tflops / 51.1, "ratio_high": tflops / 50.9, "error": 1e-6, "us": 1.0, "rounds": 20,
        "cold_l2": True, "data": "normal", **changes,
    }  # fmt: skip


def test_a_slower_rung_is_told_with_the_counters_that_got_worse():
    kernel, summary = find_kernel("cp_async"), [record("double_buffer_k16", 44.5), record("cp_async", 38.8)]
    text = "\n".join(rung_pages.measured_text(kernel, DATA, summary))
    assert "**Slower than [double_buffer_k16]" in text and "38.8 against 44.5" in text
    assert "global load sectors" in text
    summary[1]["tflops"] = 46.0
    assert "Slower" not in "\n".join(rung_pages.measured_text(kernel, DATA, summary))
    assert "Not measured yet." in "\n".join(rung_pages.measured_text(kernel, DATA, []))


def lanes(**us: list[float]):
    return {name: {"us": samples, "tflops": 1.0, "failure": None} for name, samples in us.items()}


def test_verdicts_follow_from_the_samples():
    pair = claims_page.Pair("x", "y")
    problem = {"m": 1, "n": 1, "k": 1, "dtype": "fp32", "precision": "ieee"}
    claim = claims_page.Claim("", "", "", (pair,))

    def ruled(x, y, of=claim):
        found = [{"problem": problem, "lanes": lanes(x=x, y=y)}]
        result = claims_page.ratio_of(pair, found)
        assert result is not None
        return claims_page.verdict(of, [result[0]])

    ten, eleven = [10.0, 10.01, 9.99] * 5, [11.0, 11.01, 10.99] * 5
    assert "Holds" in ruled(ten, eleven)
    assert "Does not hold" in ruled(eleven, ten)
    assert "No difference" in ruled(ten, ten)
    gain = claims_page.Claim("", "", "", (pair,), least=1.05, most=1.22)
    assert "Holds: 10.0%" in ruled(ten, eleven, gain)
    assert "worth less: 0.0%" in ruled(ten, ten, gain)
    other = claims_page.Pair("x", "y", "bf16")
    assert claims_page.ratio_of(other, [{"problem": problem, "lanes": lanes(x=ten, y=ten)}]) is None
    assert claims_page.verdict(claim, []) == "Not measured yet."


def test_the_pairs_of_the_claims_are_settings_of_the_script():
    import claims_h200

    jobs = claims_h200.jobs(rung_data.CARD)
    problems = {job.dtype if job.precision == "ieee" else job.precision: job for job in jobs}
    mma = {kernel.name for kernel in LADDER if kernel.family == "tensor_core"}
    for claim in claims_page.CLAIMS:
        for pair in claim.pairs:
            names = {setting.name for setting in problems[pair.kind].settings}
            for name in (pair.better, pair.worse):
                on_ladder = name.split()[0] in {*mma, "padded_both", "column_reads", *(k.name for k in LADDER)}
                assert name in names or not on_ladder, f"claims_h200.py times no {name!r}"
