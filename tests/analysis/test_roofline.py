"""The roofline against LADDER.md's figures for a 4092^2 fp32 GEMM and against the cards' own numbers."""

from __future__ import annotations

import pytest

from rungemm.analysis import peak_kind, roofline, roofline_of
from rungemm.dtypes import BF16, FP8_E4M3, INT8
from rungemm.hardware import ZOO
from rungemm.problem import Problem


def test_the_ladders_4092():
    """beta is 1 there: A, B and C are read and D is written, 4 x 4092^2 x 4 bytes; 2 x 4092^3 operations."""
    problem = Problem.dense(4092, 4092, 4092, beta=1.0)
    found = roofline(problem.flops, problem.minimum_bytes, peak_tflops=30, bandwidth_gbs=768)
    assert round(found.bytes / 1e6) == 268
    assert round(found.flops / 1e9) == 137
    assert found.flops_seconds * 1e3 == pytest.approx(4.5, abs=0.08)
    assert found.bytes_seconds * 1e3 == pytest.approx(0.34, abs=0.01)
    assert found.bound == "compute"
    assert found.seconds == found.flops_seconds
    assert found.attainable_tflops == 30


def test_decode_is_bound_by_memory():
    """H200.md: reading the bf16 weights of one 4096 x 4096 layer takes 7.9 us at 4.27 TB/s."""
    problem = Problem.dense(1, 4096, 4096, dtype=BF16)
    found = roofline(problem.flops, problem.minimum_bytes, peak_tflops=989, bandwidth_gbs=4270)
    assert found.bound == "memory"
    assert found.seconds * 1e6 == pytest.approx(7.9, abs=0.05)
    assert found.attainable_tflops == pytest.approx(problem.flops / found.seconds / 1e12)


def test_the_ridge_is_where_the_two_times_meet():
    found = roofline_of(Problem.dense(64, 64, 64), ZOO["h200"])
    at_ridge = roofline(found.ridge * 1000, 1000, peak_tflops=found.peak_tflops, bandwidth_gbs=found.bandwidth_gbs)
    assert at_ridge.flops_seconds == pytest.approx(at_ridge.bytes_seconds)
    assert found.ridge == pytest.approx(66.9e12 / 4.8e12, rel=1e-2)


def test_measured_traffic_takes_the_place_of_the_least():
    problem = Problem.dense(1024, 1024, 1024)
    assert roofline_of(problem, ZOO["h200"], nbytes=10 * problem.minimum_bytes).intensity == pytest.approx(
        roofline_of(problem, ZOO["h200"]).intensity / 10
    )


def test_which_peak_a_problem_is_held_to():
    assert peak_kind(Problem.dense(1, 1, 1)) == "fp32"
    assert peak_kind(Problem.dense(1, 1, 1, precision="tf32")) == "tf32"
    assert peak_kind(Problem.dense(1, 1, 1, precision="tf32x3")) == "tf32"
    assert peak_kind(Problem.dense(1, 1, 1, dtype=BF16)) == "bf16"
    assert peak_kind(Problem.dense(1, 1, 1, dtype=FP8_E4M3)) == "fp8"
    assert peak_kind(Problem.dense(1, 1, 1, dtype=INT8)) == "int8"


def test_a_card_without_the_unit_says_so():
    with pytest.raises(ValueError, match="no fp8"):
        roofline_of(Problem.dense(1, 1, 1, dtype=FP8_E4M3), ZOO["a100-40"])


def test_nothing_to_do_is_no_division_by_zero():
    found = roofline_of(Problem.dense(0, 0, 0), ZOO["h200"])
    assert (found.intensity, found.seconds) == (0.0, 0.0)
    with pytest.raises(ValueError, match="above 0"):
        roofline(1, 1, peak_tflops=0, bandwidth_gbs=1)
