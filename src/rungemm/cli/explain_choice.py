"""``rungemm explain SHAPE``: which kernel the library would run for a product or a batch, what it would not and why,
how near the card's limits that kernel can come, and where its time goes."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any

from ..analysis import Part, roofline_of, time_budget
from ..compiling import CompileError, compile_plan
from ..hardware import Gpu
from ..inputs import InputError
from ..ladder.pose import CHOICES
from ..ladder.record import Bounds, Resources
from ..ladder.resources import bounds_of, resources_of
from ..ops.dispatch import Decision, Option
from ..ops.explain import explain_dispatch
from ..problem import LAYOUTS, Problem
from .common import out, print_json
from .explain_view import seconds_text
from .ladder_view import labelled, many, number, size

__all__ = ["explain_choice"]

SHOWN = 3
"""So many of the other options are told one by one; ``--json`` has all."""

BAR = 24
"""Characters of the longest bar."""


def explain_choice(shape: tuple[int, int, int, int], card: Gpu, arithmetic: str, layout: str, as_json: bool) -> int:
    """Print the dispatcher's decision for dense operands, and the limits of the chosen kernel, or of our best.

    Args:
        shape: batch, M, N, K.

    Raises:
        InputError: an unknown layout.
    """
    if layout.upper() not in LAYOUTS:
        raise InputError(f"--layout is {layout!r}: use one of {', '.join(LAYOUTS)}")
    dtype, precision = CHOICES[arithmetic]
    decision = explain_dispatch(shape, gpu=card, dtype=dtype, layout=layout.upper(), precision=precision)
    ours = _ours(decision)
    resources: Resources | None = None
    trouble = ""
    if ours is not None and ours.plan is not None:
        try:
            resources = resources_of(ours.plan, compile_plan(ours.plan, card.arch), card)
        except CompileError as error:
            trouble = f"{ours.name} does not compile for sm_{card.arch}: {error}"
    bounds = bounds_of(decision.problem, None, card)
    budget = _budget(decision, ours, resources)
    if as_json:
        print_json(_record(decision, ours, resources, bounds, budget, trouble))
    else:
        _show(decision, ours, resources, bounds, budget, trouble)
    return 1 if trouble else 0


def _ours(decision: Decision) -> Option | None:
    """The kernel of ours that limits are told of: the chosen one, else the fastest of the others."""
    if decision.chosen.is_ours:
        return decision.chosen
    return next((option for option in decision.options if option.is_ours), None)


def _tile(option: Option) -> tuple[int, int] | None:
    data = option.config.to_dict() if option.config is not None else {}
    if not {"tile_m", "tile_n"} <= data.keys():
        return None
    tile = (int(data["tile_m"]), int(data["tile_n"]))
    return (tile[1], tile[0]) if data.get("swap") else tile


def _wave_efficiency(problem: Problem, option: Option, resources: Resources) -> float:
    """Of blocks, or of tiles where a few blocks each walk several; 1 where the last wave's work is shared out."""
    if getattr(option.config, "stream", False):
        return 1.0
    tile = _tile(option)
    if tile is not None:
        tiles = -(-problem.m // tile[0]) * -(-problem.n // tile[1]) * problem.batch
        if tiles > resources.programs:
            return tiles / (-(-tiles // resources.programs) * resources.programs)
    return resources.wave_efficiency


def _budget(decision: Decision, ours: Option | None, resources: Resources | None) -> list[Part]:
    """Where the time of our kernel goes; empty when there is none."""
    if ours is None or resources is None or ours.plan is None:
        return []
    scratch = sum(space.elements * space.dtype.bytes for space in ours.plan.workspaces)
    return time_budget(
        ours.seconds, decision.problem, decision.gpu, tile=_tile(ours),
        wave_efficiency=_wave_efficiency(decision.problem, ours, resources), launches=len(ours.plan.launches),
        scratch_bytes=scratch,
    )  # fmt: skip


def _record(
    decision: Decision, ours: Option | None, resources: Resources | None, bounds: Bounds, budget: list[Part],
    trouble: str,
) -> dict[str, Any]:  # fmt: skip
    problem, chosen = decision.problem, decision.chosen

    def option(item: Option) -> dict[str, Any]:
        config = None if item.config is None else item.config.to_dict()
        return {"name": item.name, "config": config, "seconds": item.seconds, "source": item.source}

    return {
        "batch": problem.batch, "m": problem.m, "n": problem.n, "k": problem.k, "dtype": problem.a.dtype.name,
        "precision": problem.precision, "layout": problem.layout, "card": decision.gpu.name,
        "chosen": option(chosen), "why": decision.why,
        "eager": None if decision.eager is None else option(decision.eager),
        "options": [option(item) for item in decision.options],
        "rejected": [{"name": name, "why": why} for name, why in decision.rejected],
        "limits_of": None if ours is None else ours.name,
        "resources": None if resources is None else asdict(resources), "bounds": asdict(bounds),
        "time": [asdict(part) for part in budget], "trouble": trouble,
    }  # fmt: skip


def _show(
    decision: Decision, ours: Option | None, resources: Resources | None, bounds: Bounds, budget: list[Part],
    trouble: str,
) -> None:  # fmt: skip
    console = out()
    console.print(labelled(_choice(decision), console.width), end="", soft_wrap=True)
    console.print("\n[bold]The card[/bold]")
    console.print(labelled(_card(decision, bounds), console.width), end="", soft_wrap=True)
    if ours is not None:
        not_chosen = "" if ours is decision.chosen else ", the fastest of ours, not chosen"
        console.print(f"\n[bold]{ours.name}[/bold]{not_chosen}")
        console.print(labelled(_limits(decision.problem, ours, resources, trouble), console.width), end="",
                      soft_wrap=True)  # fmt: skip
    if budget and ours is not None:
        console.print(f"\n[bold]Where its {seconds_text(ours.seconds)} go[/bold], by {ours.source}")
        longest = max(part.seconds for part in budget)
        for part in sorted(budget, key=lambda part: -part.seconds):
            bar = "█" * max(1, round(BAR * part.seconds / longest))
            share = part.seconds / ours.seconds
            console.print(f"{seconds_text(part.seconds):>10} {share:>4.0%} {bar:<{BAR}} {part.what}", highlight=False,
                          soft_wrap=True)  # fmt: skip


def _choice(decision: Decision) -> list[tuple[str, str]]:
    problem, chosen = decision.problem, decision.chosen
    lines = [
        ("problem", f"{problem} on {decision.gpu.title}"),
        ("chosen", f"{chosen.name}, {seconds_text(chosen.seconds)} by {chosen.source}: {decision.why}"),
    ]
    if chosen.config is not None:
        lines.append(("config", str(chosen.config)))
    if decision.eager is not None:
        lines.append(("eager", f"{decision.eager.name}: outside a CUDA graph the host's time decides"))
    others = [option for option in decision.options if option is not chosen]
    for option in others[:SHOWN]:
        lines.append(("also", f"{option.name}, {seconds_text(option.seconds)} by {option.source}"))
    if len(others) > SHOWN:
        slower = ", ".join(option.name for option in others[SHOWN:])
        lines.append(("slower", f"{slower}: {seconds_text(others[SHOWN].seconds)} and more"))
    grouped: dict[str, list[str]] = {}
    for name, why in decision.rejected:
        grouped.setdefault(why.removeprefix(f"{name} "), []).append(name)
    for why, names in grouped.items():
        if len(names) > 1:
            why = re.sub(r"^(takes|needs|computes)\b", lambda verb: verb[0][:-1], why)
        lines.append(("rejected", f"{', '.join(names)}: {why}"))
    return lines


def _card(decision: Decision, bounds: Bounds) -> list[tuple[str, str]]:
    roof = roofline_of(decision.problem, decision.gpu)
    return [
        ("least time", f"{seconds_text(roof.flops_seconds)} of arithmetic, {seconds_text(roof.bytes_seconds)} of "
                       f"memory traffic: {bounds.bound}-bound"),
        ("roof", f"{number(bounds.roof_tflops)} TFLOPS at {number(bounds.intensity)} FLOP a byte; the ridge is at "
                 f"{number(bounds.ridge)}"),
    ]  # fmt: skip


def _limits(problem: Problem, ours: Option, resources: Resources | None, trouble: str) -> list[tuple[str, str]]:
    lines = []
    rate = problem.flops / ours.seconds / 1e12
    lines.append(("speed", f"{number(rate)} TFLOPS, {seconds_text(ours.seconds)} by {ours.source}"))
    if resources is not None:
        takes = f"{resources.registers} registers, {size(resources.shared_bytes)} shared memory"
        fits = f"{many(resources.blocks_per_sm, 'block')} an SM, {resources.occupancy:.0%} of the warps"
        lines.append(("takes", f"{takes}; {fits}, held by {resources.limiter}"))
        tile = _tile(ours)
        if tile is not None:
            tiles = -(-problem.m // tile[0]) * -(-problem.n // tile[1])
            each = f" in each of {many(problem.batch, 'product')}" if problem.batch > 1 else ""
            lines.append(("tiles", f"{many(tiles, 'tile')} of {tile[0]}x{tile[1]}{each}"))
        filled = _wave_efficiency(problem, ours, resources)
        blocks, waves = many(resources.programs, "block"), many(resources.waves, "wave")
        lines.append(("waves", f"{blocks} in {waves}; {filled:.0%} of the slots at work"))
    if trouble:
        lines.append(("trouble", trouble))
    return lines
