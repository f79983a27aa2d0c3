"""Drawings of layouts as self-contained SVG: who holds which element of a tile, and in which bank each element lies.

Generated from the layouts themselves through :mod:`rungemm.layouts`. The drawings follow the reader's light or dark
setting, use no external font and need no script.
"""

from __future__ import annotations

import colorsys
from collections.abc import Callable, Sequence
from typing import Any
from xml.sax.saxutils import escape

import numpy as np
import numpy.typing as npt

from ..layouts import register_map, shared_map

__all__ = ["distributed_svg", "shared_svg"]

Grid = npt.NDArray[np.int64]
Label = Callable[[int, int], str]

MARGIN = 24
WINDOW_ROWS, WINDOW_COLS = 16, 32
OVERVIEW = 264
"""Pixels along the longer side of a whole tile."""
CELL_H = 19
BANK_BYTES, BANKS = 4, 32
CHUNK_BYTES = 16
MANY_LINES = 16

_STYLE = """
  :root { color-scheme: light dark; }
  .bg { fill: #ffffff; } .ink { fill: #1f2328; } .soft { fill: #59636e; }
  .line { stroke: #1f2328; } .grid { stroke: #ffffff; } .none { fill: #eceff2; } .hatch { stroke: #8b949e; }
  text { font: 11px ui-sans-serif, system-ui, sans-serif; }
  .title { font-size: 17px; font-weight: 600; } .head { font-size: 13px; font-weight: 600; }
  .cell { font-size: 9px; text-anchor: middle; fill: #16191d; } .axis { font-size: 9px; }
  .big { font-size: 11px; text-anchor: middle; fill: #16191d; }
  @media (prefers-color-scheme: dark) {
    .bg { fill: #0d1117; } .ink { fill: #e6edf3; } .soft { fill: #9198a1; }
    .line { stroke: #e6edf3; } .grid { stroke: #0d1117; } .none { fill: #21262d; } .hatch { stroke: #6e7681; }
  }
"""


