"""How long a kernel should take, on paper: where nothing was measured, this is what the dispatcher goes by.

Time is the longer of arithmetic and memory traffic. Arithmetic is counted in rounds of tiles (:mod:`..analysis.waves`),
so that a grid of 133 tiles on 132 SMs costs two rounds, at the share of the card's peak that the kernel reaches in a
full one; traffic is the compulsory bytes at nine tenths of the bandwidth. Copies and partial sums are added as traffic
of their own. The shares are those measured on an H200 (``H200.md`` of the project's notes, and results/).
"""

from __future__ import annotations

from ..analysis import peak_kind
from ..hardware import Gpu
from ..kernels import Config, Kernel, LaunchPlan
from ..problem import Problem

__all__ = ["CHAMPIONS", "CUBLAS", "SHARES", "cublas_seconds", "elementwise_seconds", "kernel_seconds"]

CUBLAS = "cublas"

LATENCY_S = 4e-6
"""Seconds of a product beyond its work: the launch, the first loads, the last stores (1024^3 in bf16: 9.5 us)."""

LAUNCH_S = 2e-6
"""Seconds that each further launch adds."""

BANDWIDTH_SHARE = 0.9

CHAMPIONS = ("champion_fp32", "champion_mma", "champion_hopper")
"""The kernels that may be called on the model's word; the other rungs only where they were measured to be fastest."""

SHARES: dict[str, dict[str, float]] = {
    CUBLAS: {"fp32": 0.765, "tf32": 0.70, "fp16": 0.68, "bf16": 0.68, "fp8": 0.66, "int8": 0.50},
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

UNTIMED = 1.3
"""As much longer than by its own estimate is champion_mma taken to be: that was fitted to other kernels, and nothing of
it was timed on the cards that it is for. So it is called where cuBLAS is far from its peak, not for a close call."""

ESTIMATE = 1.1
"""A kernel's own estimate ranks its settings; times this it is on the scale of cuBLAS's figures here (a tie at bf16
4096^3 and 8192^3, as measured)."""

RUNG_SHARE = 0.30
"""For kernels that the list does not name: rungs on the way up, none of which reaches cuBLAS."""

_CUBLAS_TILES = ((256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64), (32, 32))
_SMALL_TILE_SHARE = {256 * 128: 1.0, 128 * 128: 0.92, 128 * 64: 0.80, 64 * 64: 0.60, 32 * 32: 0.25}
_MISALIGNED = {"fp16": 0.165, "bf16": 0.165, "tf32": 0.27, "fp8": 0.165, "int8": 0.165}
"""cuBLAS's share of the peak where rows do not begin at multiples of 16 bytes: 151 TFLOPS in bf16 and 136 in tf32 at
4097x4095x4093, and 16 at 333x777x555, which is one round of 128x128 tiles at the same rate. fp32 does not mind."""


def kernel_seconds(kernel: Kernel, problem: Problem, config: Config, gpu: Gpu, plan: LaunchPlan) -> float:
    """Seconds that one of our kernels should take with this config: by its own estimate where it has one."""
    estimate = getattr(kernel, "estimate", None)
    if estimate is not None:
        return (UNTIMED if kernel.name == "champion_mma" else ESTIMATE) * estimate(problem, config, gpu)
    kind = peak_kind(problem)
    peak = gpu.peak(kind) or gpu.peak("fp32") or 1.0
    share = SHARES.get(kernel.name, {}).get(kind, RUNG_SHARE)
    work = 3 if problem.precision == "tf32x3" else 1
    tile_m, tile_n = getattr(config, "tile_m", 32), getattr(config, "tile_n", 32)
    if getattr(config, "swap", False):
        tile_m, tile_n = tile_n, tile_m
    split = max(1, getattr(config, "splits", 1))
    if getattr(config, "stream", False):
        split = 0
    seconds = _tiled(problem, gpu, tile_m, tile_n, split, work * 1.0 / (peak * share))
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
    best = float("inf")
    for tile_m, tile_n in _CUBLAS_TILES:
        rate = peak * share * _SMALL_TILE_SHARE[tile_m * tile_n]
        tiles = -(-problem.m // tile_m) * -(-problem.n // tile_n) * problem.batch
        split = max(1, min(gpu.sms // tiles, problem.k // 512)) if tiles else 1
        extra = LAUNCH_S + 2 * split * problem.m * problem.n * 4 / _bandwidth(gpu) if split > 1 else 0.0
        best = min(best, _tiled(problem, gpu, tile_m, tile_n, split, 1.0 / rate) + extra)
    return LATENCY_S + max(best, _traffic(problem, gpu))


def elementwise_seconds(problem: Problem, gpu: Gpu, passes: int = 1) -> float:
    """Seconds of ``passes`` kernels that read and write D once each: an epilogue that is not fused."""
    size = problem.batch * problem.m * problem.n * problem.d.dtype.bytes
    return passes * (LAUNCH_S + 2 * size / _bandwidth(gpu))


def _tiled(problem: Problem, gpu: Gpu, tile_m: int, tile_n: int, split: int, seconds_per_tflop: float) -> float:
    """Rounds of tiles, each at an SM's share of the rate; ``split`` 0 shares the last round's work evenly."""
    tiles = -(-problem.m // tile_m) * -(-problem.n // tile_n) * problem.batch
    of_one = 2 * tile_m * tile_n * problem.effective_k * 1e-12 * gpu.sms * seconds_per_tflop
    if split == 0:
        return of_one * tiles / gpu.sms
    rounds = -(-tiles * split // gpu.sms)
    return rounds * of_one / split


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
