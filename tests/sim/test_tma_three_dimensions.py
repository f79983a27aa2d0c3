"""TMA blocks of one product of a batch, in shared memory that leaves out the leading one: as Triton compiles them."""

from __future__ import annotations

import numpy as np
import pytest

from rungemm.compat import constexpr, gl, jit, mbarrier, tma_load, tma_store, tma_store_wait
from rungemm.sim import SimulationFault, TensorMap, run

BARRIER = gl.constexpr(mbarrier.MBarrierLayout())


@jit
def copy_box_kernel(x, y, product, row, col, ROWS: constexpr, COLS: constexpr, LAYOUT: constexpr):
    """One block from one batch to another; the shared memory has two dimensions."""
    shared = gl.allocate_shared_memory(x.dtype, [ROWS, COLS], LAYOUT)
    bar = gl.allocate_shared_memory(gl.int64, [1], BARRIER)
    mbarrier.init(bar, count=1)
    mbarrier.expect(bar, x.block_type.nbytes)
    tma_load(x, [product, row, col], bar, shared)
    mbarrier.wait(bar, 0)
    tma_store(y, [product, row, col], shared)
    tma_store_wait(0)


DEEP, FLAT = gl.NVMMASharedLayout(128, 16, 3), gl.NVMMASharedLayout(128, 16, 2)


@pytest.mark.parametrize("at", [(0, 0, 0), (1, 32, 8), (2, 40, 64), (1, -4, -8), (3, 0, 0), (-1, 0, 0)], ids=str)
@pytest.mark.parametrize("schedule", ["late", "eager", "random"])
def test_a_block_stays_inside_its_product(at, schedule, rng):
    x = rng.standard_normal((3, 45, 72)).astype(np.float16)
    y = np.full(x.shape, 9, np.float16)
    maps = TensorMap(x, (1, 16, 64), DEEP), TensorMap(y, (1, 16, 64), DEEP)
    run(copy_box_kernel, 1, *maps, *at, 16, 64, FLAT, schedule=schedule)
    wanted = np.full(x.shape, 9, np.float16)
    product, row, col = at
    if 0 <= product < 3:
        box = product, slice(max(row, 0), row + 16), slice(max(col, 0), col + 64)
        wanted[box] = x[box]
    assert (y == wanted).all()


@pytest.mark.parametrize(
    ("block", "rows", "layout", "what"),
    [
        ((1, 16, 64), 8, FLAT, "type-error"),
        ((2, 8, 64), 8, FLAT, "type-error"),  # two products are not one
        ((1, 16, 64), 16, gl.NVMMASharedLayout(64, 16, 2), "layout-mismatch"),
    ],
    ids=str,
)
def test_other_shared_memory_is_a_fault(block, rows, layout, what):
    x = np.zeros((3, 45, 72), np.float16)
    maps = TensorMap(x, block, DEEP), TensorMap(x.copy(), block, DEEP)
    with pytest.raises(SimulationFault, match=what):
        run(copy_box_kernel, 1, *maps, 0, 0, 0, rows, 64, layout)
