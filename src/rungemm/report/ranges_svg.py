"""Ratios of many products as a static SVG for Markdown pages: a line a suite, from its least to its most, around 1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

__all__ = ["Range", "ranges_svg"]

WIDTH, LINE, LEFT, RIGHT, TOP = 860, 24, 300, 210, 66
TICKS = (0.25, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)

_STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1d2129; }
  .soft { fill: #5b6472; } .title { font-size: 15px; font-weight: 600; } .mean { font-weight: 600; }
  .back { fill: #ffffff; } .grid { stroke: #d9dde3; } .one { stroke: #7a8290; stroke-width: 1.5; }
  .up { fill: #14883e; stroke: #14883e; } .down { fill: #c62828; stroke: #c62828; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6e9ee; } .soft { fill: #9aa4b2; } .back { fill: #0d1117; } .grid { stroke: #343b46; }
    .one { stroke: #9aa4b2; } .up { fill: #5fce85; stroke: #5fce85; } .down { fill: #ff7b72; stroke: #ff7b72; }
  }
"""


@dataclass(frozen=True)
class Range:
    """One line: its name and a softer word after it, the mean ratio, the least and the most, and how many."""

    name: str
    what: str
    mean: float
    least: float
    most: float
    count: int


def ranges_svg(title: str, ranges: Sequence[Range]) -> str:
    """Each range as a bar from its least to its most ratio with a dot at its mean, on a logarithmic axis.

    Raises:
        ValueError: no ranges, or a ratio that is not positive.
    """
    if not ranges or min(each.least for each in ranges) <= 0:
        raise ValueError("ratios need at least one range, all of them above 0")
    low = 0.97 * min(0.9, min(each.least for each in ranges))
    high = 1.03 * max(1.1, max(each.most for each in ranges))
    scale = (WIDTH - LEFT - RIGHT) / math.log(high / low)
    bottom = TOP + LINE * len(ranges)

    def x(ratio: float) -> float:
        return LEFT + scale * math.log(ratio / low)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{bottom + 34}" '
        f'viewBox="0 0 {WIDTH} {bottom + 34}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
        '<rect class="back" width="100%" height="100%"/>',
        f'<text class="title" x="12" y="24">{escape(title)}</text>',
    ]
    for at, text in ((58, "mean"), (112, "least"), (160, "most"), (200, "of")):
        parts.append(f'<text class="soft" x="{WIDTH - RIGHT + at}" y="{TOP - 8}" text-anchor="end">{text}</text>')
    kept: list[float] = []
    for tick in (1.0, *TICKS):
        if low <= tick <= high and all(abs(x(tick) - x(other)) > 40 for other in kept):
            kept.append(tick)
            kind = "one" if tick == 1 else "grid"
            parts.append(f'<line class="{kind}" x1="{x(tick):.1f}" x2="{x(tick):.1f}" y1="{TOP}" y2="{bottom}"/>')
            parts.append(
                f'<text class="soft" x="{x(tick):.1f}" y="{bottom + 18}" text-anchor="middle">{tick:g}x</text>'
            )
    for index, each in enumerate(ranges):
        y = TOP + LINE * (index + 0.5)
        kind = "up" if each.mean >= 1 else "down"
        parts.append(f'<text x="12" y="{y + 4:.1f}">{escape(each.name)}</text>')
        parts.append(f'<text class="soft" x="120" y="{y + 4:.1f}">{escape(each.what)}</text>')
        parts.append(
            f'<line class="{kind}" x1="{x(each.least):.1f}" x2="{x(each.most):.1f}" y1="{y}" y2="{y}" '
            'stroke-width="6" stroke-linecap="round" opacity="0.3"/>'
        )
        parts.append(f'<circle class="{kind}" cx="{x(each.mean):.1f}" cy="{y}" r="5"/>')
        cells = (
            (58, f"{each.mean:.3f}x", "mean"), (112, f"{each.least:.2f}", "soft"), (160, f"{each.most:.2f}", "soft"),
            (200, str(each.count), "soft"),
        )  # fmt: skip
        for at, text, style in cells:
            parts.append(
                f'<text class="{style}" x="{WIDTH - RIGHT + at}" y="{y + 4:.1f}" text-anchor="end">{text}</text>'
            )
    parts.append("</svg>")
    return "\n".join(parts) + "\n"
