"""What the mma.sync rungs share on the host: config, predicate, the arguments and constants of a plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from ...compat import gl
from ...dtypes import BF16, FP16, FP32, DType
from ...hardware import Gpu
from ...problem import Problem
from ..base import Kernel, TileConfig
from ..common import cdiv, gemm_arguments, gemm_constants
from ..plan import INT32_MAX, Launch, LaunchPlan
from .operands import tile_plan

__all__ = ["MmaConfig", "MmaRung"]

SHAPE = [16, 8]
"""Rows and columns of one mma.sync; along K it takes 32 bytes."""
_ELEMENT_TYPES = {"fp16": gl.float16, "bf16": gl.bfloat16, "fp32": gl.float32}


@dataclass(frozen=True)
class MmaConfig(TileConfig):
    """A tile of D, its warps down and across (``warps_m`` x ``num_warps / warps_m``), the ring, and the tile order.

    Attributes:
        stages: K steps in shared memory.
        group: rows of tiles walked together (1: row by row).
        accumulate: the accumulators' type, "fp32" or "fp16".
    """

    tile_m: int = 128
    tile_n: int = 128
    tile_k: int = 32
    num_warps: int = 8
    warps_m: int = 4
    stages: int = 3
    group: int = 1
    accumulate: str = "fp32"


class MmaRung(Kernel[MmaConfig]):
    """A rung of one launch, one program a tile. Subclasses give the function, the configs and their constants.

    Attributes:
        function: the ``@gluon.jit`` function.
        least_stages: fewer do not work.
        producer_warps: warps besides the multipliers, which copy; 0 where the multipliers do.
    """

    function: ClassVar[Any]
    least_stages: ClassVar[int] = 2
    producer_warps: ClassVar[int] = 0
    family = "tensor_core"
    min_arch = 80
    dtypes: ClassVar[tuple[DType, ...]] = (FP16, BF16)
    config_type = MmaConfig

    def rejects(self, problem: Problem, config: MmaConfig, gpu: Gpu) -> str | None:
        reason = self.rejects_problem(problem) or self.rejects_tile(problem, config)
        if reason is not None:
            return reason
        shared = self.shared_bytes(problem, config)
        if shared > gpu.shared_per_block:
            return f"needs {shared} bytes of shared memory; {gpu.title} gives a block {gpu.shared_per_block}"
        return None

    def rejects_problem(self, problem: Problem) -> str | None:
        """What no mma.sync rung of ours takes."""
        if problem.batch != 1:
            return f"{self.name} computes one product; batch is {problem.batch}: loop over the batch"
        if problem.epilogue is not None:
            return f"{self.name} has no fused epilogue: apply it afterwards"
        if problem.a.dtype == FP32 and problem.precision != "tf32":
            return f"{self.name} takes fp32 with precision 'tf32'; it is {problem.precision!r}"
        outputs = [("D", problem.d.dtype)] + ([("C", problem.c.dtype)] if problem.c is not None else [])
        for operand, dtype in outputs:
            if dtype not in (FP16, BF16, FP32):
                return f"{operand} is {dtype}; {self.name} takes fp16, bf16 or fp32 there"
        if 2 * problem.k > INT32_MAX:
            return f"K is {problem.k}: beyond this kernel's 32-bit counters"
        return None

    def rejects_tile(self, problem: Problem, config: MmaConfig) -> str | None:
        """What mma.sync asks of a tile."""
        for name in ("tile_m", "tile_n", "tile_k", "warps_m"):
            value = getattr(config, name)
            if value < 1 or value & (value - 1):
                return f"{name} is {value}: Triton wants a power of two"
        if config.warps_m > config.num_warps:
            return f"warps_m is {config.warps_m}: more than all {config.num_warps} warps"
        warps_n = config.num_warps // config.warps_m
        if config.tile_m % (SHAPE[0] * config.warps_m) or config.tile_n % (SHAPE[1] * warps_n):
            return (
                f"{config.warps_m}x{warps_n} warps cannot share {config.tile_m}x{config.tile_n}: "
                f"one mma is {SHAPE[0]}x{SHAPE[1]}"
            )
        step = 32 // problem.a.dtype.bytes
        if config.tile_k < step or config.tile_k > 256:
            return f"tile_k is {config.tile_k}: from {step}, one mma, to 256"
        if not self.least_stages <= config.stages <= 16:
            return f"stages is {config.stages}: from {self.least_stages} to 16"
        if config.group < 1:
            return f"group is {config.group}: at least 1"
        if config.accumulate not in ("fp32", "fp16") or (config.accumulate == "fp16" and problem.a.dtype != FP16):
            return f"accumulate is {config.accumulate!r} for {problem.a.dtype}: 'fp32', or 'fp16' for fp16 operands"
        registers = config.tile_m * config.tile_n // (32 * config.num_warps)
        registers //= 2 if config.accumulate == "fp16" else 1
        threads = 32 * config.num_warps + (128 if self.producer_warps else 0)
        most = min(255, 65536 // threads)
        if registers + 32 > most:
            return f"{registers} accumulator registers a thread: with {threads} threads a block, {most - 32} at most"
        return None

    def shared_bytes(self, problem: Problem, config: MmaConfig) -> int:
        """Of the ring, and of what the epilogue may want besides."""
        return config.stages * (config.tile_m + config.tile_n) * config.tile_k * problem.a.dtype.bytes

    def configs(self, problem: Problem, gpu: Gpu) -> Iterator[MmaConfig]:
        """Every candidate that is supported, as listed; or the first, which shows why none is."""
        listed = list(self.candidates(problem))
        legal = [config for config in listed if self.supports(problem, config, gpu) is None]
        yield from legal or listed[:1]

    def candidates(self, problem: Problem) -> Iterator[MmaConfig]:
        """Configs worth trying on some card, best guess first."""
        yield MmaConfig()

    def build(self, problem: Problem, config: MmaConfig, gpu: Gpu) -> LaunchPlan:
        tiles = cdiv(problem.m, config.tile_m) * cdiv(problem.n, config.tile_n)
        constants = (
            *gemm_constants(problem, config.tile_m, config.tile_n, config.tile_k),
            *self.constants(problem, config),
        )
        launch = Launch(self.function, (tiles, 1, 1), tuple(gemm_arguments(problem)), constants, config.num_warps)
        return LaunchPlan(self.name, (launch,))

    def constants(self, problem: Problem, config: MmaConfig) -> Iterable[tuple[str, Any]]:
        """Layouts, the ring, the types."""
        movers = self.producer_warps or config.num_warps
        a = tile_plan(problem.a, (config.tile_m, config.tile_k), 1, movers)
        b = tile_plan(problem.b, (config.tile_k, config.tile_n), 0, movers)
        warps = [config.warps_m, config.num_warps // config.warps_m]
        yield "GROUP", config.group
        yield "STAGES", config.stages
        yield "TYPE", _ELEMENT_TYPES[problem.a.dtype.name]
        yield "ACC_TYPE", gl.float16 if config.accumulate == "fp16" else gl.float32
        yield "LAYOUT", gl.NVMMADistributedLayout([2, 0], warps, SHAPE)
        yield "K_WIDTH", 4 // problem.a.dtype.bytes
        yield "A_ASYNC", a.asynchronous
        yield "B_ASYNC", b.asynchronous
        yield "A_COPY", a.copy
        yield "B_COPY", b.copy
        yield "A_SHARED", a.shared
        yield "B_SHARED", b.shared
