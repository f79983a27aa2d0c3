"""What a problem, or a batch, asks of the Hopper kernels whatever their setting: the estimate's constant part."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...dtypes import FP32
from ...hardware import HOPPER_TENSOR_MHZ, Gpu
from ...problem import Problem
from ..batches import moved_bytes
from ..epilogue import activation_of
from .estimate import ACTIVATION_CLOCKS, Demand
from .prepare import copy_seconds
from .setup import Setup

__all__ = ["demand_of"]

SetUp = Callable[[Problem, bool], Setup | str]


def demand_of(problem: Problem, set_up: SetUp, swap: Any, gpu: Gpu) -> Demand:
    """For the problem set up with B in the place of A if ``swap``; arrays of both ways round where that is an array.

    What cannot be set up takes forever.
    """
    if isinstance(swap, np.ndarray):
        if not swap.any():
            return demand_of(problem, set_up, False, gpu)
        straight, turned = (demand_of(problem, set_up, way, gpu) for way in (False, True))
        return Demand(*(x if x == y else np.where(swap, y, x) for x, y in zip(straight, turned, strict=True)))
    setup = set_up(problem, swap)
    if isinstance(setup, str):
        k, in_registers, copies = problem.k, False, math.inf
    else:
        k, in_registers, copies = setup.problem.k, setup.a_in_registers, copy_seconds(setup.copies, gpu)
    m, n = (problem.n, problem.m) if swap else (problem.m, problem.n)
    dtype = problem.a.dtype
    peak = (gpu.peak("tf32" if dtype == FP32 else dtype.name) or 1.0) * 1e12
    return Demand(
        m, n, k, gpu.sms, dtype.bytes, problem.d.dtype.bytes, peak / gpu.sms / (1e6 * HOPPER_TENSOR_MHZ),
        moved_bytes(problem), 1e9 * gpu.dram_gbs, copies, in_registers, 4.0 * m * n * problem.batch,
        ACTIVATION_CLOCKS[activation_of(problem)],
    )  # fmt: skip
