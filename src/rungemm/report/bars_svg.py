"""A static bar chart as SVG, for Markdown pages: no script, and it follows the reader's light or dark setting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

__all__ = ["Bar", "bars_svg"]

WIDTH, LINE, LEFT, RIGHT, TOP = 860, 26, 170, 170, 62

_STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1d2129; }
  .soft { fill: #5b6472; } .title { font-size: 15px; font-weight: 600; }
  .bar { fill: #1f6feb; } .ref { fill: #7a8290; } .back { fill: #ffffff; }
  .mark { stroke: #b3365b; stroke-dasharray: 4 3; } .marktext { fill: #b3365b; font-size: 12px; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6e9ee; } .soft { fill: #9aa4b2; } .back { fill: #0d1117; }
    .bar { fill: #6cb0ff; } .ref { fill: #9aa4b2; } .mark { stroke: #f08cab; } .marktext { fill: #f08cab; }
  }
"""


@dataclass(frozen=True)
class Bar:
    """One bar: its name on the left, its length, the words on its right, and whether it is the yardstick (grey)."""

    name: str
    value: float
    text: str
    reference: bool = False


def bars_svg(title: str, bars: Sequence[Bar], marks: Sequence[tuple[str, float]] = ()) -> str:
    """Horizontal bars from 0, with dashed vertical lines at the marks.

    Raises:
        ValueError: no bars, or none with a length.
    """
    top = max([bar.value for bar in bars] + [value for _, value in marks], default=0.0)
    if not bars or top <= 0:
        raise ValueError("a bar chart needs at least one bar that is longer than 0")
    scale = (WIDTH - LEFT - RIGHT) / (1.02 * top)
    bottom = TOP + LINE * len(bars)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{bottom + 14}" '
        f'viewBox="0 0 {WIDTH} {bottom + 14}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
        '<rect class="back" width="100%" height="100%"/>',
        f'<text class="title" x="{LEFT}" y="24">{escape(title)}</text>',
    ]
    for name, value in marks:
        x = LEFT + scale * value
        parts.append(f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 6}" y2="{bottom}"/>')
        parts.append(
            f'<text class="marktext" x="{x:.1f}" y="{TOP - 10}" text-anchor="end">{escape(name)} {value:.1f}</text>'
        )
    for index, bar in enumerate(bars):
        y = TOP + LINE * index
        kind, length = "ref" if bar.reference else "bar", max(1.0, scale * bar.value)
        parts.append(f'<text x="{LEFT - 8}" y="{y + 17}" text-anchor="end">{escape(bar.name)}</text>')
        parts.append(
            f'<rect class="{kind}" x="{LEFT}" y="{y + 4}" height="18" rx="2" width="{length:.1f}"/>'
        )
        parts.append(f'<text class="soft" x="{WIDTH - RIGHT + 10}" y="{y + 17}">{escape(bar.text)}</text>')
    parts.append("</svg>")
    return "\n".join(parts) + "\n"
