"""Batches through the mma.sync champion: each program takes a tile of one product, whatever its shape or alignment.

The grid has tiles in its first dimension and products in the other two, which hold 65535 each; where a product's
matrices lie is reckoned in 64 bits. Masks along M, N and K keep a program inside its product. This is where cuBLAS is
slow: products whose rows begin at no multiple of 16 bytes.
"""

from __future__ import annotations

from dataclasses import replace
from math import gcd
from typing import Any

import numpy as np

from ...compat import constexpr, gl, jit
from ...hardware import HOPPER_TENSOR_MHZ, Gpu
from ...problem import Problem
from ..batches import is_shared, rejects_batch, scale_products_launch
from ..columns import choose, most
from ..common import after_earlier_launches, cdiv
from ..plan import Argument, Launch, LaunchPlan, Scalar
from .champion import SHAPES, ChampionMma, MmaChampionConfig, Setting, Space, edge, output_way
from .champion_kernel import champion_mma_kernel
from .estimate import LAUNCH
from .rung import MmaConfig
from .ways import Way

__all__ = ["BatchedMma"]

SMALL = ((16, 32, 1, 2), (32, 16, 2, 1), (16, 16, 1, 1))
"""Tiles for products that the champion's would be mostly beyond; rows, columns, warps down and across."""

GRID_LIMIT = 65535
"""Programs in a grid's second and third dimension: CUDA C++ Programming Guide, table of compute capabilities."""


NARROW = 1.6
"""As much longer than modelled took products with narrow vectors on an H200 (1.3 to 2.3), beyond"""
LATENCY = 6e-6
"""these seconds, which small ones take whatever their vectors."""

BLOCK = 275
"""Clocks of an SM that each block takes, however small: 65536x8x8x64 and 65536x225x1x4 on an H200."""

SHORTEST = 16
"""Of a K step: what Gluon's mma_v2 takes."""


@jit
def batched_mma_kernel(
    a, b, c, d, a_row, a_col, b_row, b_col, c_row, c_col, d_row, d_col, M, N, K, alpha, beta,
    a_rows, a_k, b_k, b_cols, store_m, store_n, split_steps, split_stride, bias, scale,
    batch, a_batch, b_batch, c_batch, d_batch,
    TILE_M: constexpr, TILE_N: constexpr, TILE_K: constexpr, READ_C: constexpr, MASK_M: constexpr, MASK_N: constexpr,
    EDGE_M: constexpr, EDGE_N: constexpr, GROUP: constexpr, STAGES: constexpr, EARLY: constexpr, PRODUCTS: constexpr,
    SPLIT: constexpr, TYPE: constexpr, ACC_TYPE: constexpr, LAYOUT: constexpr, K_WIDTH: constexpr,
    A_VECTOR: constexpr, B_VECTOR: constexpr, A_NEAR: constexpr, B_NEAR: constexpr,
    A_ASYNC: constexpr, B_ASYNC: constexpr, D_VECTOR: constexpr, D_NEAR: constexpr,
    A_COPY: constexpr, B_COPY: constexpr, A_SHARED: constexpr, B_SHARED: constexpr, OUT: constexpr, PARTS: constexpr,
    FINISHED: constexpr, BIAS: constexpr, ACTIVATION: constexpr, SCALED: constexpr,
):  # fmt: skip
    """The champion, on the product that the grid's second and third index name. ``a_batch``, ``b_batch`` and
    ``d_batch`` are in vectors, as the champion's far strides are: so the compiler learns what divides them."""
    product = gl.program_id(1) + gl.program_id(2) * gl.num_programs(1)
    after_earlier_launches()  # with pdl they may still run: nothing in global memory is touched before this
    if product < batch:  # the last plane of the grid may stick out
        far = product.to(gl.int64)
        champion_mma_kernel(
            a + far * a_batch * A_VECTOR, b + far * b_batch * B_VECTOR, c + far * c_batch, d + far * d_batch * D_VECTOR,
            a_row, a_col, b_row, b_col, c_row, c_col, d_row, d_col, M, N, K, alpha, beta,
            a_rows, a_k, b_k, b_cols, store_m, store_n, split_steps, split_stride, bias, scale,
            TILE_M, TILE_N, TILE_K, READ_C, MASK_M, MASK_N, EDGE_M, EDGE_N, GROUP, STAGES, EARLY, PRODUCTS, SPLIT,
            TYPE, ACC_TYPE, LAYOUT, K_WIDTH, A_VECTOR, B_VECTOR, A_NEAR, B_NEAR, A_ASYNC, B_ASYNC, D_VECTOR, D_NEAR,
            A_COPY, B_COPY, A_SHARED, B_SHARED, OUT, PARTS, FINISHED, BIAS, ACTIVATION, SCALED,
        )  # fmt: skip


