"""What was measured: the champion's fastest setting for each problem that was timed, shipped as JSON for each card.

``tuned_<card>.json`` is generated from measurements by tools/tuned_hopper.py and never edited. A problem that is not in
it borrows its nearest neighbour's setting, if that is near; the model (:mod:`.estimate`) has a say in that case.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ...hardware import Gpu
from ...problem import Problem
from .operands import operand_of

__all__ = ["FORMAT", "Tuned", "entries", "kind_of", "nearest", "path_for"]

FORMAT = 2

NEAR = 0.75
"""Neighbours count up to this distance: the sum of the binary logarithms by which M, N and K differ."""

OTHER_LAYOUT = 0.1
"""16-bit operands multiply alike whichever way they lie, so another layout's entry counts, a little further away."""


@dataclass(frozen=True)
class Tuned:
    """One entry: the problem it was measured on, the setting as :meth:`Config.to_dict` wrote it, cuBLAS's time over its
    own, its own in microseconds, and the file of the measurement."""

    bits: int
    precision: str
    layout: str
    copied: bool
    m: int
    n: int
    k: int
    config: dict[str, Any]
    ratio: float
    us: float
    source: str


def kind_of(problem: Problem) -> tuple[int, str, str, bool]:
    """Bits of an element, precision, layout, and whether an operand must be copied before TMA can move it."""
    copied = any(isinstance(operand_of("A", matrix), str) for matrix in (problem.a, problem.b))
    return problem.a.dtype.bits, problem.precision if problem.a.dtype.bits == 32 else "", problem.layout, copied


def path_for(gpu: Gpu) -> Path:
    return Path(__file__).parent / f"tuned_{gpu.name}.json"


@cache
def entries(path: Path) -> tuple[Tuned, ...]:
    """All of a file, read once."""
    if not path.exists():
        return ()
    document = json.loads(path.read_text(encoding="utf-8"))
    if document["format"] != FORMAT:
        raise ValueError(f"{path} has format {document['format']}, not {FORMAT}: make it again, tools/tuned_hopper.py")
    return tuple(Tuned(**entry) for entry in document["entries"])


def _distance(problem: Problem, kind: tuple[int, str, str, bool], entry: Tuned) -> float:
    bits, precision, layout, copied = kind
    if (bits, precision, copied) != (entry.bits, entry.precision, entry.copied):
        return math.inf
    away = 0.0
    if layout != entry.layout and not copied:
        if bits == 32:
            return math.inf
        away = OTHER_LAYOUT
    pairs = ((problem.m, entry.m), (problem.n, entry.n), (problem.k, entry.k))
    return away + sum(abs(math.log2(ours / theirs)) for ours, theirs in pairs)


def nearest(problem: Problem, gpu: Gpu, worth: float = 0.0) -> tuple[Tuned, bool] | None:
    """The nearest entry and whether its extents are the problem's own; ``None`` where nothing near was measured.

    A neighbour counts only with a ratio of at least ``worth``.
    """
    if problem.is_empty or problem.k == 0:
        return None
    kind = kind_of(problem)
    extents = problem.m, problem.n, problem.k

    def distance(entry: Tuned) -> float:
        usable = entry.ratio >= worth or (entry.m, entry.n, entry.k) == extents
        return _distance(problem, kind, entry) if usable else math.inf

    best = min(entries(path_for(gpu)), key=distance, default=None)
    if best is None or distance(best) > NEAR:
        return None
    return best, (best.m, best.n, best.k) == extents
