"""The ladder's records as text: a paragraph a rung as it is climbed, and one table at the end."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..ladder.record import Record

__all__ = ["labelled", "legend", "listing", "many", "number", "paragraph", "size", "summary", "table"]

COLUMNS = {
    "ok": "", "math": "", "regs": "regs", "shared": "shared\nKiB", "occupancy": "occu-\npancy", "loads": "loads\nper C",
    "bytes": "bytes\nper C", "waves": "waves\nper C", "conflicts": "conf.\nper C", "intensity": "FLOP/B\nasked",
    "uncached": "roof\nno cache", "shared_roof": "roof\nshared", "tflops": "TFLOPS", "ratio": "of\ncuBLAS",
    "peak": "of\npeak",
}  # fmt: skip
"""The closing table's columns after the rung's name, as they stand from left to right, with their titles."""

PRIORITY = (
    "ok", "tflops", "ratio", "regs", "occupancy", "loads", "conflicts", "math", "waves", "bytes", "shared", "peak",
    "intensity", "uncached", "shared_roof",
)  # fmt: skip
"""The same, the most wanted first."""

TIMED = frozenset({"tflops", "ratio", "peak"})
GAP = 2
"""Columns of space between two columns."""

INDENT = 11
"""Columns of a paragraph's labels and the space behind them."""


def number(value: float | None) -> str:
    """A number in at most six characters: three significant digits, no exponent where it fits."""
    if value is None:
        return "-"
    if value == 0:
        return "0"
    if abs(value) >= 99_950:
        return f"{value:.1e}".replace("e+0", "e")
    if abs(value) >= 99.95:
        return f"{value:.0f}"
    if abs(value) >= 9.995:
        return f"{value:.1f}".removesuffix(".0")
    if abs(value) >= 0.0095:
        return f"{value:.2f}".removesuffix(".00")
    return f"{value:.0e}"


def size(nbytes: int) -> str:
    """Bytes as people write them: "0", "512 B", "8 KiB"."""
    if nbytes == 0:
        return "0"
    return f"{nbytes / 1024:.4g} KiB" if nbytes >= 1024 else f"{nbytes} B"


