"""The Hopper champion: the ladder's ideas together, with a search space, for fp16, bf16 and tf32.

Every legal problem ends here: operands that TMA cannot move, and fp32 operands that wgmma cannot read, are first
copied into an aligned workspace (:mod:`.prepare`); D that TMA cannot write is stored by ordinary instructions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from ...dtypes import BF16, FP16, FP32, INT32
from ...hardware import Gpu
from ...problem import Problem
from ..base import Kernel, TileConfig
from ..common import cdiv
from ..plan import INT32_MAX, Argument, Launch, LaunchPlan, Pointer, Scalar, Workspace, strides_of
from .champion_kernel import champion_hopper_kernel
from .operands import Operand, element_type, operand_of, shared_layout, swapped
from .prepare import Copy

__all__ = ["ChampionHopper", "HopperConfig"]


@dataclass(frozen=True)
class HopperConfig(TileConfig):
    """One setting of the champion.

    Attributes:
        stages: K steps in the ring.
        group: rows of tiles walked together.
        schedule: who multiplies: ``num_warps`` warps "together"; two such partitions, "halves" of each tile's rows; or
            two partitions taking whole tiles by "turns" (ping-pong).
        part_n: columns of D staged at once on their way out.
        buffers: such parts in shared memory, by turns.
        swap: B takes wgmma's M and A its N.
        stream: the tiles beyond the last full wave are shared by all programs, along K.
        programs: programs in the grid; 0 for one per SM, or one per tile if those are fewer and nothing is shared.
        promote: K steps that the tensor cores add up before a rounded fp32 addition; 0 for all.
    """

    tile_m: int = 128
    tile_n: int = 256
    tile_k: int = 64
    num_warps: int = 8
    stages: int = 4
    group: int = 8
    schedule: str = "together"
    part_n: int = 64
    buffers: int = 2
    swap: bool = False
    stream: bool = False
    programs: int = 0
    promote: int = 0

    @property
    def owners(self) -> int:
        """Partitions that multiply."""
        return 1 if self.schedule == "together" else 2

    @property
    def part_m(self) -> int:
        """Rows of a tile that one of them takes."""
        return self.tile_m // 2 if self.schedule == "halves" else self.tile_m


@dataclass(frozen=True)
class Setup:
    """A problem as the kernel will see it: turned over if asked, its operands as TMA moves them."""

    problem: Problem
    a: Operand
    b: Operand
    d: Operand | None
    a_in_registers: bool
    copies: tuple[Copy, ...]


class ChampionHopper(Kernel[HopperConfig]):
    name = "champion_hopper"
    idea = "every idea of the Hopper ladder together, searched"
    expects = "cuBLAS's speed and more, in every shape"
    below = "split_k"
    family = "hopper"
    min_arch = 90
    dtypes = (FP16, BF16, FP32)
    config_type = HopperConfig

    def set_up(self, problem: Problem, config: HopperConfig) -> Setup:
        """The problem as the kernel takes it, with the copies that this needs."""
        turned = swapped(problem) if config.swap else problem
        names = ("B", "A") if config.swap else ("A", "B")
        triple = problem.precision == "tf32x3"
        tf32 = problem.a.dtype == FP32
        copies = []
        operands = []
        for order, (name, matrix) in enumerate(zip(names, (turned.a, turned.b), strict=True), start=1):
            # B's K runs down its rows: contiguous along K means by columns for B, by rows for A.
            operand = operand_of(name, matrix)
            if triple or isinstance(operand, str) or (tf32 and order == 2 and not operand.columns):
                along_k = triple or tf32 or 1 not in (matrix.row_stride, matrix.col_stride)
                columns = (order == 2) if along_k else matrix.is_col_major
                copy = Copy(name, matrix, columns, order if triple else 0)
                copies.append(copy)
                operand = copy.operand
            operands.append(operand)
        a, b = operands
        turned = replace(turned, a=a.matrix, b=b.matrix)
        d = operand_of("D", turned.d)
        return Setup(turned, a, b, None if isinstance(d, str) else d, tf32 and a.columns, tuple(copies))

    def rejects(self, problem: Problem, config: HopperConfig, gpu: Gpu) -> str | None:
        if gpu.arch != 90:
            return f"{self.name} uses wgmma, which only sm_90 has; {gpu.title} is sm_{gpu.arch}"
        if problem.batch != 1:
            return f"{self.name} computes one product; batch is {problem.batch}: loop over the batch"
        if problem.epilogue is not None:
            return f"{self.name} has no fused epilogue yet: apply it afterwards"
        if problem.a.dtype == FP32 and problem.precision not in ("tf32", "tf32x3"):
            return f"{self.name} takes fp32 with precision 'tf32' or 'tf32x3'; it is {problem.precision!r}"
        if problem.effective_k == 0:
            return f"{self.name} has nothing to multiply (K is {problem.k}, alpha {problem.alpha}): scale C instead"
        if problem.d.dtype not in self.dtypes:
            return f"D is {problem.d.dtype}; {self.name} writes fp16, bf16 or fp32"
        for name in ("tile_m", "tile_n", "tile_k", "stages", "group", "part_n", "buffers"):
            value = getattr(config, name)
            power_of_two = value >= 1 and not value & (value - 1)
            if not power_of_two and (value < 1 or name.startswith(("tile", "part"))):
                return f"{name} is {value}: it must be a power of two, or for counts at least 1"
        if config.schedule not in ("together", "halves", "turns"):
            return f"schedule is {config.schedule!r}: 'together', 'halves' or 'turns'"
        rows = config.part_m
        if config.num_warps % 4 or rows % (16 * config.num_warps):
            return f"{config.num_warps} warps cannot share {rows} rows: wgmma gives each warp 16 rows, 4 warps together"
        if not 8 <= config.tile_n <= 256:
            return f"tile_n is {config.tile_n}: wgmma takes 8 to 256 columns"
        if config.part_n > config.tile_n or config.part_n < 8:
            return f"part_n is {config.part_n}: from 8 to tile_n, {config.tile_n}"
        if config.tile_m > 256:
            return f"tile_m is {config.tile_m}: TMA moves at most 256 rows"
        element = problem.a.dtype.bytes
        if config.tile_k * element < 32:
            return f"tile_k is {config.tile_k}: {32 // element} elements at least for one wgmma"
        accumulators = rows * config.tile_n // (32 * config.num_warps) * (2 if config.promote else 1)
        if accumulators > 192:
            return f"{accumulators} accumulator registers a thread: 192 at most leave room for the rest"
        tiles, steps = self.tiles(problem, config), cdiv(problem.k, config.tile_k) * 3
        if tiles > INT32_MAX // 2 or gpu.sms * steps > INT32_MAX:
            return f"{tiles} tiles of {steps} steps: beyond this kernel's 32-bit counters"
        shared = self.shared_bytes(problem, config)
        if shared > gpu.shared_per_block:
            return f"needs {shared} bytes of shared memory; {gpu.title} gives a block {gpu.shared_per_block}"
        return None

    def shared_bytes(self, problem: Problem, config: HopperConfig) -> int:
        stage = (config.tile_m + config.tile_n) * config.tile_k * problem.a.dtype.bytes
        staging = config.owners * config.buffers * config.part_m * config.part_n * problem.d.dtype.bytes
        # The barriers, and what warp specialisation keeps for itself (compiled: 180 bytes with 4 stages).
        return config.stages * (stage + 16) + staging + 256

    def tiles(self, problem: Problem, config: HopperConfig) -> int:
        m, n = (problem.n, problem.m) if config.swap else (problem.m, problem.n)
        return cdiv(m, config.tile_m) * cdiv(n, config.tile_n)

    def programs(self, problem: Problem, config: HopperConfig, gpu: Gpu) -> int:
        """Programs in the grid: all run at once, for a program may wait for nobody but counts on everybody."""
        programs = min(config.programs or gpu.sms, gpu.sms)
        tiles, steps = self.tiles(problem, config), cdiv(problem.k, config.tile_k)
        return min(programs, tiles * steps if config.stream else tiles)

    def configs(self, problem: Problem, gpu: Gpu) -> Iterator[HopperConfig]:
        wide = 128 // problem.a.dtype.bytes
        yield HopperConfig(tile_k=wide, part_n=128 // problem.d.dtype.bytes)

    def build(self, problem: Problem, config: HopperConfig, gpu: Gpu) -> LaunchPlan:
        setup = self.set_up(problem, config)
        programs = self.programs(problem, config, gpu)
        left_over = self.tiles(problem, config) % programs
        # With whole waves of tiles there is nothing to share.
        stream = config.stream and left_over > 0
        arguments, constants = self.arguments(setup, config, stream)
        launch = Launch(champion_hopper_kernel, (programs, 1, 1), arguments, constants, config.num_warps)
        workspaces: tuple[Workspace, ...] = tuple(copy.workspace for copy in setup.copies)
        if stream:
            parts = 2 * programs * config.tile_m * config.tile_n
            counters = left_over * config.owners
            workspaces += (
                Workspace("partials", FP32, parts),
                Workspace("counters", INT32, counters, zeroed=True, restored=True),
            )
        return LaunchPlan(self.name, (*(copy.launch() for copy in setup.copies), launch), workspaces)

    def arguments(
        self, setup: Setup, config: HopperConfig, stream: bool
    ) -> tuple[tuple[tuple[str, Argument], ...], tuple[tuple[str, Any], ...]]:
        """The launch's arguments and constants."""
        problem = setup.problem
        d, c = problem.d, problem.c if problem.reads_c and problem.c is not None else problem.d
        tf32 = problem.a.dtype == FP32
        part_m = config.part_m
        d_columns = setup.d.columns if setup.d else d.is_col_major
        staging = (config.part_n, part_m) if d_columns else (part_m, config.part_n)
        aligned = d.alignment >= 16 and (d.col_stride if d_columns else d.row_stride) * d.dtype.bytes % 16 == 0
        arguments: tuple[tuple[str, Argument], ...] = (
            ("a", setup.a.descriptor((config.tile_m, config.tile_k), tf32)),
            ("b", setup.b.descriptor((config.tile_k, config.tile_n), tf32)),
            ("c", Pointer("C" if problem.reads_c else "D", c.dtype, c.alignment)),
            ("d", setup.d.descriptor((part_m, config.part_n)) if setup.d else Pointer("D", d.dtype, d.alignment)),
            ("partials", Pointer("partials", FP32) if stream else Pointer("D", d.dtype, d.alignment)),
            ("counters", Pointer("counters", INT32) if stream else Pointer("D", d.dtype, d.alignment)),
            *strides_of("c", c),
            *strides_of("d", d),
            ("M", Scalar.index(problem.m)),
            ("N", Scalar.index(problem.n)),
            ("K", Scalar.index(problem.effective_k)),
            ("alpha", Scalar.real(problem.effective_alpha)),
            ("beta", Scalar.real(problem.beta)),
        )
        constants: tuple[tuple[str, Any], ...] = (
            ("TILE_M", config.tile_m),
            ("TILE_N", config.tile_n),
            ("TILE_K", config.tile_k),
            ("GROUP", config.group),
            ("STREAM", stream),
            ("STAGES", config.stages),
            ("OWNERS", config.owners),
            ("TURNS", config.schedule == "turns"),
            ("NUM_WARPS", config.num_warps),
            ("PROMOTE", config.promote),
            ("INSTRUCTION_K", 32 // problem.a.dtype.bytes),
            ("A_COLUMNS", setup.a.columns),
            ("B_COLUMNS", setup.b.columns),
            ("A_IN_REGISTERS", setup.a_in_registers),
            ("READ_C", problem.reads_c),
            ("D_TMA", setup.d is not None),
            ("D_COLUMNS", d_columns),
            ("D_VECTOR", 16 // d.dtype.bytes if aligned else 1),
            ("BUFFERS", config.buffers),
            ("STAGING", list(staging)),
            ("STAGING_LAYOUT", shared_layout(staging, d.dtype)),
            ("D_TYPE", element_type(d.dtype)),
            ("LOADER_REGISTERS", 24),
            ("MULTIPLIER_REGISTERS", 240),
        )
        return arguments, constants
