"""``rungemm check``: sweep what breaks kernels, over every rung."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from .common import (
    GpuOption,
    JsonOption,
    RungsOption,
    ScheduleOption,
    SeedOption,
    bar_columns,
    chosen_card,
    chosen_rungs,
    chosen_schedule,
    chosen_seed,
    out,
    print_json,
    progress,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from ..check import Checked
    from ..kernels import LaunchPlan

__all__ = ["check"]

NAME = 20
"""Columns of the longest rung's name."""


def check(
    rungs: RungsOption = "all",
    gpu: GpuOption = None,
    quick: Annotated[bool, typer.Option("--quick", help="A quarter of the cases.")] = False,
    seed: SeedOption = None,
    schedule: ScheduleOption = None,
    simulate: Annotated[bool, typer.Option("--simulate", help="Use the simulator even where there is a GPU.")] = False,
    as_json: JsonOption = False,
) -> int:
    """Check every rung on ragged shapes, strides, offsets, layouts, scalars, NaN and Inf.

    Each result is compared with float64; inputs must be unchanged, and nothing outside D written. Runs on the GPU if
    there is one and torch sees it, else in the simulator, which also finds out-of-bounds and unwritten reads.

    Exits with 1 if anything fails.

    \b
    Example: rungemm check --quick --rungs vectorised
    """
    from ..check import CASES, QUICK, launch_on_gpu, plans_of, simulator_launcher
    from ..check import check as sweep
    from ..ladder import gpu_is_usable
    from .ladder_view import many

    kernels = chosen_rungs(rungs)
    card, here = chosen_card(gpu)
    when = chosen_schedule(schedule)
    device = here and not simulate and schedule is None and gpu_is_usable() is None
    cases = QUICK if quick else CASES
    number = chosen_seed(seed)
    console = out()
    where = f"on the {card.title} here" if device else f"in the simulator, as on an {card.title}"
    where += "" if when == "late" else f", {when} schedule"
    if not as_json:
        title = f"{many(len(kernels), 'rung')} x {len(cases)} cases {where}; seed {number}"
        console.print(textwrap.fill(title, console.width), style="bold", markup=False, soft_wrap=True)
    results: list[Checked] = []
    with progress(console, as_json, *bar_columns()) as display:
        if device:
            _compile(list(plans_of(kernels, card, cases=cases)), card.arch, display)
        bar = display.add_task("checking", total=len(kernels) * len(cases))
        launch = launch_on_gpu if device else simulator_launcher(when, number)
        seen: tuple[str, str] | None = None
        for result in sweep(kernels, card, cases=cases, launch=launch, seed=number):
            if seen is not None and result.rung != seen[0] and not as_json:
                _summary([each for each in results if each.rung == seen[0]], console)
            results.append(result)
            display.update(bar, advance=(result.rung, result.case) != seen, description=result.rung)
            seen = (result.rung, result.case)
        if seen is not None and not as_json:
            _summary([each for each in results if each.rung == seen[0]], console)
    failed = [result for result in results if result.ok is False]
    if as_json:
        print_json([result.to_dict() for result in results])
    elif failed:
        again = "" if when == "late" else f"--schedule {when} "
        console.print(
            f"\n[bold red]{len(failed)} of {len(results)} checks fail.[/bold red] Repeat with {again}--seed {number}"
        )
    else:
        declined = sum(result.ok is None for result in results)
        tail = f"; {declined} declined by the rungs themselves" if declined else ""
        passed = len(results) - declined
        console.print(f"\n[green]{passed} checks pass[/green]{tail}." if passed else f"\nNothing was checked{tail}.")
    return 1 if failed else 0


def _compile(plans: Sequence[LaunchPlan], arch: int, display: Progress) -> None:
    """Fill the cache on all cores; what does not compile fails its own cases later, with the compiler's words."""
    from ..compiling import compile_many

    bar = display.add_task("compiling", total=len(plans))
    compile_many([(plan, arch) for plan in plans], on_done=lambda *_: display.advance(bar))


def _summary(results: Sequence[Checked], console: Console) -> None:
    """One rung's line, and a line for each of its failures."""
    from rich.text import Text

    failed = [result for result in results if result.ok is False]
    declined = [result for result in results if result.ok is None]
    passed = len(results) - len(failed) - len(declined)
    mark = ("FAIL", "bold red") if failed else ("ok  ", "green") if passed else ("none", "")
    seconds = sum(result.seconds for result in results)
    worst = max((result.error / result.tolerance for result in results if result.error and result.tolerance), default=0)
    kinds = ", ".join(dict.fromkeys(result.arithmetic for result in results if result.ok is not None))
    text = f"{passed} pass" + (f" in {kinds}" if kinds else "")
    text += f", {len(declined)} declined" if declined else ""
    text += f", {len(failed)} FAIL" if failed else ""
    text += f"; largest error {worst:.0%} of what is allowed; {seconds:.1f} s" if passed or failed else ""
    margin = NAME + 6
    lines = textwrap.wrap(text, max(console.width - margin, 40))
    line = Text.assemble(mark, " ", (f"{results[0].rung:<{NAME}}", "bold"), " ", f"\n{'':{margin}}".join(lines))
    console.print(line, soft_wrap=True)
    remarks = [f"{result.case}, {result.arithmetic}: {result.why}" for result in failed]
    remarks += [f"declined: {why}" for why in sorted({result.why for result in declined})]
    for remark in remarks:
        wrapped = textwrap.fill(
            remark, console.width, initial_indent=" " * 5, subsequent_indent=" " * 7, break_on_hyphens=False,
            break_long_words=False,
        )  # fmt: skip
        console.print(wrapped, soft_wrap=True, markup=False)