class _Drawing:
    """SVG elements, and how far they reach."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.width = 0.0
        self.height = 0.0

    def text(self, x: float, y: float, words: str, kind: str = "ink", anchor: str = "") -> None:
        middle = f' text-anchor="{anchor}"' if anchor else ""
        self.parts.append(f'<text x="{x:g}" y="{y:g}" class="{kind}"{middle}>{escape(words)}</text>')
        self._reach(x + (0 if anchor or kind == "cell" else 6.2 * len(words)), y)

    def box(self, x: float, y: float, w: float, h: float, fill: str = "", kind: str = "grid") -> None:
        paint = f'fill="{fill}" ' if fill else ""
        css = f'class="{kind}"' if kind else ""
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" {paint}{css}/>')
        self._reach(x + w, y + h)

    def frame(self, x: float, y: float, w: float, h: float) -> None:
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" fill="none" stroke-width="1.2" class="line"/>'
        )

    def _reach(self, x: float, y: float) -> None:
        self.width, self.height = max(self.width, x), max(self.height, y)

    def render(self, title: str, description: str) -> str:
        width, height = self.width + MARGIN, self.height + MARGIN
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
            f'height="{height:g}" role="img">\n<title>{escape(title)}</title>\n<desc>{escape(description)}</desc>\n'
            f'<style>{_STYLE}</style>\n<defs><pattern id="padding" width="5" height="5" patternUnits="userSpaceOnUse">'
            f'<rect width="5" height="5" class="none"/><path d="M0 5L5 0" class="hatch" stroke-width="0.8"/></pattern>'
            f'</defs>\n<rect width="100%" height="100%" class="bg"/>\n' + "\n".join(self.parts) + "\n</svg>\n"
        )


def _colour(index: int, count: int) -> str:
    """One of ``count`` evenly spaced hues, light enough for dark letters; neighbours differ in lightness too."""
    hue = (0.58 + index / max(count, 1)) % 1
    lightness = 0.84 if index % 2 else 0.75
    red, green, blue = colorsys.hls_to_rgb(hue, lightness, 0.55)
    return f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}"


def _rectangles(grid: Grid) -> list[tuple[int, int, int, int, int]]:
    """Rectangles (row, col, rows, cols, value) of equal neighbours that cover the grid; negative values left out."""
    open_: dict[tuple[int, int, int], tuple[int, int]] = {}
    done: list[tuple[int, int, int, int, int]] = []
    for row in [*range(len(grid)), len(grid)]:
        runs: dict[tuple[int, int, int], None] = {}
        if row < len(grid):
            line = grid[row]
            starts = np.flatnonzero(np.r_[True, line[1:] != line[:-1]])
            for start, stop in zip(starts, [*starts[1:], len(line)], strict=True):
                runs[int(start), int(stop), int(line[start])] = None
        for key in [key for key in open_ if key not in runs]:
            top, height = open_.pop(key)
            if key[2] >= 0:
                done.append((top, key[0], height, key[1] - key[0], key[2]))
        for key in runs:
            top, height = open_.get(key, (row, 0))
            open_[key] = (top, height + 1)
    return done


def _overview(
    drawing: _Drawing, x: float, y: float, grid: Grid, colours: int, label: Callable[[int], str], scale: float
) -> None:
    """A whole tile, painted by value; areas large enough carry the label."""
    for row, col, rows, cols, value in _rectangles(grid):
        w, h = cols * scale, rows * scale
        drawing.box(x + col * scale, y + row * scale, w, h, _colour(value, colours), "grid" if min(w, h) > 5 else "")
        if w >= 6.5 * len(label(value)) + 2 and h >= 12:
            drawing.text(x + col * scale + w / 2, y + row * scale + h / 2 + 4, label(value), "big")
    drawing.frame(x, y, grid.shape[1] * scale, grid.shape[0] * scale)


def _cells(
    drawing: _Drawing,
    x: float,
    y: float,
    shape: tuple[int, int],
    paint: Callable[[int, int], str],
    label: Label,
    step: int = 1,
) -> None:
    """A window, element by element, with row and column numbers (every ``step``-th column is there)."""
    rows, cols = shape
    words = [[label(row, col) for col in range(cols)] for row in range(rows)]
    width = max(24.0, 5.3 * max(len(word) for line in words for word in line) + 5)
    for col in range(0, cols, 4 if cols > 8 else 1):
        drawing.text(x + (col + 0.5) * width, y - 5, str(col * step), "axis soft", "middle")
    for row in range(rows):
        drawing.text(x - 6, y + row * CELL_H + 13, str(row), "axis soft", "end")
        for col in range(cols):
            fill = paint(row, col)
            drawing.box(x + col * width, y + row * CELL_H, width, CELL_H, fill, "grid" if fill else "none grid")
            if words[row][col]:
                drawing.text(x + (col + 0.5) * width, y + row * CELL_H + 13, words[row][col], "cell")
    drawing.frame(x, y, cols * width, rows * CELL_H)


def _as_matrix(shape: Sequence[int]) -> tuple[int, int]:
    if len(shape) > 2 or not shape:
        raise ValueError(f"a tile of shape {tuple(shape)}: only one or two dimensions can be drawn")
    return (1, int(shape[0])) if len(shape) == 1 else (int(shape[0]), int(shape[1]))


def distributed_svg(layout: Any, shape: Sequence[int], num_warps: int, title: str = "") -> str:
    """A register layout: the tile by warps, one thread's elements, and the first elements by lane and register.

    Args:
        layout: a distributed Gluon layout, for a tile of ``shape`` (one or two dimensions) and ``num_warps`` warps.
        title: what it is the layout of.

    Raises:
        ValueError: as :func:`rungemm.layouts.register_map`, or more than two dimensions.
    """
    rows, cols = _as_matrix(shape)
    found = register_map(layout, shape, num_warps)
    warp, lane, register = np.unravel_index(np.flatnonzero(found.unique), found.index.shape)
    elements = found.index[found.unique]
    owner = np.zeros((3, rows * cols), np.int64)
    owner[:, elements] = warp, lane, register
    warps, lanes, registers = owner.reshape(3, rows, cols)
    copies = found.index.size // (rows * cols)

    drawing = _Drawing()
    title = title or type(layout).__name__
    held = f"{found.registers} registers a thread" + (f", every element in {copies} places" if copies > 1 else "")
    drawing.text(MARGIN, 36, title, "title ink")
    drawing.text(MARGIN, 54, f"{rows}×{cols} tile, {num_warps} warps of 32 lanes, {held}", "soft")

    scale = OVERVIEW / max(rows, cols)
    top = 104.0
    drawing.text(MARGIN, top - 24, "The tile, by warp", "head ink")
    drawing.text(MARGIN, top - 10, "first owner of each element", "soft")
    _overview(drawing, MARGIN, top, warps, num_warps, lambda w: f"W{w}", scale)

    beside = MARGIN + max(cols * scale, 170) + 40
    drawing.text(beside, top - 24, "Warp 0, by lane", "head ink")
    drawing.text(beside, top - 10, "where in the tile", "soft")
    first = np.where(warps == 0, lanes, -1)
    drawing.box(beside, top, cols * scale, rows * scale, kind="none")
    _overview(drawing, beside, top, first, 32, str, scale)

    third = beside + max(cols * scale, 170) + 40
    own = np.full(rows * cols, -1, np.int64)
    own[found.index[0, 0][::-1]] = np.arange(found.registers)[::-1]
    near = own.reshape(rows, cols)
    high, wide = (int(np.max(at)) + 1 for at in np.nonzero(near >= 0))
    place = f"rows 0–{high - 1}, columns 0–{wide - 1}" if (high, wide) != (rows, cols) else "the tile"
    drawing.text(third, top - 24, "Warp 0, lane 0, by register", "head ink")
    drawing.text(third, top - 10, f"{place}, enlarged", "soft")
    closer = min(OVERVIEW / max(high, wide), 48.0)
    drawing.box(third, top, wide * closer, high * closer, kind="none")
    _overview(drawing, third, top, near[:high, :wide], found.registers, lambda r: f"r{r}", closer)

    shown = (min(rows, WINDOW_ROWS), min(cols, WINDOW_COLS))
    below = top + max(rows * scale, high * closer) + 58
    part = "The tile" if shown == (rows, cols) else f"Its first {shown[0]}×{shown[1]} elements"
    drawing.text(MARGIN, below - 22, f"{part}: lane and register of the first owner", "head ink")
    _cells(
        drawing,
        MARGIN + 18,
        below,
        shown,
        lambda r, c: _colour(int(lanes[r, c]), 32) if warps[r, c] == 0 else "",
        lambda r, c: f"{lanes[r, c]}·{registers[r, c]}" if warps[r, c] == 0 else f"W{warps[r, c]}",
    )
    end = below + shown[0] * CELL_H + 18
    drawing.text(MARGIN + 18, end, "5·2: lane 5, register 2 of warp 0. W1: held by warp 1.", "soft")
    return drawing.render(title, f"Which warp, lane and register holds each element of a {rows} by {cols} tile")


def shared_svg(layout: Any, shape: Sequence[int], element_bytes: int, title: str = "") -> str:
    """A shared-memory layout: the bank of each element, and what lies in each 128-byte line, padding hatched.

    Args:
        layout: a shared Gluon layout of a buffer of ``shape`` (one or two dimensions).
        element_bytes: bytes of one element.
        title: what it is the layout of.

    Raises:
        ValueError: as :func:`rungemm.layouts.shared_map`, or more than two dimensions.
    """
    rows, cols = _as_matrix(shape)
    found = shared_map(layout, shape, element_bytes)
    offset = found.offset.reshape(rows, cols)
    bank = offset // BANK_BYTES % BANKS

    drawing = _Drawing()
    title = title or type(layout).__name__
    padding = found.bytes - rows * cols * element_bytes
    spent = f"{found.bytes} bytes" + (f", {padding} of them padding" if padding else "")
    drawing.text(MARGIN, 36, title, "title ink")
    drawing.text(MARGIN, 54, f"{rows}×{cols} elements of {element_bytes} bytes: {spent}", "soft")

    per_word = max(BANK_BYTES // element_bytes, 1)
    step = per_word if cols >= 2 * WINDOW_COLS // per_word else 1
    shown = (min(rows, WINDOW_ROWS), min(cols // step, WINDOW_COLS))
    top = 118.0
    what = "each element" if step == 1 else f"every {'second' if step == 2 else f'{step}th'} column"
    whole = shown[0] == rows and shown[1] * step == cols
    place = "" if whole else f" (rows 0 to {shown[0] - 1}, columns 0 to {shown[1] * step - 1})"
    drawing.text(MARGIN, top - 24, f"Bank of {what}{place}", "head ink")
    _cells(
        drawing,
        MARGIN + 18,
        top,
        shown,
        lambda r, c: _colour(int(bank[r, c * step]), BANKS),
        lambda r, c: str(bank[r, c * step]),
        step,
    )

    content = np.full(-(-found.bytes // BANK_BYTES), -1, np.int64)
    order = np.argsort(-offset.reshape(-1), kind="stable")  # the first element of a word is written last
    content[(offset.reshape(-1) // BANK_BYTES)[order]] = order
    lines = min(-(-len(content) // BANKS), MANY_LINES)
    content = np.r_[content, np.full(BANKS, -2, np.int64)][: lines * BANKS]
    content = np.r_[content, np.full(lines * BANKS - len(content), -2, np.int64)].reshape(lines, BANKS)

    below = top + shown[0] * CELL_H + 66
    heading = f"Memory: the first {lines} lines of 32 banks, row,column of the first element of each word"
    drawing.text(MARGIN, below - 24, heading, "head ink")
    chunk = max(CHUNK_BYTES // element_bytes, 1)
    # The dimension whose neighbours lie side by side.
    along = 0 if rows > 1 and abs(offset[1, 0] - offset[0, 0]) == element_bytes else 1
    hues = min(max((rows, cols)[along] // chunk, 1), 8)

    def paint(line: int, word: int) -> str:
        element = int(content[line, word])
        if element < 0:
            return "url(#padding)" if element == -1 else ""
        return _colour(divmod(element, cols)[along] // chunk % hues, hues)

    def label(line: int, word: int) -> str:
        element = int(content[line, word])
        return f"{element // cols},{element % cols}" if element >= 0 else ""

    _cells(drawing, MARGIN + 18, below, (lines, BANKS), paint, label)
    hatched = "; hatched: padding" if padding else ""
    note = f"One colour for each 16 bytes along a {'row' if along else 'column'} of the tile{hatched}."
    drawing.text(MARGIN + 18, below + lines * CELL_H + 18, note, "soft")
    return drawing.render(title, f"Bank and place in shared memory of each element of a {rows} by {cols} buffer")
