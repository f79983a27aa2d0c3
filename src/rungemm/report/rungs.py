"""What every rung takes and asks for, without a GPU: compiled resources, and traffic counted by the simulator.

Each rung is posed the ladder's first product in every arithmetic that it takes, compiled for the card and counted on
one full tile (:func:`rungemm.ladder.counting.count_tile`). The rows are kept beside the measurements, as
``results/<card>/rungs.json``, since counting takes a minute or two.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..bench.store import StoreError, write_json
from ..compiling import CompileError, compile_many
from ..dtypes import dtype_named
from ..hardware import Gpu
from ..kernels import LADDER, Unsupported, find_kernel
from ..ladder.counting import count_tile
from ..ladder.pose import CHOICES, Posed
from ..ladder.resources import bounds_of, resources_of
from ..problem import Problem

__all__ = ["ARITHMETIC", "FILE", "SIZE", "count_rungs", "is_current", "load_rungs", "posed_rungs", "write_rungs"]

FILE = "rungs.json"
SIZE = 4096
ARITHMETIC: dict[str, str] = {"fp32": "NN", "tf32": "NT", "bf16": "NT", "fp16": "NT"}
"""What is posed, and in which layout: that of the ladder's measurements."""

_COUNTS = (
    "counted_on", "loads_per_c", "shared_loads_per_c", "sector_bytes_per_c", "wavefronts_per_c", "conflicts_per_c",
)  # fmt: skip


def posed_rungs(card: Gpu) -> list[Posed]:
    """Every rung with every arithmetic that it takes, at its default config."""
    found = []
    for name, layout in ARITHMETIC.items():
        dtype, precision = CHOICES[name]
        problem = Problem.dense(SIZE, SIZE, SIZE, dtype=dtype, layout=layout, precision=precision)
        for kernel in LADDER:
            try:
                config = kernel.default_config(problem, card)
                found.append(Posed(kernel, problem, config, kernel.plan(problem, config, card)))
            except Unsupported:
                continue
    return found


def stands_for_all(item: Posed, card: Gpu) -> bool:
    """Whether one tile asks for what every other one does: not where several programs of one launch share a tile.

    Stream K gives every program an equal share of all steps along K. Of a single tile each gets a sliver, and the sums
    outweigh the operands; of a full grid a program shares no more than its first and its last tile.
    """
    tile = item.config.to_dict()
    problem = item.problem
    small = Problem.dense(
        tile.get("tile_m", 128), tile.get("tile_n", 128), problem.k, dtype=problem.a.dtype, layout=problem.layout,
        precision=problem.precision,
    )  # fmt: skip
    try:
        plan = item.kernel.plan(small, item.config, card)
    except Unsupported:
        return True
    return len(plan.launches) > 1 or plan.launches[0].programs == 1


def count_rungs(
    card: Gpu, *, say: Callable[[str], None] | None = None
) -> tuple[list[dict[str, Any]], list[CompileError]]:
    """A row for every rung and arithmetic: config, resources, counts for one element of C, and what they allow.

    What does not compile has no row; its errors come second.
    """
    tell = say or (lambda _: None)
    posed = posed_rungs(card)
    tell(f"compiling {len(posed)} kernels")
    compiled = compile_many([(item.plan, card.arch) for item in posed])
    rows, failures = [], []
    for number, (item, result) in enumerate(zip(posed, compiled, strict=True), start=1):
        if isinstance(result, CompileError):
            failures.append(result)
            continue
        problem = item.problem
        tell(f"{number} of {len(posed)}: counting {item.kernel.name} on a tile of {problem}")
        counts = count_tile(item, card) if stands_for_all(item, card) else None
        resources = resources_of(item.plan, result, card)
        bounds = bounds_of(problem, counts, card)
        rows.append(
            {
                "kernel": item.kernel.name,
                "dtype": problem.a.dtype.name,
                "precision": problem.precision,
                "layout": problem.layout,
                "m": problem.m,
                "n": problem.n,
                "k": problem.k,
                "config": item.config.to_dict(),
                "resources": None if resources is None else asdict(resources),
                "counts": None if counts is None else {name: getattr(counts, name) for name in _COUNTS},
                "bounds": asdict(bounds),
            }
        )
    return rows, failures


def is_current(row: dict[str, Any], card: Gpu) -> bool:
    """Whether the row's config is still the one that its rung takes by default."""
    try:
        dtype = dtype_named(row["dtype"])
        problem = Problem.dense(
            row["m"], row["n"], row["k"], dtype=dtype, layout=row["layout"], precision=row["precision"]
        )
        return find_kernel(row["kernel"]).default_config(problem, card).to_dict() == row["config"]
    except ValueError:  # the rung is gone, or takes it no more
        return False


def write_rungs(
    folder: Path, card: Gpu, *, say: Callable[[str], None] | None = None
) -> tuple[Path, list[CompileError]]:
    """Count, and write ``folder/rungs.json``; returns its path and what did not compile."""
    path = folder / FILE
    rows, failures = count_rungs(card, say=say)
    write_json(path, rows)
    return path, failures


def load_rungs(folder: Path) -> list[dict[str, Any]]:
    """The rows of ``folder/rungs.json``; none if it was never made.

    Raises:
        StoreError: it is not JSON, or no list of rows.
    """
    path = folder / FILE
    if not path.exists():
        return []
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise StoreError(f"{path} is not JSON ({error}): make it anew with rungemm report {folder} --count") from None
    if not isinstance(rows, list) or not all(isinstance(row, dict) and "kernel" in row for row in rows):
        raise StoreError(f"{path} is no list of rungs: make it anew with rungemm report {folder} --count")
    return rows
