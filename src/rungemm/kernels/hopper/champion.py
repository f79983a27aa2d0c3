"""The Hopper champion: the ladder's ideas together, with a search space, for fp16, bf16 and tf32.

Every legal problem ends here: operands that TMA cannot move, and fp32 operands that wgmma cannot read, are first
copied into an aligned workspace (:mod:`.prepare`); D that TMA cannot write is stored by ordinary instructions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ...dtypes import BF16, FP16, FP32, INT32
from ...hardware import HOPPER_TENSOR_MHZ, Gpu
from ...problem import Problem
from ..base import Kernel
from ..common import cdiv
from ..cuda_core.split import PARTIAL_SUMS, partial_sums, reduction_launch
from ..epilogue import activation_of, epilogue_arguments, epilogue_constants, rejects_epilogue
from ..plan import INT32_MAX, Argument, Launch, LaunchPlan, Pointer, Scalar, Workspace, strides_of
from .candidates import shapes
from .champion_kernel import champion_hopper_kernel
from .estimate import ACTIVATION_CLOCKS, Work, seconds
from .operands import swapped
from .prepare import copy_launches, copy_seconds
from .rung import ScheduledConfig, rejects_problem, rejects_schedule, rejects_tile, staging_constants
from .scale import scale_launch
from .setup import Setup, set_up
from .tuned import nearest

__all__ = ["ChampionHopper", "HopperConfig"]


NEIGHBOUR = 1.15
"""A neighbour's setting is taken up to this ratio of the model's seconds for it to those for the model's own choice."""


POOR = 0.97
"""Of cuBLAS's time over a measured setting's: below this the setting is no model for its neighbours, and"""

CLEARLY_BETTER = 0.9
"""on its own problem it is left where the model promises for another less than this share of the time it took."""


WORTH_A_CHANGE = 0.99
"""A measured setting is left for another only where the model promises so much less time."""


def pitch_of(problem: Problem) -> int:
    """Elements of a row of partial sums: whole vectors of 16 bytes."""
    return cdiv(problem.n, 4) * 4


@dataclass(frozen=True)
class HopperConfig(ScheduledConfig):
    """One setting of the champion.

    Attributes (and those of :class:`.rung.ScheduledConfig`):
        stream: the tiles beyond the last full wave are shared by all programs, along K.
        programs: programs in the grid; 0 for one per SM. Never more than tiles, or than K steps where they are shared.
        promote: K steps that the tensor cores add up before a rounded fp32 addition; 0 for all.
        splits: runs of K steps into which every tile is cut; a second launch adds up their sums (not with ``stream``).
    """

    stream: bool = False
    programs: int = 0
    promote: int = 0
    splits: int = 1

    @property
    def label(self) -> str:
        """Short: ``~`` swap, tile, ``t`` turns or ``h`` halves, ``/`` stages, ``g`` group, ``+k`` stream, ``s`` splits,
        ``@`` programs, ``p`` promote; what is as usual is left out."""
        schedule = {"turns": "t", "halves": "h", "together": ""}.get(self.schedule, self.schedule)
        text = f"{'~' if self.swap else ''}{self.tile_m}x{self.tile_n}x{self.tile_k}{schedule}/{self.stages}"
        text += (f"g{self.group}" if self.group != 8 else "") + ("+k" if self.stream else "")
        text += (f"s{self.splits}" if self.splits > 1 else "") + (f"@{self.programs}" if self.programs else "")
        return text + (f"p{self.promote}" if self.promote else "")


