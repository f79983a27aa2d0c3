"""A tuning's outcome as plain data and as lines of text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..bench.guard import tflops_of
from ..bench.statistics import spread_of
from ..bench.store import measurement_record
from .database import problem_class
from .tuner import Tuning, resources_of

__all__ = ["tuning_lines", "tuning_record"]


def tuning_record(tuning: Tuning) -> dict[str, Any]:
    """Everything, for a JSON file: the winner, every timing, what was ruled out and why, the final's raw samples."""
    best = tuning.best
    return {
        "kernel": tuning.kernel.name,
        "problem": problem_class(tuning.problem),
        "gpu": tuning.gpu.name,
        "config": best.config.to_dict() if best else None,
        "us": 1e6 * best.seconds if best else None,
        "tflops": tflops_of(tuning.problem, best.seconds) if best else None,
        "ratio": best.ratio if best else None,
        "error": best.error if best else None,
        "date": best.date if best else None,
        "wall_s": round(tuning.wall_s, 1),
        "notes": tuning.notes,
        "timings": best.timings if best else [],
        "failures": tuning.failures,
        "pruned": [{"config": item.config.to_dict(), "reason": item.reason} for item in tuning.space.pruned],
        "final": measurement_record(tuning.final, "tune") if tuning.final else None,
    }


def tuning_lines(tuning: Tuning) -> Iterator[str]:
    """The final's table, fastest first, then the notes."""
    space, final = tuning.space, tuning.final
    yield (
        f"{tuning.kernel.name} on {tuning.problem}: {len(space.candidates) + len(space.pruned)} configs, "
        f"{len(space.pruned)} ruled out, {len(tuning.survey.seconds)} timed, {len(tuning.failures)} failed, "
        f"{tuning.wall_s:.0f} s"
    )
    if final is None:
        return
    by_text = {str(candidate.config): candidate.config for candidate in space.candidates}
    right = [name for name, lane in final.lanes.items() if lane.failure is None]
    for name in sorted(right, key=lambda name: spread_of(final.lanes[name].seconds).median):
        lane = final.lanes[name]
        candidate = resources_of(space, by_text[name]) if name in by_text else None
        takes = f"{candidate.registers} registers, {candidate.shared_bytes} B shared" if candidate else ""
        ratio = final.ratio(next(iter(final.lanes)), name)
        versus = f"{ratio.value:.3f}x" if ratio else ""
        error = lane.checked.error if lane.checked else float("nan")
        yield f"  {lane.tflops or 0:8.2f} TFLOPS  {versus:>8}  error {error:.1e}  {name}  {takes}"
    yield from (f"  note: {note}" for note in tuning.notes)
