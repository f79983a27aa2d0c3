"""What the Hopper rungs share on the host: their config, the predicate, the arguments of a plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from ...dtypes import BF16, FP16, FP32
from ...hardware import Gpu
from ...problem import Problem
from ..base import Kernel, TileConfig
from ..common import cdiv
from ..plan import INT32_MAX, Argument, Launch, LaunchPlan, Pointer, Scalar, strides_of
from .operands import element_type, shared_layout
from .prepare import copy_launches
from .scale import scale_launch
from .setup import Setup, better_swapped, set_up

__all__ = [
    "HopperRung", "RungConfig", "ScheduledConfig", "rejects_parts", "rejects_problem", "rejects_schedule",
    "rejects_tile", "staging_constants",
]  # fmt: skip


@dataclass(frozen=True)
class RungConfig(TileConfig):
    """A tile of D, the K steps in the ring, and the rows of tiles walked together (1: row by row)."""

    tile_m: int = 128
    tile_n: int = 256
    tile_k: int = 64
    num_warps: int = 8
    stages: int = 1
    group: int = 1


@dataclass(frozen=True)
class ScheduledConfig(RungConfig):
    """What the champions of one product and of batches set alike.

    Attributes:
        stages: K steps in the ring.
        group: rows of tiles walked together.
        schedule: who multiplies: ``num_warps`` warps "together"; two such partitions, "halves" of each tile's rows; or
            two partitions taking whole tiles by "turns" (ping-pong).
        part_n: columns of D staged at once on their way out.
        buffers: such parts in shared memory, by turns.
        swap: B takes wgmma's M and A its N.
    """

    stages: int = 4
    group: int = 8
    schedule: str = "together"
    part_n: int = 64
    buffers: int = 2
    swap: bool = False

    @property
    def owners(self) -> int:
        """Partitions that multiply."""
        return 1 if self.schedule == "together" else 2

    @property
    def part_m(self) -> int:
        """Rows of a tile that one of them takes."""
        return self.tile_m // 2 if self.schedule == "halves" else self.tile_m


def rejects_problem(name: str, problem: Problem, gpu: Gpu) -> str | None:
    """What no wgmma kernel of ours takes."""
    if gpu.arch != 90:
        return f"{name} uses wgmma, which only sm_90 has; {gpu.title} is sm_{gpu.arch}"
    if problem.batch != 1:
        return f"{name} computes one product; batch is {problem.batch}: loop over the batch"
    if problem.a.dtype == FP32 and problem.precision not in ("tf32", "tf32x3"):
        return f"{name} takes fp32 with precision 'tf32' or 'tf32x3'; it is {problem.precision!r}"
    outputs = [("D", problem.d.dtype)] + ([("C", problem.c.dtype)] if problem.c is not None else [])
    for operand, dtype in outputs:
        if dtype not in (FP16, BF16, FP32):
            return f"{operand} is {dtype}; {name} takes fp16, bf16 or fp32 there"
    return None


def rejects_tile(config: RungConfig, part_m: int, element_bytes: int) -> str | None:
    """What wgmma and TMA ask of a tile of which a partition of ``num_warps`` warps takes ``part_m`` rows."""
    for name in ("tile_m", "tile_n", "tile_k"):
        value = getattr(config, name)
        if value < 1 or value & (value - 1):
            return f"{name} is {value}: Triton wants a power of two"
    for name in ("stages", "group"):
        if getattr(config, name) < 1:
            return f"{name} is {getattr(config, name)}: at least 1"
    if config.num_warps % 4 or part_m % (16 * config.num_warps):
        return f"{config.num_warps} warps cannot share {part_m} rows: wgmma gives each warp 16 rows, 4 warps together"
    if not 8 <= config.tile_n <= 256:
        return f"tile_n is {config.tile_n}: wgmma takes 8 to 256 columns"
    if config.tile_m > 256 or config.tile_k > 256:
        return f"a tile of {config.tile_m} rows and {config.tile_k} along K: TMA moves at most 256 of each"
    if config.tile_k * element_bytes < 32:
        return f"tile_k is {config.tile_k}: one wgmma takes {32 // element_bytes}"
    return None


def rejects_parts(part_n: int, buffers: int, tile_n: int) -> str | None:
    """What the staging of D asks: slices of ``part_n`` columns in ``buffers`` by turns."""
    if not 8 <= part_n <= tile_n or part_n & (part_n - 1):
        return f"part_n is {part_n}: a power of two from 8 to tile_n, {tile_n}"
    if buffers < 1 or tile_n // part_n % buffers:
        return f"{buffers} buffers for {tile_n // part_n} slices of D: the slices must be a multiple of the buffers"
    return None


def rejects_schedule(config: ScheduledConfig, sums: int = 1) -> str | None:
    """What the multiplying partitions ask, where each keeps ``sums`` accumulators of its part of a tile."""
    if config.schedule not in ("together", "halves", "turns"):
        return f"schedule is {config.schedule!r}: 'together', 'halves' or 'turns'"
    reason = rejects_parts(config.part_n, config.buffers, config.tile_n)
    if reason is not None:
        return reason
    accumulators = config.part_m * config.tile_n // (32 * config.num_warps) * sums
    if accumulators > 192:
        return f"{accumulators} accumulator registers a thread: 192 at most leave room for the rest"
    return None


class HopperRung(Kernel[RungConfig]):
    """A rung with one launch, after the copies that its operands need. Subclasses give the function and its constants.

    Attributes:
        function: the ``@gluon.jit`` function.
        default: the config shown on the ladder, for two-byte elements.
        persistent: one program an SM rather than one a tile.
        partitions: multiplying partitions, each with ``num_warps`` warps and a whole tile.
    """

    function: ClassVar[Any]
    default: ClassVar[RungConfig]
    persistent: ClassVar[bool] = False
    partitions: ClassVar[int] = 1
    family = "hopper"
    min_arch = 90
    dtypes = (FP16, BF16, FP32)
    config_type = RungConfig

    def rejects(self, problem: Problem, config: RungConfig, gpu: Gpu) -> str | None:
        if problem.epilogue is not None:
            return f"{self.name} has no fused epilogue: apply it afterwards, or use champion_hopper"
        reason = rejects_problem(self.name, problem, gpu)
        reason = reason or rejects_tile(config, config.tile_m, problem.a.dtype.bytes)
        if reason is not None:
            return reason
        accumulators = config.tile_m * config.tile_n // (32 * config.num_warps)
        if accumulators > 192:
            return f"{accumulators} accumulator registers a thread: 192 at most leave room for the rest"
        tiles = self.tiles(problem, config)
        if tiles > INT32_MAX // 2 or 3 * problem.k > INT32_MAX:
            return f"{tiles} tiles with K {problem.k}: beyond this kernel's 32-bit counters"
        shared = self.shared_bytes(problem, config)
        if shared > gpu.shared_per_block:
            return f"needs {shared} bytes of shared memory; {gpu.title} gives a block {gpu.shared_per_block}"
        return None

    def shared_bytes(self, problem: Problem, config: RungConfig) -> int:
        """Shared memory of the ring and its barriers, in bytes, and what warp specialisation keeps for itself."""
        stage = (config.tile_m + config.tile_n) * config.tile_k * problem.a.dtype.bytes
        return config.stages * (stage + 16) + 256

    def tiles(self, problem: Problem, config: RungConfig) -> int:
        m, n = (problem.n, problem.m) if better_swapped(problem) else (problem.m, problem.n)
        return cdiv(m, config.tile_m) * cdiv(n, config.tile_n)

    def configs(self, problem: Problem, gpu: Gpu) -> Iterator[RungConfig]:
        d = self.default
        yield self.config_type.from_dict(d.to_dict() | {"tile_k": d.tile_k * 2 // problem.a.dtype.bytes})

    def programs(self, problem: Problem, config: RungConfig, gpu: Gpu) -> int:
        tiles = self.tiles(problem, config)
        return min(tiles, gpu.sms) if self.persistent else tiles

    def build(self, problem: Problem, config: RungConfig, gpu: Gpu) -> LaunchPlan:
        if problem.effective_k == 0:
            return LaunchPlan(self.name, (scale_launch(problem),))
        setup = set_up(problem, better_swapped(problem))
        launch = Launch(
            self.function,
            (self.programs(problem, config, gpu), 1, 1),
            (*self.operands(setup, config), *self.scalars(setup)),
            (*self.shape(setup, config), *self.constants(setup, config)),
            config.num_warps,
        )
        copies = setup.copies
        return LaunchPlan(
            self.name, (*copy_launches(copies), launch), tuple(copy.workspace for copy in copies)
        )

    def operands(self, setup: Setup, config: RungConfig) -> Iterable[tuple[str, Argument]]:
        """Descriptors of A and B, pointers of C and D."""
        problem = setup.problem
        c = problem.c if problem.reads_c and problem.c is not None else problem.d
        tf32 = problem.a.dtype == FP32
        yield "a", setup.a.descriptor((config.tile_m, config.tile_k), tf32)
        yield "b", setup.b.descriptor((config.tile_k, config.tile_n), tf32)
        yield "c", Pointer("C" if problem.reads_c else "D", c.dtype, c.alignment)
        yield "d", Pointer("D", problem.d.dtype, problem.d.alignment)

    def scalars(self, setup: Setup) -> Iterable[tuple[str, Argument]]:
        """Strides of C and D, the extents, alpha and beta."""
        problem = setup.problem
        c = problem.c if problem.reads_c and problem.c is not None else problem.d
        yield from strides_of("c", c)
        yield from strides_of("d", problem.d)
        yield "M", Scalar.index(problem.m)
        yield "N", Scalar.index(problem.n)
        yield "K", Scalar.index(problem.effective_k)
        yield "alpha", Scalar.real(problem.effective_alpha)
        yield "beta", Scalar.real(problem.beta)

    def shape(self, setup: Setup, config: RungConfig) -> Iterable[tuple[str, Any]]:
        """The constants that every rung takes."""
        yield "TILE_M", config.tile_m
        yield "TILE_N", config.tile_n
        yield "TILE_K", config.tile_k
        yield "GROUP", config.group
        yield "NUM_WARPS", config.num_warps
        yield "INSTRUCTION_K", 32 // setup.problem.a.dtype.bytes
        yield "A_COLUMNS", setup.a.columns
        yield "B_COLUMNS", setup.b.columns
        yield "A_IN_REGISTERS", setup.a_in_registers
        yield "READ_C", setup.problem.reads_c

    def constants(self, setup: Setup, config: RungConfig) -> Iterable[tuple[str, Any]]:
        """Constants beyond those."""
        return (("STAGES", config.stages),)


def staging_constants(setup: Setup, part_m: int, part_n: int, buffers: int) -> Iterable[tuple[str, Any]]:
    """Constants of :func:`.pieces.store_through_shared`, for slices of ``part_m`` x ``part_n``."""
    d = setup.problem.d
    columns = setup.d.columns if setup.d else d.is_col_major
    staging = (part_n, part_m) if columns else (part_m, part_n)
    aligned = d.alignment >= 16 and (d.col_stride if columns else d.row_stride) * d.dtype.bytes % 16 == 0
    aligned = aligned and (d.row_stride if columns else d.col_stride) == 1
    yield "D_TMA", setup.d is not None
    yield "D_COLUMNS", columns
    yield "D_VECTOR", 16 // d.dtype.bytes if aligned else 1
    yield "BUFFERS", buffers
    yield "STAGING", list(staging)
    yield "STAGING_LAYOUT", shared_layout(staging, d.dtype)
    yield "D_TYPE", element_type(d.dtype)
