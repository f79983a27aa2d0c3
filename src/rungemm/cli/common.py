"""What the commands share: option types, consoles, choosing the card and the rungs."""

from __future__ import annotations

import json
import shutil
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn

    from ..dtypes import DType
    from ..hardware import Gpu
    from ..kernels import Kernel
    from ..problem import Precision

GpuOption = Annotated[
    str | None,
    typer.Option("--gpu", metavar="CARD", help="Card to reason about. [default: the one here, or h200]"),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on stdout and nothing else there.")]
RungsOption = Annotated[
    str,
    typer.Option("--rungs", metavar="LIST", help="Rungs by name or number: naive,vectorised  1-3  all."),
]
SeedOption = Annotated[
    str | None,
    typer.Option(
        "--seed",
        metavar="N",
        help="Seed of the random matrices and of --schedule random. [default: a new one, printed]",
    ),
]
ScheduleOption = Annotated[
    str | None,
    typer.Option(
        "--schedule",
        metavar="WHEN",
        help="When the simulator completes copies, TMA and wgmma, and in which order partitions run: late (as late as "
        "the waits allow), eager (at once) or random (legal moments drawn from --seed; a failure names the seed that "
        "replays it). Implies the simulator. [default: late]",
    ),
]

DtypeOption = Annotated[
    str | None,
    typer.Option(
        "--dtype", metavar="TYPE", help="fp32, tf32, bf16, fp16 or tf32x3. [default: for each rung the first it takes]"
    ),
]


def print_json(value: Any) -> None:
    """JSON on stdout: two spaces of indent, NaN and Inf never (they are no JSON), so numbers are made finite first."""
    sys.stdout.write(json.dumps(_finite(value), indent=2, allow_nan=False) + "\n")


def _finite(value: Any) -> Any:
    """The value with every NaN and Inf as a string, since JSON has no such number."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def out() -> Console:
    """Where results go."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=False)


def err() -> Console:
    """Where progress and remarks go, so that stdout holds results alone."""
    from rich.console import Console

    return Console(stderr=True, highlight=False)


def progress(results: Console, as_json: bool, *columns: ProgressColumn | str) -> Progress:
    """A progress display that vanishes when done: on the terminal that ``results`` go to, else on stderr.

    What is printed meanwhile must go through ``results``: then it scrolls above the display.
    """
    from rich.progress import Progress

    console = results if results.is_terminal and not as_json else err()
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def bar_columns() -> tuple[ProgressColumn, ...]:
    """What is being done, how far it is, and for how long."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

    return TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()


def no_card() -> str:
    """Why no card is found, for a machine where none is."""
    return "nvidia-smi lists no card" if shutil.which("nvidia-smi") else "no NVIDIA driver (nvidia-smi)"


def why_no_gpu() -> str | None:
    """Why nothing can be timed here, the driver before torch; ``None`` if it can."""
    from ..hardware import detect_gpu
    from ..ladder.runners import gpu_is_usable

    why = gpu_is_usable()
    if why is None:
        return None
    return why if detect_gpu() is not None else f"{no_card()}, and {why}"


def chosen_card(name: str | None) -> tuple[Gpu, bool]:
    """The card to reason about, and whether it is the one at hand.

    Raises:
        InputError: no such card in the zoo.
    """
    from ..hardware import DEFAULT_GPU, detect_gpu, find_gpu
    from ..inputs import InputError

    here = detect_gpu()
    if name is None:
        return (here, True) if here is not None else (DEFAULT_GPU, False)
    try:
        found = find_gpu(name)
    except ValueError as error:
        raise InputError(f"--gpu: {error}") from None
    return found, here is not None and here.name == found.name


def chosen_rungs(text: str | None) -> list[Kernel[Any]]:
    """The rungs of a list as the user writes it, in the ladder's order.

    Raises:
        InputError: an unknown rung.
    """
    from ..inputs import select_names
    from ..kernels import LADDER, find_kernel

    return [find_kernel(name) for name in select_names(text, [kernel.name for kernel in LADDER])]


def chosen_arithmetic(name: str | None) -> str | None:
    """What operands are multiplied as, or ``None`` for each rung's own.

    Raises:
        InputError: an unknown name.
    """
    from ..inputs import InputError
    from ..ladder.pose import CHOICES

    if name is None or name.lower() in CHOICES:
        return None if name is None else name.lower()
    raise InputError(f"--dtype is {name!r}: use one of {', '.join(CHOICES)}")


def chosen_product_type(name: str | None) -> tuple[DType, Precision | None]:
    """The operands' type and the precision of a product that the library computes: also types that no rung is set.

    ``None`` for a name is fp32.

    Raises:
        InputError: an unknown name.
    """
    from ..dtypes import dtype_named
    from ..inputs import InputError
    from ..ladder.pose import CHOICES
    from ..ops.explain import CHOSEN_FOR

    key = "fp32" if name is None else name.strip().lower()
    if key in CHOICES:
        return CHOICES[key]
    if key in CHOSEN_FOR:
        return dtype_named(key), None
    raise InputError(f"--dtype is {name!r}: use one of {', '.join(dict.fromkeys((*CHOICES, *CHOSEN_FOR)))}")


def chosen_seed(text: str | None) -> int:
    """The seed given, or a new one.

    Raises:
        InputError: not a whole number from 0.
    """
    import secrets

    from ..inputs import InputError

    if text is None:
        return secrets.randbits(32)
    if not text.strip().isdecimal():
        raise InputError(f"--seed is {text!r}: give a whole number, 0 or more")
    return int(text)


def chosen_schedule(name: str | None) -> str:
    """When the simulator's asynchronous operations complete; "late" if nothing is said.

    Raises:
        InputError: an unknown schedule.
    """
    from ..inputs import InputError
    from ..sim import SCHEDULES

    schedule = "late" if name is None else name.strip().lower()
    if schedule not in SCHEDULES:
        raise InputError(f"--schedule is {name!r}: use one of {', '.join(SCHEDULES)}")
    return schedule


def chosen_scalar(name: str, text: str) -> float:
    """alpha or beta.

    Raises:
        InputError: not a finite number that fp32 holds.
    """
    import math

    from ..inputs import InputError

    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or abs(value) > 3.4028234e38:
        raise InputError(f"--{name} is {text!r}: give a finite number that fp32 holds, such as 0.5")
    return value
