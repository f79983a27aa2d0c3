"""``rungemm explain SHAPE``: which kernel the library would run for a product, what it would not and why, and how
near the card's limits that kernel can come."""

from __future__ import annotations

from typing import Any

from ..compiling import CompileError, compile_plan
from ..hardware import Gpu
from ..inputs import InputError
from ..ladder.pose import CHOICES
from ..ladder.record import Bounds, Resources
from ..ladder.resources import bounds_of, resources_of
from ..ops.dispatch import Decision
from ..ops.explain import describe, explain_dispatch
from ..problem import LAYOUTS
from .common import out, print_json
from .explain_view import seconds_text
from .ladder_view import labelled, many, number, size

__all__ = ["explain_choice"]


def explain_choice(shape: tuple[int, int, int], card: Gpu, arithmetic: str, layout: str, as_json: bool) -> int:
    """Print the dispatcher's decision for dense operands, and the chosen kernel's resources and limits.

    Raises:
        InputError: an unknown layout.
    """
    if layout.upper() not in LAYOUTS:
        raise InputError(f"--layout is {layout!r}: use one of {', '.join(LAYOUTS)}")
    dtype, precision = CHOICES[arithmetic]
    decision = explain_dispatch(shape, gpu=card, dtype=dtype, layout=layout.upper(), precision=precision)
    resources: Resources | None = None
    trouble = ""
    if decision.chosen.plan is not None:
        try:
            resources = resources_of(decision.chosen.plan, compile_plan(decision.chosen.plan, card.arch), card)
        except CompileError as error:
            trouble = f"does not compile for sm_{card.arch}: {error}"
    bounds = bounds_of(decision.problem, None, card)
    if as_json:
        print_json(_record(decision, resources, bounds, trouble))
    else:
        _show(decision, resources, bounds, trouble)
    return 1 if trouble else 0


def _record(decision: Decision, resources: Resources | None, bounds: Bounds, trouble: str) -> dict[str, Any]:
    from dataclasses import asdict

    problem, chosen = decision.problem, decision.chosen

    def option(item: Any) -> dict[str, Any]:
        config = None if item.config is None else item.config.to_dict()
        return {"name": item.name, "config": config, "seconds": item.seconds, "source": item.source}

    return {
        "m": problem.m, "n": problem.n, "k": problem.k, "dtype": problem.a.dtype.name, "precision": problem.precision,
        "layout": problem.layout, "card": decision.gpu.name, "chosen": option(chosen), "why": decision.why,
        "options": [option(item) for item in decision.options],
        "rejected": [{"name": name, "why": why} for name, why in decision.rejected],
        "resources": None if resources is None else asdict(resources), "bounds": asdict(bounds), "trouble": trouble,
    }  # fmt: skip


def _show(decision: Decision, resources: Resources | None, bounds: Bounds, trouble: str) -> None:
    from ..analysis import roofline_of

    console = out()
    lines = []
    for line in describe(decision):
        label, _, text = line.partition(" ")
        lines.append((label, text.strip()) if label != "after" else ("after", text.removeprefix("it").strip()))
    roof = roofline_of(decision.problem, decision.gpu)
    least = f"{seconds_text(roof.flops_seconds)} of arithmetic, {seconds_text(roof.bytes_seconds)} of memory traffic"
    lines.append(("least time", f"{least}; {bounds.bound}-bound at {number(bounds.intensity)} FLOP a byte"))
    lines.append(
        ("at most", f"{number(bounds.roof_tflops)} TFLOPS; the ridge is at {number(bounds.ridge)} FLOP a byte")
    )
    if resources is not None:
        lines.append(
            (
                "takes",
                f"{resources.registers} registers, {size(resources.shared_bytes)} shared memory; "
                f"{many(resources.blocks_per_sm, 'block')} an SM, {resources.occupancy:.0%} of the warps, "
                f"held by {resources.limiter}",
            )
        )
        lines.append(
            (
                "waves",
                f"{many(resources.programs, 'block')} in {many(resources.waves, 'wave')}, "
                f"{resources.wave_efficiency:.0%} of their slots at work",
            )
        )
    if trouble:
        lines.append(("trouble", trouble))
    console.print(labelled(lines, console.width), end="", soft_wrap=True)
