"""A contender in plain Triton: ``tl.dot`` in a loop over blocks, with the tile order grouped for L2 reuse.

It is what a Triton user writes before reaching for Gluon, so it shows what explicit layouts buy. A few configs are
tried when it is bound; the fastest stays.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ..compat import constexpr, triton
from ..inputs import InputError
from ..problem import Problem
from .choosing import Choose, seconds_of
from .contenders import Call, Contender, Operands

__all__ = ["TlDot"]

tl = triton.language

CONFIGS: tuple[tuple[int, int, int, int, int], ...] = (
    # tile M, tile N, tile K, warps, stages
    (128, 256, 64, 8, 3),
    (128, 128, 64, 4, 4),
    (128, 128, 32, 4, 4),
    (128, 128, 32, 8, 3),
    (128, 64, 32, 8, 3),
    (64, 128, 64, 4, 4),
    (64, 64, 64, 4, 4),
    (32, 64, 64, 4, 4),
    (16, 64, 128, 4, 4),
)

IEEE_CONFIGS: tuple[tuple[int, int, int, int, int], ...] = (
    (128, 128, 16, 8, 3),
    (128, 64, 16, 8, 3),
    (64, 128, 16, 8, 3),
    (64, 64, 16, 4, 3),
    (64, 64, 32, 4, 3),
    (32, 64, 32, 4, 3),
)
"""For fp32 in full: tl.dot then becomes multiply-adds one by one, and larger tiles take up to 40 s to compile."""


@triton.jit
def tl_dot_kernel(  # type: ignore[no-untyped-def]
    a, b, d, a_row, a_col, b_row, b_col, d_row, d_col, M, N, K, alpha,
    TILE_M: constexpr, TILE_N: constexpr, TILE_K: constexpr, GROUP: constexpr, PRECISION: constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(M, TILE_M), tl.cdiv(N, TILE_N)
    group = program // (GROUP * tiles_n)
    height = min(tiles_m - group * GROUP, GROUP)
    within = program % (GROUP * tiles_n)
    rows = (group * GROUP + within % height) * TILE_M + tl.arange(0, TILE_M)
    cols = (within // height) * TILE_N + tl.arange(0, TILE_N)
    ks = tl.arange(0, TILE_K)
    a_at = a + rows[:, None].to(tl.int64) * a_row + ks[None, :] * a_col
    b_at = b + ks[:, None] * b_row + cols[None, :].to(tl.int64) * b_col
    acc = tl.zeros((TILE_M, TILE_N), dtype=tl.float32)
    for k in range(0, K, TILE_K):
        x = tl.load(a_at, mask=(rows[:, None] < M) & (ks[None, :] < K - k), other=0.0)
        y = tl.load(b_at, mask=(ks[:, None] < K - k) & (cols[None, :] < N), other=0.0)
        acc = tl.dot(x, y, acc, input_precision=PRECISION)
        a_at += TILE_K * a_col
        b_at += TILE_K * b_row
    d_at = d + rows[:, None].to(tl.int64) * d_row + cols[None, :].to(tl.int64) * d_col
    tl.store(d_at, (alpha * acc).to(d.dtype.element_ty), mask=(rows[:, None] < M) & (cols[None, :] < N))


@dataclass
class TlDot(Contender):
    """``tl.dot`` with the fastest of :data:`CONFIGS` or :data:`IEEE_CONFIGS`, found when the first set is bound."""

    name: str = "tl-dot"
    choose: Choose = seconds_of
    _chosen: dict[Problem, tuple[int, int, int, int, int]] = field(default_factory=dict, repr=False)

    def bind(self, problem: Problem, operands: Operands) -> Call:
        if problem.batch != 1 or problem.reads_c or problem.a.dtype.is_integer or problem.epilogue is not None:
            raise InputError(f"{self.name} computes one alpha * A @ B of floating-point operands")
        if problem not in self._chosen:
            full = problem.a.dtype.name == "fp32" and problem.precision == "ieee"
            configs = IEEE_CONFIGS if full else CONFIGS
            took = self.choose([partial(_call, problem, config) for config in configs], problem)
            if min(took) == math.inf:
                raise InputError(f"{self.name}: none of its {len(configs)} configs compiles and runs for {problem}")
            self._chosen[problem] = configs[took.index(min(took))]
        return _call(problem, self._chosen[problem], operands)

    def record(self) -> dict[str, Any]:
        chosen = next(reversed(self._chosen.values()), None)
        if chosen is None:
            return {}
        return {"config": dict(zip(("tile_m", "tile_n", "tile_k", "num_warps", "stages"), chosen, strict=True))}


def _call(problem: Problem, config: tuple[int, int, int, int, int], operands: Operands) -> Call:
    a, b, d = operands["A"], operands["B"], operands["D"]
    tile_m, tile_n, tile_k, warps, stages = config
    grid = (triton.cdiv(problem.m, tile_m) * triton.cdiv(problem.n, tile_n),)
    launcher = tl_dot_kernel[grid]

    def call() -> None:
        launcher(
            a, b, d, *a.stride(), *b.stride(), *d.stride(), problem.m, problem.n, problem.k, problem.alpha,
            TILE_M=tile_m, TILE_N=tile_n, TILE_K=tile_k, GROUP=8, PRECISION=problem.precision,
            num_warps=warps, num_stages=stages,
        )  # fmt: skip

    return call
