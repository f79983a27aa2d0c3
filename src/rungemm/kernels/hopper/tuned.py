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

REACH = 1.001 * 2**NEAR
"""By which one extent alone can differ: most entries need no logarithm."""

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


def nearest(problem: Problem, gpu: Gpu, worth: float = 0.0) -> tuple[Tuned, bool] | None:
    """The nearest entry and whether its extents are the problem's own; ``None`` where nothing near was measured.

    A neighbour counts only with a ratio of at least ``worth``.
    """
    if problem.is_empty or problem.k == 0:
        return None
    bits, precision, layout, copied = kind_of(problem)
    m, n, k = problem.m, problem.n, problem.k
    best, least = None, math.inf
    fewest, most = n / REACH, n * REACH
    for entry in entries(path_for(gpu)):
        if not fewest < entry.n < most or (entry.bits, entry.precision, entry.copied) != (bits, precision, copied):
            continue
        away = sum(abs(math.log2(ours / theirs)) for ours, theirs in ((m, entry.m), (n, entry.n), (k, entry.k)))
        if layout != entry.layout and not copied:
            away = math.inf if bits == 32 else OTHER_LAYOUT + away
        usable = entry.ratio >= worth or (entry.m, entry.n, entry.k) == (m, n, k)
        if usable and away <= NEAR and away < least:
            best, least = entry, away
    return None if best is None else (best, (best.m, best.n, best.k) == (m, n, k))
