"""What measurements near a problem say of the model's word on it.

The model errs much the same on problems that are alike: cuBLAS's cliffs, a launch's cost, a cold cache. So each
measured problem of the same arithmetic and alignment gives an error, the logarithm of the measured ratio of cuBLAS's
time to ours over the model's ratio for the same config, and their mean, weighted by nearness, is added to the model's
word on a problem that was not measured. Where they disagree among themselves, or are far, a larger gain is asked for.

A neighbour's ratio alone would say nothing of the config that is called here, and the nearest alone says too much: one
config that did badly is no news of another, and the error of a roofline is smoother than the ratio that it foretells.
The constants were chosen by tools/leave_one_out.py, among many that did nearly as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import numpy as np

from ..dtypes import dtype_named
from ..hardware import Gpu
from ..kernels import Config, Kernel
from ..problem import Precision, Problem
from .model import cublas_seconds
from .table import Class, Entry, Shape, Table, class_of

__all__ = ["UNKNOWN_GAIN", "Expectation", "config_of", "expectation"]

REACH = 0.8
"""A neighbour's weight falls by e for so much distance: binary logarithms by which the extents differ, added up."""

OTHER_LAYOUT = 0.3
"""The distance between two layouts, or two types of D."""

LEAST = 16
"""Fewer rows, columns or steps than this are as many as this: a tile has no fewer."""

DOUBT = 0.2
"""The weight of the model's own word."""

UNKNOWN_GAIN = 0.22
"""The logarithm of the gain to ask for where nothing was measured near: 25%."""

DISAGREEMENT = 0.7
"""What of the neighbours' standard deviation is asked for on top."""

NAMED = 1.2
"""The nearest neighbour is named in an explanation up to this distance."""


@dataclass(frozen=True)
class Expectation:
    """What to make of the model's word on a problem.

    Attributes:
        correction: to add to the logarithm of cuBLAS's seconds over ours.
        needed: what this must come to, for ours to be called.
        nearest: extents of the nearest measured problem, if it is near.
    """

    correction: float
    needed: float
    nearest: str | None


NOTHING_KNOWN = Expectation(0.0, UNKNOWN_GAIN, None)

Arithmetic = tuple[int, str, bool]


@dataclass(frozen=True)
class Errors:
    """The model's errors on the measured problems of one arithmetic, an element of each array for a problem.

    Attributes:
        shapes: extents (batch, M, N, K) by row, none but the batch shorter than :data:`LEAST`.
        layouts: as :data:`.table.Class` has them.
        same_types: D's type is A's.
        errors: logarithms.
        names: the extents, for explanations.
    """

    shapes: np.ndarray
    layouts: np.ndarray
    same_types: np.ndarray
    errors: np.ndarray
    names: tuple[str, ...]

    def distances(self, kind: Class, shape: Shape) -> np.ndarray:
        """Of a problem from each."""
        away = np.abs(np.log2(_long_enough(shape) / self.shapes)).sum(axis=1)
        return away + OTHER_LAYOUT * ((self.layouts != kind[3]) + 1.0 * (self.same_types != (kind[0] == kind[1])))


def expectation(kernel: Kernel, problem: Problem, gpu: Gpu, table: Table) -> Expectation:
    """What the measured neighbours of a problem (without epilogue) say; a kernel without an estimate has none."""
    kind, shape = class_of(problem), (problem.batch, problem.m, problem.n, problem.k)
    known = _errors(kernel, gpu, table).get(_arithmetic(kind))
    if known is None:
        return NOTHING_KNOWN
    away = known.distances(kind, shape)
    weight = np.exp(-away / REACH)
    weights = float(weight.sum())
    if weights == 0.0:
        return NOTHING_KNOWN
    total = float(weight @ known.errors)
    spread = math.sqrt(float(weight @ (known.errors - total / weights) ** 2) / weights)
    needed = UNKNOWN_GAIN * DOUBT / (weights + DOUBT) + DISAGREEMENT * spread
    nearest = int(np.argmin(away))
    return Expectation(total / (weights + DOUBT), needed, known.names[nearest] if away[nearest] < NAMED else None)


def config_of(kernel: Kernel, entry: Entry) -> Config | None:
    """An entry's config, unless the kernel has changed its fields since."""
    try:
        return kernel.config_type.from_dict(entry.config)
    except (TypeError, ValueError):
        return None


@lru_cache(maxsize=64)
def _errors(kernel: Kernel, gpu: Gpu, table: Table) -> dict[Arithmetic, Errors]:
    """The model's error on every entry of the kernel."""
    found: dict[Arithmetic, list[tuple[Class, Shape, float]]] = {}
    for kind, shape, error in _each_error(kernel, gpu, table):
        found.setdefault(_arithmetic(kind), []).append((kind, shape, error))
    return {
        arithmetic: Errors(
            np.array([_long_enough(shape) for _, shape, _ in each]), np.array([kind[3] for kind, _, _ in each]),
            np.array([kind[0] == kind[1] for kind, _, _ in each]), np.array([error for _, _, error in each]),
            tuple("x".join(map(str, shape[1:])) for _, shape, _ in each),
        )
        for arithmetic, each in found.items()
    }  # fmt: skip


def _long_enough(shape: Shape) -> np.ndarray:
    batch, *extents = shape
    return np.array([batch, *(max(extent, LEAST) for extent in extents)], dtype=float)


def _each_error(kernel: Kernel, gpu: Gpu, table: Table) -> Iterator[tuple[Class, Shape, float]]:
    estimate = getattr(kernel, "estimate", None)
    if estimate is None:
        return
    for kind, shape, entry in table.entries():
        config = config_of(kernel, entry) if entry.kernel == kernel.name else None
        if config is None or 0 in shape or entry.ratio <= 0:
            continue
        problem = _problem(kind, shape)
        if kernel.supports(problem, config, gpu) is None:
            promised = cublas_seconds(problem, gpu) / estimate(problem, config, gpu)
            yield kind, shape, math.log(entry.ratio / promised)


def _problem(kind: Class, shape: Shape) -> Problem:
    dtype, out, precision, layout, _, reads_c = kind
    batch, m, n, k = shape
    return Problem.dense(
        m, n, k, dtype=dtype_named(dtype), out_dtype=dtype_named(out), layout=layout, batch=batch,
        beta=1.0 if reads_c else 0.0, precision=cast(Precision, precision),
    )  # fmt: skip


def _arithmetic(kind: Class) -> Arithmetic:
    """fp16 and bf16 are multiplied alike."""
    return dtype_named(kind[0]).bits, kind[2], kind[4]

