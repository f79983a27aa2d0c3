from __future__ import annotations

import pytest

from rungemm.analysis.roofline import peak_kind
from rungemm.bench.guard import ImpossibleResultError, check_possible, peak_of
from rungemm.dtypes import BF16, FP8_E4M3, FP16, FP32
from rungemm.hardware import ZOO
from rungemm.problem import Problem

H200 = ZOO["h200"]


def test_peak_kinds() -> None:
    assert peak_kind(Problem.dense(1, 1, 1)) == "fp32"
    assert peak_kind(Problem.dense(1, 1, 1, precision="tf32")) == "tf32"
    assert peak_kind(Problem.dense(1, 1, 1, dtype=FP16, out_dtype=FP32)) == "fp16"
    assert peak_kind(Problem.dense(1, 1, 1, dtype=FP8_E4M3, out_dtype=FP16)) == "fp8"
    x3 = peak_of(Problem.dense(1, 1, 1, precision="tf32x3"), H200)
    assert x3 == pytest.approx(H200.peaks["tf32"] / 3)


def test_over_the_dense_peak_is_an_error() -> None:
    problem = Problem.dense(8192, 8192, 8192, dtype=BF16)
    floor = problem.flops / (H200.peaks["bf16"] * 1e12)
    assert check_possible("ours", problem, floor * 1.01, H200, cold=True) < H200.peaks["bf16"]
    with pytest.raises(ImpossibleResultError, match=r"over NVIDIA H200's dense peak of 989"):
        check_possible("ours", problem, floor * 0.99, H200, cold=True)


def test_faster_than_dram_is_an_error_when_cold_only() -> None:
    problem = Problem.dense(16, 4096, 4096, dtype=BF16)
    weights_s = 4096 * 4096 * 2 / (H200.dram_gbs * 1e9)
    check_possible("ours", problem, weights_s * 1.02, H200, cold=True)
    with pytest.raises(ImpossibleResultError, match="GB/s"):
        check_possible("ours", problem, weights_s * 0.9, H200, cold=True)
    check_possible("ours", problem, weights_s * 0.9, H200, cold=False)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan")])
def test_no_time_is_an_error(seconds: float) -> None:
    with pytest.raises(ImpossibleResultError):
        check_possible("ours", Problem.dense(8, 8, 8), seconds, H200, cold=False)
