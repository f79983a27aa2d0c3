"""``rungemm explain RUNG``: what a rung costs, line by line, and what it changed against the rung below."""

from __future__ import annotations

from typing import Annotated

import typer

from .common import (
    DtypeOption,
    GpuOption,
    JsonOption,
    SeedOption,
    chosen_arithmetic,
    chosen_card,
    chosen_rungs,
    chosen_seed,
    err,
    out,
    print_json,
)

__all__ = ["explain"]

SHAPE = (128, 128, 128)


def explain(
    rung: Annotated[str, typer.Argument(metavar="RUNG", help="A rung's name or number: see rungemm ladder --list.")],
    shape: Annotated[str | None, typer.Option("--shape", metavar="MxNxK", help="[default: 128x128x128]")] = None,
    gpu: GpuOption = None,
    dtype: DtypeOption = None,
    seed: SeedOption = None,
    as_json: JsonOption = False,
) -> int:
    """Explain a rung: its source with what each line costs, and its figures beside those of the rung below.

    The rung runs in the simulator; registers and occupancy are the compiled kernel's for the card that --gpu names.

    \b
    Example: rungemm explain vectorised --shape 256x256x64 --gpu a100-80
    """
    from rich.progress import Progress, SpinnerColumn, TextColumn

    from ..inputs import InputError, parse_shape
    from ..ladder import Task
    from ..ladder.explained import explain as explain_rung
    from .explain_view import show
    from .ladder import vet_simulated

    kernels = chosen_rungs(rung)
    if len(kernels) != 1:
        raise InputError(f"rung {rung!r} names {len(kernels)} rungs: give one, such as {kernels[0].name}")
    card, _ = chosen_card(gpu)
    m, n, k = parse_shape(shape) if shape is not None else SHAPE
    if 0 in (m, n, k):
        raise InputError(f"shape {m}x{n}x{k} has nothing to explain: give extents of 1 or more")
    vet_simulated(kernels, (m, n, k), card)
    task = Task.random(m, n, k, seed=chosen_seed(seed), arithmetic=chosen_arithmetic(dtype))
    remarks = err()
    columns = (SpinnerColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=remarks, transient=True, disable=not remarks.is_terminal) as progress:
        bar = progress.add_task("starting", total=None)
        found = explain_rung(kernels[0], task, card, on_stage=lambda text: progress.update(bar, description=text))
    if as_json:
        print_json(found.to_dict())
    else:
        show(found, card, out())
    return 1 if found.record.correct is False else 0
