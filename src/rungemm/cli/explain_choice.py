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
from ..kernels import LADDER
from ..ladder.record import Bounds, Resources
from ..ladder.resources import bounds_of, resources_of
from ..ops.dispatch import Decision, Option
from ..ops.explain import explain_dispatch, is_told
from ..ops.model import CUBLAS
from ..ops.table import table_of
from ..problem import LAYOUTS, Problem
from .common import chosen_product_type, out, print_json
from .explain_view import seconds_text
from .ladder_view import labelled, many, number, size

__all__ = ["explain_choice"]

SHOWN = 3
"""So many of the other options are told one by one; ``--json`` has all."""

BAR = 24
"""Characters of the longest bar."""


NOT_TIMED = "not timed"
"""The source of a rung's time in ``--json`` where there is none: see :func:`rungemm.ops.explain.is_told`."""


def explain_choice(
    shape: tuple[int, int, int, int], card: Gpu, arithmetic: str | None, layout: str, as_json: bool
) -> int:
    """Print the dispatcher's decision for dense operands, and the limits of the chosen kernel, or of our best.

    Args:
        shape: batch, M, N, K.
        arithmetic: what ``--dtype`` says; fp32 if nothing.

    Raises:
        InputError: an unknown layout or type.
    """
    if layout.upper() not in LAYOUTS:
        raise InputError(f"--layout is {layout!r}: use one of {', '.join(LAYOUTS)}")
    dtype, precision = chosen_product_type(arithmetic)
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


def _options(decision: Decision) -> tuple[list[Option], list[Option]]:
    """Those with a time to tell, fastest first, and those without, in the ladder's order."""
    order = {kernel.name: index for index, kernel in enumerate(LADDER)}
    told = [option for option in decision.options if is_told(decision, option)]
    untimed = [option for option in decision.options if not is_told(decision, option)]
    return told, sorted(untimed, key=lambda option: order.get(option.name, len(order)))


def _ours(decision: Decision) -> Option | None:
    """The kernel of ours that limits are told of: the chosen one, else the fastest of those with a time to tell."""
    if decision.chosen.is_ours:
        return decision.chosen
    told, untimed = _options(decision)
    return next((option for option in (*told, *untimed) if option.is_ours), None)


def _cublas_measured(decision: Decision) -> float | None:
    """Seconds that cuBLAS took on this very product on this card, where the table has them."""
    known = table_of(decision.gpu).find(decision.problem)
    return 1e-6 * known.cublas_us if known is not None and known.cublas_us > 0 else None


def _timed(decision: Decision, option: Option) -> str:
    """An option's time and where it comes from; of cuBLAS, the measured one beside the model's."""
    text = f"{seconds_text(option.seconds)} by {option.source}"
    measured = _cublas_measured(decision) if option.name == CUBLAS and option.source == "model" else None
    return text if measured is None else f"{text} ({seconds_text(measured)} measured)"


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
    """Where the time of our kernel goes; empty when there is none, or no time of it to tell."""
    if ours is None or resources is None or ours.plan is None or not is_told(decision, ours):
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
    told, untimed = _options(decision)

    def option(item: Option) -> dict[str, Any]:
        config = None if item.config is None else item.config.to_dict()
        told = is_told(decision, item)
        seconds, source = (item.seconds, item.source) if told else (None, NOT_TIMED)
        return {"name": item.name, "config": config, "seconds": seconds, "source": source}

    return {
        "batch": problem.batch, "m": problem.m, "n": problem.n, "k": problem.k, "dtype": problem.a.dtype.name,
        "precision": problem.precision, "layout": problem.layout, "card": decision.gpu.name,
        "chosen": option(chosen), "why": decision.why,
        "eager": None if decision.eager is None else option(decision.eager),
        "options": [option(item) for item in (*told, *untimed)], "cublas_measured_seconds": _cublas_measured(decision),
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
        which = "the fastest of ours, not chosen" if is_told(decision, ours) else "not called, as no rung here is"
        not_chosen = "" if ours is decision.chosen else f", {which}"
        console.print(f"\n[bold]{ours.name}[/bold]{not_chosen}")
        console.print(labelled(_limits(decision, ours, resources, trouble), console.width), end="",
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
        ("chosen", f"{chosen.name}, {_timed(decision, chosen)}: {decision.why}"),
    ]
    if chosen.config is not None:
        lines.append(("config", str(chosen.config)))
    if decision.eager is not None:
        lines.append(("eager", f"{decision.eager.name}: outside a CUDA graph the host's time decides"))
    told, untimed = _options(decision)
    others = [option for option in told if option is not chosen]
    for option in others[:SHOWN]:
        lines.append(("also", f"{option.name}, {_timed(decision, option)}"))
    if len(others) > SHOWN:
        slower = ", ".join(option.name for option in others[SHOWN:])
        lines.append(("slower", f"{slower}: {seconds_text(others[SHOWN].seconds)} and more"))
    if untimed:
        rungs = ", ".join(option.name for option in untimed)
        lines.append(("not called", f"{rungs}: rungs on the way up, unless measured to be the fastest"))
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


def _limits(decision: Decision, ours: Option, resources: Resources | None, trouble: str) -> list[tuple[str, str]]:
    problem, lines = decision.problem, []
    if is_told(decision, ours):
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
