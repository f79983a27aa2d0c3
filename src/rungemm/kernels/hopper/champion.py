"""The Hopper champion: the ladder's ideas together, with a search space, for fp16, bf16 and tf32.

Every legal problem ends here: operands that TMA cannot move, and fp32 operands that wgmma cannot read, are first
copied into an aligned workspace (:mod:`.prepare`); D that TMA cannot write is stored by ordinary instructions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ...dtypes import BF16, FP16, FP32, INT32
from ...hardware import Gpu
from ...problem import Problem
from ..base import Kernel
from ..common import cdiv
from ..plan import INT32_MAX, Argument, Launch, LaunchPlan, Pointer, Scalar, Workspace, strides_of
from .champion_kernel import champion_hopper_kernel
from .rung import RungConfig, rejects_parts, rejects_problem, rejects_tile, staging_constants
from .scale import scale_launch
from .setup import Setup, set_up

__all__ = ["ChampionHopper", "HopperConfig"]


@dataclass(frozen=True)
class HopperConfig(RungConfig):
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


class ChampionHopper(Kernel[HopperConfig]):
    name = "champion_hopper"
    idea = "every idea of the Hopper ladder together, searched"
    expects = "cuBLAS's speed and more, in every shape"
    below = "stream_k"
    family = "hopper"
    min_arch = 90
    dtypes = (FP16, BF16, FP32)
    config_type = HopperConfig

    def rejects(self, problem: Problem, config: HopperConfig, gpu: Gpu) -> str | None:
        reason = rejects_problem(self.name, problem, gpu)
        reason = reason or rejects_tile(config, config.part_m, problem.a.dtype.bytes)
        if reason is not None:
            return reason
        if config.schedule not in ("together", "halves", "turns"):
            return f"schedule is {config.schedule!r}: 'together', 'halves' or 'turns'"
        reason = rejects_parts(config.part_n, config.buffers, config.tile_n)
        if reason is not None:
            return reason
        accumulators = config.part_m * config.tile_n // (32 * config.num_warps) * (2 if config.promote else 1)
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
        if problem.effective_k == 0:
            return LaunchPlan(self.name, (scale_launch(problem),))
        setup = set_up(problem, config.swap)
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
            *staging_constants(setup, part_m, config.part_n, config.buffers),
            ("LOADER_REGISTERS", 24),
            ("MULTIPLIER_REGISTERS", 240),
        )
        return arguments, constants
