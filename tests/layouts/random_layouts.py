"""Random Gluon layouts, and Triton's answers about them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from rungemm.compat import gl

ORACLE = Path(__file__).with_name("triton_oracle.py")


def ask_triton(cases: list[tuple[str, Any, list[int]]]) -> list[dict[str, Any]]:
    """Triton's answer to each case (kind, layout, shape), from a child process."""
    text = "".join(json.dumps([kind, repr(layout), shape]) + "\n" for kind, layout, shape in cases)
    child = subprocess.run([sys.executable, str(ORACLE)], input=text, capture_output=True, text=True, timeout=120)
    answers = [json.loads(line) for line in child.stdout.splitlines()]
    if len(answers) != len(cases):
        raise AssertionError(f"Triton stopped at {cases[len(answers)]}: {child.stderr[-2000:]}")
    return answers


def pow2(rng: np.random.Generator, low: int, high: int) -> int:
    """2**low .. 2**high."""
    return 1 << int(rng.integers(low, high + 1))


def split(rng: np.random.Generator, bits: int, rank: int) -> list[int]:
    """A power of two, shared out over the dimensions at random."""
    counts = [0] * rank
    for _ in range(bits):
        counts[int(rng.integers(rank))] += 1
    return [1 << c for c in counts]


def blocked(rng: np.random.Generator, rank: int, warp_bits: int) -> Any:
    order = [int(d) for d in rng.permutation(rank)]
    return gl.BlockedLayout(
        split(rng, int(rng.integers(0, 5)), rank), split(rng, 5, rank), split(rng, warp_bits, rank), order
    )


def mma(rng: np.random.Generator, version: int, warp_bits: int) -> Any:
    if version == 2:
        return gl.NVMMADistributedLayout([2, 0], split(rng, warp_bits, 2), [16, 8])
    warp_bits = max(warp_bits, 2)
    columns = split(rng, warp_bits - 2, 1)[0]
    n = 8 * pow2(rng, 0, 5)
    return gl.NVMMADistributedLayout([3, 0], [(1 << warp_bits) // columns, columns], [16, n, 16])


def explicit(rng: np.random.Generator, warp_bits: int) -> Any:
    """A linear layout of shuffled unit vectors, some of them zero (replicas)."""
    shape = [pow2(rng, 1, 6), pow2(rng, 1, 6)]
    vectors = [[1 << b, 0] for b in range(shape[0].bit_length() - 1)]
    vectors += [[0, 1 << b] for b in range(shape[1].bit_length() - 1)]
    missing = 5 + warp_bits + 1 - len(vectors)
    vectors += [[0, 0]] * max(missing, 0)
    vectors = [vectors[int(i)] for i in rng.permutation(len(vectors))]
    lanes, warps, registers = vectors[:5], vectors[5 : 5 + warp_bits], vectors[5 + warp_bits :]
    registers = [v for v in registers if any(v)]
    return gl.DistributedLinearLayout(registers, lanes, warps, [], shape)


def distributed_case(rng: np.random.Generator) -> tuple[Any, list[int], int]:
    """A distributed layout, a tile for it (smaller or larger than the layout), and its warps."""
    warp_bits = int(rng.integers(0, 4))
    kind = rng.choice(["blocked", "slice", "mma2", "mma3", "dot2", "dot3", "dotfma", "slicemma", "explicit"])
    shape = [pow2(rng, 0, 8), pow2(rng, 0, 8)]
    if kind == "blocked":
        rank = int(rng.integers(1, 4))
        return blocked(rng, rank, warp_bits), [pow2(rng, 0, 6) for _ in range(rank)], 1 << warp_bits
    if kind == "slice":
        rank = int(rng.integers(2, 4))
        layout = gl.SliceLayout(int(rng.integers(rank)), blocked(rng, rank, warp_bits))
        return layout, [pow2(rng, 0, 7) for _ in range(rank - 1)], 1 << warp_bits
    if kind == "mma2":
        return mma(rng, 2, warp_bits), shape, 1 << warp_bits
    if kind == "mma3":
        return mma(rng, 3, warp_bits), shape, 1 << max(warp_bits, 2)
    if kind == "dot2":
        shape = [pow2(rng, 4, 7), pow2(rng, 4, 7)]
        operand, k_width = int(rng.integers(2)), pow2(rng, 0, 3)
        return gl.DotOperandLayout(operand, mma(rng, 2, warp_bits), k_width), shape, 1 << warp_bits
    if kind == "dot3":
        shape = [pow2(rng, 4, 8), pow2(rng, 4, 7)]
        return gl.DotOperandLayout(0, mma(rng, 3, warp_bits), pow2(rng, 0, 2)), shape, 1 << max(warp_bits, 2)
    if kind == "dotfma":
        return gl.DotOperandLayout(int(rng.integers(2)), blocked(rng, 2, warp_bits), 0), shape[:2], 1 << warp_bits
    if kind == "slicemma":
        version = int(rng.integers(2, 4))
        layout = gl.SliceLayout(int(rng.integers(2)), mma(rng, version, warp_bits))
        return layout, [pow2(rng, 0, 8)], 1 << (max(warp_bits, 2) if version == 3 else warp_bits)
    layout = explicit(rng, warp_bits)
    shape = [max(1, int(extent * 2.0 ** rng.integers(-1, 2))) for extent in layout.shape]
    return layout, shape, 1 << warp_bits


def shared_case(rng: np.random.Generator) -> tuple[Any, list[int], int]:
    """A shared layout whose bases Triton can be asked for, a buffer, and the element's bytes."""
    choice = rng.random()
    if choice < 0.1:
        shape = [pow2(rng, 1, 2), pow2(rng, 2, 4), 64 * pow2(rng, 0, 1)]
        return gl.NVMMASharedLayout(pow2(rng, 5, 7), 16, 3), shape, 2
    if choice < 0.4:
        order = [int(d) for d in rng.permutation(2)]
        layout = gl.SwizzledSharedLayout(pow2(rng, 0, 3), pow2(rng, 0, 3), pow2(rng, 0, 3), order)
        return layout, [pow2(rng, 1, 7), pow2(rng, 4, 8)], 2
    bits = int(rng.choice([8, 16, 32]))
    width = int(rng.choice([0, 32, 64, 128]))
    transposed = bool(rng.random() < 0.5)
    along = max(8 * width // bits, 16)
    shape = [pow2(rng, 3, 9), along * pow2(rng, 0, 2)]
    if transposed:
        shape.reverse()
    return gl.NVMMASharedLayout(width, bits, 2, transposed), shape, bits // 8
