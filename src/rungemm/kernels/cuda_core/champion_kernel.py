"""The fp32 champion's device code. Its plan, layouts and search space are in :mod:`.champion`.

Both operands are seen alike, as tiles of TILE_K rows along K (A's tile is A transposed), so that a fragment of either
is four neighbours in a row. An operand whose neighbours in memory lie along that row goes straight to shared memory by
cp.async; any other passes through registers, which turns it.

Two buffers that the compiler can tell apart, and the loop walks K two tiles at a time: one barrier a tile. What does
not fill a tile along K comes FIRST, so that only the loads before the loop are masked.
"""

# Tuples grow in unrolled loops, which neither checker follows.
# mypy: disable-error-code="assignment,misc"
# ruff: noqa: RUF005

from __future__ import annotations

from ...compat import async_copy_commit, async_copy_load, async_copy_wait, barrier, constexpr, gl, jit
from ..common import store_tile, tile_of_program
from .register_tile import join_columns, outer_product, to_registers, zero_registers

__all__ = ["champion_fp32_kernel"]


@jit
def _fetch(pointers, buffer, mask, ASYNC: constexpr, MASKED: constexpr):
    """Start a tile's way from global memory: into the buffer, or into registers, which are returned."""
    value = 0
    if ASYNC:
        if MASKED:
            async_copy_load(buffer, pointers, mask=mask)
        else:
            async_copy_load(buffer, pointers)
    else:
        if MASKED:
            value = gl.load(pointers, mask=mask, other=0.0)
        else:
            value = gl.load(pointers)
    return value


@jit
def _deposit(value, buffer, ASYNC: constexpr):
    """The rest of the way for a tile that went through registers."""
    if not ASYNC:
        buffer.store(value)


@jit
def _multiply(
    a_tile, b_tile, acc, TILE_M: constexpr, TILE_N: constexpr, TILE_K: constexpr,
    THREAD_M: constexpr, THREAD_N: constexpr, A_FRAGMENT: constexpr, B_FRAGMENT: constexpr, SINGLE: constexpr,
    PINNED: constexpr,
):  # fmt: skip
    """One tile's worth of multiply-adds: for each k a fragment of A, one of B, and their outer product."""
    for k in gl.static_range(TILE_K):
        a_fragment = a_tile.slice(k, 1, 0).load(A_FRAGMENT).reshape([TILE_M])
        b_fragment = b_tile.slice(k, 1, 0).load(B_FRAGMENT).reshape([TILE_N])
        a_parts = to_registers(a_fragment, THREAD_M, gl.SliceLayout(1, SINGLE))
        b_parts = to_registers(b_fragment, THREAD_N, gl.SliceLayout(0, SINGLE))
        a_columns = ()
        for i in gl.static_range(THREAD_M):
            a_columns = a_columns + (a_parts[i][:, None],)
        b_rows = ()
        for j in gl.static_range(THREAD_N):
            b_rows = b_rows + (b_parts[j][None, :],)
        acc = outer_product(a_columns, b_rows, acc, THREAD_M, THREAD_N, PINNED)
    return acc


