"""What the mma.sync rungs share on the host: config, predicate, the arguments and constants of a plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ...compat import gl
from ...dtypes import BF16, FP16, FP32, DType
from ...hardware import Gpu
from ...problem import Matrix, Problem
from ..base import Kernel, TileConfig
from ..columns import least, most
from ..common import cdiv, gemm_arguments
from ..hopper.operands import element_type
from ..hopper.prepare import copy_launches
from ..hopper.scale import scale_launch
from ..plan import INT32_MAX, Launch, LaunchPlan, Pointer, Scalar
from .operands import movable, tile_plan

__all__ = ["MmaConfig", "MmaRung"]

SHAPE = [16, 8]
"""Rows and columns of one mma.sync; along K it takes 32 bytes."""


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
        specialised: further warps copy; Triton rounds them up to four.
        several: several products at once are taken.
        steps: sets of fragments in registers; with two, a K step has two parts at least, and one is read ahead.
    """

    function: ClassVar[Any]
    least_stages: ClassVar[int] = 2
    specialised: ClassVar[bool] = False
    several: ClassVar[bool] = False
    steps: ClassVar[int] = 1
    family = "tensor_core"
    min_arch = 80
    dtypes: ClassVar[tuple[DType, ...]] = (FP16, BF16)
    config_type: ClassVar[type[MmaConfig]] = MmaConfig

    def refuses(self, problem: Problem, gpu: Gpu) -> str | None:
        return super().refuses(problem, gpu) or self.rejects_problem(problem)

    def rejects(self, problem: Problem, config: MmaConfig, gpu: Gpu) -> str | None:
        reason = self.rejects_tile(problem, config)
        if reason is not None:
            return reason
        shared = self.shared_bytes(problem, config)
        if shared > gpu.shared_per_block:
            return f"needs {shared} bytes of shared memory; {gpu.title} gives a block {gpu.shared_per_block}"
        return None

    def rejects_problem(self, problem: Problem) -> str | None:
        """What no mma.sync rung of ours takes."""
        if problem.batch != 1 and not self.several:
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
        if not 16 * self.steps <= config.tile_k <= 256:
            # mma.sync itself takes 32 bytes, but Gluon's mma_v2 wants 16 elements, in fp32 too.
            return f"tile_k is {config.tile_k}: from {16 * self.steps} to 256 here"
        if not self.least_stages <= config.stages <= 16:
            return f"stages is {config.stages}: from {self.least_stages} to 16"
        if config.group < 1:
            return f"group is {config.group}: at least 1"
        if config.accumulate not in ("fp32", "fp16") or (config.accumulate == "fp16" and problem.a.dtype != FP16):
            return f"accumulate is {config.accumulate!r} for {problem.a.dtype}: 'fp32', or 'fp16' for fp16 operands"
        wanted, allowed = self.registers(problem, config), self.most_registers(config)
        if wanted > allowed:
            return f"about {wanted} registers a thread for accumulators and fragments; a thread can have {allowed} here"
        return None

    def registers(self, problem: Problem, config: MmaConfig) -> int:
        """Registers that a multiplying thread needs at least: accumulators, fragments, and 16 for the rest."""
        rows = config.tile_m // config.warps_m
        cols = config.tile_n * config.warps_m // config.num_warps
        accumulators = rows * cols // 32 // (2 if config.accumulate == "fp16" else 1)
        # Of one mma.sync 16 x 8: 4 registers of A, 2 of B. Read ahead, there are two sets.
        fragments = rows // SHAPE[0] * 4 + cols // SHAPE[1] * 2
        return accumulators + self.steps * fragments + 16

    def most_registers(self, config: MmaConfig) -> int:
        """Registers that a multiplying thread can have: a block's 65536 in eights, and 255 at most."""
        threads = 32 * config.num_warps + (128 if self.specialised else 0)
        return min(255, 65536 // threads // 8 * 8)

    def shared_bytes(self, problem: Problem, config: MmaConfig) -> int:
        """Of the ring, or of the epilogue's piece of D (fp32, rows padded) in its place, if that is larger."""
        ring = config.stages * (config.tile_m + config.tile_n) * config.tile_k * problem.a.dtype.bytes
        return max(ring, config.tile_m * self.part_n(config) * 4 * 9 // 8 if self.steps == 2 else 0)

    def part_n(self, config: Any) -> Any:
        """Columns of D that go through shared memory together; each warp has some of them. Of one config or many."""
        return least(config.tile_n, most(64, SHAPE[1] * config.num_warps // config.warps_m))

    def configs(self, problem: Problem, gpu: Gpu) -> Iterator[MmaConfig]:
        """Every candidate that is supported, as listed; or the first, which shows why none is."""
        listed = list(self.candidates(problem))
        legal = [config for config in listed if self.supports(problem, config, gpu) is None]
        yield from legal or listed[:1]

    def candidates(self, problem: Problem) -> Iterator[MmaConfig]:
        """Configs worth trying on some card, best guess first."""
        yield MmaConfig()

    def build(self, problem: Problem, config: MmaConfig, gpu: Gpu) -> LaunchPlan:
        if problem.effective_k == 0:
            return LaunchPlan(self.name, (scale_launch(problem),))
        a_role, a, a_copy = movable("A", problem.a, 1)
        b_role, b, b_copy = movable("B", problem.b, 0)
        copies = [copy for copy in (a_copy, b_copy) if copy is not None]
        a_part, b_part = replace(a, rows=problem.m, cols=problem.k), replace(b, rows=problem.k, cols=problem.n)
        moved = replace(problem, a=a_part, b=b_part)
        arguments = dict(gemm_arguments(moved))
        arguments["a"] = Pointer(a_role, a.dtype, a.alignment)
        arguments["b"] = Pointer(b_role, b.dtype, b.alignment)
        # A copy is padded with zeros beyond M, N or K, so that it needs no mask there.
        extents = {"a_rows": a.rows, "a_cols": a.cols, "b_rows": b.rows, "b_cols": b.cols}
        arguments |= {name: Scalar.index(extent) for name, extent in extents.items()}
        tiles = cdiv(problem.m, config.tile_m) * cdiv(problem.n, config.tile_n)
        constants = tuple(self.constants(problem, config, a, b))
        launch = Launch(self.function, (tiles, 1, 1), tuple(arguments.items()), constants, config.num_warps)
        return LaunchPlan(self.name, (*copy_launches(copies), launch), tuple(copy.workspace for copy in copies))

    def movers(self, config: MmaConfig) -> int:
        """Warps that copy."""
        return config.num_warps

    def constants(self, problem: Problem, config: MmaConfig, a: Matrix, b: Matrix) -> Iterable[tuple[str, Any]]:
        """Layouts, the ring, the types; ``a`` and ``b`` as they are copied from."""
        a_tile, b_tile = (config.tile_m, config.tile_k), (config.tile_k, config.tile_n)
        left = tile_plan(a, a_tile, 1, self.movers(config))
        right = tile_plan(b, b_tile, 0, self.movers(config))
        warps = [config.warps_m, config.num_warps // config.warps_m]
        yield "TILE_M", config.tile_m
        yield "TILE_N", config.tile_n
        yield "TILE_K", config.tile_k
        yield "READ_C", problem.reads_c
        yield "MASK_M", problem.m % config.tile_m != 0
        yield "MASK_N", problem.n % config.tile_n != 0
        extents = zip((a.rows, a.cols, b.rows, b.cols), (*a_tile, *b_tile), strict=True)
        # Bits of a number: warp specialisation hands on no tuple of constants.
        yield "MASKS", sum(1 << i for i, (extent, step) in enumerate(extents) if extent % step)
        yield "GROUP", config.group
        yield "STAGES", config.stages
        yield "TYPE", element_type(problem.a.dtype)
        yield "ACC_TYPE", gl.float16 if config.accumulate == "fp16" else gl.float32
        yield "LAYOUT", gl.NVMMADistributedLayout([2, 0], warps, SHAPE)
        yield "K_WIDTH", 4 // problem.a.dtype.bytes
        yield "A_COPY", left.copy
        yield "B_COPY", right.copy
        yield "A_SHARED", left.shared
        yield "B_SHARED", right.shared

    def output_constants(self, problem: Problem, config: MmaConfig) -> Iterable[tuple[str, Any]]:
        """Of :func:`.pieces.store_rows`: how a piece of D is stored, and how many there are."""
        d = problem.d
        part_n = self.part_n(config)
        near = 0 if d.is_col_major else 1
        shape = (config.tile_m, part_n)
        vector = min(16 // d.dtype.bytes, shape[near])
        size, lanes, warps = [1, 1], [1, 1], [1, 1]
        size[near], lanes[near] = vector, min(32, shape[near] // vector)
        lanes[1 - near] = 32 // lanes[near]
        warps[1 - near] = config.num_warps
        yield "OUT", gl.BlockedLayout(size, lanes, warps, [near, 1 - near])
        yield "PARTS", config.tile_n // part_n
