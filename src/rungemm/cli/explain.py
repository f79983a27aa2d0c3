"""``rungemm explain``: what a rung costs, line by line, or what the library would run for a product."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .common import (
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
    from ..kernels import Kernel

__all__ = ["explain"]

SHAPE = (128, 128, 128)


def explain(
    what: Annotated[
        str,
        typer.Argument(
            metavar="RUNG|MxNxK",
            help="A rung (see rungemm ladder --list), or a shape: MxNxK or BATCHxMxNxK. One number is a rung's, or "
            "where it is beyond them a cube's extent.",
        ),
    ],
    shape: Annotated[
        str | None, typer.Option("--shape", metavar="MxNxK", help="Of a rung's run. [default: 128x128x128]")
    ] = None,
    gpu: GpuOption = None,
    dtype: Annotated[
        str | None,
        typer.Option(
            "--dtype",
            metavar="TYPE",
            help="fp32, tf32, bf16, fp16 or tf32x3; of a product also fp8e4m3, fp8e5m2 or int8. [default: the first "
            "that the rung takes; fp32 of a product]",
        ),
    ] = None,
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
    if _is_shape(what):
        if shape is not None or seed is not None or schedule is not None:
            raise InputError(
                f"--shape, --seed and --schedule belong to a rung; {what} is a shape itself: leave them out"
            )
        from .explain_choice import explain_choice

        asked = parse_batched_shape(what)
        return explain_choice(asked, card, dtype, layout or "NN", as_json)
    if layout is not None:
        raise InputError(f"--layout belongs to a product's shape; {what} is none: leave it out")
    run = (chosen_schedule(schedule), chosen_seed(seed))
    return _explain_rung(what, parse_shape(shape) if shape is not None else SHAPE, card, dtype, run, as_json)


def _is_shape(what: str) -> bool:
    """Whether a text is meant as a shape, right or wrong, so that a wrong one is told as a shape."""
    from ..inputs import did_you_mean
    from ..kernels import LADDER

    text = what.strip().lower()
    if text.isdecimal():
        return int(text) > len(LADDER)
    if re.fullmatch(r"\d+(\s*,\s*\d+)+", text):
        return any(int(part) > len(LADDER) for part in text.split(","))
    if re.match(r"[+-]?\d+\s*[x×*]", text):
        return True
    # No rung's name holds an x between letters, but a misspelt one may.
    return bool(re.search(r"[a-z0-9]\s*[x×*]\s*[+-]?[a-z0-9]", text)) and not did_you_mean(
        text, [kernel.name for kernel in LADDER]
    )


def _one_rung(text: str) -> Kernel[Any]:
    """The rung that a text names.

    Raises:
        InputError: it names none, or several.
    """
    from ..inputs import InputError, did_you_mean
    from ..kernels import LADDER

    try:
        kernels = chosen_rungs(text)
    except InputError:
        # select_names' own advice has ranges in it, and this command takes none.
        names = [kernel.name for kernel in LADDER]
        near = did_you_mean(text, names)
        raise InputError(
            f"rung {text!r} is unknown: {near}use one of {', '.join(names)}, or a shape such as 512x256x128"
        ) from None
    if len(kernels) != 1:
        raise InputError(
            f"explain takes one rung, and {text!r} names {len(kernels)} rungs: give one, such as {kernels[0].name}"
        )
    return kernels[0]


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

    kernel = _one_rung(rung)
    m, n, k = shape
    if 0 in (m, n, k):
        raise InputError(f"shape {m}x{n}x{k} has nothing to explain: give extents of 1 or more")
    vet_simulated([kernel], (m, n, k), card)
    schedule, seed = run
    task = Task.random(m, n, k, seed=seed, arithmetic=chosen_arithmetic(dtype))
    console = out()
    with progress(console, as_json, SpinnerColumn(), TextColumn("{task.description}")) as display:
        bar = display.add_task("starting", total=None)
        found = explain_rung(
            kernel,
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
