"""``rungemm ladder``: every rung in order, run, checked, counted and explained; measured where there is a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .common import (
    DtypeOption,
    GpuOption,
    JsonOption,
    RungsOption,
    ScheduleOption,
    SeedOption,
    bar_columns,
    chosen_arithmetic,
    chosen_card,
    chosen_rungs,
    chosen_scalar,
    chosen_schedule,
    chosen_seed,
    err,
    out,
    print_json,
    progress,
)

if TYPE_CHECKING:
    from rich.progress import Progress

    from ..hardware import Gpu
    from ..kernels import Kernel
    from ..ladder import Record, Task

__all__ = ["ladder", "vet_simulated"]

SIMULATED_SHAPE = (128, 128, 128)
"""Without a GPU. Every tile of the rungs divides it, so the counts are those of the formulas (2K, K/16, ...) with no
edge in them, the largest tile still gets a whole block, and two cores need well under a minute with all the compiling.
Ragged shapes are what ``rungemm check`` is for."""

MEASURED_SHAPE = (4096, 4096, 4096)
"""With a GPU: large enough that the arithmetic, not the launch, is timed; the size most published ladders use."""

SLOW_FROM = 120.0
"""Seconds of simulation from which the user is warned."""

REFUSED_FROM = 6 * 3600.0
"""Seconds of simulation above which the shape is refused."""


def ladder(
    shape: Annotated[
        str | None,
        typer.Option("--shape", metavar="MxNxK", help="[default: 128x128x128 simulated, 4096x4096x4096 on a GPU]"),
    ] = None,
    rungs: RungsOption = "all",
    gpu: GpuOption = None,
    a: Annotated[Path | None, typer.Option("--a", metavar="FILE", help="A, a .npy or .pt file of fp32.")] = None,
    b: Annotated[Path | None, typer.Option("--b", metavar="FILE", help="B, likewise.")] = None,
    c: Annotated[Path | None, typer.Option("--c", metavar="FILE", help="C, likewise; read when beta is not 0.")] = None,
    cast: Annotated[bool, typer.Option("--cast", help="Round files of other real types to fp32.")] = False,
    alpha: Annotated[str, typer.Option("--alpha", metavar="X", help="alpha in alpha * A @ B + beta * C.")] = "1",
    beta: Annotated[str, typer.Option("--beta", metavar="X", help="beta, likewise.")] = "0",
    dtype: DtypeOption = None,
    seed: SeedOption = None,
    schedule: ScheduleOption = None,
    simulate: Annotated[bool, typer.Option("--simulate", help="Use the simulator even where there is a GPU.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="List the rungs and their ideas; run nothing.")] = False,
    as_json: JsonOption = False,
) -> int:
    """Climb the ladder: run every rung on one problem, check it against float64, and explain it.

    Without a GPU the rungs run in the simulator: results and counts are real, and there are no timings. With one they
    are timed too, interleaved with cuBLAS. --gpu names the card that registers, occupancy and bounds are worked out
    for; if it is not the card here, the rungs are simulated.

    Exits with 1 if a rung is wrong.

    \b
    Example: rungemm ladder --rungs 1-3 --shape 256x256x256 --gpu rtx4090
    """
    from ..inputs import parse_shape

    kernels = chosen_rungs(rungs)
    card, here = chosen_card(gpu)
    if list_:
        return _list(kernels, card, as_json)
    when = chosen_schedule(schedule)
    device = here and not simulate and schedule is None and _usable()
    number = chosen_seed(seed)
    wanted = _Wanted(
        chosen_scalar("alpha", alpha), chosen_scalar("beta", beta), chosen_arithmetic(dtype), number, cast
    )
    extents = parse_shape(shape) if shape is not None else None
    default = MEASURED_SHAPE if device else SIMULATED_SHAPE

    def vet(m: int, n: int, k: int) -> None:
        _fits(m, n, k)
        if not device:
            vet_simulated(kernels, (m, n, k), card)

    task = _task(extents, default, (a, b, c), wanted, vet)
    whose = "your operands" if c is not None or task.c is None else f"your A and B, random C, seed {number}"
    data = whose if task.seed is None else f"random operands, seed {number}"
    records = _climb(kernels, task, card, None if device else (when, number), None if as_json else data)
    if as_json:
        print_json([record.to_dict() for record in records])
    else:
        _close(records, None if device else (when, number))
    return 1 if any(record.correct is False for record in records) else 0


def _list(kernels: list[Kernel[Any]], card: Gpu, as_json: bool) -> int:
    """The rungs, what each changes, and whether the card takes it."""
    from dataclasses import asdict

    from ..ladder import Task, describe
    from ..ladder.pose import Refused, pose
    from .ladder_view import listing

    task = Task.random(*SIMULATED_SHAPE, seed=0)
    rungs: list[dict[str, Any]] = []
    for kernel in kernels:
        posed = pose(kernel, task, card)
        state = posed.why if isinstance(posed, Refused) else "ready"
        known = asdict(describe(kernel))
        rungs.append({key: known[key] for key in ("name", "position", "family", "idea", "expects", "below")})
        rungs[-1] |= {"state": state, "min_arch": kernel.min_arch, "dtypes": [dtype.name for dtype in kernel.dtypes]}
    if as_json:
        print_json(rungs)
    else:
        out().print(listing(rungs))
    return 0


def _usable() -> bool:
    """Whether the card here can be launched on; if not, says why on stderr."""
    from ..ladder import gpu_is_usable

    why = gpu_is_usable()
    if why is not None:
        err().print(f"[yellow]The card here is not used:[/yellow] {why}. Simulating instead.", soft_wrap=True)
    return why is None


@dataclass(frozen=True)
class _Wanted:
    """How the operands are made and multiplied, as asked."""

    alpha: float
    beta: float
    arithmetic: str | None
    seed: int
    cast: bool


def _task(
    shape: tuple[int, int, int] | None,
    default: tuple[int, int, int],
    files: tuple[Path | None, Path | None, Path | None],
    wanted: _Wanted,
    vet: Callable[[int, int, int], None],
) -> Task:
    """The operands: from files if given, else random ones; ``vet`` refuses extents before anything large is made."""
    import numpy as np

    from ..inputs import InputError, non_finite, random_matrix, read_matrix
    from ..ladder import Task

    alpha, beta, seed = wanted.alpha, wanted.beta, wanted.seed
    if files == (None, None, None):
        m, n, k = shape or default
        vet(m, n, k)
        return Task.random(m, n, k, alpha=alpha, beta=beta, seed=seed, arithmetic=wanted.arithmetic)
    if shape is not None:
        raise InputError("--shape and --a, --b, --c exclude each other: the files have their shapes; leave one out")
    for name, path in zip("AB", files, strict=False):
        if path is None:
            raise InputError(f"{name} is missing: give --{name.lower()} FILE as well; both operands come from files")
    a, b, c = (
        None if path is None else read_matrix(name, path, cast=wanted.cast, on_note=_remark)
        for name, path in zip("ABC", files, strict=True)
    )
    assert a is not None and b is not None
    if a.shape[1] == b.shape[0]:
        vet(a.shape[0], b.shape[1], a.shape[1])
    if c is None and beta != 0:
        c = random_matrix(np.random.default_rng(seed), a.shape[0], b.shape[1])
        _remark(f"C is random, seed {seed}: beta is {beta:g} and no --c was given")
    special = [f"{name} holds {non_finite(x)}" for name, x in zip("ABC", (a, b, c), strict=True)
               if x is not None and non_finite(x)]  # fmt: skip
    if special:
        _remark(f"{'; '.join(special)}: they go through the product as IEEE says")
    return Task(a, b, c if beta != 0 else None, alpha, beta, arithmetic=wanted.arithmetic)


def _remark(text: str) -> None:
    err().print(text, style="yellow", markup=False)


def _fits(m: int, n: int, k: int) -> None:
    """Refuse operands that memory cannot hold, before anything is allocated.

    Raises:
        InputError: the matrices, with the float64 ones that they are checked against, need more than is free.
    """
    from ..inputs import InputError
    from .memory import available_bytes

    needed = 4 * (m * k + k * n + 2 * m * n) + 8 * (2 * (m * k + k * n) + 4 * m * n)
    free = available_bytes()
    if free is not None and needed > free:
        raise InputError(
            f"shape {m}x{n}x{k} needs {needed / 1e9:.1f} GB with its float64 reference and {free / 1e9:.1f} GB "
            f"are free: take a smaller shape"
        )


def _climb(
    kernels: list[Kernel[Any]], task: Task, card: Gpu, simulated: tuple[str, int] | None, data: str | None
) -> list[Record]:
    """Run the rungs on the card, or, given a schedule and its seed, in the simulator.

    Told as text, with where the operands come from (``data``); not told at all where that is ``None``, for JSON.
    """
    from ..ladder import GpuRunner, SimulatorRunner, climb
    from .ladder_view import paragraph

    device = simulated is None
    as_json = data is None
    console = out()
    if data is not None:
        console.print(_title(task, card, simulated, data))
    records: list[Record] = []
    with progress(console, as_json, *bar_columns()) as display:
        bar = display.add_task("starting", total=len(kernels))
        runner = GpuRunner(card) if simulated is None else SimulatorRunner(schedule=simulated[0], seed=simulated[1])
        for record in climb(kernels, task, card, runner, on_stage=lambda text: display.update(bar, description=text)):
            records.append(record)
            display.advance(bar)
            if not as_json and not device:
                console.print(paragraph(record, console.width), end="", soft_wrap=True)
        if device:
            _time(kernels, task, card, records, display)
            if not as_json:
                for record in records:
                    console.print(paragraph(record, console.width), end="", soft_wrap=True)
    return records


def _time(kernels: list[Kernel[Any]], task: Task, card: Gpu, records: list[Record], display: Progress) -> None:
    """Time the rungs that are correct, all in one run with cuBLAS, and put the figures in their records."""
    from ..ladder.timing import time_rungs

    bar = display.add_task("timing, interleaved with cuBLAS", total=None)
    speeds, notes = time_rungs(
        [kernel for kernel, record in zip(kernels, records, strict=True) if record.correct],
        task,
        card,
        on_stage=lambda text: display.update(bar, description=f"timing: {text}"),
    )
    for record in records:
        record.speed = speeds.get(record.name)
    for note in notes:
        err().print(note, style="yellow", markup=False, soft_wrap=True)


def _title(task: Task, card: Gpu, simulated: tuple[str, int] | None, data: str) -> str:
    from ..compat import TRITON_VERSION

    m, n, k = task.shape
    compiled = f"Compiled by Triton {TRITON_VERSION} for sm_{card.arch}."
    scalars = "A @ B" if (task.alpha, task.beta) == (1.0, 0.0) else f"{task.alpha:g} A @ B + {task.beta:g} C"
    title = f"[bold]{scalars}, {m}x{n}x{k}[/bold], {data}\n"
    if simulated is None:
        return title + f"On the {card.title} here, timed interleaved with cuBLAS.\n{compiled}\n"
    schedule, seed = simulated
    title += f"In the SIMULATOR, as on an {card.title}: real results and counts, no timing.\n{compiled}\n"
    when = {"late": "", "random": f"Under a random schedule, seed {seed}.\n"}
    return title + when.get(schedule, f"Under the {schedule} schedule.\n")


def vet_simulated(kernels: list[Kernel[Any]], shape: tuple[int, int, int], card: Gpu) -> None:
    """Estimate a simulation that is not small; say so when it is long, refuse it when it is absurd.

    Raises:
        InputError: longer than six hours.
    """
    from ..inputs import InputError
    from ..ladder.estimate import QUICK_WORK, simulated_seconds
    from .ladder_view import many

    m, n, k = shape
    if m * n * k <= QUICK_WORK:
        return
    seconds = 0.0
    for seconds in simulated_seconds(kernels, shape, card):
        if seconds > REFUSED_FROM:
            raise InputError(
                f"shape {m}x{n}x{k} would take the simulator more than {REFUSED_FROM / 3600:.0f} hours, the limit: "
                f"take a smaller shape, fewer or faster --rungs, or a machine with a GPU"
            )
    if seconds > SLOW_FROM:
        time = many(max(round(seconds / 60), 1), "minute")
        err().print(
            f"[yellow]{m}x{n}x{k} will take the simulator about {time};[/yellow] "
            f"a smaller --shape or fewer --rungs take less. Going on.",
            soft_wrap=True,
        )


def _close(records: list[Record], simulated: tuple[str, int] | None) -> None:
    from .ladder_view import legend, summary, table

    console = out()
    console.print()
    console.print(table(records, console))
    if legend(records):
        console.print(f"\n{legend(records)}")
    wrong = [record.name for record in records if record.correct is False]
    if wrong:
        console.print(f"\n[bold red]{len(wrong)} of {len(records)} rungs are WRONG:[/bold red] {', '.join(wrong)}")
        if simulated is not None and simulated[0] == "random":
            console.print(f"Repeat with --schedule random --seed {simulated[1]}.")
    elif records:
        console.print(f"\n{summary(records, timed=simulated is None)}")
        console.print("Next: rungemm explain naive")
