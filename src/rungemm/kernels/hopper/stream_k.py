"""Hopper rung 8, stream K: the tiles that do not fill a wave are shared by all programs, along K.

With 132 programs and 160 tiles, 28 programs work twice and the others wait; with 4 tiles, 128 do nothing. Here every
program takes the same number of whole tiles, and the K steps of the tiles left over are cut into equal runs. A run
leaves its part in memory; the last of a tile's runs to arrive adds all parts up, always in order of K, so the result
does not depend on who is last.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ...compat import constexpr, gl, jit, mbarrier, tma_store_wait
from ...dtypes import FP32, INT32
from ...hardware import Gpu
from ...problem import Problem
from ..plan import Argument, Launch, LaunchPlan, Pointer, Workspace
from .pieces import (
    advance,
    init_ring,
    load_stage,
    multiply_steps,
    multiply_steps_from_registers,
    store_through_shared,
    tile_at,
)
from .rung import RungConfig
from .setup import Setup
from .stream import add_up_runs, piece, pieces_of_program
from .subtiled_epilogue import EpilogueConfig, SubtiledEpilogue


@jit
def load(
    a, b, a_ring, b_ring, full, empty, M, N, K,
    TILE_M: constexpr, TILE_N: constexpr, TILE_K: constexpr, GROUP: constexpr,
    A_COLUMNS: constexpr, B_COLUMNS: constexpr,
):  # fmt: skip
    """The loader: piece by piece."""
    STAGES: constexpr = full.shape[0]
    tiles = gl.cdiv(M, TILE_M) * gl.cdiv(N, TILE_N)
    slot = 0
    phase = 1
    for index in range(pieces_of_program(tiles, True)):
        tile, first, last = piece(index, tiles, gl.cdiv(K, TILE_K), True)
        tile_m, tile_n = tile_at(tile, M, N, TILE_M, TILE_N, GROUP)
        for step in range(first, last):
            mbarrier.wait(empty.index(slot), phase)
            load_stage(
                a, b, a_ring.index(slot), b_ring.index(slot), full.index(slot),
                tile_m * TILE_M, tile_n * TILE_N, step * TILE_K, A_COLUMNS, B_COLUMNS,
            )  # fmt: skip
            slot, phase = advance(slot, phase, STAGES)


@jit
def multiply(
    staging, a_ring, b_ring, full, empty, c, d, partials, counters,
    c_row, c_col, d_row, d_col, M, N, K, alpha, beta,
    TILE_M: constexpr, TILE_N: constexpr, TILE_K: constexpr, GROUP: constexpr, NUM_WARPS: constexpr,
    INSTRUCTION_K: constexpr, A_COLUMNS: constexpr, B_COLUMNS: constexpr, A_IN_REGISTERS: constexpr,
    READ_C: constexpr, D_TMA: constexpr, D_COLUMNS: constexpr, D_VECTOR: constexpr,
):  # fmt: skip
    """The multipliers."""
    LAYOUT: constexpr = gl.NVMMADistributedLayout([3, 0], [NUM_WARPS, 1], [16, TILE_N, INSTRUCTION_K])
    tiles = gl.cdiv(M, TILE_M) * gl.cdiv(N, TILE_N)
    steps = gl.cdiv(K, TILE_K)
    slot = 0
    phase = 0
    for index in range(pieces_of_program(tiles, True)):
        # The change: a piece may be part of a tile's K.
        tile, first, last = piece(index, tiles, steps, True)
        tile_m, tile_n = tile_at(tile, M, N, TILE_M, TILE_N, GROUP)
        acc = gl.zeros([TILE_M, TILE_N], gl.float32, LAYOUT)
        if A_IN_REGISTERS:
            acc, slot, phase = multiply_steps_from_registers(
                acc, last - first, slot, phase, a_ring, b_ring, full, empty, 0, A_COLUMNS, B_COLUMNS
            )
        else:
            acc, slot, phase = multiply_steps(
                acc, last - first, slot, phase, a_ring, b_ring, full, empty, 0, A_COLUMNS, B_COLUMNS
            )
        mine = last - first == steps
        if (last > first) & (last - first < steps):
            acc, mine = add_up_runs(acc, tile, first, tiles, steps, partials, counters, 0, 1, LAYOUT)
        if mine:
            store_through_shared(
                acc, staging, 0, c, d, tile_m * TILE_M, tile_n * TILE_N, c_row, c_col, d_row, d_col, M, N,
                alpha, beta, NUM_WARPS, 1, READ_C, D_TMA, D_COLUMNS, D_VECTOR,
            )  # fmt: skip
    if D_TMA:
        tma_store_wait(0)


@jit
def stream_k_kernel(
    a, b, c, d, partials, counters, c_row, c_col, d_row, d_col, M, N, K, alpha, beta,
    TILE_M: constexpr, TILE_N: constexpr, TILE_K: constexpr, GROUP: constexpr, NUM_WARPS: constexpr,
    INSTRUCTION_K: constexpr, A_COLUMNS: constexpr, B_COLUMNS: constexpr, A_IN_REGISTERS: constexpr,
    READ_C: constexpr, STAGES: constexpr, D_TMA: constexpr, D_COLUMNS: constexpr, D_VECTOR: constexpr,
    BUFFERS: constexpr, STAGING: constexpr, STAGING_LAYOUT: constexpr, D_TYPE: constexpr,
):  # fmt: skip
    a_ring = gl.allocate_shared_memory(a.dtype, [STAGES] + a.block_type.shape, a.layout)  # noqa: RUF005
    b_ring = gl.allocate_shared_memory(b.dtype, [STAGES] + b.block_type.shape, b.layout)  # noqa: RUF005
    staging = gl.allocate_shared_memory(D_TYPE, [BUFFERS] + STAGING, STAGING_LAYOUT)  # noqa: RUF005
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    init_ring(full, empty, 1)
    gl.warp_specialize(
        [
            (multiply, (staging, a_ring, b_ring, full, empty, c, d, partials, counters,
                        c_row, c_col, d_row, d_col, M, N, K, alpha, beta,
                        TILE_M, TILE_N, TILE_K, GROUP, NUM_WARPS, INSTRUCTION_K,
                        A_COLUMNS, B_COLUMNS, A_IN_REGISTERS, READ_C, D_TMA, D_COLUMNS, D_VECTOR)),
            (load, (a, b, a_ring, b_ring, full, empty, M, N, K, TILE_M, TILE_N, TILE_K, GROUP, A_COLUMNS, B_COLUMNS)),
        ],
        [1],
        [24],
    )  # fmt: skip


class StreamK(SubtiledEpilogue):
    name = "stream_k"
    idea = "the tiles that do not fill a wave are shared by all programs, along K"
    expects = "no SM waits for the last wave; a product of few tiles and a long K keeps the whole card busy"
    below = "subtiled_epilogue"
    function = stream_k_kernel
    default = EpilogueConfig(tile_m=128, tile_n=256, tile_k=64, stages=4, group=8)

    def rejects(self, problem: Problem, config: RungConfig, gpu: Gpu) -> str | None:
        steps = 3 * -(-problem.k // config.tile_k)
        if gpu.sms * steps >= 2**31:
            return f"{steps} K steps in {gpu.sms} tiles: beyond this kernel's 32-bit counters"
        return super().rejects(problem, config, gpu)

    def programs(self, problem: Problem, config: RungConfig, gpu: Gpu) -> int:
        steps = -(-problem.effective_k // config.tile_k)
        return min(gpu.sms, self.tiles(problem, config) * steps)

    def operands(self, setup: Setup, config: RungConfig) -> Iterable[tuple[str, Argument]]:
        yield from super().operands(setup, config)
        yield "partials", Pointer("partials", FP32)
        yield "counters", Pointer("counters", INT32)

    def build(self, problem: Problem, config: RungConfig, gpu: Gpu) -> LaunchPlan:
        plan = super().build(problem, config, gpu)
        if problem.effective_k == 0:
            return plan
        main: Launch = plan.launches[-1]
        parts = 2 * main.programs * config.tile_m * config.tile_n
        scratch = (
            Workspace("partials", FP32, parts),
            Workspace("counters", INT32, main.programs, zeroed=True, restored=True),
        )
        return replace(plan, workspaces=(*plan.workspaces, *scratch))
