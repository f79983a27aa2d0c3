"""Tensor-core rung 3, mma.sync: one warp only copies, the others only multiply.

On the rung below every warp stops to compute addresses and to wait for its own copies. Here a producer warp fills a
ring of slots by cp.async, and mbarriers pass them on: the producer acquires a slot ("empty"), copies, and commits it
("full", which completes by itself when the bytes are there); the consumers wait for it, read their fragments, and
release it.
It needs nothing of sm_90. There, a config may also hand the producers' registers to the consumers (setmaxnreg), which
buys 128 x 256 with fp32 accumulators; elsewhere all threads have as many, 168, and that tile wants fp16 accumulators.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ...compat import async_copy_mbarrier_arrive, barrier, constexpr, gl, jit, mbarrier, mma_v2, warp_specialize
from ...dtypes import FP16
from ...hardware import Gpu
from ...problem import Matrix, Problem
from ..common import tile_of_program
from ..hopper.pieces import advance
from .pieces import copy_step, multiply_ahead, part_fragment, store_rows
from .rung import MmaConfig, MmaRung


@jit
def produce(
    a_ring, b_ring, full, empty, a, b, a_row, a_col, b_row, b_col, row, col, K, a_rows, a_cols, b_rows, b_cols,
    TILE_M: constexpr, TILE_N: constexpr, TILE_K: constexpr, MASKS: constexpr, A_COPY: constexpr, B_COPY: constexpr,
):  # fmt: skip
    """The producer: as far ahead as the ring allows."""
    STAGES: constexpr = a_ring.shape[0]
    slot = 0
    phase = 1  # a fresh mbarrier passes a wait for the phase before its first: all slots start empty
    for k0 in range(0, K, TILE_K):
        mbarrier.wait(empty.index(slot), phase)
        copy_step(
            a_ring.index(slot), b_ring.index(slot), a, b, a_row, a_col, b_row, b_col, row, col, k0,
            a_rows, a_cols, b_rows, b_cols, TILE_M, TILE_N, TILE_K, MASKS, A_COPY, B_COPY,
        )  # fmt: skip
        # Every thread arrives when its own copies are there; nobody waits here.
        async_copy_mbarrier_arrive(full.index(slot), increment_count=False)
        slot, phase = advance(slot, phase, STAGES)


@jit
def consume(
    a_ring, b_ring, full, empty, K,
    TILE_K: constexpr, ACC_TYPE: constexpr, LAYOUT: constexpr, K_WIDTH: constexpr,
):  # fmt: skip
    """The consumers: the product of all slots, in the order in which they come."""
    STAGES: constexpr = a_ring.shape[0]
    TILE_M: constexpr = a_ring.shape[1]
    TILE_N: constexpr = b_ring.shape[2]
    acc = gl.zeros([TILE_M, TILE_N], ACC_TYPE, LAYOUT)
    slot = 0
    phase = 0
    mbarrier.wait(full.index(0), 0)
    left = part_fragment(a_ring.index(0), 0, LAYOUT, 0, K_WIDTH)
    right = part_fragment(b_ring.index(0), 0, LAYOUT, 1, K_WIDTH)
    for _ in range(gl.cdiv(K, TILE_K) - 1):
        acc, last_left, last_right = multiply_ahead(
            acc, left, right, a_ring.index(slot), b_ring.index(slot), 0, LAYOUT, K_WIDTH
        )
        mbarrier.arrive(empty.index(slot), count=1)
        slot, phase = advance(slot, phase, STAGES)
        mbarrier.wait(full.index(slot), phase)
        left = part_fragment(a_ring.index(slot), 0, LAYOUT, 0, K_WIDTH)
        right = part_fragment(b_ring.index(slot), 0, LAYOUT, 1, K_WIDTH)
        acc = mma_v2(last_left, last_right, acc)
    acc, last_left, last_right = multiply_ahead(
        acc, left, right, a_ring.index(slot), b_ring.index(slot), 0, LAYOUT, K_WIDTH
    )
    return (mma_v2(last_left, last_right, acc),)


@jit
def mma_warp_specialised_kernel(
    a, b, c, d, a_row, a_col, b_row, b_col, c_row, c_col, d_row, d_col, M, N, K, alpha, beta,
    a_rows, a_cols, b_rows, b_cols, TILE_M: constexpr, TILE_N: constexpr, TILE_K: constexpr, READ_C: constexpr,
    MASK_M: constexpr, MASK_N: constexpr, MASKS: constexpr, GROUP: constexpr, STAGES: constexpr,
    TYPE: constexpr, ACC_TYPE: constexpr, LAYOUT: constexpr, K_WIDTH: constexpr,
    A_COPY: constexpr, B_COPY: constexpr, A_SHARED: constexpr, B_SHARED: constexpr,
    OUT: constexpr, PARTS: constexpr, PRODUCERS: constexpr, REGISTERS: constexpr,
):  # fmt: skip
    tile_m, tile_n = tile_of_program(M, N, TILE_M, TILE_N, GROUP)
    row = tile_m * TILE_M
    col = tile_n * TILE_N
    a_ring = gl.allocate_shared_memory(TYPE, [STAGES, TILE_M, TILE_K], A_SHARED)
    b_ring = gl.allocate_shared_memory(TYPE, [STAGES, TILE_K, TILE_N], B_SHARED)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=32 * PRODUCERS)
        mbarrier.init(empty.index(i), count=1)
    barrier()
    # The change: the warps part ways here.
    if REGISTERS == 0:
        results = warp_specialize(
            [
                (consume, (a_ring, b_ring, full, empty, K, TILE_K, ACC_TYPE, LAYOUT, K_WIDTH)),
                (produce, (a_ring, b_ring, full, empty, a, b, a_row, a_col, b_row, b_col, row, col, K,
                           a_rows, a_cols, b_rows, b_cols, TILE_M, TILE_N, TILE_K, MASKS, A_COPY, B_COPY)),
            ],
            [PRODUCERS],
        )  # fmt: skip
    else:
        results = warp_specialize(
            [
                (consume, (a_ring, b_ring, full, empty, K, TILE_K, ACC_TYPE, LAYOUT, K_WIDTH)),
                (produce, (a_ring, b_ring, full, empty, a, b, a_row, a_col, b_row, b_col, row, col, K,
                           a_rows, a_cols, b_rows, b_cols, TILE_M, TILE_N, TILE_K, MASKS, A_COPY, B_COPY)),
            ],
            [PRODUCERS],
            [REGISTERS],
        )  # fmt: skip
    acc = results[0]
    store_rows(
        acc, row, col, c, c_row, c_col, d, d_row, d_col, M, N, alpha, beta, LAYOUT, OUT, PARTS, READ_C, MASK_M, MASK_N
    )


@dataclass(frozen=True)
class SpecialisedConfig(MmaConfig):
    """As :class:`.rung.MmaConfig`, for ``num_warps`` consumers.

    Attributes:
        producers: warps that copy, up to four. Triton sets four aside whatever their number.
        producer_registers: registers a thread that they keep, the consumers getting the rest: sm_90 only. 0: all alike.
    """

    producers: int = 1
    producer_registers: int = 0


class MmaWarpSpecialised(MmaRung):
    name = "mma_warp_specialised"
    idea = "one warp only copies, eight only multiply; mbarriers pass the slots of a ring between them"
    expects = "no address, copy or wait for copies between two products"
    below = "mma_multistage"
    function = mma_warp_specialised_kernel
    steps = 2
    specialised = True
    config_type: ClassVar[type[MmaConfig]] = SpecialisedConfig

    def rejects(self, problem: Problem, config: MmaConfig, gpu: Gpu) -> str | None:
        assert isinstance(config, SpecialisedConfig)
        if config.producer_registers and gpu.arch != 90:
            return f"producer_registers is {config.producer_registers}: only sm_90 can share registers out, make it 0"
        return super().rejects(problem, config, gpu)

    def rejects_tile(self, problem: Problem, config: MmaConfig) -> str | None:
        assert isinstance(config, SpecialisedConfig)
        if config.producers not in (1, 2, 4):
            return f"producers is {config.producers}: 1, 2 or 4"
        registers = config.producer_registers
        if registers and (registers % 8 or not 24 <= registers <= 128):
            return f"producer_registers is {registers}: a multiple of 8 from 24 to 128, or 0"
        if registers and config.num_warps % 4:
            return f"{config.num_warps} consumer warps: registers are shared out among groups of 4"
        return super().rejects_tile(problem, config)

    def most_registers(self, config: MmaConfig) -> int:
        assert isinstance(config, SpecialisedConfig)
        most = super().most_registers(config)
        if config.producer_registers:
            most = (most * (config.num_warps + 4) - 4 * config.producer_registers) // config.num_warps // 8 * 8
        return min(255, most)

    def shared_bytes(self, problem: Problem, config: MmaConfig) -> int:
        # The barriers, and what warp specialisation keeps for itself.
        return super().shared_bytes(problem, config) + 16 * config.stages + 256

    def movers(self, config: MmaConfig) -> int:
        assert isinstance(config, SpecialisedConfig)
        return config.producers

    def candidates(self, problem: Problem) -> Iterator[MmaConfig]:
        base = SpecialisedConfig(tile_m=128, tile_n=256, tile_k=32, num_warps=8, warps_m=2, stages=4, group=8)
        one = replace(base, producers=1, producer_registers=80)
        four = replace(base, producers=4, producer_registers=56)
        # Four producers measured 411 TFLOPS at 4096^3 where one gave 359; and where B lies by columns one warp cannot
        # keep the addresses: an instruction then copies 8 lines, not 1.
        yield replace(four, stages=6)
        yield replace(one, stages=6)
        yield replace(four, stages=4, tile_k=64)
        yield replace(four, stages=3)
        yield replace(base, tile_n=128)
        if problem.a.dtype == FP16:
            halved = replace(base, accumulate="fp16")
            yield halved
            yield replace(halved, tile_k=64)
            # As in the original: three slots, four consumers of 64 x 128.
            yield replace(halved, stages=3, num_warps=4)
            yield replace(halved, stages=8)
        yield replace(four, stages=8)
        yield replace(four, tile_m=256, tile_n=128, warps_m=4, stages=6)
        yield replace(base, tile_m=64, tile_n=64, num_warps=4)

    def constants(self, problem: Problem, config: MmaConfig, a: Matrix, b: Matrix) -> Iterable[tuple[str, Any]]:
        assert isinstance(config, SpecialisedConfig)
        yield from super().constants(problem, config, a, b)
        yield from self.output_constants(problem, config)
        yield "PRODUCERS", config.producers
        yield "REGISTERS", config.producer_registers
