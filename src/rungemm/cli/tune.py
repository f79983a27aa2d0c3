"""``rungemm tune``: search a kernel's configs for a problem, and remember the fastest right one."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .common import GpuOption, JsonOption, chosen_card, chosen_rungs, err, no_card, out, print_json, why_no_gpu

if TYPE_CHECKING:
    from ..hardware import Gpu
    from ..kernels import Config, Kernel
    from ..problem import Problem
    from ..tune import Space

__all__ = ["seconds_of", "tune", "tuned_config"]


def tune(
    shape: Annotated[str, typer.Argument(metavar="SHAPE", help="MxNxK, as 4096x4096x4096.")],
    rung: Annotated[str, typer.Option("--rung", metavar="NAME", help="The kernel to tune.")] = "champion",
    dtype: Annotated[str, typer.Option("--dtype", help="fp32, fp16, bf16 ...")] = "fp32",
    precision: Annotated[str, typer.Option("--precision", help="For fp32: ieee, tf32 or tf32x3.")] = "ieee",
    layout: Annotated[str, typer.Option("--layout", help="NN, NT, TN or TT.")] = "NN",
    budget: Annotated[str, typer.Option("--budget", metavar="TIME", help="Time on the GPU, as 60s or 5m.")] = "60s",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Prune and compile only; needs no GPU.")] = False,
    show_pruned: Annotated[bool, typer.Option("--show-pruned", help="Print every config ruled out, and why.")] = False,
    gpu: GpuOption = None,
    save: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write all of it as JSON.")] = None,
    as_json: JsonOption = False,
) -> int:  # fmt: skip
    """Find a kernel's fastest config for a problem: prune, compile in parallel, time in rounds, drop losers early.

    The winner is checked against float64, measured against cuBLAS, and kept in this user's database, where the
    dispatcher and rungemm bench find it; it counts for this card, this Triton and this kernel's source only.

    \b
    Example: rungemm tune 8192x8192x4096 --rung vectorised --budget 60s
    """
    from ..bench.contenders import champion_for
    from ..bench.suites import parse_shape
    from ..dtypes import dtype_named
    from ..inputs import InputError
    from ..problem import PRECISIONS

    if precision not in PRECISIONS:
        raise InputError(f"--precision is {precision!r}: use one of {', '.join(PRECISIONS)}")
    card, here = chosen_card(gpu)
    try:
        problem = parse_shape(shape).problem(dtype_named(dtype), layout.upper(), precision)  # type: ignore[arg-type]
        kernels = [champion_for(problem, card)] if rung == "champion" else chosen_rungs(rung)
    except ValueError as error:
        raise InputError(str(error)) from None
    if len(kernels) != 1:
        raise InputError(f"--rung {rung!r} names {len(kernels)} rungs: give one, such as {kernels[0].name}")
    (kernel,) = kernels
    seconds = seconds_of("--budget", budget)
    if dry_run:
        return _dry(kernel, problem, card, show_pruned, as_json)
    return _tune(kernel, problem, card, here, seconds, show_pruned, save, as_json)


def seconds_of(option: str, text: str) -> float:
    """Seconds of "60", "60s", "5m" or "1h".

    Raises:
        InputError: not of that form, or not above 0.
    """
    from ..inputs import InputError

    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smh]?)\s*", text.lower())
    if match is None or float(match[1]) <= 0:
        raise InputError(f"{option} is {text!r}: give a time above 0, as 60s, 5m or 1h")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


def tuned_config(kernel: Kernel[Any], problem: Problem, gpu: Gpu) -> Config | None:
    """The config that this user's database has for the problem, or ``None``."""
    from ..tune import TuningDatabase

    tuned = TuningDatabase().load(kernel, problem, gpu)
    return tuned.config if tuned is not None else None


