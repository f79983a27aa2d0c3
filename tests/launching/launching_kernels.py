"""A kernel with every kind of argument."""

from __future__ import annotations

from rungemm.compat import constexpr, gl, jit, mbarrier, tma_load
from rungemm.dtypes import BF16, FP32
from rungemm.kernels import Launch
from rungemm.kernels.plan import Descriptor, Pointer, Scalar


@jit
def every_kind(x, one, n, wide, descriptor, factor, y, ROWS: constexpr):
    tile = gl.allocate_shared_memory(descriptor.dtype, descriptor.block_type.shape, descriptor.layout)
    ready = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(ready, count=1)
    mbarrier.expect(ready, descriptor.block_type.nbytes)
    tma_load(descriptor, [n, one], ready, tile)
    mbarrier.wait(ready, 0)
    LAYOUT: constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    rows = gl.arange(0, ROWS, gl.SliceLayout(1, LAYOUT))[:, None]
    cols = gl.arange(0, 64, gl.SliceLayout(0, LAYOUT))[None, :]
    value = tile.load(LAYOUT).to(gl.float32) * factor + gl.load(x)
    gl.store(y + wide * 64 + rows * 64 + cols, value)


def every_kind_launch() -> Launch:
    layout = gl.NVMMASharedLayout(128, 16, 2)
    return Launch(
        every_kind,
        (3, 2, 1),
        (
            ("x", Pointer("C", FP32, 4)),
            ("one", Scalar.index(1)),
            ("n", Scalar.index(5)),
            ("wide", Scalar.index(-(2**40))),
            ("descriptor", Descriptor("A", BF16, (1000, 512), (520, 1), (128, 64), layout)),
            ("factor", Scalar.real(2.5)),
            ("y", Pointer("D", FP32, 16)),
        ),
        (("ROWS", 128),),
        4,
    )