def many(count: int, noun: str) -> str:
    """ "1 block", "2 blocks"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def verdict(record: Record) -> Text:
    """ "correct", "WRONG" or "not run", in its colour."""
    if record.correct is None:
        return Text("not run", style="yellow")
    return Text("correct", style="green") if record.correct else Text("WRONG", style="bold red")


def paragraph(record: Record, width: int) -> Text:
    """Everything about one rung, in lines that each say what they are about."""
    head = Text.assemble((f"{record.position:>2} {record.name:<20} ", "bold"), verdict(record))
    if record.correct is not None and arithmetic(record) != "fp32":
        head.append(f" in {arithmetic(record)}")
    if record.error is not None and record.tolerance is not None:
        head.append(f"  error {record.error:.1e}, allowed {record.tolerance:.1e}", style="dim")
    lines: list[tuple[str, str]] = [("changes", record.idea), ("expect", record.expects)]
    if record.why:
        lines.append(("why", record.why))
    lines += _takes(record) + _moves(record) + _bounds(record) + _speed(record)
    return Text.assemble(head, "\n", labelled(lines, width))


def arithmetic(record: Record) -> str:
    """What the operands are multiplied as: their type, or for fp32 operands the precision where it is not fp32."""
    return record.dtype if record.precision in ("", "ieee") else record.precision


def labelled(lines: Sequence[tuple[str, str]], width: int) -> Text:
    """Labels in a column of their own, and beside each its sentence, wrapped to the width."""
    text = Text()
    for label, sentence in lines:
        wrapped = textwrap.wrap(sentence, max(width - INDENT, 20), break_on_hyphens=False) or [""]
        text.append(f"{label:>{INDENT - 1}} ", style="dim")
        text.append(("\n" + " " * INDENT).join(wrapped) + "\n")
    return text


def _takes(record: Record) -> list[tuple[str, str]]:
    r = record.resources
    if r is None:
        return []
    spills = f", {size(r.spill_bytes)} spilled" if r.spill_bytes else ""
    text = (
        f"{r.registers} registers{spills}, {size(r.shared_bytes)} shared memory; {many(r.blocks_per_sm, 'block')} an SM"
    )
    text += f", {r.warps_per_sm} of {r.max_warps_per_sm} warps ({r.occupancy:.0%}), held by {r.limiter}"
    if r.launches > 1:
        text += f"; {r.launches} launches, this is the one whose blocks take most"
    return [("takes", text)]


def _moves(record: Record) -> list[tuple[str, str]]:
    c = record.counts
    if c is None:
        return []
    where = "" if c.counted_on == "the whole problem" else f" (counted on {c.counted_on})"
    lines = [
        (
            "moves",
            f"for one element of C{where}: {number(c.loads_per_c)} global loads, "
            f"{number(c.sector_bytes_per_c)} bytes in sectors",
        )
    ]
    if c.shared_wavefronts:
        lines[0] = (lines[0][0], lines[0][1] + f", {number(c.shared_loads_per_c)} shared loads")
        lines.append(
            (
                "shared",
                f"{c.shared_wavefronts:,} wavefronts, of which {c.bank_conflicts:,} are bank conflicts: "
                f"{number(c.wavefronts_per_c)} for one element of C",
            )
        )
    return lines


def _bounds(record: Record) -> list[tuple[str, str]]:
    b = record.bounds
    if b is None:
        return []
    text = f"{b.bound}: at most {number(b.roof_tflops)} TFLOPS at {number(b.intensity)} FLOP a byte"
    if b.uncached_tflops is not None:
        text += f"; {number(b.uncached_tflops)} with no cache at the {number(b.counted_intensity)} it asks for"
    if b.shared_tflops is not None:
        text += f"; {number(b.shared_tflops)} by shared memory"
    return [("bound", text)]


def _speed(record: Record) -> list[tuple[str, str]]:
    s = record.speed
    if s is None:
        return []
    text = f"{number(s.tflops)} TFLOPS"
    if s.ratio is not None:
        text += f", {s.ratio:.1%} of cuBLAS ({number(s.cublas_tflops)})"
    if s.peak_share is not None:
        text += f", {s.peak_share:.1%} of peak"
    return [("speed", text)]


def table(records: Sequence[Record], console: Console) -> Table:
    """All rungs side by side, in as many of COLUMNS as the terminal has room for, the most wanted first."""
    rows = [_cells(record) for record in records]
    timed = any(record.speed for record in records)
    room = console.width - max((len(record.name) for record in records), default=4)
    chosen: set[str] = set()
    for key in PRIORITY:
        title = COLUMNS[key]
        width = max([len(line) for line in title.splitlines()] + [len(str(row[key])) for row in rows], default=0)
        if (timed or key not in TIMED) and room >= width + GAP:
            room -= width + GAP
            chosen.add(key)
    shown = [key for key in COLUMNS if key in chosen]
    result = Table(box=None, pad_edge=False, padding=(0, GAP // 2), header_style="bold")
    result.add_column("rung", no_wrap=True)
    for key in shown:
        result.add_column(COLUMNS[key], justify="right", no_wrap=True)
    for record, row in zip(records, rows, strict=True):
        result.add_row(record.name, *(row[key] for key in shown))
    return result


def legend(records: Sequence[Record]) -> str:
    """What the marks in the table mean, of those that are there; "" where none is."""
    spills = any(record.resources is not None and record.resources.spill_bytes for record in records)
    return "! spills registers to memory" if spills else ""


def summary(records: Sequence[Record], timed: bool) -> str:
    """How many of the rungs that ran agree with float64, for records none of which is wrong."""
    ran = [record for record in records if record.correct is not None]
    left = len(records) - len(ran)
    if not ran:
        return f"Nothing ran: {many(left, 'rung')} not run, for the reasons above."
    text = f"{len(ran)} of {len(ran)} rungs {'that ran ' if left else ''}agree with float64"
    text += f"; {left} not run" if left else ""
    return text + ("." if timed else "; nothing was timed.")


def _cells(record: Record) -> dict[str, Any]:
    r, c, b, s = record.resources, record.counts, record.bounds, record.speed
    mark = {True: Text("yes", style="green"), False: Text("NO", style="bold red"), None: Text("-", style="yellow")}
    return {
        "ok": mark[record.correct],
        "math": arithmetic(record) or "-",
        "regs": "-" if r is None else str(r.registers) + ("!" if r.spill_bytes else ""),
        "shared": "-" if r is None else number(r.shared_bytes / 1024),
        "occupancy": "-" if r is None else f"{r.occupancy:.0%}",
        "loads": number(c.loads_per_c if c else None),
        "bytes": number(c.sector_bytes_per_c if c else None),
        "waves": number(c.wavefronts_per_c if c else None),
        "conflicts": number(c.conflicts_per_c if c else None),
        "intensity": number(b.counted_intensity if b else None),
        "uncached": number(b.uncached_tflops if b else None),
        "shared_roof": number(b.shared_tflops if b else None),
        "tflops": number(s.tflops if s else None),
        "ratio": "-" if s is None or s.ratio is None else f"{s.ratio:.1%}",
        "peak": "-" if s is None or s.peak_share is None else f"{s.peak_share:.1%}",
    }


def listing(rungs: Sequence[dict[str, Any]]) -> Table:
    """The rungs and their ideas."""
    result = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    result.add_column("", justify="right")
    for title in ("rung", "state", "idea"):
        result.add_column(title, no_wrap=title == "rung")
    for rung in rungs:
        result.add_row(str(rung["position"]), rung["name"], rung["state"], rung["idea"])
    return result
