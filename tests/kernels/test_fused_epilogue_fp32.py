"""The fp32 champion's fused epilogue: every way that a tile leaves, both biases, against float64 in the simulator."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "kernels_tensor"))

from test_fused_epilogue import error_of

from rungemm.dtypes import BF16, FP16
from rungemm.hardware import DEFAULT_GPU
from rungemm.kernels.cuda_core.champion import ChampionConfig, ChampionFp32
from rungemm.problem import Epilogue, Matrix, Problem

SMALL = ChampionConfig(4, 64, 64, 16, 8, 4)
FEW = ChampionConfig(num_warps=8, tile_m=32, tile_n=32, tile_k=16, thread_m=4, thread_n=8, k_groups=8, stages=2)
CASES = {
    "whole tiles": (SMALL, (64, 128, 48), Epilogue("row", "gelu")),
    "edges": (SMALL, (100, 77, 37), Epilogue("col", "silu", scale=2.0)),
    "smaller than a tile": (SMALL, (33, 19, 21), Epilogue("row", "gelu_tanh")),
    "split": (replace(SMALL, splits=2), (70, 77, 100), Epilogue("row", "relu", scale=-1.0)),
    "sums started anew": (replace(SMALL, flush_k=32), (70, 77, 100), Epilogue("col", "gelu")),
    "warps split K": (FEW, (70, 77, 50), Epilogue("row", "gelu")),
    "strips": (replace(FEW, strips=True), (70, 77, 50), Epilogue("col", "silu")),
    "warps split K, split": (replace(FEW, splits=2), (40, 48, 70), Epilogue("row", "gelu")),
}


@pytest.mark.parametrize("name", CASES)
def test_fp32_against_float64(name, rng):
    config, shape, epilogue = CASES[name]
    for beta in (0.0, -0.5):
        problem = Problem.dense(*shape, alpha=0.3, beta=beta, epilogue=epilogue)
        assert error_of(problem, config, ChampionFp32(), rng) < 2e-6


@pytest.mark.parametrize("bias_type", [FP16, BF16])
def test_a_bias_of_half_the_bits_and_a_d_that_lies_by_columns(bias_type, rng):
    problem = replace(
        Problem.dense(72, 88, 40, epilogue=Epilogue("row", "gelu")),
        d=Matrix.dense(72, 88, transposed=True), bias_dtype=bias_type, bias_alignment=2,
    )  # fmt: skip
    assert error_of(problem, SMALL, ChampionFp32(), rng) < 2e-6


def test_gates_are_not_fused():
    problem = Problem.dense(64, 64, 64, epilogue=Epilogue(None, "silu", gated=True))
    assert "fuses no gate" in ChampionFp32().supports(problem, SMALL, DEFAULT_GPU)
