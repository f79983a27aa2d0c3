"""Our layout maths against Triton's own, over random layouts, fresh in every run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from rungemm.compat import GluonASTSource, constexpr, gl, jit, triton
from rungemm.layouts import register_map, shared_map

from .random_layouts import ask_triton, distributed_case, shared_case


def walk(bases: list[list[int]], rank: int) -> np.ndarray:
    """Coordinates of 0, 1, 2, ... under bases: the XOR of the vectors whose bits are set."""
    index = np.arange(1 << len(bases))[:, None]
    at = np.zeros((len(index), rank), np.int64)
    for bit, vector in enumerate(bases):
        at ^= (index >> bit & 1) * np.array(vector)
    return at


def flat_index(answer: Mapping[str, Any], shape: list[int]) -> np.ndarray:
    rank = len(shape)
    parts = [walk(answer[name], rank) for name in ("warp", "lane", "register")]
    at = parts[0][:, None, None] ^ parts[1][None, :, None] ^ parts[2][None, None, :]
    return np.ravel_multi_index(tuple(np.moveaxis(at, -1, 0)), shape)


def test_register_maps_are_tritons(rng: np.random.Generator) -> None:
    cases = [distributed_case(rng) for _ in range(500)]
    answers = ask_triton([("distributed", layout, shape) for layout, shape, _ in cases])
    for (layout, shape, warps), answer in zip(cases, answers, strict=True):
        assert "error" not in answer, (layout, shape, answer)
        ours = register_map(layout, shape, warps)
        expected = flat_index(answer, shape)
        assert ours.index.shape == expected.shape, (layout, shape)
        assert np.array_equal(ours.index, expected), (layout, shape)


def test_shared_maps_are_tritons(rng: np.random.Generator) -> None:
    cases = [shared_case(rng) for _ in range(150)]
    answers = ask_triton([("shared", layout, shape) for layout, shape, _ in cases])
    for (layout, shape, size), answer in zip(cases, answers, strict=True):
        assert "error" not in answer, (layout, shape, answer)
        ours = shared_map(layout, shape, size)
        at = walk(answer["offset"], len(shape))
        assert np.array_equal(ours.offset[tuple(at.T)], np.arange(len(at)) * size), (layout, shape)
        assert ours.bytes == len(at) * size


@jit
def allocate(LAYOUT: constexpr, SHAPE: constexpr, REGISTERS: constexpr):
    buffer = gl.allocate_shared_memory(gl.float32, SHAPE, LAYOUT)
    buffer.store(gl.full(SHAPE, 1.0, gl.float32, REGISTERS))
    buffer.load(REGISTERS)


@pytest.mark.parametrize("shape, interval, padding", [([16, 32], 32, 4), ([8, 64], 16, 2), ([32, 8], 8, 1)])
def test_padded_allocation_is_as_large_as_tritons(shape: list[int], interval: int, padding: int) -> None:
    layout = gl.PaddedSharedLayout.with_identity_for([[interval, padding]], shape, [1, 0])
    registers = gl.BlockedLayout([1, 1], [1, 32], [4, 1], [1, 0])
    source = GluonASTSource(
        allocate,
        dict.fromkeys(("LAYOUT", "SHAPE", "REGISTERS"), "constexpr"),
        {(0,): layout, (1,): shape, (2,): registers},
        {},
    )
    from triton.backends.compiler import GPUTarget

    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4})
    assert shared_map(layout, shape, 4).bytes == compiled.metadata.shared
