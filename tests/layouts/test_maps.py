"""Layout facts that can be worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from rungemm.compat import gl, padded_shared_layout
from rungemm.layouts import register_map, shared_map


def test_blocked_lanes_run_along_the_fast_dimension() -> None:
    layout = gl.BlockedLayout([1, 4], [8, 4], [4, 1], [1, 0])
    index = register_map(layout, (32, 16), 4).index
    assert index.shape == (4, 32, 4)
    assert index[0, 0].tolist() == [0, 1, 2, 3]
    assert index[0, 5].tolist() == [20, 21, 22, 23]  # lane 5: second row, second group of four
    assert index[1, 0, 0] == 8 * 16


def test_a_larger_tile_repeats_in_registers_and_a_smaller_one_replicates() -> None:
    layout = gl.BlockedLayout([1, 1], [1, 32], [4, 1], [1, 0])
    large = register_map(layout, (8, 64), 4)
    assert large.registers == 4 and large.unique.all()
    small = register_map(layout, (4, 16), 4)
    assert small.unique.sum() == 64
    assert small.unique[:, :16].all() and not small.unique[:, 16:].any()


def test_unique_marks_one_owner_of_each_element(rng: np.random.Generator) -> None:
    layout = gl.DotOperandLayout(0, gl.NVMMADistributedLayout([2, 0], [2, 2], [16, 8]), 2)
    found = register_map(layout, (64, 32), 4)
    owned = found.index[found.unique]
    assert np.array_equal(np.sort(owned), np.arange(64 * 32))


def test_mma_accumulator_fragment() -> None:
    """mma.m16n8: lane t holds row t/4, columns 2(t%4) and +1, and the same eight rows further down."""
    index = register_map(gl.NVMMADistributedLayout([2, 0], [1, 1], [16, 8]), (16, 8), 1).index[0]
    for lane in range(32):
        row, col = lane // 4, 2 * (lane % 4)
        assert index[lane].tolist() == [8 * row + col, 8 * row + col + 1, 8 * (row + 8) + col, 8 * (row + 8) + col + 1]


def test_swizzle_moves_chunks_by_the_row() -> None:
    offset = shared_map(gl.SwizzledSharedLayout(8, 1, 4, [1, 0]), (8, 32), 2).offset
    for row in range(8):
        for col in range(32):
            chunk = (col // 8) ^ (row % 4)
            assert offset[row, col] == 2 * (32 * row + 8 * chunk + col % 8)


def test_padding_follows_every_interval() -> None:
    found = shared_map(padded_shared_layout(32, 4, [8, 32], [1, 0]), (8, 32), 4)
    assert found.offset[3, 5] == 4 * (3 * 36 + 5)
    assert found.bytes == 4 * (8 * 32 + 7 * 4)


def test_stacked_buffers_lie_one_after_the_other() -> None:
    found = shared_map(gl.SwizzledSharedLayout(1, 1, 1, [1, 0]), (3, 16, 8), 4)
    assert found.bytes == 3 * 16 * 8 * 4
    assert np.array_equal(found.offset[2], found.offset[0] + 2 * 512)


def test_nvmma_128_byte_swizzle() -> None:
    """The pattern of TMA's 128-byte swizzle: 16-byte chunk XOR row mod 8; atoms of 64 fp16 columns side by side."""
    offset = shared_map(gl.NVMMASharedLayout(128, 16, 2), (16, 128), 2).offset
    for row in range(16):
        for col in range(128):
            atom, within = divmod(col, 64)
            assert offset[row, col] == atom * 16 * 128 + row * 128 + 16 * ((within // 8) ^ (row % 8)) + 2 * (within % 8)


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: register_map(gl.AutoLayout(), (32, 32), 4), "AutoLayout"),
        (lambda: register_map(gl.BlockedLayout([1], [32], [4], [0]), (32, 32), 4), "dimensions"),
        (lambda: register_map(gl.BlockedLayout([1], [32], [4], [0]), (96,), 4), "power of two"),
        (lambda: register_map(gl.BlockedLayout([1], [32], [4], [0]), (128,), 8), "4 warps"),
        (lambda: shared_map(gl.NVMMASharedLayout(128, 16, 2), (64, 64), 4), "16-bit"),
        (lambda: shared_map(gl.NVMMASharedLayout(128, 16, 2), (4, 64), 2), "narrower swizzle"),
    ],
)
def test_errors_say_what_is_wrong(call, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()
