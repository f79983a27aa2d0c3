"""The page in a real browser, at desktop and phone width: every figure is drawn and the console stays silent."""

from __future__ import annotations

import base64
import html
import json
import re
import shutil
import struct
import subprocess
import xml.etree.ElementTree as ElementTree
import zlib
from pathlib import Path

import numpy as np
import pytest

from rungemm.dtypes import FP32
from rungemm.kernels import LADDER
from rungemm.report.page import write_page

from .synthetic import results

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here (apt-get install chromium)")

FIGURES = ("glance", "ladder", "size", "heat", "suite", "roofline", "chip", "spread", "trust")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    write_page(results(folder, np.random.default_rng(4)), folder / "report.html")
    return folder / "report.html"


def browse(page: Path, width: int, *options: str, script: str = "") -> subprocess.CompletedProcess[str]:
    """Chromium on the page inside a frame of that width (its own windows are never as narrow as a phone).

    ``script`` runs in the page around it, half a second after the page was loaded.
    """
    assert CHROMIUM is not None
    frame = page.parent / f"frame{width}.html"
    frame.write_text(
        f'<body style="margin:0"><iframe src="{page.name}" style="width:{width}px;height:8600px;border:0"></iframe>'
        "<script>onload = () => setTimeout(() => { const d = document.querySelector('iframe').contentDocument;"
        "const out = document.createElement('pre'); out.id = 'dom';"
        "out.textContent = d.documentElement.outerHTML; document.body.append(out);"
        f"{script} }}, 500)</script>"
    )
    command = [
        CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
        "--allow-file-access-from-files", "--enable-logging=stderr", "--virtual-time-budget=6000",
        f"--window-size={max(width, 600)},8600",
        f"--user-data-dir={page.parent / 'profile'}", *options, frame.as_uri(),
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=180, check=True)


@pytest.mark.parametrize("width", [1200, 375])
@pytest.mark.parametrize("dark", [False, True])
def test_every_figure_is_drawn_without_a_word_on_the_console(page: Path, width: int, dark: bool) -> None:
    done = browse(page, width, "--dump-dom", *(["--force-dark-mode"] if dark else []))
    assert "CONSOLE" not in done.stderr, [line for line in done.stderr.splitlines() if "CONSOLE" in line][:3]
    (inner,) = re.findall(r'<pre id="dom">(.*?)</pre>', done.stdout, re.S)
    dom = html.unescape(inner)
    assert f'data-theme="{"dark" if dark else "light"}"' in dom
    for name in FIGURES:
        (section,) = re.findall(rf'<section id="{name}">(.*?)</section>', dom, re.S)
        (drawn,) = re.findall(r'<div class="plot"><svg width="(\d+)"', section)
        # A heat map of many columns scrolls sideways inside its figure; the others fit the page.
        assert 250 <= int(drawn) <= (width if name != "heat" else 1500), f"{name} is {drawn} wide on a page of {width}"
        assert section.count('class="mark"') >= 3, f"{name} has nothing to point at"
        assert not re.search(r"(NaN|undefined|Infinity)", section.replace("writes a NaN", "")), name
        assert section.count("<tr>") >= 3, f"{name} has no numbers"
    (ladder,) = re.findall(r'<section id="ladder">(.*?)</section>', dom, re.S)
    assert "broken FAILED: wrong result" in ladder
    (trust,) = re.findall(r'<section id="trust">(.*?)</section>', dom, re.S)
    assert trust.count('<li class="good">') == 6 and trust.count('<li class="bad">') == 1
    assert '<li class="bad">A kernel made 10% slower was flagged by compare in 19 of 20 trials.' in trust
    (roofline,) = re.findall(r'<section id="roofline">(.*?)</section>', dom, re.S)
    for kernel in LADDER:
        if FP32 in kernel.dtypes and kernel.family == "cuda_core":
            assert f"{kernel.name.replace('_', ' ')} at 4096x4096x4096 fp32 NN" in roofline


