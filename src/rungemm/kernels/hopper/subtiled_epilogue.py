"""Hopper rung 6, sub-tiled epilogue: D leaves by TMA, a few columns of the tile at a time.

Storing the accumulators straight from their layout writes 8 bytes here and 8 there and keeps the multipliers busy with
addresses. TMA can write a whole tile from shared memory, but a 128 x 256 tile takes 64 KiB of it, a stage and more of
the ring. So the tile goes through two buffers of PART_N columns: one is filled while TMA empties the other, and the
ring keeps its fourth stage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ...compat import constexpr, gl, jit, mbarrier, tma_store_wait
from ...hardware import Gpu
from ...problem import Problem
from ..plan import Argument, Pointer
from .persistent import load
from .pieces import init_ring, multiply_steps, multiply_steps_from_registers, store_through_shared, tile_at
from .rung import HopperRung, RungConfig, rejects_parts, staging_constants
from .setup import Setup


@jit
def multiply(
    staging, a_ring, b_ring, full, empty, c, d, c_row, c_col, d_row, d_col, M, N, K, alpha, beta,
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
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        tile_m, tile_n = tile_at(tile, M, N, TILE_M, TILE_N, GROUP)
        acc = gl.zeros([TILE_M, TILE_N], gl.float32, LAYOUT)
        if A_IN_REGISTERS:
            acc, slot, phase = multiply_steps_from_registers(
                acc, steps, slot, phase, a_ring, b_ring, full, empty, 0, A_COLUMNS, B_COLUMNS
            )
        else:
            acc, slot, phase = multiply_steps(
                acc, steps, slot, phase, a_ring, b_ring, full, empty, 0, A_COLUMNS, B_COLUMNS
            )
        # The change: through the staging buffers, slice by slice.
        store_through_shared(
            acc, staging, 0, c, d, tile_m * TILE_M, tile_n * TILE_N, c_row, c_col, d_row, d_col, M, N, alpha, beta,
            NUM_WARPS, 1, READ_C, D_TMA, D_COLUMNS, D_VECTOR,
        )  # fmt: skip
    if D_TMA:
        tma_store_wait(0)


@jit
def subtiled_epilogue_kernel(
    a, b, c, d, c_row, c_col, d_row, d_col, M, N, K, alpha, beta,
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
            (multiply, (staging, a_ring, b_ring, full, empty, c, d, c_row, c_col, d_row, d_col, M, N, K, alpha, beta,
                        TILE_M, TILE_N, TILE_K, GROUP, NUM_WARPS, INSTRUCTION_K,
                        A_COLUMNS, B_COLUMNS, A_IN_REGISTERS, READ_C, D_TMA, D_COLUMNS, D_VECTOR)),
            (load, (a, b, a_ring, b_ring, full, empty, M, N, K, TILE_M, TILE_N, TILE_K, GROUP, A_COLUMNS, B_COLUMNS)),
        ],
        [1],
        [24],
    )  # fmt: skip


@dataclass(frozen=True)
class EpilogueConfig(RungConfig):
    """Adds the columns of D staged at once, and the buffers for them."""

    part_n: int = 64
    buffers: int = 2


class SubtiledEpilogue(HopperRung):
    name = "subtiled_epilogue"
    idea = "D leaves by TMA through two small buffers, a slice of columns at a time"
    expects = "stores become whole 128-byte lines by the copy engine; shared memory for the ring's fourth stage stays"
    below = "persistent"
    function = subtiled_epilogue_kernel
    persistent = True
    config_type = EpilogueConfig
    default = EpilogueConfig(tile_m=128, tile_n=256, tile_k=64, stages=4, group=8)

    def configs(self, problem: Problem, gpu: Gpu) -> Iterator[RungConfig]:
        for config in super().configs(problem, gpu):
            # Slices of 128 bytes: the widest swizzle.
            part_n = min(128 // problem.d.dtype.bytes, config.tile_n)
            yield self.config_type.from_dict(config.to_dict() | {"part_n": part_n})

    def rejects(self, problem: Problem, config: RungConfig, gpu: Gpu) -> str | None:
        assert isinstance(config, EpilogueConfig)
        reason = rejects_parts(config.part_n, config.buffers, config.tile_n)
        return reason or super().rejects(problem, config, gpu)

    def shared_bytes(self, problem: Problem, config: RungConfig) -> int:
        assert isinstance(config, EpilogueConfig)
        staging = self.partitions * config.buffers * config.tile_m * config.part_n * problem.d.dtype.bytes
        return super().shared_bytes(problem, config) + staging

    def operands(self, setup: Setup, config: RungConfig) -> Iterable[tuple[str, Argument]]:
        assert isinstance(config, EpilogueConfig)
        for name, argument in super().operands(setup, config):
            if name == "d" and setup.d is not None and isinstance(argument, Pointer):
                yield "d", setup.d.descriptor((config.tile_m, config.part_n))
            else:
                yield name, argument

    def constants(self, setup: Setup, config: RungConfig) -> Iterable[tuple[str, Any]]:
        assert isinstance(config, EpilogueConfig)
        yield from super().constants(setup, config)
        yield from staging_constants(setup, config.tile_m, config.part_n, config.buffers)