class BatchedMma(ChampionMma):
    name = "batched_mma"
    idea = "a batch is the grid's other dimensions: each program takes a tile of one product, of any alignment"
    expects = "no copy and no padding where products are small or ragged"
    below = "champion_mma"
    function = batched_mma_kernel
    several = True
    shapes = (*SHAPES, *SMALL)

    def rejects_problem(self, problem: Problem) -> str | None:
        if problem.batch > GRID_LIMIT * GRID_LIMIT:
            return f"{problem.batch} products: a grid has {GRID_LIMIT} x {GRID_LIMIT} at most"
        return rejects_batch(self.name, problem) or super().rejects_problem(problem)

    def rejects_tile(self, problem: Problem, config: MmaConfig) -> str | None:
        assert isinstance(config, MmaChampionConfig)
        if config.splits > 1 or config.realign:
            return f"{self.name} neither cuts K in parts nor copies first: use splits=1, realign=False"
        return super().rejects_tile(problem, config)

    def cost(self, problem: Problem, config: Setting, gpu: Gpu) -> Any:
        """The champion's, longer where vectors are narrow, and no shorter than its blocks take to begin."""
        if problem.is_empty:
            return 0.0 * config.tile_m
        first, second = self.moves(problem, config)
        begun = self.tiles(problem, config) * BLOCK / (1e6 * HOPPER_TENSOR_MHZ * gpu.sms)
        modelled = super().cost(problem, config, gpu)
        more = choose(first.wide & second.wide, 0.0, (NARROW - 1) * most(0.0, modelled - LATENCY))
        return most(modelled + more, LAUNCH + begun)

    def pressure(self, problem: Problem, config: Setting) -> Any:
        """As the champion's, and what products bring: the batch's strides, and, where a matrix is smaller than a tile,
        a second mask for every narrow vector. Parts twenty compiled kernels by whether they spilled."""
        pressure = super().pressure(problem, config) + 8
        sides = zip(self.moves(problem, config), (config.tile_m, config.tile_n), (problem.m, problem.n), strict=True)
        for move, side, extent in sides:
            masks = 1.5 * cdiv(side * config.tile_k, move.vector * 32 * config.num_warps)
            pressure = pressure + choose((edge(extent, side) == 2) & (1 - move.wide), masks, 0.0)
        return pressure

    def candidates_of(self, problem: Problem, gpu: Gpu) -> Space:
        """The champion's, and for a K that one mma.sync's depth holds, K steps no longer than that."""
        found = super().candidates_of(problem, gpu)
        shortest = 64 // problem.a.dtype.bytes
        if not problem.k <= SHORTEST < shortest:
            return found
        # Every shortest step twice, the second time shortened.
        rows = np.repeat(np.arange(len(found)), 1 + (found.tile_k == shortest))
        again = np.diff(rows, prepend=-1) == 0
        return found.where(rows, tile_k=np.where(again, SHORTEST, found.tile_k[rows]))

    def divided(self, problem: Problem, rings: Space, gpu: Gpu) -> Space:
        return rings.where(np.flatnonzero(~rings.realign))

    def ways(self, problem: Problem, realign: bool) -> tuple[Way, Way]:
        """As the champion's, in vectors that every product begins with a whole one of."""
        first, second = super().ways(problem, realign)
        return _stepping(first, problem), _stepping(second, problem)

    def build(self, problem: Problem, config: MmaConfig, gpu: Gpu) -> LaunchPlan:
        assert isinstance(config, MmaChampionConfig)
        if problem.effective_k == 0:
            return LaunchPlan(self.name, (scale_products_launch(problem),)).overlapping()
        ways = self.ways(problem, config.realign)
        d = problem.d
        if d.batch_stride * d.dtype.bytes % 16:
            d = replace(d, alignment=d.dtype.bytes)  # products begin anywhere
        steps = cdiv(problem.k, config.tile_k)
        arguments: dict[str, Argument] = dict(self.arguments(problem, ways, d, False, steps, pitch=1))
        c = problem.c if problem.reads_c and problem.c is not None else problem.d
        arguments["batch"] = Scalar.index(problem.batch)
        for name, way in zip(("a_batch", "b_batch"), ways, strict=True):
            arguments[name] = Scalar(_stride(way.matrix.batch_stride, problem) // way.vector, "i64")
        arguments["c_batch"] = Scalar(c.batch_stride, "i64")
        arguments["d_batch"] = Scalar(d.batch_stride // output_way(d)[1], "i64")
        constants: tuple[tuple[str, Any], ...] = tuple(self.champion_constants(problem, config, ways, d, False))
        planes = cdiv(problem.batch, GRID_LIMIT)
        grid = (self.tiles(problem, config) // problem.batch, cdiv(problem.batch, planes), planes)
        launch = Launch(
            batched_mma_kernel, grid, tuple(arguments.items()), constants, config.num_warps,
            config.max_registers or None,
        )  # fmt: skip
        return LaunchPlan(self.name, (launch,)).overlapping()


def _stride(stride: int, problem: Problem) -> int:
    return 0 if problem.batch == 1 else stride


def _stepping(way: Way, problem: Problem) -> Way:
    """In vectors that divide the step from product to product."""
    if is_shared(way.matrix, problem.batch):
        return way
    vector = gcd(way.vector, abs(way.matrix.batch_stride))
    return way if vector == way.vector else replace(way, vector=vector)
