"""An explained rung as text: what it takes and may reach, what it changed, and its source with counters."""

from __future__ import annotations

import textwrap

from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from ..hardware import Gpu
from ..ladder.explained import Explained, Line
from .ladder_view import labelled, many, number, paragraph

__all__ = ["seconds_text", "show"]

COLUMNS: tuple[tuple[str, str], ...] = (
    ("global\nasked", "global_load_requests global_store_requests"),
    ("\nsectors", "global_load_sectors global_store_sectors"),
    ("shared\nwaves", "shared_wavefronts"),
    ("con-\nflicts", "bank_conflicts"),
    ("\nFMAs", "fmas"),
    ("\nMMAs", "mma_instructions wgmma_instructions"),
    ("TMA\nbytes", "tma_load_bytes tma_store_bytes"),
)
"""What the annotated source shows: a title, and the counters whose sum it is. A column of zeros is left out."""

COLUMN = 8


def show(found: Explained, card: Gpu, console: Console) -> None:
    """Print everything."""
    r = found.record
    console.print(f"[bold]{r.name}[/bold] at {r.m}x{r.n}x{r.k} {r.dtype}, as on an {card.title}\n", soft_wrap=True)
    console.print(paragraph(r, console.width), end="", soft_wrap=True)
    lines: list[tuple[str, str]] = []
    if found.limits:
        lines.append(("blocks", "an SM holds by " + ", ".join(f"{name} {n}" for name, n in found.limits.items())))
    if r.resources is not None:
        blocks, rounds = many(r.resources.programs, "block"), many(r.resources.waves, "wave")
        lines.append(
            (
                "waves",
                f"{blocks} in {rounds}, {r.resources.wave_efficiency:.0%} "
                f"of their slots at work; {found.tile_share:.0%} of the tiles' area is C",
            )
        )
    arithmetic, memory = seconds_text(found.seconds_arithmetic), seconds_text(found.seconds_memory)
    lines.append(("least time", f"{arithmetic} of arithmetic, {memory} of compulsory memory traffic"))
    if found.paper is not None:
        loads, shared = number(found.paper.global_loads), number(found.paper.shared_loads)
        lines.append(
            ("on paper", f"{loads} global and {shared} shared loads for one element of C, from the tile sizes")
        )
    console.print(labelled(lines, console.width), end="", soft_wrap=True)
    if found.changes and found.below is not None:
        console.print(f"\n[bold]Against {found.below.name}[/bold]")
        console.print(_changes(found))
        if found.apart:
            console.print(found.apart[0].upper() + found.apart[1:] + ".", highlight=False)
    console.print(f"\n[bold]{found.file}[/bold]", soft_wrap=True)
    console.print("[dim]What a helper function costs stands on the line that calls it.[/dim]")
    console.print(_source(found.lines, console.width if console.is_terminal else None), end="", soft_wrap=True)


def seconds_text(seconds: float) -> str:
    """A time as people write it: "4.50 ms"."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{number(seconds / scale)} {unit}"
    return f"{number(seconds / 1e-9)} ns"


def _changes(found: Explained) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("", no_wrap=True)
    assert found.below is not None
    for title in (found.below.name, found.record.name, *(() if found.apart else ("factor",))):
        table.add_column(title, justify="right", no_wrap=True)
    for change in found.changes:
        factor = change.factor
        if found.apart:
            table.add_row(_short(change.what), exact(change.before), exact(change.after))
            continue
        style = "" if factor is None or abs(factor - 1) < 0.005 else "bold"
        table.add_row(
            _short(change.what),
            exact(change.before),
            exact(change.after),
            Text("" if factor is None else f"x {number(factor)}", style=style),
        )
    return table


def _short(what: str) -> str:
    """A figure's name in 23 characters at most, which leaves room for two rungs' names in 80 columns."""
    what = what.replace("for one element of C", "per C").replace("memory a block, bytes", "bytes a block")
    return what.replace(" allowed", "")


def exact(value: float | None) -> str:
    """A whole number in full, "147,456"; any other with three digits."""
    if value is None or value != int(value):
        return number(value)
    return f"{int(value):,}"


def _source(lines: list[Line], width: int | None) -> Text:
    """The source with a column for each counter that is not zero throughout; cut at ``width``, if there is one."""
    sums = [(title, [_sum(line, names) for line in lines]) for title, names in COLUMNS]
    shown = [(title, values) for title, values in sums if any(values)]
    margin = 5 + COLUMN * len(shown) + 2
    text = Text()
    for row in range(2):
        cells = "".join(f"{title.split(chr(10))[row]:>{COLUMN}}" for title, _ in shown)
        text.append(f"{'line' if row else '':>5}{cells}  {'source' if row else ''}".rstrip() + "\n", style="bold")
    painter = Syntax("", "python", theme="ansi_light", background_color="default")
    for index, line in enumerate(lines):
        cells = "".join(f"{compact(values[index]):>{COLUMN}}" for _, values in shown)
        source = painter.highlight(line.text)
        source.rstrip()
        if width is not None:
            source.truncate(max(width - margin, 20), overflow="ellipsis")
        text.append(f"{line.number:>5}", style="dim").append(cells if source.plain else cells.rstrip())
        if source.plain:
            text.append("  ").append_text(source)
        text.append("\n")
        if line.note:
            note = textwrap.fill(line.note, max((width or 120) - margin - 2, 30), subsequent_indent=" " * (margin + 2))
            text.append(f"{'':{margin}}^ {note}\n", style="yellow")
    return text


def compact(count: int) -> str:
    """A count in at most five characters: exact up to 9999, then with three digits, as in 104k and 2.10M."""
    if count == 0:
        return ""
    if count < 10_000:
        return str(count)
    for unit, scale in (("k", 1e3), ("M", 1e6), ("G", 1e9)):
        value = count / scale
        if value < 999.5:
            return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}{unit}"
    return f"{count:.0e}"


def _sum(line: Line, names: str) -> int:
    return sum(line.counts.get(name, 0) for name in names.split())
