"""How long a product should take, on paper: where nothing was measured, this is what the dispatcher begins with.

Ours by a kernel's own estimate where it has one, else as rounds of tiles (:mod:`..analysis.waves`: 133 tiles on 132 SMs
cost two rounds) at the share of the card's peak that the kernel reaches in a full one. cuBLAS as the best of several
tiles, K split where they are few: the constants are fitted to cuBLAS's times for 165 problems on an H200 (results/),
which they give back within 8% in the root mean square, fp32 and 16 bits. :mod:`.neighbours` sets both right by what was
measured near.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ..analysis import peak_kind
from ..hardware import Gpu
from ..kernels import Config, Kernel
from ..problem import Problem

__all__ = [
    "CHAMPIONS", "CUBLAS", "SHARES", "UNTIMED", "copies_seconds", "cublas_seconds", "elementwise_seconds",
    "kernel_seconds",
]  # fmt: skip

CUBLAS = "cublas"

LATENCY_S = 4e-6
"""Seconds of a product beyond its work: the launch, the first loads, the last stores (1024^3 in bf16: 9.5 us)."""

LAUNCH_S = 2e-6
"""Seconds that each further launch adds."""

BANDWIDTH_SHARE = 0.9

CHAMPIONS = ("champion_fp32", "champion_mma", "champion_hopper", "batched_mma", "champion_batched")
"""The kernels that may be called on the model's word; the other rungs only where they were measured to be fastest."""

SHARES: dict[str, dict[str, float]] = {
    CUBLAS: {"fp32": 0.77, "tf32": 0.73, "fp16": 0.725, "bf16": 0.725, "fp8": 0.66, "int8": 0.50},
    "champion_fp32": {"fp32": 0.76},
    "champion_hopper": {"tf32": 0.70, "fp16": 0.68, "bf16": 0.68, "fp8": 0.66, "int8": 0.50},
    "naive": {"fp32": 0.0075},
    "coalesced": {"fp32": 0.093},
    "shared_tile": {"fp32": 0.136},
    "thread_tile_1d": {"fp32": 0.254},
    "thread_tile_2d": {"fp32": 0.39},
    "vectorised": {"fp32": 0.47},
}
"""Share of a card's peak that full rounds of tiles reach, by kernel and kind of arithmetic."""

UNTIMED = {"champion_mma": 1.2, "batched_mma": 1.3, "champion_batched": 1.05}
"""As much longer than by its own estimate is a kernel taken to be that was fitted to others and not timed on the cards
that it is for. So it is called where cuBLAS is far from its peak, not for a close call."""

RUNG_SHARE = 0.30
"""For kernels that the list does not name: rungs on the way up, none of which reaches cuBLAS."""

_CUBLAS_TILES = np.array([
    (256, 128), (128, 256), (128, 192), (192, 128), (128, 128), (64, 256), (256, 64), (128, 64), (64, 128), (64, 64),
    (64, 32), (32, 64), (32, 32),
], dtype=float).T.reshape(2, -1, 1)  # fmt: skip
"""Rows and columns. Floating point, for an extent may be so long that counts of tiles leave 64 bits."""


@dataclass(frozen=True)
class CuBlas:
    """What cuBLAS needs for a kind of arithmetic.

    Attributes:
        small: a tile of fewer than 128x128 elements loses (elements / 16384) ** small of the rate.
        latency, reduction: seconds of every product, and more where K is split.
        shortest: K of a part.
    """

    small: float
    latency: float
    reduction: float
    shortest: int


_TENSOR_CORES = CuBlas(0.02, 3.4e-6, 5.7e-6, 366)
_CUDA_CORES = CuBlas(0.107, 6.0e-6, 1.2e-6, 883)
_CUBLAS_BANDWIDTH = 0.85
_OVERLAP = {"fp32": 0.05}
"""The share of the shorter of arithmetic and traffic that the longer does not hide; 0.1 elsewhere."""
_MISALIGNED = {"fp16": 0.165, "bf16": 0.165, "tf32": 0.27, "fp8": 0.165, "int8": 0.165}
"""cuBLAS's share of the peak where rows do not begin at multiples of 16 bytes: 151 TFLOPS in bf16 and 136 in tf32 at
4097x4095x4093, and 16 at 333x777x555, which is one round of 128x128 tiles at the same rate. fp32 does not mind."""