class ChampionHopper(Kernel[HopperConfig]):
    name = "champion_hopper"
    idea = "every idea of the Hopper ladder together, searched"
    expects = "even with cuBLAS at large squares, ahead at odd sizes and with few rows"
    below = "stream_k"
    family = "hopper"
    min_arch = 90
    dtypes = (FP16, BF16, FP32)
    config_type = HopperConfig

    def rejects(self, problem: Problem, config: HopperConfig, gpu: Gpu) -> str | None:
        reason = rejects_problem(self.name, problem, gpu) or rejects_epilogue(self.name, problem)
        reason = reason or rejects_tile(config, config.part_m, problem.a.dtype.bytes)
        if reason is not None:
            return reason
        if config.stages < 2 and problem.k * (3 if problem.precision == "tf32x3" else 1) > config.tile_k:
            return "stages is 1: a stage is released only when the next is multiplied, so 2 for several K steps"
        reason = rejects_schedule(config, 2 if config.promote else 1)
        if reason is not None:
            return reason
        if not 1 <= config.splits <= max(1, cdiv(problem.k, config.tile_k)):
            return f"splits is {config.splits}: from 1 to the {cdiv(problem.k, config.tile_k)} K steps"
        if config.splits > 1 and config.stream:
            return "splits and stream are two ways to share a tile along K: choose one"
        if config.splits * problem.m * (problem.n + 3) > INT32_MAX:
            return f"{config.splits} splits of {problem.m}x{problem.n} partial sums: beyond 32-bit offsets"
        tiles, steps = self.tiles(problem, config) * config.splits, cdiv(problem.k, config.tile_k) * 3
        if config.programs < 0 or config.programs > 64 * gpu.sms:
            return f"programs is {config.programs}: from 0 (one per SM) to {64 * gpu.sms}"
        if tiles > INT32_MAX // 2 or max(config.programs, gpu.sms) * steps > INT32_MAX:
            return f"{tiles} tiles of {steps} steps: beyond this kernel's 32-bit counters"
        shared = self.shared_bytes(problem, config)
        if shared > gpu.shared_per_block:
            return f"needs {shared} bytes of shared memory; {gpu.title} gives a block {gpu.shared_per_block}"
        return None

    def shared_bytes(self, problem: Problem, config: HopperConfig) -> int:
        stage = (config.tile_m + config.tile_n) * config.tile_k * problem.a.dtype.bytes
        # Split tiles leave from registers.
        parts = 0 if config.splits > 1 else config.owners * config.buffers
        staging = parts * config.part_m * config.part_n * problem.d.dtype.bytes
        # The barriers, and what warp specialisation keeps for itself (compiled: 180 bytes with 4 stages).
        return config.stages * (stage + 16) + staging + 256

    def tiles(self, problem: Problem, config: HopperConfig) -> int:
        m, n = (problem.n, problem.m) if config.swap else (problem.m, problem.n)
        return cdiv(m, config.tile_m) * cdiv(n, config.tile_n)

    def programs(self, problem: Problem, config: HopperConfig, gpu: Gpu) -> int:
        """Programs in the grid. None waits for another, so they need not all run at once."""
        programs = config.programs or gpu.sms
        tiles, steps = self.tiles(problem, config), cdiv(problem.k, config.tile_k)
        return max(1, min(programs, tiles * (steps if config.stream else config.splits)))

    def resident(self, problem: Problem, config: HopperConfig, gpu: Gpu) -> int:
        """Programs that run at once on the whole card: as many on an SM as its shared memory and registers hold."""
        by_shared = gpu.shared_per_sm // (self.shared_bytes(problem, config) + gpu.shared_reserved)
        # The multipliers may take 240 registers a thread; the loader's warps are few.
        threads = 32 * config.num_warps * config.owners + 128
        by_registers = gpu.registers_per_sm // (threads * (self.max_registers(problem, config, gpu) or 168))
        return gpu.sms * max(1, min(by_shared, by_registers))

    def max_registers(self, problem: Problem, config: HopperConfig, gpu: Gpu) -> int | None:
        """A cap where more programs than SMs are asked for: left alone, ptxas takes all of an SM's registers for one.

        ``None`` where shared memory or the accumulators leave no room for a second program.
        """
        crowd = cdiv(self.programs(problem, config, gpu), gpu.sms)
        crowd = min(crowd, gpu.shared_per_sm // (self.shared_bytes(problem, config) + gpu.shared_reserved))
        if crowd < 2 or config.owners > 1:
            return None
        threads = 32 * config.num_warps + 128  # the loader's warp counts as four
        cap = gpu.registers_per_sm // (threads * crowd) // 8 * 8
        accumulators = config.tile_m * config.tile_n // (32 * config.num_warps) * (2 if config.promote else 1)
        return cap if cap >= accumulators + 48 else None

    def estimate(self, problem: Problem, config: HopperConfig, gpu: Gpu) -> float:
        """Seconds that a supported config should take; see :mod:`.estimate`."""
        return seconds(self.work(problem, config, gpu))

    def work(self, problem: Problem, config: HopperConfig, gpu: Gpu) -> Work:
        """What the estimate is made from."""
        setup = set_up(problem, config.swap)
        dtype = problem.a.dtype
        m, n = setup.problem.m, setup.problem.n
        rows = cdiv(m, config.tile_m) * config.tile_m, cdiv(n, config.tile_n) * config.tile_n
        inside = m / max(rows[0], 1) * config.tile_m + n / max(rows[1], 1) * config.tile_n
        peak = (gpu.peak("tf32" if dtype == FP32 else dtype.name) or 1.0) * 1e12
        return Work(
            config.tile_m, config.tile_n, config.tile_k, self.tiles(problem, config),
            cdiv(setup.problem.k, config.tile_k), self.programs(problem, config, gpu),
            self.resident(problem, config, gpu), config.stages, gpu.sms, dtype.bytes, problem.d.dtype.bytes,
            peak / gpu.sms / (1e6 * HOPPER_TENSOR_MHZ), problem.minimum_bytes, 1e9 * gpu.dram_gbs,
            copy_seconds(setup.copies, gpu), config.stream, config.schedule == "turns", setup.a_in_registers,
            config.promote, config.splits, inside / (config.tile_m + config.tile_n), 4 * m * n,
            ACTIVATION_CLOCKS[activation_of(problem)],
        )  # fmt: skip

    def configs(self, problem: Problem, gpu: Gpu) -> Iterator[HopperConfig]:
        """What was measured to be best here or near (:mod:`.tuned`), then every other candidate by rising estimate."""
        hopeless = rejects_problem(self.name, problem, gpu) or rejects_epilogue(self.name, problem)
        every = () if hopeless else self.candidates(problem, gpu)
        legal = {c: None for c in every if self.supports(problem, c, gpu) is None}
        if not legal:  # the problem is what is wrong: any config will show why
            yield HopperConfig()
            return
        cost = {config: self.estimate(problem, config, gpu) for config in legal}
        order = sorted(legal, key=cost.__getitem__)
        tuned = self.tuned(problem, gpu, cost[order[0]])
        if tuned is not None:
            yield tuned
        yield from (config for config in order if config != tuned)

    def tuned(self, problem: Problem, gpu: Gpu, least: float) -> HopperConfig | None:
        """The shipped table's setting, if the kernel takes it and it did well, or the model knows none that is clearly
        better; a neighbour's, if it did well and the model does not think it bad.

        ``least`` is the model's least estimate, in seconds. A neighbour's ring is made to fit, and what depends on its
        number of tiles (``programs``, ``splits``) is not borrowed.
        """
        found = nearest(problem, gpu, POOR)
        if found is None:
            return None
        entry, exact = found
        config = HopperConfig.from_dict(entry.config)
        if not exact and (config.programs or config.splits > 1):
            return None
        part_n = min(128 // problem.d.dtype.bytes, config.tile_n)
        if part_n != config.part_n:
            config = replace(config, part_n=part_n, stages=1)
            config = replace(config, stages=self.most_stages(problem, config, gpu))
        if self.supports(problem, config, gpu) is not None:
            return None
        if exact:
            given_up = entry.ratio < POOR and 1e6 * least < CLEARLY_BETTER * entry.us
        else:
            given_up = self.estimate(problem, config, gpu) > NEIGHBOUR * least
        if given_up:
            return None
        return self.hiding(problem, config, gpu)

    def hiding(self, problem: Problem, config: HopperConfig, gpu: Gpu) -> HopperConfig:
        """A config measured without an activation, or one by turns if the model says that the activation's time, which
        turns hide behind the other partition's products, makes up for the change.

        Not where D leaves by ordinary stores: their addresses and a whole tile's sums spill when an activation joins.
        """
        if problem.epilogue is None or problem.epilogue.activation is None or config.schedule == "turns":
            return config
        if set_up(problem, config.swap).d is None:
            return config
        cost = {
            c: self.estimate(problem, c, gpu)
            for c in self.candidates(problem, gpu)
            if c.schedule == "turns" and self.supports(problem, c, gpu) is None
        }
        best = min(cost, key=cost.__getitem__, default=config)
        return best if cost.get(best, 1.0) < WORTH_A_CHANGE * self.estimate(problem, config, gpu) else config

    def candidates(self, problem: Problem, gpu: Gpu) -> Iterator[HopperConfig]:
        """The grid of :func:`.candidates.shapes`, both ways round, shared along K or not; all that fits the problem."""
        element = problem.a.dtype.bytes
        large = max(problem.m, problem.n) > 2048
        for shape in shapes():
            for swap in (False, True):
                m, n = (problem.n, problem.m) if swap else (problem.m, problem.n)
                # A tile twice as large as the matrix multiplies zeros.
                if (shape.tile_m > 64 and shape.tile_m >= 2 * m) or (shape.tile_n > 16 and shape.tile_n >= 2 * n):
                    continue
                if swap and min(problem.m, problem.n) > 512 and problem.a.dtype != FP32:
                    continue
                base = HopperConfig(
                    tile_m=shape.tile_m, tile_n=shape.tile_n, tile_k=shape.k_bytes // element,
                    num_warps=shape.num_warps, schedule=shape.schedule, swap=swap,
                    part_n=min(128 // problem.d.dtype.bytes, shape.tile_n), buffers=1,
                )  # fmt: skip
                # Without promotion, what tensor cores cut off is 50 times the error that tf32x3 is for.
                for promote in (16, 8, 4) if problem.precision == "tf32x3" else (0,):
                    config = replace(base, promote=promote)
                    deep = replace(config, stages=self.most_stages(problem, config, gpu))
                    yield from self.divided(problem, deep, gpu)
                    if large and deep.tile_m * deep.tile_n >= 128 * 128:
                        yield from self.divided(problem, replace(deep, group=16), gpu)

    def divided(self, problem: Problem, config: HopperConfig, gpu: Gpu) -> Iterator[HopperConfig]:
        """The ways to share out a tile: whole, one program an SM or more; or along K, in one launch or two."""
        tiles, steps = self.tiles(problem, config), cdiv(problem.k, config.tile_k)
        yield config
        if gpu.sms < tiles <= 4 * gpu.sms and config.tile_m * config.tile_n <= 128 * 64:
            # Small tiles: several programs an SM hide each other's waits, each with a smaller ring.
            half = replace(config, stages=self.most_stages(problem, config, gpu, gpu.shared_per_sm // 2 - 1024))
            yield replace(half, programs=tiles)
        if tiles % gpu.sms and steps > 1:
            yield replace(config, stream=True)
            splits = min(gpu.sms // tiles, steps)
            if splits > 1:
                yield replace(config, stream=True, programs=splits * tiles)
                split = replace(config, splits=splits)
                yield replace(split, stages=self.most_stages(problem, split, gpu))

    def most_stages(self, problem: Problem, config: HopperConfig, gpu: Gpu, limit: int | None = None) -> int:
        """As deep a ring as shared memory holds, up to 16 stages."""
        one = self.shared_bytes(problem, replace(config, stages=1))
        stage = self.shared_bytes(problem, replace(config, stages=2)) - one
        return max(1, min(16, ((limit or gpu.shared_per_block) - one) // stage + 1))

    def build(self, problem: Problem, config: HopperConfig, gpu: Gpu) -> LaunchPlan:
        if problem.effective_k == 0:
            return LaunchPlan(self.name, (scale_launch(problem),))
        setup = set_up(problem, config.swap)
        programs = self.programs(problem, config, gpu)
        left_over = self.tiles(problem, config) % programs
        # With whole waves of tiles there is nothing to share.
        stream = config.stream and left_over > 0
        arguments, constants = self.arguments(setup, config, stream)
        launch = Launch(
            champion_hopper_kernel, (programs, 1, 1), arguments, constants, config.num_warps,
            self.max_registers(problem, config, gpu),
        )  # fmt: skip
        launches = (*copy_launches(setup.copies), launch)
        workspaces: tuple[Workspace, ...] = tuple(copy.workspace for copy in setup.copies)
        if stream:
            parts = 2 * programs * config.tile_m * config.tile_n
            counters = left_over * config.owners
            workspaces += (
                Workspace("partials", FP32, parts),
                Workspace("counters", INT32, counters, zeroed=True, restored=True),
            )
        if config.splits > 1:
            pitch = pitch_of(problem)
            launches += (reduction_launch(problem, config.splits, pitch),)
            workspaces += (partial_sums(problem, config.splits, pitch),)
        return LaunchPlan(self.name, launches, workspaces).overlapping()

    def arguments(
        self, setup: Setup, config: HopperConfig, stream: bool
    ) -> tuple[tuple[tuple[str, Argument], ...], tuple[tuple[str, Any], ...]]:
        """The launch's arguments and constants."""
        problem = setup.problem
        d, c = problem.d, problem.c if problem.reads_c and problem.c is not None else problem.d
        alpha, beta, reads_c = problem.effective_alpha, problem.beta, problem.reads_c
        where = Pointer("partials", FP32) if stream else Pointer("D", d.dtype, d.alignment)
        strides: Iterable[tuple[str, Argument]] = strides_of("d", d)
        if config.splits > 1:
            # The partial sums lie as a row-major D would, whichever way round it is computed; the rest comes later.
            alpha, beta, reads_c, setup, where = 1.0, 0.0, False, replace(setup, d=None), Pointer(PARTIAL_SUMS, FP32)
            problem = replace(problem, epilogue=None)
            pitch, one = Scalar.index(pitch_of(swapped(problem) if config.swap else problem)), Scalar.index(1)
            strides = zip(("d_row", "d_col"), (one, pitch) if config.swap else (pitch, one), strict=True)
        tf32 = problem.a.dtype == FP32
        part_m = config.part_m
        arguments: tuple[tuple[str, Argument], ...] = (
            ("a", setup.a.descriptor((config.tile_m, config.tile_k), tf32)),
            ("b", setup.b.descriptor((config.tile_k, config.tile_n), tf32)),
            ("c", Pointer("C" if reads_c else "D", c.dtype, c.alignment)),
            ("d", setup.d.descriptor((part_m, config.part_n)) if setup.d else Pointer("D", d.dtype, d.alignment)),
            ("partials", where),
            ("counters", Pointer("counters", INT32) if stream else Pointer("D", d.dtype, d.alignment)),
            *strides_of("c", c),
            *strides,
            ("M", Scalar.index(problem.m)),
            ("N", Scalar.index(problem.n)),
            ("K", Scalar.index(problem.effective_k)),
            ("alpha", Scalar.real(alpha)),
            ("beta", Scalar.real(beta)),
            *epilogue_arguments(problem),
        )
        constants: tuple[tuple[str, Any], ...] = (
            ("TILE_M", config.tile_m),
            ("TILE_N", config.tile_n),
            ("TILE_K", config.tile_k),
            ("GROUP", config.group),
            ("STREAM", stream),
            ("SPLITS", config.splits),
            ("STAGES", config.stages),
            ("OWNERS", config.owners),
            ("TURNS", config.schedule == "turns"),
            ("NUM_WARPS", config.num_warps),
            ("PROMOTE", config.promote),
            ("INSTRUCTION_K", 32 // problem.a.dtype.bytes),
            ("A_COLUMNS", setup.a.columns),
            ("B_COLUMNS", setup.b.columns),
            ("A_IN_REGISTERS", setup.a_in_registers),
            ("READ_C", reads_c),
            *epilogue_constants(problem),
            *staging_constants(setup, part_m, config.part_n, config.buffers),
            ("LOADER_REGISTERS", 24),
            ("MULTIPLIER_REGISTERS", 240),
        )
        return arguments, constants