def _dry(kernel: Kernel[Any], problem: Problem, card: Gpu, show_pruned: bool, as_json: bool) -> int:
    """What is left of the space on paper."""
    from ..tune import by_predicate, by_resources
    from .ladder_view import many, size

    with err().status(f"listing configs of {kernel.name}") as status:
        space = by_resources(
            by_predicate(kernel, problem, card), card,
            on_done=lambda done, total: status.update(f"compiled {done} of {total}"),
        )  # fmt: skip
    if as_json:
        print_json(_space_record(kernel, problem, card, space))
        return 0
    console = out()
    total = len(space.candidates) + len(space.pruned)
    console.print(f"{kernel.name} on {problem} for {card.title}: {len(space.candidates)} of {total} configs left")
    for candidate in space.candidates:
        spilled = f"{size(candidate.spill_bytes)} spilled, " if candidate.spill_bytes else ""
        _print_wrapped(
            f"{_short(candidate.config)}: {candidate.registers} registers, {spilled}"
            f"{size(candidate.shared_bytes or 0)} shared, {many(candidate.blocks_per_sm or 0, 'block')} an SM"
        )
    _print_pruned(space, show_pruned)
    return 0


def _tune(
    kernel: Kernel[Any], problem: Problem, card: Gpu, here: bool, seconds: float, show_pruned: bool,
    save: Path | None, as_json: bool,
) -> int:  # fmt: skip
    from ..bench.environment import describe_environment
    from ..bench.store import write_json
    from ..hardware import detect_gpu
    from ..inputs import InputError
    from ..tune import tune as run
    from ..tune.report import tuning_lines, tuning_record

    at_hand = detect_gpu()
    if at_hand is not None and not here:
        raise InputError(
            f"tune times on the card here, {at_hand.title}, not on {card.title}: leave --gpu out; "
            f"--dry-run prunes and compiles for any"
        )
    missing = why_no_gpu() or (None if here else no_card())
    if missing is not None:
        raise InputError(
            f"tune times on a GPU, and there is none to use: {missing}; --dry-run prunes and compiles without one"
        )
    with err().status("starting") as status:
        result = run(kernel, problem, card, budget_s=seconds, say=lambda text: status.update(text))
    record = tuning_record(result)
    if save is not None:
        write_json(save, {"schema": "rungemm.tune", "version": 1, "environment": describe_environment(card.name),
                          "tunings": [record]})  # fmt: skip
    if as_json:
        print_json(record)
        return 0
    for line in tuning_lines(result):
        out().print(line, soft_wrap=True, markup=False)
    _print_pruned(result.space, show_pruned)
    return 0


def _print_pruned(space: Space, every: bool) -> None:
    """Every config ruled out with its reason, or how many for each kind of reason."""
    if not space.pruned:
        return
    if every:
        for item in space.pruned:
            _print_wrapped(f"ruled out: {_short(item.config)}: {item.reason}")
        return
    kinds: dict[str, list[str]] = {}
    for item in space.pruned:
        kinds.setdefault(re.sub(r"\d+", "0", item.reason), []).append(item.reason)
    for reasons in sorted(kinds.values(), key=len, reverse=True):
        _print_wrapped(f"{len(reasons)} ruled out: {merged(reasons)}")


def merged(reasons: Sequence[str]) -> str:
    """One sentence for several that differ in their numbers only, each number the range of theirs: "spills 8 to 96"."""
    numbers = [[int(digits) for digits in re.findall(r"\d+", reason)] for reason in reasons]
    ranges = iter([(min(column), max(column)) for column in zip(*numbers, strict=True)])

    def text(_: re.Match[str]) -> str:
        low, high = next(ranges)
        return str(low) if low == high else f"{low} to {high}"

    return re.sub(r"\d+", text, reasons[0])


def _short(config: Config) -> str:
    """The config's label where its kernel has one, else its fields."""
    return str(getattr(config, "label", config))


def _print_wrapped(text: str) -> None:
    console = out()
    lines = textwrap.wrap(text, console.width, initial_indent="  ", subsequent_indent="      ", break_on_hyphens=False)
    console.print("\n".join(lines), soft_wrap=True, markup=False)


def _space_record(kernel: Kernel[Any], problem: Problem, card: Gpu, space: Space) -> dict[str, Any]:
    return {
        "kernel": kernel.name,
        "problem": str(problem),
        "gpu": card.name,
        "candidates": [
            {
                "config": item.config.to_dict(),
                "registers": item.registers,
                "spill_bytes": item.spill_bytes,
                "shared_bytes": item.shared_bytes,
                "blocks_per_sm": item.blocks_per_sm,
            }
            for item in space.candidates
        ],
        "pruned": [{"config": item.config.to_dict(), "reason": item.reason} for item in space.pruned],
    }
