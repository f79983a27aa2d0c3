"""What compat hides between Triton releases, tried by compiling it under the one at hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from rungemm.compiling import compile_launch
from rungemm.dtypes import FP32
from rungemm.kernels import Launch
from rungemm.kernels.plan import Pointer

SOURCE = Path(__file__).parents[2] / "src" / "rungemm"

RING = """
    from rungemm.compat import (
        async_copy_load, async_copy_mbarrier_arrive, barrier, constexpr, gl, jit, mbarrier, padded_shared_layout,
        warp_specialize,
    )

    @jit
    def producer(x, tile, full, N: constexpr):
        LAYOUT: constexpr = gl.BlockedLayout([1, 4], [4, 8], [1, 1], [1, 0])
        rows = gl.arange(0, N, gl.SliceLayout(1, LAYOUT))[:, None]
        cols = gl.arange(0, 32, gl.SliceLayout(0, LAYOUT))[None, :]
        async_copy_load(tile, x + rows * 32 + cols)
        async_copy_mbarrier_arrive(full)
        mbarrier.arrive(full, count=1)

    @jit
    def consumer(y, tile, full, N: constexpr):
        LAYOUT: constexpr = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
        rows = gl.arange(0, N, gl.SliceLayout(1, LAYOUT))[:, None]
        cols = gl.arange(0, 32, gl.SliceLayout(0, LAYOUT))[None, :]
        mbarrier.wait(full, 0)
        gl.store(y + rows * 32 + cols, tile.load(LAYOUT))

    @jit
    def ring(x, y, N: constexpr):
        tile = gl.allocate_shared_memory(gl.float32, [N, 32], gl.SwizzledSharedLayout(4, 1, 8, [1, 0]))
        full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
        mbarrier.init(full, count=1)
        warp_specialize([(consumer, (y, tile, full, N)), (producer, (x, tile, full, N))], [1]{registers})

    PADDED = constexpr(padded_shared_layout(32, 4, [32, 32], [1, 0]))

    @jit
    def transpose(x, y, N: constexpr):
        LAYOUT: constexpr = gl.BlockedLayout([1, 1], [1, 32], [4, 1], [1, 0])
        rows = gl.arange(0, 32, gl.SliceLayout(1, LAYOUT))[:, None]
        cols = gl.arange(0, 32, gl.SliceLayout(0, LAYOUT))[None, :]
        tile = gl.allocate_shared_memory(gl.float32, [32, 32], PADDED)
        tile.store(gl.load(x + rows * N + cols))
        barrier()
        gl.store(y + rows * N + cols, tile.permute([1, 0]).load(LAYOUT))
"""


def launch(function: object, n: int) -> Launch:
    return Launch(function, (1, 1, 1), (("x", Pointer("A", FP32)), ("y", Pointer("D", FP32))), (("N", n),), 4)


@pytest.mark.parametrize("arch", [80, 90])
def test_warp_specialisation_without_asking_for_registers(arch, write_module) -> None:
    compiled = compile_launch(launch(write_module(RING.replace("{registers}", "")).ring, 64), arch)
    assert compiled.num_warps == 8, "four consumer warps, and a producer's warp filled up to a warpgroup"
    assert any(opcode.startswith("LDGSTS") for opcode in compiled.sass)
    assert not any("SETMAXREG" in opcode for opcode in compiled.sass)


def test_warp_specialisation_with_registers(write_module) -> None:
    compiled = compile_launch(launch(write_module(RING.replace("{registers}", ", [24]")).ring, 64), 90)
    assert any("SETMAXREG" in opcode for opcode in compiled.sass)


def test_padded_rows(write_module) -> None:
    compiled = compile_launch(launch(write_module(RING.replace("{registers}", "")).transpose, 32), 90)
    assert 4 * 32 * 36 - 16 <= compiled.shared_bytes <= 4 * 32 * 36


def test_triton_s_insides_are_imported_by_compat_alone() -> None:
    offenders = [
        f"{path.relative_to(SOURCE)}:{number}"
        for path in SOURCE.rglob("*.py")
        if path != SOURCE / "compat.py"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if line.lstrip().startswith(("import triton.", "from triton"))
    ]
    assert not offenders
