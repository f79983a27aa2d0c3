"""The mma.sync champion: every idea of the rungs below together, with a search space, for any card from sm_80 on.

fp16, bf16, tf32 and tf32x3, any shape, stride and alignment. The plan, the predicate and the space; the device code is
:mod:`.champion_kernel`, the model that ranks settings :mod:`.estimate`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, ClassVar

import numpy as np

from ...compat import gl
from ...dtypes import FP32
from ...hardware import HOPPER_TENSOR_MHZ, Gpu
from ...problem import Matrix, Problem
from ..columns import Columns, cheapest_first, choose, least, most
from ..common import cdiv, gemm_arguments
from ..copies import copy_launches, copy_seconds
from ..cuda_core.split import PARTIAL_SUMS, partial_sums, reduction_launch, split_stride
from ..epilogue import epilogue_arguments, epilogue_constants, rejects_epilogue
from ..hopper.operands import element_type
from ..hopper.scale import scale_launch
from ..plan import INT32_MAX, Argument, Launch, LaunchPlan, Pointer, Scalar
from .champion_kernel import champion_mma_kernel
from .estimate import Work, seconds
from .rung import SHAPE, MmaConfig, MmaRung
from .ways import Move, Way, copy_layout, moves_of, near_axis, vector_of, way_of

__all__ = ["ChampionMma", "MmaChampionConfig"]


@dataclass(frozen=True)
class MmaChampionConfig(MmaConfig):
    """One setting of the champion.

    Attributes:
        early: the first fragments of a K step are read before the copies of a later one are sent off, so that products
            start sooner; it takes a few registers more.
        splits: parts of K that different programs compute; a second launch adds up their sums, in order.
        realign: operands that cannot be copied 16 bytes at a time are first laid out anew by a launch of their own.
        max_registers: a cap for ptxas, so that more blocks fit an SM; 0 for none.
    """

    tile_m: int = 128
    tile_n: int = 128
    tile_k: int = 32
    num_warps: int = 8
    warps_m: int = 2
    stages: int = 3
    group: int = 8
    early: bool = True
    splits: int = 1
    realign: bool = False
    max_registers: int = 0

    @property
    def warps_n(self) -> int:
        return self.num_warps // self.warps_m


Space = Columns[MmaChampionConfig]

Setting = MmaChampionConfig | Space
"""One setting, or many by columns."""

SHAPES = (
    # tile_m, tile_n, warps down, warps across
    (128, 256, 2, 4), (256, 128, 4, 2), (128, 128, 2, 4), (128, 128, 2, 2), (256, 64, 4, 1), (64, 256, 1, 4),
    (128, 64, 4, 2), (128, 64, 2, 2), (64, 128, 2, 2), (64, 64, 2, 2), (32, 128, 1, 4), (128, 32, 4, 1),
    (32, 64, 1, 4), (64, 32, 4, 1), (32, 32, 2, 2), (16, 128, 1, 4), (16, 64, 1, 4), (128, 16, 4, 1), (64, 16, 4, 1),
)  # fmt: skip
"""Tiles worth a try, and who multiplies them; the rest of a setting follows."""


class ChampionMma(MmaRung):
    name = "champion_mma"
    idea = "every idea of the mma.sync ladder together, searched: any card from sm_80 on, any shape, stride, alignment"
    expects = "one barrier a K step, no branch: copies and fragments lie between products; K in parts for few tiles"
    below = "mma_warp_specialised"
    function = champion_mma_kernel
    dtypes = (*MmaRung.dtypes, FP32)
    config_type = MmaChampionConfig
    shapes: ClassVar[tuple[tuple[int, int, int, int], ...]] = SHAPES

    def __init__(self) -> None:
        self._grids: dict[tuple[Any, ...], Space] = {}

    def rejects_problem(self, problem: Problem) -> str | None:
        reason = rejects_epilogue(self.name, problem)
        if reason is not None:
            return reason
        if problem.a.dtype == FP32 and problem.precision == "ieee":
            return f"{self.name} takes fp32 with precision 'tf32' or 'tf32x3'; it is {problem.precision!r}"
        # The rungs below take neither an epilogue nor tf32x3; all else is the same.
        if problem.epilogue is not None or problem.precision == "tf32x3":
            problem = replace(problem, epilogue=None, precision="tf32")
        return super().rejects_problem(problem)

    def rejects_tile(self, problem: Problem, config: MmaConfig) -> str | None:
        assert isinstance(config, MmaChampionConfig)
        steps = cdiv(max(problem.k, 1), config.tile_k)
        if not 1 <= config.splits <= steps:
            return f"splits is {config.splits}: from 1 to the {steps} K steps"
        if config.splits * problem.m * (problem.n + 15) > INT32_MAX:
            return f"{config.splits} splits of {problem.m}x{problem.n} partial sums: beyond 32-bit offsets"
        tiles = self.tiles(problem, config)
        if tiles > INT32_MAX:
            return f"{tiles} tiles: a grid has at most {INT32_MAX}"
        if config.max_registers and not 32 <= config.max_registers <= 255:
            return f"max_registers is {config.max_registers}: from 32 to 255, or 0 for no cap"
        return super().rejects_tile(problem, config)

    def registers(self, problem: Problem, config: MmaConfig) -> int:
        assert isinstance(config, MmaChampionConfig)
        return int(self.accumulators(problem, config) + self.fragments(problem, config) + 16)

    def accumulators(self, problem: Problem, config: Setting) -> Any:
        """Registers of a thread's sums; tf32x3 has a step's besides."""
        elements = config.tile_m * config.tile_n // (32 * config.num_warps)
        return elements * (2 if products_of(problem) == 3 else 1) // choose(config.accumulate == "fp16", 2, 1)

    def fragments(self, problem: Problem, config: Setting) -> Any:
        """Registers of one mma.sync's depth of A's rows and B's columns; tf32x3 has what is left of each, too."""
        rows, cols = config.tile_m // config.warps_m, config.tile_n // config.warps_n
        return (rows // SHAPE[0] * 4 + cols // SHAPE[1] * 2) * (1 if products_of(problem) == 1 else 3)

    def pressure(self, problem: Problem, config: Setting) -> Any:
        """Registers as they are counted against :func:`allowed`: besides sums and fragments, what each stage brings,
        and for every vector that a thread copies its offset, its mask where it lies across K, and the whole address of
        a narrow one. The weights part some sixty compiled kernels into those that spilled and those that did not."""
        triple = products_of(problem) == 3
        pressure = self.accumulators(problem, config) + 6 * config.stages + (22 if triple else 0)
        pressure = pressure + self.fragments(problem, config) * (5 / 3 if triple else 1)
        sides = zip(self.moves(problem, config), (config.tile_m, config.tile_n), (1, 0), strict=True)
        for move, side, k_axis in sides:
            vectors = cdiv(side * config.tile_k, move.vector * 32 * config.num_warps)
            across = 2.0 if problem.a.dtype.bytes == 2 else 3.5 if k_axis == 1 else 2.5
            pressure = pressure + vectors * choose(move.near == k_axis, 1, across) * choose(move.wide, 1, 3)
        return pressure

    def shared_bytes(self, problem: Problem, config: Setting) -> Any:  # type: ignore[override]
        ring = config.stages * (config.tile_m + config.tile_n) * config.tile_k * problem.a.dtype.bytes
        return most(ring, config.tile_m * self.part_n(config) * 4 * 9 // 8)

    def tiles(self, problem: Problem, config: Setting | MmaConfig) -> Any:
        """Of all products, where there are several (:mod:`.batched`)."""
        return problem.batch * cdiv(problem.m, config.tile_m) * cdiv(problem.n, config.tile_n)

    def splits(self, problem: Problem, config: Setting) -> tuple[Any, Any]:
        """Parts of K, none of them empty, and the K steps of each but perhaps the last."""
        steps = cdiv(problem.k, config.tile_k)
        each = cdiv(steps, config.splits)
        return cdiv(steps, each), each

    def ways(self, problem: Problem, realign: bool) -> tuple[Way, Way]:
        """How A and B get to shared memory."""
        return way_of("A", problem.a, 1, realign), way_of("B", problem.b, 0, realign)

    def moves(self, problem: Problem, config: Setting) -> tuple[Move, Move]:
        """What a search needs to know of the :meth:`ways`."""
        return moves_of(lambda anew: self.ways(problem, anew), config.realign)

    def copied(self, problem: Problem, realign: Any, gpu: Gpu) -> Any:
        """Seconds of the copies before."""
        if isinstance(realign, np.ndarray):
            return np.where(realign, self.copied(problem, True, gpu), 0.0) if realign.any() else 0.0
        return copy_seconds([way.copy for way in self.ways(problem, realign) if way.copy is not None], gpu)

    def resident(self, problem: Problem, config: Setting, gpu: Gpu) -> Any:
        """Blocks that an SM holds at once."""
        by_shared = gpu.shared_per_sm // (self.shared_bytes(problem, config) + gpu.shared_reserved)
        registers = config.max_registers
        if not np.all(registers):
            # Left alone, ptxas takes so many: 1.2 to 1.6 times the pressure.
            alone = least(255, 1.5 * self.pressure(problem, config) // 1)
            registers = choose(registers > 0, registers, alone)
        by_registers = gpu.registers_per_sm // (config.num_warps * 32 * cdiv(registers, 8) * 8)
        by_threads = gpu.max_threads_per_sm // (32 * config.num_warps)
        return most(1, least(least(by_shared, by_registers), least(by_threads, gpu.max_blocks_per_sm)))

    def estimate(self, problem: Problem, config: MmaChampionConfig, gpu: Gpu) -> float:
        """Seconds that a supported config should take; see :mod:`.estimate`."""
        return float(self.cost(problem, config, gpu))

    def cost(self, problem: Problem, config: Setting, gpu: Gpu) -> Any:
        """The estimate, or the estimates."""
        if problem.is_empty:
            return 0.0 * config.tile_m
        dtype, (first, second) = problem.a.dtype, self.moves(problem, config)
        splits, each = self.splits(problem, config) if problem.k else (1, 0)
        hertz = 1e6 * (HOPPER_TENSOR_MHZ if gpu.arch == 90 else gpu.boost_mhz)
        peak = (gpu.peak("tf32" if dtype == FP32 else dtype.name) or 1.0) * 1e12
        return seconds(
            Work(
                gpu.arch, gpu.sms, hertz, peak / gpu.sms / hertz,
                config.tile_m, config.tile_n, config.tile_k, config.warps_m, config.warps_n,
                self.tiles(problem, config) * splits, self.resident(problem, config, gpu), each, dtype.bytes,
                problem.d.dtype.bytes, products_of(problem), (first.vector * dtype.bytes, second.vector * dtype.bytes),
                problem.minimum_bytes, 1e9 * gpu.dram_gbs, self.copied(problem, config.realign, gpu),
                choose(splits > 1, 4.0 * problem.m * problem.n * splits, 0.0),
            )
        )  # fmt: skip

    def configs(self, problem: Problem, gpu: Gpu) -> Iterator[MmaConfig]:
        """Every candidate that is supported, by rising estimate; or one, which shows why none is."""
        if self.refuses(problem, gpu) is not None:
            yield MmaChampionConfig()
            return
        candidates = self.candidates_of(problem, gpu)
        cost = self.cost(problem, candidates, gpu)
        order = cheapest_first(self, problem, gpu, candidates, cost)  # type: ignore[misc, arg-type]
        yield next(order, (MmaChampionConfig(), 0.0))[0]
        yield from (config for config, _ in order)

    def candidates_of(self, problem: Problem, gpu: Gpu) -> Space:
        """Tiles, K steps, rings and parts of K: all that fits the problem."""
        narrow = not all(way.wide for way in self.ways(problem, False))
        grid = self.grid(problem, narrow, gpu)
        # A tile twice as large as the matrix multiplies zeros.
        fits = (grid.tile_m <= 16) | (grid.tile_m < 2 * problem.m)
        fits &= (grid.tile_n <= 16) | (grid.tile_n < 2 * problem.n)
        return self.divided(problem, self.rings(problem, grid.where(np.flatnonzero(fits)), gpu), gpu)

    def grid(self, problem: Problem, narrow: bool, gpu: Gpu) -> Space:
        """The candidates of all problems of these types: tiles and K steps, as they lie or, where that is ``narrow``,
        laid out anew as well, with the registers and the bytes of shared memory (``room``) that one to four ``blocks``
        an SM leave each."""
        key = problem.a.dtype.bytes, products_of(problem), narrow, gpu
        if key in self._grids:
            return self._grids[key]
        configs, room, counts = [], [], []
        for (tile_m, tile_n, warps_m, warps_n), k_bytes in product(self.shapes, (64, 128, 256)):
            if k_bytes == 256 and (tile_m * tile_n > 64 * 64 or products_of(problem) == 3):
                continue
            for realign, blocks in product((False, True) if narrow else (False,), (1, 2, 3, 4)):
                registers = gpu.registers_per_sm // (32 * warps_m * warps_n * blocks) // 8 * 8
                counts.append(blocks)
                room.append(min(gpu.shared_per_block, gpu.shared_per_sm // blocks - gpu.shared_reserved))
                configs.append(MmaChampionConfig(
                    tile_m=tile_m, tile_n=tile_n, tile_k=k_bytes // problem.a.dtype.bytes, realign=realign,
                    num_warps=warps_m * warps_n, warps_m=warps_m, max_registers=registers if registers < 255 else 0,
                ))  # fmt: skip
        self._grids[key] = Columns(configs, room=np.array(room), blocks=np.array(counts))
        return self._grids[key]

    def rings(self, problem: Problem, grid: Space, gpu: Gpu) -> Space:
        """The depths that one, two or more blocks an SM leave room for, with their registers.

        The loop is unrolled over the stages, so 2 to 4; up to 6 for narrow tiles, which wait for memory; up to 3 where
        tiles go through registers.
        """
        first, second = self.moves(problem, grid)
        stage = (grid.tile_m + grid.tile_n) * grid.tile_k * problem.a.dtype.bytes
        narrow = (grid.tile_m * grid.tile_n <= 16 * 128) & (products_of(problem) == 1)
        deepest = np.where(narrow & first.wide & second.wide, 6, 4)
        deepest = np.where(first.asynchronous & second.asynchronous, deepest, 3)
        stages = np.minimum(deepest, grid.room // stage)
        deep = grid.where(np.arange(len(grid)), stages=stages)
        # One block more that changes neither the ring nor the cap on registers is no other setting.
        same = (stages == np.roll(stages, 1)) & (grid.max_registers == np.roll(grid.max_registers, 1))
        share, pressure = choose(grid.max_registers > 0, grid.max_registers, 255), self.pressure(problem, deep)
        # Read early, fragments take registers of their own: where a thread has few left, or many to read, not.
        margin = 14 if problem.a.dtype.bytes == 2 else 24
        early = (pressure <= allowed(share) - margin) & (products_of(problem) == 1)
        rows = np.flatnonzero((stages >= 2) & ~(same & (grid.blocks > 1)) & (pressure <= allowed(share)))
        return deep.where(rows, early=early[rows])

    def divided(self, problem: Problem, rings: Space, gpu: Gpu) -> Space:
        """Whole, or K in as many parts as fill the card once, twice or four times."""
        tiles, steps = np.maximum(self.tiles(problem, rings), 1), np.asarray(cdiv(max(problem.k, 1), rings.tile_k))
        # One row a ring; the first number is 1, for the whole.
        fill = np.array([0, 1, 2, 4]) * gpu.sms // tiles[:, None]
        parts = np.maximum(1, np.minimum((steps // 2)[:, None], fill))
        new = np.diff(parts, axis=1, prepend=0) > 0
        rows, _ = np.nonzero(new)
        return rings.where(rows, splits=parts[new])

    def build(self, problem: Problem, config: MmaConfig, gpu: Gpu) -> LaunchPlan:
        assert isinstance(config, MmaChampionConfig)
        if problem.effective_k == 0:
            return LaunchPlan(self.name, (scale_launch(problem),))
        ways = self.ways(problem, config.realign)
        copies = [way.copy for way in ways if way.copy is not None]
        splits, each = self.splits(problem, config)
        # Rows of partial sums start at multiples of 64 bytes, whatever N is.
        pitch = cdiv(problem.n, 16) * 16
        d = Matrix(problem.m, pitch, FP32, pitch, 1) if splits > 1 else problem.d
        arguments = dict(self.arguments(problem, ways, d, splits > 1, each, pitch))
        tiles = self.tiles(problem, config)
        launch = Launch(
            champion_mma_kernel, (tiles, splits, 1), tuple(arguments.items()),
            tuple(self.champion_constants(problem, config, ways, d, splits > 1)), config.num_warps,
            config.max_registers or None,
        )  # fmt: skip
        launches = [*copy_launches(copies), launch]
        workspaces = [copy.workspace for copy in copies]
        if splits > 1:
            launches.append(reduction_launch(problem, splits, pitch))
            workspaces.append(partial_sums(problem, splits, pitch))
        return LaunchPlan(self.name, tuple(launches), tuple(workspaces))

    def arguments(
        self, problem: Problem, ways: tuple[Way, Way], d: Matrix, split: bool, each: int, pitch: int
    ) -> Iterable[tuple[str, Argument]]:
        """The kernel's, in its order. ``d`` is what it writes: the problem's D, or partial sums."""
        known = dict(gemm_arguments(problem))
        for name, way in zip(("a", "b"), ways, strict=True):
            known[name] = Pointer(way.role, way.matrix.dtype, way.matrix.alignment)
            wide = way.matrix.furthest_offset() > INT32_MAX
            known[f"{name}_row"], known[f"{name}_col"] = (Scalar.index(way.units(axis)[1], wide) for axis in (0, 1))
        near, vector = output_way(d)
        extents = [d.rows, d.cols]
        extents[near] //= vector
        if split:
            where = Pointer(PARTIAL_SUMS, FP32)
            known |= {"c": where, "d": where, "alpha": Scalar.real(1.0), "beta": Scalar.real(0.0)}
            known |= {"c_row": Scalar.index(pitch), "c_col": Scalar.index(1)}
        wide = d.furthest_offset() > INT32_MAX
        strides = [d.row_stride, d.col_stride]
        strides[1 - near] = strides[1 - near] // vector
        known |= {"d_row": Scalar.index(strides[0], wide), "d_col": Scalar.index(strides[1], wide)}
        yield from known.items()
        yield "a_rows", Scalar.index(ways[0].units(0)[0])
        yield "a_k", Scalar.index(ways[0].units(1)[0])
        yield "b_k", Scalar.index(ways[1].units(0)[0])
        yield "b_cols", Scalar.index(ways[1].units(1)[0])
        yield "store_m", Scalar.index(extents[0])
        yield "store_n", Scalar.index(extents[1])
        yield "split_steps", Scalar.index(each)
        yield "split_stride", split_stride(problem, pitch)
        # Of a split product the second launch finishes the sums.
        yield from epilogue_arguments(replace(problem, epilogue=None) if split else problem)

    def champion_constants(
        self, problem: Problem, config: MmaChampionConfig, ways: tuple[Way, Way], d: Matrix, split: bool
    ) -> Iterable[tuple[str, Any]]:
        """The kernel's compile-time parameters."""
        a_tile, b_tile = (config.tile_m, config.tile_k), (config.tile_k, config.tile_n)
        near, vector = output_way(d)
        part_n = self.part_n(config)
        yield "TILE_M", config.tile_m
        yield "TILE_N", config.tile_n
        yield "TILE_K", config.tile_k
        yield "READ_C", problem.reads_c and not split
        yield "MASK_M", d.rows % config.tile_m != 0
        yield "MASK_N", d.cols % config.tile_n != 0
        yield "EDGE_M", edge(ways[0].matrix.rows, config.tile_m)
        yield "EDGE_N", edge(ways[1].matrix.cols, config.tile_n)
        yield "GROUP", config.group
        yield "STAGES", config.stages
        yield "EARLY", config.early
        yield "PRODUCTS", products_of(problem)
        yield "SPLIT", split
        yield "TYPE", element_type(problem.a.dtype)
        yield "ACC_TYPE", gl.float16 if config.accumulate == "fp16" else gl.float32
        yield "LAYOUT", gl.NVMMADistributedLayout([2, 0], [config.warps_m, config.warps_n], SHAPE)
        yield "K_WIDTH", 4 // problem.a.dtype.bytes
        yield "A_VECTOR", ways[0].vector
        yield "B_VECTOR", ways[1].vector
        yield "A_NEAR", ways[0].near
        yield "B_NEAR", ways[1].near
        yield "A_ASYNC", ways[0].asynchronous
        yield "B_ASYNC", ways[1].asynchronous
        yield "D_VECTOR", vector
        yield "D_NEAR", near
        yield "A_COPY", ways[0].layout(a_tile, config.num_warps)
        yield "B_COPY", ways[1].layout(b_tile, config.num_warps)
        yield "A_SHARED", ways[0].shared(a_tile, 1)
        yield "B_SHARED", ways[1].shared(b_tile, 0)
        yield "OUT", copy_layout((config.tile_m, part_n), near, vector, config.num_warps)
        yield "PARTS", config.tile_n // part_n
        yield "FINISHED", not split and problem.epilogue is not None and not problem.epilogue.is_identity
        yield from epilogue_constants(replace(problem, epilogue=None) if split else problem)


def edge(extent: int, tile: Any) -> Any:
    """How a last tile that is not full is copied: 0 there is none, 1 with other rows in place of those beyond, 2 there
    is only this one, and what lies beyond is masked."""
    return choose(extent % tile > 0, choose(extent > tile, 1, 2), 0)


def allowed(registers: Any) -> Any:
    """The :meth:`ChampionMma.pressure` up to which ptxas does not spill with so many registers a thread."""
    return 204 - 0.717 * (255 - least(registers, 255))


def products_of(problem: Problem) -> int:
    """Products of the tensor cores for one of the problem's."""
    return 3 if problem.precision == "tf32x3" and problem.a.dtype == FP32 else 1


def output_way(d: Matrix) -> tuple[int, int]:
    """The axis along which D's elements are neighbours, and how many are stored at once."""
    near = near_axis(d, 1)
    return near, vector_of(d, near)