def kernel_seconds(kernel: Kernel, problem: Problem, config: Config, gpu: Gpu) -> float:
    """Seconds that one of our kernels should take with this config: by its own estimate where it has one."""
    estimate = getattr(kernel, "estimate", None)
    if estimate is not None:
        return UNTIMED.get(kernel.name, 1.0) * estimate(problem, config, gpu)
    kind = peak_kind(problem)
    peak = gpu.peak(kind) or gpu.peak("fp32") or 1.0
    share = SHARES.get(kernel.name, {}).get(kind, RUNG_SHARE)
    work = 3 if problem.precision == "tf32x3" else 1
    tile_m, tile_n = getattr(config, "tile_m", 32), getattr(config, "tile_n", 32)
    if getattr(config, "swap", False):
        tile_m, tile_n = tile_n, tile_m
    split = max(1, getattr(config, "splits", 1))
    seconds = _tiled(problem, gpu, tile_m, tile_n, split, work * 1.0 / (peak * share))
    plan = kernel.plan(problem, config, gpu)
    traffic = sum(space.elements * space.dtype.bytes for space in plan.workspaces)
    moved = 2 * traffic / _bandwidth(gpu) + max(len(plan.launches) - 1, 0) * LAUNCH_S
    return LATENCY_S + max(seconds, _traffic(problem, gpu)) + moved


def cublas_seconds(problem: Problem, gpu: Gpu) -> float:
    """Seconds that cuBLAS should take: its best of several tiles, splitting K where tiles are few."""
    kind = peak_kind(problem) if problem.precision != "tf32x3" else "fp32"
    peak = gpu.peak(kind) or gpu.peak("fp32") or 1.0
    share = SHARES[CUBLAS][kind]
    if kind in _MISALIGNED and not _aligned(problem):
        seconds = _tiled(problem, gpu, 128, 128, 1, 1.0 / (peak * _MISALIGNED[kind]))
        return LATENCY_S + max(seconds, _traffic(problem, gpu))
    model = _CUDA_CORES if kind == "fp32" else _TENSOR_CORES
    tile_m, tile_n = _CUBLAS_TILES
    # One row a tile, one column for each number of programs at which K may be split: none, one an SM, two an SM.
    tiles = -(-problem.m // tile_m) * -(-problem.n // tile_n) * problem.batch
    programs = np.array([0.0, gpu.sms, 2.0 * gpu.sms])
    split = np.maximum(1, np.minimum(programs // np.maximum(1, tiles), problem.effective_k // model.shortest))
    rate = peak * share * _shares_of_small_tiles(model)
    seconds = _tiled(problem, gpu, tile_m, tile_n, split, 1.0 / rate)
    best = float(np.min(seconds + np.where(split > 1, model.reduction, 0.0)))
    traffic = problem.minimum_bytes / (_CUBLAS_BANDWIDTH * gpu.dram_gbs * 1e9)
    return model.latency + max(best, traffic) + _OVERLAP.get(kind, 0.1) * min(best, traffic)


def elementwise_seconds(problem: Problem, gpu: Gpu, passes: int = 1) -> float:
    """Seconds of ``passes`` kernels that read and write D once each: an epilogue that is not fused."""
    size = problem.batch * problem.m * problem.n * problem.d.dtype.bytes
    return passes * (LAUNCH_S + 2 * size / _bandwidth(gpu))


def copies_seconds(problem: Problem, gpu: Gpu) -> float:
    """Seconds of dense copies of A and B."""
    elements = problem.batch * problem.k * (problem.m + problem.n)
    return 2 * LAUNCH_S + 2 * elements * problem.a.dtype.bytes / _bandwidth(gpu)


def _tiled(problem: Problem, gpu: Gpu, tile_m: Any, tile_n: Any, split: Any, seconds_per_tflop: Any) -> Any:
    """Rounds of tiles, each at an SM's share of the rate; numbers, or arrays of several tiles and splits."""
    tiles = -(-problem.m // tile_m) * -(-problem.n // tile_n) * problem.batch
    of_one = 2 * tile_m * tile_n * problem.effective_k * 1e-12 * gpu.sms * seconds_per_tflop
    rounds = -(-tiles * split // gpu.sms)
    return rounds * of_one / split


@cache
def _shares_of_small_tiles(model: CuBlas) -> np.ndarray:
    """Of the rate, for each of cuBLAS's tiles."""
    shares = [min(1.0, tile_m * tile_n / 16384) ** model.small for tile_m, tile_n in _CUBLAS_TILES[:, :, 0].T.tolist()]
    return np.array(shares).reshape(-1, 1)


def _bandwidth(gpu: Gpu) -> float:
    return BANDWIDTH_SHARE * gpu.dram_gbs * 1e9


def _traffic(problem: Problem, gpu: Gpu) -> float:
    return problem.minimum_bytes / _bandwidth(gpu)


def _aligned(problem: Problem) -> bool:
    """Every operand's rows (or columns) begin at multiples of 16 bytes."""
    for matrix in (problem.a, problem.b, problem.d):
        pitch = matrix.row_stride if matrix.is_row_major else matrix.col_stride
        if matrix.alignment % 16 or pitch * matrix.dtype.bytes % 16:
            return False
    return True
