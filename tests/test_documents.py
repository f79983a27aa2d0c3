"""What the README and the page on adding a rung tell people to paste works, and goes stale only with a failing test."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import pytest

from rungemm.check import Case, check
from rungemm.hardware import ZOO
from rungemm.kernels import LADDER, find_kernel
from rungemm.ladder import SimulatorRunner, Task, climb

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
from readme_command import README, command  # noqa: E402


def test_the_readme_has_its_two_commands():
    text = README.read_text(encoding="utf-8")
    assert command("ladder", text).endswith("rungemm ladder")
    assert "pytest" in command("test", text) and "pip install" in command("test", text)
    for name in ("ladder", "test"):
        assert "\n" not in command(name, text), "one line to paste"
    with pytest.raises(LookupError, match="marks 0 commands"):
        command("nope", text)


def test_ci_runs_the_readmes_commands():
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "readme_command.py test" in script and "readme_command.py ladder" in script
    assert "set -euo pipefail" in script


def test_the_pasted_output_lists_the_rungs_of_today():
    text = README.read_text(encoding="utf-8")
    block = re.search(r"<!-- output: ladder -->\n```text\n(.*?)```", text, re.DOTALL)
    assert block is not None
    table = block[1].split("\nrung ")[1].splitlines()[1:]
    names = [line.split()[0] for line in table[: table.index("")]]
    assert names == [kernel.name for kernel in LADDER], "run: python tools/readme_output.py"
    assert f"{len(LADDER)} of {len(LADDER)} rungs agree with float64" in block[1]


def test_links_of_the_documents_lead_somewhere():
    for page in (README, *sorted((ROOT / "docs").glob("*.md"))):
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if not target.startswith(("http://", "https://")):
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.fixture
def flat_thread():
    """The rung of docs/adding-a-rung.md, made from the page's own code."""
    page = (ROOT / "docs" / "adding-a-rung.md").read_text(encoding="utf-8")
    code = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    module = types.ModuleType("rungemm.kernels.cuda_core.flat_thread")
    exec(compile(code[0], "docs/adding-a-rung.md", "exec"), module.__dict__)
    assert code[1].strip() == "from .cuda_core.flat_thread import FlatThread"
    assert "FlatThread()," in code[2]
    return module.FlatThread()


def test_the_example_rung_is_right(flat_thread):
    cases = [Case("ragged", (130, 140, 33), alpha=1.5, beta=0.5, layout="TN", pitch=1), Case("tiles", (128, 128, 16))]
    assert all(result.ok for result in check([flat_thread], ZOO["h200"], cases=cases))


def test_the_example_rung_counts_what_the_page_says(flat_thread):
    page = (ROOT / "docs" / "adding-a-rung.md").read_text(encoding="utf-8")
    task = Task.random(128, 128, 128, seed=1)
    below, ours = climb([find_kernel("thread_tile_2d"), flat_thread], task, ZOO["h200"], SimulatorRunner())
    assert ours.correct and ours.counts is not None and below.counts is not None
    for what, name in (("shared loads", "shared_loads_per_c"), ("shared wavefronts", "wavefronts_per_c"),
                       ("bank conflicts", "conflicts_per_c")):  # fmt: skip
        row = re.search(rf"^{what} per C +([\d.]+) +([\d.]+) ", page, re.MULTILINE)
        assert row is not None
        for printed, counts in zip(row.groups(), (below.counts, ours.counts), strict=True):
            assert float(printed) == pytest.approx(getattr(counts, name), abs=0.006), "run: rungemm explain flat_thread"
