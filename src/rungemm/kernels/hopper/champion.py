"""The Hopper champion: the ladder's ideas together, with a search space, for fp16, bf16 and tf32.

Every legal problem ends here: operands that TMA cannot move, and fp32 operands that wgmma cannot read, are first
copied into an aligned workspace (:mod:`.prepare`); D that TMA cannot write is stored by ordinary instructions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, product
from typing import Any

import numpy as np

from ...dtypes import BF16, FP16, FP32, INT32
from ...hardware import Gpu
from ...problem import Problem
from ..base import Kernel
from ..columns import Columns, cheapest_first, choose, least, most
from ..common import cdiv
from ..cuda_core.split import PARTIAL_SUMS, partial_sums, reduction_launch
from ..epilogue import epilogue_arguments, epilogue_constants, rejects_epilogue
from ..plan import INT32_MAX, Argument, Launch, LaunchPlan, Pointer, Scalar, Workspace, strides_of
from .candidates import shapes
from .champion_kernel import champion_hopper_kernel
from .demand import demand_of
from .estimate import Work, seconds
from .operands import swapped
from .prepare import copy_launches
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


USUAL = HopperConfig(buffers=1)

WHOLE, CROWD, STREAM, SHORT_STREAM, SPLIT = range(5)
"""Ways to share out a tile: whole, one program an SM or several; along K in one launch, by one program an SM or by so
many that each has a part of one tile only; along K in two launches."""

Space = Columns[HopperConfig]

Setting = HopperConfig | Space
"""One setting, or many by columns."""


class ChampionHopper(Kernel[HopperConfig]):
    name = "champion_hopper"
    idea = "every idea of the Hopper ladder together, searched"
    expects = "even with cuBLAS at large squares, ahead at odd sizes and with few rows"
    below = "stream_k"
    family = "hopper"
    min_arch = 90
    dtypes = (FP16, BF16, FP32)
    config_type = HopperConfig

    def __init__(self) -> None:
        self._grids: dict[tuple[Any, ...], Space] = {}

    def refuses(self, problem: Problem, gpu: Gpu) -> str | None:
        reason = super().refuses(problem, gpu) or rejects_problem(self.name, problem, gpu)
        return reason or rejects_epilogue(self.name, problem)

    def rejects(self, problem: Problem, config: HopperConfig, gpu: Gpu) -> str | None:
        reason = rejects_tile(config, config.part_m, problem.a.dtype.bytes)
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

    def shared_bytes(self, problem: Problem, config: Setting) -> Any:
        # Split tiles leave from registers.
        parts = choose(config.splits > 1, 0, config.owners * config.buffers)
        staging = parts * config.part_m * config.part_n * problem.d.dtype.bytes
        # The barriers, and what warp specialisation keeps for itself (compiled: 180 bytes with 4 stages).
        return config.stages * self.stage_bytes(problem, config) + staging + 256

    def stage_bytes(self, problem: Problem, config: Setting) -> Any:
        """Of a stage of the ring and its barriers."""
        return (config.tile_m + config.tile_n) * config.tile_k * problem.a.dtype.bytes + 16

    def tiles(self, problem: Problem, config: Setting) -> Any:
        m, n = choose(config.swap, problem.n, problem.m), choose(config.swap, problem.m, problem.n)
        return cdiv(m, config.tile_m) * cdiv(n, config.tile_n)

    def programs(self, problem: Problem, config: Setting, gpu: Gpu) -> Any:
        """Programs in the grid. None waits for another, so they need not all run at once."""
        programs = choose(config.programs > 0, config.programs, gpu.sms)
        tiles, steps = self.tiles(problem, config), cdiv(problem.k, config.tile_k)
        return most(1, least(programs, tiles * choose(config.stream, steps, config.splits)))

    def estimate(self, problem: Problem, config: HopperConfig, gpu: Gpu) -> float:
        """Seconds that a supported config should take; see :mod:`.estimate`."""
        return float(seconds(self.work(problem, config, gpu)))

    def work(self, problem: Problem, config: Setting, gpu: Gpu) -> Work:
        """What the estimate is made from."""
        programs, shared = self.programs(problem, config, gpu), self.shared_bytes(problem, config)
        return Work(
            demand_of(problem, set_up, config.swap, gpu), config.tile_m, config.tile_n, config.tile_k,
            self.tiles(problem, config), programs, resident(config, programs, shared, gpu), config.stages,
            config.stream, config.schedule == "turns", config.promote, config.splits,
        )  # fmt: skip

    def ranked(self, problem: Problem, candidates: Space, gpu: Gpu) -> Iterator[tuple[HopperConfig, float]]:
        """The supported ones by rising estimate, each with it."""
        cost = seconds(self.work(problem, candidates, gpu))
        return cheapest_first(self, problem, gpu, candidates, cost)

    def configs(self, problem: Problem, gpu: Gpu) -> Iterator[HopperConfig]:
        """What was measured to be best here or near (:mod:`.tuned`), then every other candidate by rising estimate."""
        hopeless = self.refuses(problem, gpu) is not None
        order = iter(()) if hopeless else self.ranked(problem, self.candidates(problem, gpu), gpu)
        first = next(order, None)
        if first is None:  # the problem is what is wrong: any config will show why
            yield HopperConfig()
            return
        tuned = self.tuned(problem, gpu, first[1])
        if tuned is not None:
            yield tuned
        yield from (config for config, _ in chain((first,), order) if config != tuned)

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
        candidates = self.candidates(problem, gpu)
        by_turns = candidates.where(np.flatnonzero(candidates.schedule == "turns"))
        best, cost = next(self.ranked(problem, by_turns, gpu), (config, math.inf))
        return best if cost < WORTH_A_CHANGE * self.estimate(problem, config, gpu) else config

    def candidates(self, problem: Problem, gpu: Gpu) -> Space:
        """The grid of :func:`.candidates.shapes`, both ways round, shared along K or not; all that fits the problem."""
        grid = self.grid(problem, gpu)
        m, n = choose(grid.swap, problem.n, problem.m), choose(grid.swap, problem.m, problem.n)
        # A tile twice as large as the matrix multiplies zeros.
        fits = ((grid.tile_m <= 64) | (grid.tile_m < 2 * m)) & ((grid.tile_n <= 16) | (grid.tile_n < 2 * n))
        if min(problem.m, problem.n) > 512 and problem.a.dtype != FP32:
            fits &= ~grid.swap
        if max(problem.m, problem.n) <= 2048:
            fits &= grid.group == USUAL.group
        tiles, steps = self.tiles(problem, grid), cdiv(problem.k, grid.tile_k)
        splits = least(gpu.sms // most(tiles, 1), steps)
        along_k = (tiles % gpu.sms > 0) & (steps > 1)
        way, of_one = grid.way, along_k & (splits > 1)
        fits &= np.choose(way, (True, (tiles > gpu.sms) & (tiles <= 4 * gpu.sms), along_k, of_one, of_one))
        rows = np.flatnonzero(fits)
        programs = np.where(way == CROWD, tiles, np.where(way == SHORT_STREAM, splits * tiles, 0))
        return grid.where(rows, programs=programs[rows], splits=np.where(way == SPLIT, splits, 1)[rows])

    def grid(self, problem: Problem, gpu: Gpu) -> Space:
        """All candidates of all problems of these types: with ``way``, how a tile is shared out, and as deep a ring as
        there is room for, but without the ``programs`` and ``splits`` that follow from the number of tiles."""
        # Without promotion, what tensor cores cut off is 50 times the error that tf32x3 is for.
        promotions = (16, 8, 4) if problem.precision == "tf32x3" else (0,)
        key = problem.a.dtype.bytes, problem.d.dtype.bytes, promotions, gpu
        if key not in self._grids:
            found = list(self.every(problem, promotions, gpu))
            ways = np.array([way for _, way in found])
            self._grids[key] = Columns([config for config, _ in found], way=ways)
        return self._grids[key]

    def every(self, problem: Problem, promotions: Iterable[int], gpu: Gpu) -> Iterator[tuple[HopperConfig, int]]:
        """The grid's rows."""
        for shape, swap, promote in product(shapes(), (False, True), promotions):
            base = USUAL.with_(
                tile_m=shape.tile_m, tile_n=shape.tile_n, tile_k=shape.k_bytes // problem.a.dtype.bytes,
                num_warps=shape.num_warps, schedule=shape.schedule, swap=swap, promote=promote,
                part_n=min(128 // problem.d.dtype.bytes, shape.tile_n),
            )  # fmt: skip
            split = base.with_(splits=2)
            half = self.most_stages(problem, base, gpu, gpu.shared_per_sm // 2 - 1024)
            stages, of_split = (self.most_stages(problem, config, gpu) for config in (base, split))
            area = shape.tile_m * shape.tile_n
            for config in (base, base.with_(group=16)) if area >= 128 * 128 else (base,):
                yield config.with_(stages=stages), WHOLE
                if area <= 128 * 64:
                    # Small tiles: several programs an SM hide each other's waits, each with a smaller ring.
                    yield config.with_(stages=half), CROWD
                yield config.with_(stages=stages, stream=True), STREAM
                yield config.with_(stages=stages, stream=True), SHORT_STREAM
                yield config.with_(stages=of_split), SPLIT

    def most_stages(self, problem: Problem, config: HopperConfig, gpu: Gpu, limit: int | None = None) -> int:
        """As deep a ring as shared memory holds, up to 16 stages, whatever the config's own is."""
        stage = self.stage_bytes(problem, config)
        besides = self.shared_bytes(problem, config) - config.stages * stage
        return max(1, min(16, ((limit or gpu.shared_per_block) - besides) // stage))

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
            register_cap(config, programs, self.shared_bytes(problem, config), gpu) or None,
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


def register_cap(config: Setting, programs: Any, shared: Any, gpu: Gpu) -> Any:
    """A cap where more programs than SMs are asked for, each with so many bytes of shared memory: left alone, ptxas
    takes all of an SM's registers for one.

    0 where shared memory or the accumulators leave no room for a second program.
    """
    crowd = least(cdiv(programs, gpu.sms), gpu.shared_per_sm // (shared + gpu.shared_reserved))
    threads = 32 * config.num_warps + 128  # the loader's warp counts as four
    cap = gpu.registers_per_sm // (threads * most(crowd, 1)) // 8 * 8
    accumulators = config.tile_m * config.tile_n // (32 * config.num_warps) * choose(config.promote > 0, 2, 1)
    return choose((crowd >= 2) & (config.owners == 1) & (cap >= accumulators + 48), cap, 0)


def resident(config: Setting, programs: Any, shared: Any, gpu: Gpu) -> Any:
    """Programs that run at once on the whole card: as many on an SM as its shared memory and registers hold."""
    # The multipliers may take 240 registers a thread; the loader's warps are few.
    threads = 32 * config.num_warps * config.owners + 128
    cap = register_cap(config, programs, shared, gpu)
    by_registers = gpu.registers_per_sm // (threads * choose(cap > 0, cap, 168))
    return gpu.sms * most(1, least(gpu.shared_per_sm // (shared + gpu.shared_reserved), by_registers))