@jit
def champion_fp32_kernel(
    a, b, c, d, a_row, a_col, b_row, b_col, c_row, c_col, d_row, d_col, M, N, K, alpha, beta,
    split_tiles, split_stride,
    TILE_M: constexpr, TILE_N: constexpr, TILE_K: constexpr, READ_C: constexpr,
    MASK_M: constexpr, MASK_N: constexpr, LACKING: constexpr, ODD: constexpr, SPLIT: constexpr,
    THREAD_M: constexpr, THREAD_N: constexpr, GROUP_M: constexpr, PINNED: constexpr,
    A_ASYNC: constexpr, B_ASYNC: constexpr, A_COPY: constexpr, B_COPY: constexpr,
    A_SHARED: constexpr, B_SHARED: constexpr, A_FRAGMENT: constexpr, B_FRAGMENT: constexpr,
    SINGLE: constexpr, STORE: constexpr,
):  # fmt: skip
    tile_m, tile_n = tile_of_program(M, N, TILE_M, TILE_N, GROUP_M)
    # Along K: how many tiles there are and which of them are this program's; the first of all lacks LACKING of its k.
    tiles = gl.cdiv(K, TILE_K)
    first = 0
    if SPLIT:
        first = gl.program_id(1) * split_tiles
        tiles = min(tiles - first, split_tiles)
        d += gl.program_id(1).to(gl.int64) * split_stride
    k0 = first * TILE_K - LACKING

    a_ks = gl.arange(0, TILE_K, gl.SliceLayout(1, A_COPY))[:, None]
    b_ks = gl.arange(0, TILE_K, gl.SliceLayout(1, B_COPY))[:, None]
    a_rows = (tile_m * TILE_M + gl.arange(0, TILE_M, gl.SliceLayout(0, A_COPY)))[None, :]
    b_cols = (tile_n * TILE_N + gl.arange(0, TILE_N, gl.SliceLayout(0, B_COPY)))[None, :]
    a_mask = a_rows < M
    b_mask = b_cols < N
    a_pointers = a + k0 * a_col + (a_ks * a_col + a_rows * a_row)
    b_pointers = b + k0 * b_row + (b_ks * b_row + b_cols * b_col)

    a0 = gl.allocate_shared_memory(gl.float32, [TILE_K, TILE_M], A_SHARED)
    a1 = gl.allocate_shared_memory(gl.float32, [TILE_K, TILE_M], A_SHARED)
    b0 = gl.allocate_shared_memory(gl.float32, [TILE_K, TILE_N], B_SHARED)
    b1 = gl.allocate_shared_memory(gl.float32, [TILE_K, TILE_N], B_SHARED)
    acc = zero_registers(TILE_M // THREAD_M, TILE_N // THREAD_N, THREAD_M * THREAD_N, SINGLE)

    if tiles > 0:
        a_value = _fetch(a_pointers, a0, a_mask & (k0 + a_ks >= 0), A_ASYNC, MASK_M or LACKING > 0)
        b_value = _fetch(b_pointers, b0, b_mask & (k0 + b_ks >= 0), B_ASYNC, MASK_N or LACKING > 0)
        async_copy_commit()
        _deposit(a_value, a0, A_ASYNC)
        _deposit(b_value, b0, B_ASYNC)
        async_copy_wait(0)
        barrier()
    for pair in range(tiles // 2):
        a_pointers += TILE_K * a_col
        b_pointers += TILE_K * b_row
        a_value = _fetch(a_pointers, a1, a_mask, A_ASYNC, MASK_M)
        b_value = _fetch(b_pointers, b1, b_mask, B_ASYNC, MASK_N)
        async_copy_commit()
        acc = _multiply(
            a0, b0, acc, TILE_M, TILE_N, TILE_K, THREAD_M, THREAD_N, A_FRAGMENT, B_FRAGMENT, SINGLE, PINNED
        )
        _deposit(a_value, a1, A_ASYNC)
        _deposit(b_value, b1, B_ASYNC)
        async_copy_wait(0)
        barrier()
        # After the last tile there is none to fetch: the same one again, which nobody reads.
        ahead = gl.where(2 * pair + 2 < tiles, TILE_K, 0)
        a_pointers += ahead * a_col
        b_pointers += ahead * b_row
        a_value = _fetch(a_pointers, a0, a_mask, A_ASYNC, MASK_M)
        b_value = _fetch(b_pointers, b0, b_mask, B_ASYNC, MASK_N)
        async_copy_commit()
        acc = _multiply(
            a1, b1, acc, TILE_M, TILE_N, TILE_K, THREAD_M, THREAD_N, A_FRAGMENT, B_FRAGMENT, SINGLE, PINNED
        )
        _deposit(a_value, a0, A_ASYNC)
        _deposit(b_value, b0, B_ASYNC)
        async_copy_wait(0)
        barrier()
    if ODD:  # noqa: SIM102 (compile-time, then run-time)
        if tiles % 2 == 1:
            acc = _multiply(
                a0, b0, acc, TILE_M, TILE_N, TILE_K, THREAD_M, THREAD_N, A_FRAGMENT, B_FRAGMENT, SINGLE, PINNED
            )

    THREADS_M: constexpr = TILE_M // THREAD_M
    THREADS_N: constexpr = TILE_N // THREAD_N
    rows = (tile_m * TILE_M + 4 * gl.arange(0, THREADS_M, gl.SliceLayout(1, STORE)))[:, None]
    cols = (tile_n * TILE_N + gl.arange(0, 4 * THREADS_N, gl.SliceLayout(0, STORE)))[None, :]
    for i in gl.static_range(THREAD_M):
        for j in gl.static_range(0, THREAD_N, 4):
            part = join_columns(
                acc[j * THREAD_M + i], acc[(j + 1) * THREAD_M + i],
                acc[(j + 2) * THREAD_M + i], acc[(j + 3) * THREAD_M + i], STORE,
            )  # fmt: skip
            store_tile(
                part, rows + (i // 4 * 4 * THREADS_M + i % 4), cols + j * THREADS_N,
                c, c_row, c_col, d, d_row, d_col, M, N, alpha, beta, READ_C, MASK_M, MASK_N,
            )  # fmt: skip