def test_figures_are_exported_and_tables_sorted_and_copied(page: Path) -> None:
    """SVG and PNG files as the buttons make them, a table sorted by its head, and what the copy button would copy."""
    # Downloads are caught on their way: reading a blob takes real time, which virtual time does not wait for.
    script = """
    const page = document.querySelector('iframe').contentWindow, found = { files: [] };
    page.Blob = class extends page.Blob {
      constructor(parts, options) { super(parts, options); this.text_ = parts[0]; }
    };
    page.HTMLCanvasElement.prototype.toBlob = function (done) {
      const blob = new page.Blob(['']);
      Object.assign(blob, { text_: this.toDataURL(), width: this.width, height: this.height });
      done(blob);
    };
    let last = null;
    page.URL.createObjectURL = (blob) => { last = blob; return 'about:blank'; };
    page.HTMLAnchorElement.prototype.click = function () {
      found.files.push({ name: this.download, text: last.text_, width: last.width, height: last.height });
    };
    page.document.execCommand = () => { found.copied = page.document.activeElement.value; return true; };
    Object.defineProperty(page.navigator, 'clipboard', { value: { writeText: () => Promise.reject() } });
    const ladder = page.document.getElementById('ladder');
    const button = (text) => [...ladder.querySelectorAll('button')].find((each) => each.textContent === text);
    for (const text of ['SVG', 'PNG', 'ratio', 'copy as TSV']) button(text).click();
    found.width = Number(ladder.querySelector('.plot svg').getAttribute('width'));
    const wait = () => {
      if (found.files.length < 2 || !found.copied) { setTimeout(wait, 100); return; }
      const pre = document.createElement('pre');
      pre.id = 'found';
      pre.textContent = JSON.stringify(found);
      document.body.append(pre);
    };
    wait();
    """
    done = browse(page, 1200, "--dump-dom", script=script)
    assert "CONSOLE" not in done.stderr, done.stderr
    (text,) = re.findall(r'<pre id="found">(.*?)</pre>', done.stdout, re.S)
    found = json.loads(html.unescape(text))
    drawing, picture = sorted(found["files"], key=lambda file: file["name"], reverse=True)
    assert drawing["name"] == "ladder.svg" and "var(--" not in drawing["text"]
    ElementTree.fromstring(drawing["text"])
    assert picture["name"] == "ladder.png" and picture["width"] == 2 * found["width"] and picture["height"] > 400
    png = base64.b64decode(picture["text"].removeprefix("data:image/png;base64,"))
    assert png.startswith(b"\x89PNG") and rows_that_change(png) > 0.2
    rows = [line.split("\t") for line in found["copied"].splitlines()]
    ratios = [float(row[rows[0].index("ratio")]) for row in rows[1:]]
    assert len(ratios) > 10 and ratios == sorted(ratios)


@pytest.mark.parametrize("width", [1200, 375])
def test_the_screenshot_is_no_blank_sheet(page: Path, width: int) -> None:
    shot = page.parent / f"shot{width}.png"
    browse(page, width, f"--screenshot={shot}")
    # A blank sheet packs into next to nothing; every text and mark changes its row against the row above.
    assert rows_that_change(shot.read_bytes()) > 0.3


def rows_that_change(png: bytes) -> float:
    """The share of an 8-bit PNG's rows that its filters do not predict: a flat row is all zeros once filtered."""
    position, packed, header = 8, b"", b""
    while position < len(png):
        (length,), kind = struct.unpack(">I", png[position : position + 4]), png[position + 4 : position + 8]
        body = png[position + 8 : position + 8 + length]
        header, packed = (body if kind == b"IHDR" else header), packed + (body if kind == b"IDAT" else b"")
        position += 12 + length
    width, height, depth, colour = struct.unpack(">IIBB", header[:10])
    assert depth == 8 and colour in (2, 6)
    channels = {2: 3, 6: 4}[colour]
    rows = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, 1 + width * channels)
    return float((rows[:, 1 + channels :] != 0).any(axis=1).mean())
