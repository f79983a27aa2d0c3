"""The report: one HTML file that holds its data, style and script, and asks the network for nothing."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

from .data import page_data

__all__ = ["render", "write_page"]

SCRIPTS = (
    "dom.js",
    "scale.js",
    "figure.js",
    "glance.js",
    "ladder.js",
    "size.js",
    "roofline.js",
    "heat.js",
    "suite.js",
    "chip.js",
    "spread.js",
    "trust.js",
    "table.js",
    "main.js",
)
"""In the order they are joined: each defines one part of the page in one shared scope."""


def render(data: dict[str, Any]) -> str:
    """The page for the data of :func:`..data.page_data`, as HTML text."""
    page = _asset("page.html")
    # A "<" could end the script element or open a comment in it, whatever string it stands in.
    text = json.dumps(data, separators=(",", ":"), allow_nan=False, sort_keys=True).replace("<", "\\u003c")
    parts = {
        "STYLE": _asset("report.css"),
        "SCRIPT": "\n".join(_asset(name) for name in SCRIPTS),
        "DATA": text,
        "TITLE": f"rungemm on {data['card']['title']}",
    }
    for name, content in parts.items():
        page = page.replace(f"/*{name}*/", content)
    return page


def write_page(folder: Path, out: Path) -> int:
    """Write the report of a card's results folder; returns its size in bytes.

    Raises:
        StoreError: the results are missing or broken.
        OSError: the file cannot be written.
    """
    html = render(page_data(folder)).encode()
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(html)
    return len(html)


def _asset(name: str) -> str:
    return (resources.files(__package__) / "assets" / name).read_text(encoding="utf-8")
