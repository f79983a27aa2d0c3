"""``rungemm report``: one self-contained page, and the README's table and plot, from what is in results/."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .common import err, out

__all__ = ["report"]


def report(
    folder: Annotated[
        Path, typer.Argument(metavar="[FOLDER]", help="A card's results: summary.json and raw/.")
    ] = Path("results/h200"),
    save: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The page.")] = Path("report.html"),
    count: Annotated[
        bool, typer.Option("--count", help="First compile every rung and count its traffic anew (a minute or two).")
    ] = False,
    summarise: Annotated[bool, typer.Option("--summarise", help="First make summary.json anew.")] = False,
    readme: Annotated[
        Path | None, typer.Option("--readme", metavar="README.md", help="Update this file's results instead.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="With --readme: only say if it is stale.")] = False,
) -> int:  # fmt: skip
    """Write results as one HTML page that works offline: plots to point at, tables to copy, light and dark.

    With --count it first makes rungs.json, the page's figures of occupancy and traffic, which need no GPU.

    With --readme it writes the results into a README instead, between its two markers, and a plot beside it.

    \b
    Example: rungemm report results/h200 --summarise --out report.html
    """
    from ..bench.store import summarise as make_summary
    from ..inputs import InputError
    from ..report.page import write_page
    from ..report.readme import stale_parts, update

    if check and readme is None:
        raise InputError("--check goes with --readme FILE: it says whether that file's results are stale")
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder: give a card's results, as results/h200")
    if summarise:
        records = make_summary(folder)
        out().print(f"{folder / 'summary.json'}: {len(records)} records", soft_wrap=True)
    if count:
        _count(folder)
    if readme is not None:
        if check:
            stale = stale_parts(readme, folder)
            for name in stale:
                out().print(f"stale: {name}; run rungemm report {folder} --readme {readme}", soft_wrap=True)
            return 1 if stale else 0
        for name in update(readme, folder):
            out().print(f"wrote {name}", soft_wrap=True)
        return 0
    try:
        size = write_page(folder, save)
    except OSError as error:
        raise InputError(f"--out: {save} cannot be written ({error.strerror}): give another path") from None
    out().print(f"wrote {save}, {size / 1024:.0f} KiB: open it in a browser", soft_wrap=True)
    return 0


def _count(folder: Path) -> None:
    """Write the folder's rungs.json.

    Raises:
        InputError: the folder is named after no known card, or a rung does not compile.
    """
    from ..hardware import find_gpu
    from ..inputs import InputError
    from ..report.rungs import write_rungs

    try:
        card = find_gpu(folder.resolve().name)
    except ValueError as error:
        raise InputError(f"{folder}: a results folder is named after its card; {error}") from None
    with err().status("counting") as status:
        path, failures = write_rungs(folder, card, say=status.update)
    out().print(f"wrote {path}", soft_wrap=True)
    if failures:
        raise InputError(f"{len(failures)} rungs do not compile and are not in {path}, first {failures[0]}")
