"""Words and quotations of the rung pages that a rung's docstring has no place for: docs/rungs/notes/NAME.md.

    quote: FILE | FIRST TEXT | LAST TEXT      the lines from the one that contains FIRST TEXT to the one with LAST TEXT;
                                              FILE is a path under src/rungemm/kernels; several quotes are in order
    # costs                                   text below the table of costs
    # measured                                text below the measurements
    # slower                                  why it is slower than the rung below; shown only where it measures so

All of it is optional. Without a quote, the page quotes the lines marked "The change" and the loop over K.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rungemm.kernels import Kernel

__all__ = ["Notes", "code_of", "notes_of"]

ROOT = Path(__file__).resolve().parent.parent
NOTES = ROOT / "docs" / "rungs" / "notes"
KERNELS = ROOT / "src" / "rungemm" / "kernels"
MOST_LINES = 26
LOOPS = ("for k0 in range(", "for step in range(", "for tile in range(")


@dataclass
class Notes:
    """What the notes file of a rung says; empty where there is none."""

    quotes: list[tuple[str, str, str]] = field(default_factory=list)
    costs: str = ""
    measured: str = ""
    slower: str = ""


def notes_of(name: str) -> Notes:
    """Read the notes of a rung.

    Raises:
        ValueError: a heading or a quote that is not one of those above.
    """
    path, notes, section = NOTES / f"{name}.md", Notes(), ""
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        if line.startswith("quote:"):
            parts = [part.strip() for part in line.removeprefix("quote:").split(" | ")]
            if len(parts) != 3:
                raise ValueError(f"{path}: {line!r} must be: quote: FILE | FIRST TEXT | LAST TEXT")
            notes.quotes.append((parts[0], parts[1], parts[2]))
        elif line.startswith("# "):
            section = line[2:].strip()
            if section not in ("costs", "measured", "slower"):
                raise ValueError(f"{path}: the heading {section!r} must be costs, measured or slower")
        elif section:
            # Blank lines between paragraphs stay, those around a section go.
            setattr(notes, section, (getattr(notes, section) + "\n" + line).lstrip("\n"))
    for section in ("costs", "measured", "slower"):
        setattr(notes, section, getattr(notes, section).rstrip("\n"))
    return notes


def code_of(kernel: Kernel[Any], file: Path) -> Iterator[tuple[str, str]]:
    """The rung's key lines as they are now in its file: (what they are from, if another file; the code).

    Raises:
        ValueError: a quoted text is not there, or nothing is marked and nothing quoted.
    """
    quotes = notes_of(kernel.name).quotes
    for name, first, last in quotes:
        lines = (KERNELS / name).read_text(encoding="utf-8").splitlines()
        start = _find(lines, first, 0, name)
        stop = _find(lines, last, start, name)
        where = KERNELS / name
        label = "" if where == file else f"From [{where.name}](../../{where.relative_to(ROOT).as_posix()}):"
        yield label, textwrap.dedent("\n".join(lines[start : stop + 1]))
    if quotes:
        return
    lines = file.read_text(encoding="utf-8").splitlines()
    taken: set[int] = set()
    for at, line in enumerate(lines):
        if "# The change" in line:
            taken.update(_paragraph(lines, at))
    function = getattr(getattr(kernel, "function", None), "fn", None)
    if function is not None and function.__module__ == type(kernel).__module__:
        source, first_line = inspect.getsourcelines(function)
        for at in range(first_line - 1, first_line - 1 + len(source)):
            if lines[at].strip().startswith(LOOPS):
                taken.update(_block(lines, at))
                break
    if not taken:
        raise ValueError(f"{file} has no line marked '# The change': mark it, or quote it in {NOTES / kernel.name}.md")
    for part in _runs(sorted(taken)):
        yield "", textwrap.dedent("\n".join(lines[i] for i in part))


def _find(lines: list[str], text: str, start: int, name: str) -> int:
    for at in range(start, len(lines)):
        if text in lines[at]:
            return at
    raise ValueError(f"{name} has no line with {text!r} any more: mend the quote in docs/rungs/notes")


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _paragraph(lines: list[str], at: int) -> range:
    """The comment and the statements after it, to the next blank line, comment or outer line, whole statements."""
    stop, depth, code = at, 0, 0
    for i in range(at, min(len(lines), at + MOST_LINES)):
        text = lines[i].strip()
        over = not text or _indent(lines[i]) < _indent(lines[at]) or (text[0] == "#" and code) or text[:7] == "tile_m,"
        if depth == 0 and i > at and over:
            break
        if not text.startswith("#"):
            code += 1
            depth += sum(map(text.count, "([{")) - sum(map(text.count, ")]}"))
        stop = i
    return range(at, stop + 1)


def _block(lines: list[str], at: int) -> range:
    """A loop and its body."""
    stop = at
    for i in range(at + 1, min(len(lines), at + MOST_LINES)):
        if lines[i].strip() and _indent(lines[i]) <= _indent(lines[at]):
            break
        if lines[i].strip():
            stop = i
    return range(at, stop + 1)


def _runs(numbers: list[int]) -> Iterator[list[int]]:
    run: list[int] = []
    for number in numbers:
        if run and number != run[-1] + 1:
            yield run
            run = []
        run.append(number)
    if run:
        yield run
