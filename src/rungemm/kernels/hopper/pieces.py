"""The jitted pieces that the Hopper rungs share: tile order, ring of stages, loads, products, the epilogue."""

from __future__ import annotations

from ...compat import (
    barrier,
    constexpr,
    fence_async_shared,
    gl,
    jit,
    mbarrier,
    tma_load,
    tma_store,
    tma_store_wait,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from ..common import load_tile, store_tile
from ..epilogue import bias_of, finished


@jit
def tile_at(index, M, N, TILE_M: constexpr, TILE_N: constexpr, GROUP: constexpr):
    """The ``index``-th tile (row, column, counted in tiles): GROUP rows of tiles are walked together, for L2."""
    tiles_m = gl.cdiv(M, TILE_M)
    tiles_n = gl.cdiv(N, TILE_N)
    in_group = GROUP * tiles_n
    first = index // in_group * GROUP
    rows = min(tiles_m - first, GROUP)
    within = index % in_group
    return first + within % rows, within // rows


@jit
def advance(slot, phase, STAGES: constexpr):
    """The next slot of a ring, and the parity of its mbarrier: it flips each time round."""
    slot += 1
    wrapped = slot == STAGES
    return gl.where(wrapped, 0, slot), phase ^ wrapped.to(gl.int32)


@jit
def behind(slot, STAGES: constexpr):
    """The slot before this one in a ring.

    Computed, not remembered: of ``before = slot`` before a loop and again inside it, Triton 3.6 keeps only the first,
    because its dry run of the loop finds both names on one value and so takes ``before`` for unchanged. Multipliers
    then release slot 0 for ever and the loader waits for ever. Found on the card; see docs/log.md.
    """
    return gl.where(slot == 0, STAGES - 1, slot - 1)


@jit
def skip(slot, phase, steps, STAGES: constexpr):
    """Slot and parity after ``steps`` more stages, which another partition takes."""
    ahead = slot + steps
    return ahead % STAGES, phase ^ (ahead // STAGES & 1)


@jit
def init_ring(full, empty, CONSUMERS: constexpr):
    """``full[i]``: stage i has its bytes (one arrival, the loader's). ``empty[i]``: all consumers are done with it."""
    STAGES: constexpr = full.shape[0]
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=CONSUMERS)
    fence_async_shared()


@jit
def init_turns(turns):
    """``turns[i]`` completes when partition i may multiply: the other one arrives when it has had its turn."""
    for i in gl.static_range(2):
        mbarrier.init(turns.index(i), count=1)
    fence_async_shared()


@jit
def load_stage(a, b, a_stage, b_stage, full, row, col, k, A_COLUMNS: constexpr, B_COLUMNS: constexpr):
    """Asks TMA for one K step of A and B; ``full`` completes when all bytes are there."""
    mbarrier.expect(full, a.block_type.nbytes + b.block_type.nbytes)
    if A_COLUMNS:
        tma_load(a, [k, row], full, a_stage)
    else:
        tma_load(a, [row, k], full, a_stage)
    if B_COLUMNS:
        tma_load(b, [col, k], full, b_stage)
    else:
        tma_load(b, [k, col], full, b_stage)


@jit
def matrix_view(stage, COLUMNS: constexpr):
    """A stage as the matrix it holds: a tile moved by columns lies transposed in shared memory."""
    if COLUMNS:
        view = stage.permute((1, 0))
    else:
        view = stage
    return view


@jit
def multiply_steps(
    acc, steps, slot, phase, a_ring, b_ring, full, empty,
    PART: constexpr, A_COLUMNS: constexpr, B_COLUMNS: constexpr, TO_THE_END: constexpr = True,
):  # fmt: skip
    """``acc`` = the product over ``steps`` stages of the ring; one wgmma group stays in flight behind the next wait.

    Without TO_THE_END the last one still is on return: :func:`end_of_steps` waits for it.
    """
    STAGES: constexpr = full.shape[0]
    PART_M: constexpr = acc.shape[0]
    for step in range(steps):
        mbarrier.wait(full.index(slot), phase)
        a = matrix_view(a_ring.index(slot), A_COLUMNS).slice(PART * PART_M, PART_M, 0)
        b = matrix_view(b_ring.index(slot), B_COLUMNS)
        token = warpgroup_mma(a, b, acc, use_acc=step > 0, is_async=True)
        acc = warpgroup_mma_wait(1, deps=(token,))
        mbarrier.arrive(empty.index(behind(slot, STAGES)), pred=step > 0)
        slot, phase = advance(slot, phase, STAGES)
    if TO_THE_END:
        acc = end_of_steps(acc, steps, slot, empty)
    return acc, slot, phase


@jit
def end_of_steps(acc, steps, slot, empty):
    """Waits for the last product of :func:`multiply_steps` and releases its stage, the one before ``slot``."""
    acc = warpgroup_mma_wait(0, deps=(acc,))
    mbarrier.arrive(empty.index(behind(slot, empty.shape[0])), pred=steps > 0)
    return acc


@jit
def multiply_steps_from_registers(
    acc, steps, slot, phase, a_ring, b_ring, full, empty,
    PART: constexpr, A_COLUMNS: constexpr, B_COLUMNS: constexpr,
):  # fmt: skip
    """As :func:`multiply_steps` with A in registers, for fp32: wgmma reads its shared operands along K only.

    wgmma must be done with a fragment before its registers take the next, so nothing stays in flight here: two
    partitions hide each other's reads. (A fragment read ahead makes ptxas serialise every wgmma: its note C7513.)
    """
    STAGES: constexpr = full.shape[0]
    PART_M: constexpr = acc.shape[0]
    for step in range(steps):
        mbarrier.wait(full.index(slot), phase)
        tile = matrix_view(a_ring.index(slot), A_COLUMNS).slice(PART * PART_M, PART_M, 0)
        fragment = tile.load(gl.DotOperandLayout(0, acc.type.layout, 1))
        b = matrix_view(b_ring.index(slot), B_COLUMNS)
        token = warpgroup_mma(fragment, b, acc, use_acc=step > 0, is_async=True)
        acc = warpgroup_mma_wait(0, deps=(token,))
        mbarrier.arrive(empty.index(slot))
        slot, phase = advance(slot, phase, STAGES)
    return acc, slot, phase


@jit
def split_columns(tile, PARTS: constexpr):
    """The tile as PARTS narrower ones, left to right: each thread's own registers, nothing moves."""
    if PARTS == 1:
        parts = (tile,)
    else:
        left, right = tile.reshape([tile.shape[0], 2, tile.shape[1] // 2]).permute(0, 2, 1).split()
        parts = split_columns(left, PARTS // 2) + split_columns(right, PARTS // 2)
    return parts


@jit
def store_slices(
    acc, c, d, row, col, c_row, c_col, d_row, d_col, M, N, alpha, beta, NUM_WARPS: constexpr, READ_C: constexpr
):
    """``D[row:, col:] = alpha * acc + beta * C`` from the accumulators' layout, a few columns at a time.

    A slice at a time, so that not all of its pointers, masks and values of C need registers at once.
    """
    TILE_M: constexpr = acc.shape[0]
    PART_N: constexpr = min(acc.shape[1], 64)
    PARTS: constexpr = acc.shape[1] // PART_N
    LAYOUT: constexpr = gl.NVMMADistributedLayout([3, 0], [NUM_WARPS, 1], [16, PART_N, 16])
    parts = split_columns(acc, PARTS)
    rows = (row + gl.arange(0, TILE_M, gl.SliceLayout(1, LAYOUT)))[:, None]
    for i in gl.static_range(PARTS):
        cols = (col + i * PART_N + gl.arange(0, PART_N, gl.SliceLayout(0, LAYOUT)))[None, :]
        part = gl.convert_layout(parts[i], LAYOUT, assert_trivial=True)
        store_tile(part, rows, cols, c, c_row, c_col, d, d_row, d_col, M, N, alpha, beta, READ_C, True, True)


@jit
def biases_of(finish, rows, cols, M, N, PARTS: constexpr, PART_N: constexpr):
    """The biases of PARTS slices of PART_N columns, the first of which are ``cols``."""
    if PARTS == 0:
        parts = ()
    else:
        rest = biases_of(finish, rows, cols + PART_N, M, N, PARTS - 1, PART_N)
        parts = (bias_of(finish, rows, cols, M, N),) + rest  # noqa: RUF005
    return parts


@jit
def biases_ahead(
    finish, row, col, M, N, TILE_M: constexpr, TILE_N: constexpr, PART_N: constexpr, NUM_WARPS: constexpr
):
    """All that :func:`store_through_shared` will add to a tile at ``row`` and ``col``, asked for ahead of need."""
    LAYOUT: constexpr = gl.NVMMADistributedLayout([3, 0], [NUM_WARPS, 1], [16, PART_N, 16])
    rows = (row + gl.arange(0, TILE_M, gl.SliceLayout(1, LAYOUT)))[:, None]
    cols = (col + gl.arange(0, PART_N, gl.SliceLayout(0, LAYOUT)))[None, :]
    return biases_of(finish, rows, cols, M, N, TILE_N // PART_N, PART_N)


@jit
def store_through_shared(
    acc, staging, OWNER: constexpr, c, d, row, col, c_row, c_col, d_row, d_col, M, N, alpha, beta,
    NUM_WARPS: constexpr, OWNERS: constexpr, READ_C: constexpr,
    D_TMA: constexpr, D_COLUMNS: constexpr, D_VECTOR: constexpr, finish=None, biases=None,
):  # fmt: skip
    """``D[row:, col:] = alpha * acc + beta * C``, by way of ``staging``, a narrow slice of columns at a time.

    ``finish``: what of an epilogue follows (:class:`..epilogue.Finish`), in the kernels that fuse one; ``biases``:
    :func:`biases_ahead`'s, where they were asked for.

    With D_TMA, ``d`` is a descriptor and TMA writes each slice while the next is converted, into buffers used by turns;
    the number of slices is a multiple of theirs, so that the turns go on from tile to tile.
    Otherwise ``d`` is a pointer and the slice is read back in rows, D_VECTOR elements a thread, to be stored.
    ``staging`` holds as many buffers for each of its OWNERS.
    """
    PART_N: constexpr = staging.shape[1] if D_COLUMNS else staging.shape[2]
    PARTS: constexpr = acc.shape[1] // PART_N
    BUFFERS: constexpr = staging.shape[0] // OWNERS
    parts = split_columns(acc, PARTS)
    ALL: constexpr = finish is None
    for i in gl.static_range(PARTS):
        # As many slices as there are buffers are left out together, so that the turns go on. That a slice may be
        # left out also keeps its arithmetic behind the stores before it: without a branch, ptxas computes all
        # slices first, and before the ring's last stage is released.
        if ALL or col + i // BUFFERS * BUFFERS * PART_N < N:
            store_slice(
                parts[i], staging.index(OWNER * BUFFERS + i % BUFFERS), BUFFERS, c, d, row, col + i * PART_N,
                c_row, c_col, d_row, d_col, M, N, alpha, beta, NUM_WARPS, READ_C, D_TMA, D_COLUMNS, D_VECTOR, finish,
                None if biases is None else biases[i],
            )  # fmt: skip


@jit
def store_slice(
    part, buffer, BUFFERS: constexpr, c, d, row, col, c_row, c_col, d_row, d_col, M, N, alpha, beta,
    NUM_WARPS: constexpr, READ_C: constexpr, D_TMA: constexpr, D_COLUMNS: constexpr, D_VECTOR: constexpr, finish, bias,
):  # fmt: skip
    """One slice of :func:`store_through_shared`, at ``row`` and ``col``; ``bias`` is loaded here if it is ``None``."""
    PART_N: constexpr = part.shape[1]
    LAYOUT: constexpr = gl.NVMMADistributedLayout([3, 0], [NUM_WARPS, 1], [16, PART_N, 16])
    rows = (row + gl.arange(0, part.shape[0], gl.SliceLayout(1, LAYOUT)))[:, None]
    cols = (col + gl.arange(0, PART_N, gl.SliceLayout(0, LAYOUT)))[None, :]
    part = gl.convert_layout(part, LAYOUT, assert_trivial=True) * alpha
    if READ_C:
        old = load_tile(c, rows, cols, c_row, c_col, M, N, True, True)
        part = gl.fma(old.to(gl.float32), beta, part)
    if finish is not None:
        if bias is None:
            bias = bias_of(finish, rows, cols, M, N)
        part = finished(part, bias, finish)
    # TMA must have read what the buffer held before.
    if D_TMA:
        tma_store_wait(BUFFERS - 1)
        barrier()
    matrix_view(buffer, D_COLUMNS).store(part.to(buffer.dtype))
    if D_TMA:
        fence_async_shared()
        barrier()
        if D_COLUMNS:
            tma_store(d, [col, row], buffer)
        else:
            tma_store(d, [row, col], buffer)
    else:
        store_rows(buffer, d, row, col, d_row, d_col, M, N, NUM_WARPS, D_COLUMNS, D_VECTOR)


@jit
def store_rows(
    buffer, d, row, col, d_row, d_col, M, N, NUM_WARPS: constexpr, D_COLUMNS: constexpr, D_VECTOR: constexpr
):
    """Shared memory to D by ordinary stores, masked, neighbours in memory by neighbouring threads."""
    ACROSS: constexpr = min(32, buffer.shape[1] // D_VECTOR)
    LAYOUT: constexpr = gl.BlockedLayout([1, D_VECTOR], [32 // ACROSS, ACROSS], [NUM_WARPS, 1], [1, 0])
    value = buffer.load(LAYOUT)
    outer = gl.arange(0, buffer.shape[0], gl.SliceLayout(1, LAYOUT))[:, None]
    inner = gl.arange(0, buffer.shape[1], gl.SliceLayout(0, LAYOUT))[None, :]
    if D_COLUMNS:
        rows = row + inner
        cols = col + outer
    else:
        rows = row + outer
        cols = col + inner
    gl.store(d + rows * d_row + cols * d_col, value, mask=(rows < M) & (cols < N))
