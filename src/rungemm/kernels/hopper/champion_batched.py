"""The Hopper kernel of batches: a batch is a third dimension of tiles, walked by one persistent launch.

fp16, bf16 and tf32. It takes what TMA can step through (products a multiple of 16 bytes apart, or an operand that all
products share), and operands whose lines are not aligned if all products' lines lie at one stride: those are copied
first, in one launch. The plan, the predicate and the space; the device code is :mod:`.batched_kernel`. Not a rung: the
idea is the champion's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from ...dtypes import BF16, FP16, FP32
from ...hardware import Gpu
from ...problem import Problem
from ..base import Kernel
from ..batches import is_shared, moved_bytes, output_arguments, rejects_batch, scale_products_launch
from ..columns import Columns, cheapest_first, choose, least, most
from ..common import cdiv
from ..plan import INT32_MAX, Argument, Launch, LaunchPlan, Pointer, Scalar
from .batched_kernel import batched_kernel
from .batched_operands import batched_descriptor, set_up_batch
from .candidates import shapes
from .demand import demand_of
from .estimate import CLOCK, LAUNCH, Work, seconds
from .operands import element_type, shared_layout
from .prepare import copy_launches
from .rung import ScheduledConfig, rejects_schedule, rejects_tile
from .setup import Setup

__all__ = ["BatchedConfig", "ChampionBatched"]

STORED_ALONE = 0.34
"""Clocks of an SM for an element of a tile that ordinary stores write, where D's lines are no whole vectors. They bound
577x577x64 and 1500x1500x64 on an H200 (0.33 and 0.35); products hide them where K is long."""

MOST_COPIED = 1 << 31
"""Bytes of aligned copies up to which they are made."""


@dataclass(frozen=True)
class BatchedConfig(ScheduledConfig):
    """One setting.

    Attributes (and those of :class:`.rung.ScheduledConfig`):
        crowd: programs an SM; several hide each other's waits, each with a smaller ring.
    """

    buffers: int = 1
    crowd: int = 1


USUAL = BatchedConfig()

Setting = BatchedConfig | Columns[BatchedConfig]
"""One setting, or many by columns."""


class ChampionBatched(Kernel[BatchedConfig]):
    name = "champion_batched"
    idea = "a batch is a third dimension of tiles: one persistent launch walks the tiles of all products"
    expects = "no tail of a wave for each product, loads run on across products"
    below = "champion_hopper"
    family = "hopper"
    min_arch = 90
    dtypes = (FP16, BF16, FP32)
    config_type = BatchedConfig

    def __init__(self) -> None:
        self._grids: dict[tuple[Any, ...], Columns[BatchedConfig]] = {}

    def refuses(self, problem: Problem, gpu: Gpu) -> str | None:
        return super().refuses(problem, gpu) or rejects_products(self.name, problem, gpu)

    def rejects(self, problem: Problem, config: BatchedConfig, gpu: Gpu) -> str | None:
        reason = rejects_tile(config, config.part_m, problem.a.dtype.bytes)
        if reason is not None:
            return reason
        if config.stages < 2:
            return f"stages is {config.stages}: a stage is released only when the next is multiplied, so 2 at least"
        reason = rejects_schedule(config)
        if reason is not None:
            return reason
        if not 1 <= config.crowd <= 8 or (config.crowd > 1 and self.max_registers(config, gpu) is None):
            return f"crowd is {config.crowd}: so many programs do not fit the registers of an SM (1 to 8, 'together')"
        tiles, steps = self.tiles(problem, config), cdiv(problem.k, config.tile_k)
        if tiles > INT32_MAX // 2 or 2 * problem.k > INT32_MAX or 4 * steps > INT32_MAX:
            return f"{tiles} tiles of {steps} steps: beyond this kernel's 32-bit counters"
        shared = config.crowd * (self.shared_bytes(problem, config) + gpu.shared_reserved)
        if shared > gpu.shared_per_sm or shared // config.crowd - gpu.shared_reserved > gpu.shared_per_block:
            return f"needs {shared} bytes of shared memory an SM; {gpu.title} has {gpu.shared_per_sm}"
        if problem.is_empty or problem.effective_k == 0:
            return None
        setup = set_up_batch(problem, config.swap)
        if isinstance(setup, str):
            return setup
        copied = sum(copy.source.rows * copy.pitch * copy.source.dtype.bytes for copy in setup.copies)
        if copied > MOST_COPIED or any(copy.tiles > INT32_MAX // 2 for copy in setup.copies):
            return f"{copied} bytes of aligned copies: {MOST_COPIED} at most"
        return None

    def shared_bytes(self, problem: Problem, config: Setting) -> Any:
        staging = config.owners * config.buffers * config.part_m * config.part_n * problem.d.dtype.bytes
        # What warp specialisation keeps for itself.
        return config.stages * self.stage_bytes(problem, config) + staging + 256

    def stage_bytes(self, problem: Problem, config: Setting) -> Any:
        """Of a stage of the ring and its barriers."""
        return (config.tile_m + config.tile_n) * config.tile_k * problem.a.dtype.bytes + 16

    def tiles(self, problem: Problem, config: Setting) -> Any:
        m, n = choose(config.swap, problem.n, problem.m), choose(config.swap, problem.m, problem.n)
        return problem.batch * cdiv(m, config.tile_m) * cdiv(n, config.tile_n)

    def max_registers(self, config: BatchedConfig, gpu: Gpu) -> int | None:
        """The cap under which ``crowd`` programs fit an SM's registers; ``None`` for one, or where they cannot."""
        if config.crowd < 2 or config.owners > 1:
            return None
        threads = 32 * config.num_warps + 128  # the loader's warp counts as four
        cap = min(255, gpu.registers_per_sm // (threads * config.crowd) // 8 * 8)
        return cap if cap >= config.tile_m * config.tile_n // (32 * config.num_warps) + 48 else None

    def programs(self, problem: Problem, config: Setting, gpu: Gpu) -> Any:
        return most(1, least(config.crowd * gpu.sms, self.tiles(problem, config)))

    def estimate(self, problem: Problem, config: BatchedConfig, gpu: Gpu) -> float:
        """Seconds that a supported config should take; see :mod:`.estimate`, which was fitted to single products.

        Of 30 batches timed on an H200 those whose D goes by TMA came within 0.86 and 1.04 of it, tiny tiles below.
        """
        return float(self.cost(problem, config, gpu))

    def cost(self, problem: Problem, config: Setting, gpu: Gpu) -> Any:
        """The estimate, or the estimates; a way round that the batch cannot be set up takes forever."""
        if problem.is_empty or problem.effective_k == 0:
            return moved_bytes(problem) / (1e9 * gpu.dram_gbs) + 0 * config.tile_m  # D = beta * C
        demand = demand_of(problem, set_up_batch, config.swap, gpu)
        tiles, turns = self.tiles(problem, config), config.schedule == "turns"
        work = Work(
            demand, config.tile_m, config.tile_n, config.tile_k, tiles, self.programs(problem, config, gpu),
            config.crowd * gpu.sms, config.stages, turns & False, turns,
        )  # fmt: skip
        stored = tiles * config.tile_m * config.tile_n * STORED_ALONE / (gpu.sms * CLOCK)
        return most(seconds(work), LAUNCH + choose(stores_alone(problem, config.swap), stored, 0.0))

    def configs(self, problem: Problem, gpu: Gpu) -> Iterator[BatchedConfig]:
        """Every candidate that is supported, by rising estimate; or one, which shows why none is."""
        if self.refuses(problem, gpu) is not None:
            yield BatchedConfig()
            return
        candidates = self.candidates(problem, gpu)
        order = cheapest_first(self, problem, gpu, candidates, self.cost(problem, candidates, gpu))
        yield next(order, (BatchedConfig(), 0.0))[0]
        yield from (config for config, _ in order)

    def candidates(self, problem: Problem, gpu: Gpu) -> Columns[BatchedConfig]:
        """The champion's tiles, both ways round, with the deepest ring that one program an SM, or several, hold."""
        grid = self.grid(problem, gpu)
        m, n = choose(grid.swap, problem.n, problem.m), choose(grid.swap, problem.m, problem.n)
        # A tile twice as large as the matrix multiplies zeros.
        fits = ((grid.tile_m <= 64) | (grid.tile_m < 2 * m)) & ((grid.tile_n <= 16) | (grid.tile_n < 2 * n))
        fits &= (grid.crowd == 1) | (self.tiles(problem, grid) > (grid.crowd - 1) * gpu.sms)
        return grid.where(np.flatnonzero(fits))

    def grid(self, problem: Problem, gpu: Gpu) -> Columns[BatchedConfig]:
        """All candidates of all problems of these types and this K, as far as that is short."""
        longest = 256
        while longest > 32 and 2 * problem.k * problem.a.dtype.bytes <= longest:
            longest //= 2  # a K step twice as long as K multiplies zeros, too
        key = problem.a.dtype.bytes, problem.d.dtype.bytes, longest, gpu
        if key not in self._grids:
            self._grids[key] = Columns(list(self.every(problem, longest, gpu)))
        return self._grids[key]

    def every(self, problem: Problem, longest: int, gpu: Gpu) -> Iterator[BatchedConfig]:
        """The grid's rows, with K steps of ``longest`` bytes at most."""
        for shape, swap in product(shapes(), (False, True)):
            base = USUAL.with_(
                tile_m=shape.tile_m, tile_n=shape.tile_n, num_warps=shape.num_warps, schedule=shape.schedule,
                tile_k=min(shape.k_bytes, longest) // problem.a.dtype.bytes, swap=swap,
                part_n=min(128 // problem.d.dtype.bytes, shape.tile_n),
            )  # fmt: skip
            for crowd in (1, 2, 3, 4) if shape.schedule == "together" else (1,):
                config = base.with_(crowd=crowd)
                stages = self.most_stages(problem, config, gpu)
                if stages >= 2:
                    yield config.with_(stages=stages)

    def most_stages(self, problem: Problem, config: BatchedConfig, gpu: Gpu) -> int:
        """As deep a ring as shared memory holds, up to 8 stages; fewer than 1 where it holds none."""
        limit = min(gpu.shared_per_block, gpu.shared_per_sm // config.crowd - gpu.shared_reserved)
        stage = self.stage_bytes(problem, config)
        besides = self.shared_bytes(problem, config) - config.stages * stage
        return min(8, (limit - besides) // stage)

    def build(self, problem: Problem, config: BatchedConfig, gpu: Gpu) -> LaunchPlan:
        if problem.effective_k == 0:
            return LaunchPlan(self.name, (scale_products_launch(problem),)).overlapping()
        setup = set_up_batch(problem, config.swap)
        assert not isinstance(setup, str), setup
        arguments, constants = self.arguments(setup, config)
        launch = Launch(
            batched_kernel, (self.programs(problem, config, gpu), 1, 1), arguments, constants, config.num_warps,
            self.max_registers(config, gpu),
        )  # fmt: skip
        copies = setup.copies
        workspaces = tuple(copy.workspace for copy in copies)
        return LaunchPlan(self.name, (*copy_launches(copies), launch), workspaces).overlapping()

    def arguments(
        self, setup: Setup, config: BatchedConfig
    ) -> tuple[tuple[tuple[str, Argument], ...], tuple[tuple[str, Any], ...]]:
        """The launch's arguments and constants."""
        problem, batch = setup.problem, setup.problem.batch
        tf32 = problem.a.dtype == FP32
        d = problem.d
        a, a_layout = batched_descriptor(setup.a, batch, (config.tile_m, config.tile_k), tf32)
        b, b_layout = batched_descriptor(setup.b, batch, (config.tile_k, config.tile_n), tf32)
        to: Argument = Pointer("D", d.dtype, d.alignment)
        columns = setup.d.columns if setup.d is not None else d.is_col_major
        staging = (config.part_n, config.part_m) if columns else (config.part_m, config.part_n)
        staging_layout: Any = shared_layout(staging, d.dtype)
        if setup.d is not None:
            to, staging_layout = batched_descriptor(setup.d, batch, (config.part_m, config.part_n))
        vector = 16 // d.dtype.bytes
        aligned = d.alignment >= 16 and (d.row_stride if columns else d.col_stride) == 1
        aligned = aligned and all(
            stride % vector == 0 for stride in (d.col_stride if columns else d.row_stride, d.batch_stride)
        )
        arguments: tuple[tuple[str, Argument], ...] = (
            ("a", a), ("b", b), *output_arguments(problem, to), ("batch", Scalar.index(batch)),
            ("M", Scalar.index(problem.m)), ("N", Scalar.index(problem.n)),
            ("K", Scalar.index(problem.effective_k)),
            ("alpha", Scalar.real(problem.effective_alpha)), ("beta", Scalar.real(problem.beta)),
        )  # fmt: skip
        constants: tuple[tuple[str, Any], ...] = (
            ("TILE_M", config.tile_m),
            ("TILE_N", config.tile_n),
            ("TILE_K", config.tile_k),
            ("GROUP", config.group),
            ("STAGES", config.stages),
            ("OWNERS", config.owners),
            ("TURNS", config.schedule == "turns"),
            ("NUM_WARPS", config.num_warps),
            ("INSTRUCTION_K", 32 // problem.a.dtype.bytes),
            ("A_COLUMNS", setup.a.columns),
            ("B_COLUMNS", setup.b.columns),
            ("A_EACH", not is_shared(problem.a, batch)),
            ("B_EACH", not is_shared(problem.b, batch)),
            ("A_IN_REGISTERS", setup.a_in_registers),
            ("READ_C", problem.reads_c),
            ("A_BOX", list(a.block[1:])),
            ("B_BOX", list(b.block[1:])),
            ("A_LAYOUT", a_layout),
            ("B_LAYOUT", b_layout),
            ("D_TMA", setup.d is not None),
            ("D_COLUMNS", columns),
            ("D_VECTOR", vector if aligned else 1),
            ("BUFFERS", config.buffers),
            ("STAGING", list(staging)),
            ("STAGING_LAYOUT", staging_layout),
            ("D_TYPE", element_type(d.dtype)),
            ("LOADER_REGISTERS", 24),
            ("MULTIPLIER_REGISTERS", 240),
        )
        return arguments, constants


def stores_alone(problem: Problem, swap: Any) -> Any:
    """Whether D leaves by ordinary stores, ``swap``: as in :func:`.demand.demand_of`."""
    if isinstance(swap, np.ndarray):
        return np.where(swap, stores_alone(problem, True), stores_alone(problem, False))
    setup = set_up_batch(problem, swap)
    return not isinstance(setup, str) and setup.d is None


def rejects_products(name: str, problem: Problem, gpu: Gpu) -> str | None:
    """What the kernel never takes, whatever the config."""
    if gpu.arch != 90:
        return f"{name} uses wgmma, which only sm_90 has; {gpu.title} is sm_{gpu.arch}"
    if problem.a.dtype == FP32 and problem.precision != "tf32":
        return f"{name} takes fp32 with precision 'tf32'; it is {problem.precision!r}"
    for operand, matrix in (("C", problem.c), ("D", problem.d)):
        if matrix is not None and matrix.dtype not in (FP16, BF16, FP32):
            return f"{operand} is {matrix.dtype}; {name} takes fp16, bf16 or fp32 there"
    return rejects_batch(name, problem)
