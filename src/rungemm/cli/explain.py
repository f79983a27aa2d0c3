"""``rungemm explain``: what a rung costs, line by line, or what the library would run for a product."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from .common import (
    DtypeOption,
    GpuOption,
    JsonOption,
    ScheduleOption,
    SeedOption,
    chosen_arithmetic,
    chosen_card,
    chosen_rungs,
    chosen_schedule,
    chosen_seed,
    out,
    print_json,
    progress,
)

if TYPE_CHECKING:
    from ..hardware import Gpu

__all__ = ["explain"]

SHAPE = (128, 128, 128)


def explain(
    what: Annotated[
        str,
        typer.Argument(
            metavar="RUNG|MxNxK", help="A rung (see rungemm ladder --list), or a shape: MxNxK or BATCHxMxNxK."
        ),
    ],
    shape: Annotated[
        str | None, typer.Option("--shape", metavar="MxNxK", help="Of a rung's run. [default: 128x128x128]")
    ] = None,
    gpu: GpuOption = None,
    dtype: DtypeOption = None,
    layout: Annotated[
        str | None, typer.Option("--layout", metavar="NN", help="Of a product: NN, NT, TN, TT. [default: NN]")
    ] = None,
    seed: SeedOption = None,
    schedule: ScheduleOption = None,
    as_json: JsonOption = False,
) -> int:
    """Explain a rung, or how the library would compute a product.

    A rung: its source with what each line costs in the simulator, its compiled registers and occupancy on the card
    that --gpu names, and its figures beside those of the rung below.

    A product, given by its shape, or a batch of them: the kernel and config that the library's dispatcher would take,
    what it rejects and why, and the limits of the card.

    \b
    Example: rungemm explain vectorised --shape 256x256x64 --gpu a100-80
             rungemm explain 4096x4096x4096 --dtype bf16 --layout NT
             rungemm explain 64x256x256x256 --dtype bf16
    """
    from ..inputs import InputError, parse_batched_shape, parse_shape

    card, _ = chosen_card(gpu)
    # A rung's name begins with a letter, so what begins as a shape is told as one that is wrong.
    if re.match(r"[+-]?\d+\s*[x×*]", what.strip().lower()):
        if shape is not None or seed is not None or schedule is not None:
            raise InputError(
                f"--shape, --seed and --schedule belong to a rung; {what} is a shape itself: leave them out"
            )
        from .explain_choice import explain_choice

        asked = parse_batched_shape(what)
        return explain_choice(asked, card, chosen_arithmetic(dtype) or "fp32", layout or "NN", as_json)
    if layout is not None:
        raise InputError(f"--layout belongs to a product's shape; {what} is none: leave it out")
    run = (chosen_schedule(schedule), chosen_seed(seed))
    return _explain_rung(what, parse_shape(shape) if shape is not None else SHAPE, card, dtype, run, as_json)


def _explain_rung(
    rung: str, shape: tuple[int, int, int], card: Gpu, dtype: str | None, run: tuple[str, int], as_json: bool
) -> int:
    """``run``: the simulator's schedule, and the seed of it and of the operands."""
    from rich.progress import SpinnerColumn, TextColumn

    from ..inputs import InputError
    from ..ladder import Task
    from ..ladder.explained import explain as explain_rung
    from .explain_view import show
    from .ladder import vet_simulated

    kernels = chosen_rungs(rung)
    if len(kernels) != 1:
        raise InputError(f"rung {rung!r} names {len(kernels)} rungs: give one, such as {kernels[0].name}")
    m, n, k = shape
    if 0 in (m, n, k):
        raise InputError(f"shape {m}x{n}x{k} has nothing to explain: give extents of 1 or more")
    vet_simulated(kernels, (m, n, k), card)
    schedule, seed = run
    task = Task.random(m, n, k, seed=seed, arithmetic=chosen_arithmetic(dtype))
    console = out()
    with progress(console, as_json, SpinnerColumn(), TextColumn("{task.description}")) as display:
        bar = display.add_task("starting", total=None)
        found = explain_rung(
            kernels[0],
            task,
            card,
            schedule=schedule,
            seed=seed,
            on_stage=lambda text: display.update(bar, description=text),
        )
    if as_json:
        print_json(found.to_dict())
    else:
        show(found, card, console)
    return 1 if found.record.correct is False else 0
