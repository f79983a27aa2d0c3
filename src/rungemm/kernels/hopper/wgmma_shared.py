"""Hopper rung 1, wgmma: a warpgroup of four warps multiplies straight from shared memory.

mma.sync wants both operands in registers: each fragment is read from shared memory by every warp that uses it. wgmma
reads the tiles itself: one instruction is 64 x 256 x 16, and no register but the accumulators takes part. Shared memory
is filled here in the plainest way, from global memory through registers, which takes any strides; nothing overlaps.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...compat import barrier, constexpr, fence_async_shared, gl, jit, warpgroup_mma
from ...dtypes import FP32
from ...hardware import Gpu
from ...problem import Problem
from ..common import cdiv, gemm_arguments, gemm_constants, load_tile, store_tile, tile_of_program
from ..plan import Launch, LaunchPlan
from .operands import element_type, shared_layout
from .rung import HopperRung, RungConfig
from .scale import scale_launch


@jit
def round_to_tf32(x):
    """To the nearest number with a 10-bit mantissa, ties to even; NaN and infinities stay. wgmma would cut off."""
    bits = x.to(gl.int32, bitcast=True)
    rounded = (bits + 0xFFF + ((bits >> 13) & 1)) & -8192
    return gl.where(gl.abs(x) < float("inf"), rounded.to(gl.float32, bitcast=True), x)


@jit
def wgmma_shared_kernel(
    a, b, c, d, a_row, a_col, b_row, b_col, c_row, c_col, d_row, d_col, M, N, K, alpha, beta,
    TILE_M: constexpr, TILE_N: constexpr, TILE_K: constexpr, READ_C: constexpr,
    MASK_M: constexpr, MASK_N: constexpr, MASK_K: constexpr, GROUP: constexpr, NUM_WARPS: constexpr,
    VECTOR: constexpr, INSTRUCTION_K: constexpr, A_DOWN: constexpr, B_DOWN: constexpr, B_COLUMNS: constexpr,
    TYPE: constexpr, A_SHARED: constexpr, B_SHARED: constexpr,
):  # fmt: skip
    # Neighbouring threads read neighbours in memory: along K or across it.
    LANES: constexpr = TILE_K // VECTOR
    ALONG_K: constexpr = gl.BlockedLayout([1, VECTOR], [32 // LANES, LANES], [NUM_WARPS, 1], [1, 0])
    A_LAYOUT: constexpr = gl.BlockedLayout([VECTOR, 1], [32, 1], [1, NUM_WARPS], [0, 1]) if A_DOWN else ALONG_K
    B_ACROSS: constexpr = gl.BlockedLayout([1, VECTOR], [1, 32], [NUM_WARPS, 1], [1, 0])
    B_ALONG_K: constexpr = gl.BlockedLayout([VECTOR, 1], [LANES, 32 // LANES], [1, NUM_WARPS], [0, 1])
    B_LAYOUT: constexpr = B_ALONG_K if B_DOWN else B_ACROSS
    ACC: constexpr = gl.NVMMADistributedLayout([3, 0], [NUM_WARPS, 1], [16, TILE_N, INSTRUCTION_K])
    tile_m, tile_n = tile_of_program(M, N, TILE_M, TILE_N, GROUP)
    a_rows = (tile_m * TILE_M + gl.arange(0, TILE_M, gl.SliceLayout(1, A_LAYOUT)))[:, None]
    a_cols = gl.arange(0, TILE_K, gl.SliceLayout(0, A_LAYOUT))[None, :]
    b_rows = gl.arange(0, TILE_K, gl.SliceLayout(1, B_LAYOUT))[:, None]
    b_cols = (tile_n * TILE_N + gl.arange(0, TILE_N, gl.SliceLayout(0, B_LAYOUT)))[None, :]

    a_tile = gl.allocate_shared_memory(TYPE, [TILE_M, TILE_K], A_SHARED)
    if B_COLUMNS:
        b_tile = gl.allocate_shared_memory(TYPE, [TILE_N, TILE_K], B_SHARED).permute((1, 0))
    else:
        b_tile = gl.allocate_shared_memory(TYPE, [TILE_K, TILE_N], B_SHARED)
    acc = gl.zeros([TILE_M, TILE_N], gl.float32, ACC)
    for k0 in range(0, K, TILE_K):
        a_value = load_tile(a, a_rows, k0 + a_cols, a_row, a_col, M, K, MASK_M, MASK_K)
        b_value = load_tile(b, k0 + b_rows, b_cols, b_row, b_col, K, N, MASK_K, MASK_N)
        if INSTRUCTION_K == 8:  # fp32
            a_value = round_to_tf32(a_value)
            b_value = round_to_tf32(b_value)
        a_tile.store(a_value)
        b_tile.store(b_value)
        # wgmma reads shared memory by another path than ordinary stores write it.
        fence_async_shared()
        barrier()
        # The change: the tiles themselves are the operands. Not asynchronous: it is done when the call returns.
        acc = warpgroup_mma(a_tile, b_tile, acc)

    rows = (tile_m * TILE_M + gl.arange(0, TILE_M, gl.SliceLayout(1, ACC)))[:, None]
    cols = (tile_n * TILE_N + gl.arange(0, TILE_N, gl.SliceLayout(0, ACC)))[None, :]
    store_tile(acc, rows, cols, c, c_row, c_col, d, d_row, d_col, M, N, alpha, beta, READ_C, MASK_M, MASK_N)


class WgmmaShared(HopperRung):
    name = "wgmma_shared"
    idea = "wgmma: four warps multiply whole tiles straight from shared memory"
    expects = "no fragments in registers, an eighth of mma.sync's instructions; loads and products still take turns"
    below = "mma_warp_specialised"
    function = wgmma_shared_kernel
    default = RungConfig(tile_m=128, tile_n=128, tile_k=64)

    def rejects(self, problem: Problem, config: RungConfig, gpu: Gpu) -> str | None:
        reason = super().rejects(problem, config, gpu)
        if reason is not None:
            return reason
        if problem.precision == "tf32x3":
            return f"{self.name} multiplies once; for tf32x3 ask champion_hopper"
        vector = 16 // problem.a.dtype.bytes
        if not vector <= config.tile_k <= 32 * vector:
            return f"tile_k is {config.tile_k}: from {vector} to {32 * vector} here"
        return None

    def tiles(self, problem: Problem, config: RungConfig) -> int:
        return cdiv(problem.m, config.tile_m) * cdiv(problem.n, config.tile_n)

    def build(self, problem: Problem, config: RungConfig, gpu: Gpu) -> LaunchPlan:
        if problem.effective_k == 0:
            return LaunchPlan(self.name, (scale_launch(problem),))
        constants = (
            *gemm_constants(problem, config.tile_m, config.tile_n, config.tile_k),
            *self.plain_constants(problem, config),
        )
        programs = self.tiles(problem, config)
        launch = Launch(self.function, (programs, 1, 1), tuple(gemm_arguments(problem)), constants, config.num_warps)
        return LaunchPlan(self.name, (launch,))

    def plain_constants(self, problem: Problem, config: RungConfig) -> Iterable[tuple[str, Any]]:
        dtype = problem.a.dtype
        # wgmma reads two-byte operands along K or across it, fp32 along K only: then B is turned on its way in.
        b_columns = dtype == FP32 or problem.b.row_stride == 1
        b_shape = (config.tile_n, config.tile_k) if b_columns else (config.tile_k, config.tile_n)
        yield "GROUP", config.group
        yield "NUM_WARPS", config.num_warps
        yield "VECTOR", 16 // dtype.bytes
        yield "INSTRUCTION_K", 32 // dtype.bytes
        yield "A_DOWN", problem.a.is_col_major
        yield "B_DOWN", problem.b.row_stride == 1
        yield "B_COLUMNS", b_columns
        yield "TYPE", element_type(dtype)
        yield "A_SHARED", shared_layout((config.tile_m, config.tile_k), dtype)
        yield "B_SHARED", shared_layout(b_shape, dtype)
