"""Variants of two rungs, made only to settle claims: shared-memory layouts that the rungs themselves do not offer.

They live apart from the ladder because they carry no idea of their own, only a control: the same kernel with another
padding. Used by ``claims_h200.py`` and counted for ``docs/claims.md``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rungemm.compat import constexpr, gl, jit, padded_shared_layout, pinned_fma
from rungemm.kernels.common import load_tile, store_tile, tile_of_program
from rungemm.kernels.cuda_core.bank_conflict_free import BankConflictFree
from rungemm.kernels.cuda_core.simt import QuadConfig, SimtConfig
from rungemm.kernels.cuda_core.thread_tile_2d import ThreadTile2D

__all__ = ["ColumnReads", "ColumnReadsConfig", "PaddedBoth", "PaddedBothConfig", "one_column_kernel"]

PLAIN = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])


def rows(width: int, pad: int, shape: list[int]) -> Any:
    """Rows one after the other, or ``pad`` elements apart."""
    return padded_shared_layout(width, pad, shape, [1, 0]) if pad else PLAIN


@jit
def padded_both_kernel(
    a, b, c, d, a_row, a_col, b_row, b_col, c_row, c_col, d_row, d_col, M, N, K, alpha, beta,
    TILE_M: constexpr, TILE_N: constexpr, TILE_K: constexpr, READ_C: constexpr,
    MASK_M: constexpr, MASK_N: constexpr, MASK_K: constexpr, NUM_WARPS: constexpr,
    THREAD_M: constexpr, THREAD_N: constexpr, GROUP_M: constexpr, TOGETHER: constexpr, A_SHARED: constexpr,
    B_SHARED: constexpr, PINNED: constexpr,
):  # fmt: skip
    """bank_conflict_free with B's shared layout and the order of multiply-adds parameters too."""
    LANES_N: constexpr = min(TILE_N // THREAD_N, 32)
    LANES_M: constexpr = 32 // LANES_N
    WARPS_N: constexpr = TILE_N // (THREAD_N * LANES_N)
    C_LAYOUT: constexpr = gl.BlockedLayout(
        [min(THREAD_M, TOGETHER), min(THREAD_N, TOGETHER)],
        [LANES_M, LANES_N], [NUM_WARPS // WARPS_N, WARPS_N], [1, 0],
    )  # fmt: skip
    A_LAYOUT: constexpr = gl.BlockedLayout([1, 4], [128 // TILE_K, TILE_K // 4], [NUM_WARPS, 1], [1, 0])
    B_LAYOUT: constexpr = gl.BlockedLayout([1, 4], [1, 32], [NUM_WARPS, 1], [1, 0])
    tile_m, tile_n = tile_of_program(M, N, TILE_M, TILE_N, GROUP_M)
    a_rows = (tile_m * TILE_M + gl.arange(0, TILE_M, gl.SliceLayout(1, A_LAYOUT)))[:, None]
    a_cols = gl.arange(0, TILE_K, gl.SliceLayout(0, A_LAYOUT))[None, :]
    b_rows = gl.arange(0, TILE_K, gl.SliceLayout(1, B_LAYOUT))[:, None]
    b_cols = (tile_n * TILE_N + gl.arange(0, TILE_N, gl.SliceLayout(0, B_LAYOUT)))[None, :]

    a_tile = gl.allocate_shared_memory(gl.float32, [TILE_K, TILE_M], A_SHARED).permute([1, 0])
    b_tile = gl.allocate_shared_memory(gl.float32, [TILE_K, TILE_N], B_SHARED)
    acc = gl.zeros([TILE_M, TILE_N], gl.float32, C_LAYOUT)
    for k0 in range(0, K, TILE_K):
        a_tile.store(load_tile(a, a_rows, k0 + a_cols, a_row, a_col, M, K, MASK_M, MASK_K))
        b_tile.store(load_tile(b, k0 + b_rows, b_cols, b_row, b_col, K, N, MASK_K, MASK_N))
        for k in gl.static_range(TILE_K):
            a_column = a_tile.slice(k, 1, 1).load(C_LAYOUT)
            b_row_k = b_tile.slice(k, 1, 0).load(C_LAYOUT)
            if PINNED:
                acc = pinned_fma(a_column, b_row_k, acc)
            else:
                acc = gl.fma(a_column, b_row_k, acc)

    c_rows = (tile_m * TILE_M + gl.arange(0, TILE_M, gl.SliceLayout(1, C_LAYOUT)))[:, None]
    c_cols = (tile_n * TILE_N + gl.arange(0, TILE_N, gl.SliceLayout(0, C_LAYOUT)))[None, :]
    store_tile(acc, c_rows, c_cols, c, c_row, c_col, d, d_row, d_col, M, N, alpha, beta, READ_C, MASK_M, MASK_N)


@dataclass(frozen=True)
class PaddedBothConfig(QuadConfig):
    """``pad``: elements after each row of A's transposed tile; ``pad_b``: after each row of B's.

    ``pinned``: multiply-adds stay in the order written, as in the double buffer.
    """

    pad_b: int = 0
    pinned: bool = False


class PaddedBoth(BankConflictFree):
    name = "padded_both"
    function = padded_both_kernel
    config_type = PaddedBothConfig
    default = PaddedBothConfig(num_warps=8, tile_m=128, tile_n=128, tile_k=8, thread_m=8, thread_n=8, group_m=8)

    def constants(self, config: SimtConfig) -> Iterable[tuple[str, Any]]:
        assert isinstance(config, PaddedBothConfig)
        yield from super().constants(config)
        yield "B_SHARED", rows(config.tile_n, config.pad_b, [config.tile_k, config.tile_n])
        yield "PINNED", config.pinned


@jit
def column_reads_kernel(
    a, b, c, d, a_row, a_col, b_row, b_col, c_row, c_col, d_row, d_col, M, N, K, alpha, beta,
    TILE_M: constexpr, TILE_N: constexpr, TILE_K: constexpr, READ_C: constexpr,
    MASK_M: constexpr, MASK_N: constexpr, MASK_K: constexpr, NUM_WARPS: constexpr,
    THREAD_M: constexpr, THREAD_N: constexpr, GROUP_M: constexpr, A_SHARED: constexpr,
):  # fmt: skip
    """thread_tile_2d with A's shared layout a parameter: A lies as in memory and is read down its columns."""
    LANES_N: constexpr = min(TILE_N // THREAD_N, 32)
    LANES_M: constexpr = 32 // LANES_N
    WARPS_N: constexpr = TILE_N // (THREAD_N * LANES_N)
    C_LAYOUT: constexpr = gl.BlockedLayout(
        [THREAD_M, THREAD_N], [LANES_M, LANES_N], [NUM_WARPS // WARPS_N, WARPS_N], [1, 0]
    )
    A_LAYOUT: constexpr = gl.BlockedLayout([1, 1], [32 // TILE_K, TILE_K], [NUM_WARPS, 1], [1, 0])
    B_WARPS_N: constexpr = min(TILE_N // 32, NUM_WARPS)
    B_LAYOUT: constexpr = gl.BlockedLayout([1, 1], [1, 32], [NUM_WARPS // B_WARPS_N, B_WARPS_N], [1, 0])
    B_SHARED: constexpr = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    tile_m, tile_n = tile_of_program(M, N, TILE_M, TILE_N, GROUP_M)
    a_rows = (tile_m * TILE_M + gl.arange(0, TILE_M, gl.SliceLayout(1, A_LAYOUT)))[:, None]
    a_cols = gl.arange(0, TILE_K, gl.SliceLayout(0, A_LAYOUT))[None, :]
    b_rows = gl.arange(0, TILE_K, gl.SliceLayout(1, B_LAYOUT))[:, None]
    b_cols = (tile_n * TILE_N + gl.arange(0, TILE_N, gl.SliceLayout(0, B_LAYOUT)))[None, :]

    a_tile = gl.allocate_shared_memory(gl.float32, [TILE_M, TILE_K], A_SHARED)
    b_tile = gl.allocate_shared_memory(gl.float32, [TILE_K, TILE_N], B_SHARED)
    acc = gl.zeros([TILE_M, TILE_N], gl.float32, C_LAYOUT)
    for k0 in range(0, K, TILE_K):
        a_tile.store(load_tile(a, a_rows, k0 + a_cols, a_row, a_col, M, K, MASK_M, MASK_K))
        b_tile.store(load_tile(b, k0 + b_rows, b_cols, b_row, b_col, K, N, MASK_K, MASK_N))
        for k in gl.static_range(TILE_K):
            a_column = a_tile.slice(k, 1, 1).load(C_LAYOUT)
            b_row_k = b_tile.slice(k, 1, 0).load(C_LAYOUT)
            acc = gl.fma(a_column, b_row_k, acc)

    c_rows = (tile_m * TILE_M + gl.arange(0, TILE_M, gl.SliceLayout(1, C_LAYOUT)))[:, None]
    c_cols = (tile_n * TILE_N + gl.arange(0, TILE_N, gl.SliceLayout(0, C_LAYOUT)))[None, :]
    store_tile(acc, c_rows, c_cols, c, c_row, c_col, d, d_row, d_col, M, N, alpha, beta, READ_C, MASK_M, MASK_N)


@dataclass(frozen=True)
class ColumnReadsConfig(SimtConfig):
    """``pad``: elements after each row of A's tile, which lies as in memory, tile_m x tile_k."""

    pad: int = 0


class ColumnReads(ThreadTile2D):
    name = "column_reads"
    function = column_reads_kernel
    config_type = ColumnReadsConfig
    default = ColumnReadsConfig(num_warps=4, tile_m=128, tile_n=64, tile_k=8, thread_m=8, thread_n=8, group_m=8)

    def constants(self, config: SimtConfig) -> Iterable[tuple[str, Any]]:
        assert isinstance(config, ColumnReadsConfig)
        yield from super().constants(config)
        yield "A_SHARED", rows(config.tile_k, config.pad, [config.tile_m, config.tile_k])


@jit
def one_column_kernel(a, out, LANES_M: constexpr):
    """One column of a 128 x 8 tile that lies row by row in shared memory, read by a warp of LANES_M x (32 / LANES_M)
    threads with 8 rows each. A column alone: where several are read, ptxas joins neighbours of a row into one LDS."""
    LAYOUT: constexpr = gl.BlockedLayout([8, 8], [LANES_M, 32 // LANES_M], [1, 1], [1, 0])
    COPY: constexpr = gl.BlockedLayout([1, 4], [16, 2], [1, 1], [1, 0])
    rows = gl.arange(0, 128, gl.SliceLayout(1, COPY))[:, None]
    cols = gl.arange(0, 8, gl.SliceLayout(0, COPY))[None, :]
    tile = gl.allocate_shared_memory(gl.float32, [128, 8], gl.SwizzledSharedLayout(1, 1, 1, [1, 0]))
    tile.store(gl.load(a + rows * 8 + cols))
    column = tile.slice(3, 1, 1).load(LAYOUT)
    out_rows = gl.arange(0, 128, gl.SliceLayout(1, LAYOUT))[:, None]
    gl.store(out + out_rows + gl.arange(0, 1, gl.SliceLayout(0, LAYOUT))[None, :], column)
