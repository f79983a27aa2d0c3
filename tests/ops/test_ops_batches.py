"""Batches are chosen as everything is: measured, or on the model's word where it promises clearly more than cuBLAS."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rungemm.dtypes import BF16, FP16
from rungemm.hardware import find_gpu
from rungemm.kernels import BATCHED, LADDER, find_kernel
from rungemm.ops.batches import kernels_for
from rungemm.ops.dispatch import decide
from rungemm.ops.model import CHAMPIONS, CUBLAS
from rungemm.ops.table import Entry, Table, class_of
from rungemm.problem import Epilogue, Problem

H200 = find_gpu("h200")
NONE = Table()
PROBLEM = Problem.dense(512, 512, 512, dtype=BF16, batch=32)


def test_batches_ask_more_kernels():
    assert kernels_for(PROBLEM) == (*LADDER, *BATCHED)
    assert kernels_for(replace(PROBLEM, batch=1)) == LADDER
    assert {kernel.name for kernel in BATCHED} < set(CHAMPIONS)


def test_vectors_stay_with_torch():
    for m, n in ((225, 1), (1, 225)):
        assert decide(Problem.dense(m, n, 64, dtype=FP16, batch=1000), H200, table=NONE).chosen.name == CUBLAS


def test_every_kernel_is_an_option_or_says_why_not():
    decision = decide(PROBLEM, H200, table=NONE)
    named = [option.name for option in decision.options] + [name for name, _ in decision.rejected]
    assert sorted(named) == sorted([CUBLAS, *(kernel.name for kernel in (*LADDER, *BATCHED))])
    assert {kernel.name for kernel in BATCHED} <= {option.name for option in decision.options}
    assert all("batch" in reason or "fp32" in reason for _, reason in decision.rejected), decision.rejected


def test_unmeasured_it_is_ours_only_for_a_clear_gain():
    # cuBLAS is near its peak in the first; its rows begin anywhere in the second.
    assert decide(PROBLEM, H200, table=NONE, all_rungs=False).chosen.name == CUBLAS
    odd = Problem.dense(1023, 1025, 1027, dtype=BF16, batch=8)
    chosen = decide(odd, H200, table=NONE, all_rungs=False)
    assert chosen.chosen.is_ours and "unmeasured" in chosen.why
    assert decide(odd, find_gpu("a100"), table=NONE, all_rungs=False).chosen.name in (CUBLAS, "batched_mma")


@pytest.mark.parametrize("name", [kernel.name for kernel in BATCHED])
@pytest.mark.parametrize("ratio", [1.1, 0.9])
def test_a_measurement_decides(name, ratio):
    config = find_kernel(name).default_config(PROBLEM, H200).to_dict()
    shape = PROBLEM.batch, PROBLEM.m, PROBLEM.n, PROBLEM.k
    table = Table([(class_of(PROBLEM), shape, Entry(name, config, ratio, "here", 20.0))])
    decision = decide(PROBLEM, H200, table=table, all_rungs=False)
    assert decision.chosen.name == (name if ratio > 1 else CUBLAS), decision.why
    assert "measured" in decision.why


def test_an_epilogue_follows_in_torch():
    odd = Problem.dense(1023, 1025, 1027, dtype=FP16, batch=8, epilogue=Epilogue("row", "relu"))
    chosen = decide(odd, H200, table=NONE, all_rungs=False).chosen
    assert chosen.is_ours and chosen.after == Epilogue(None, "relu") and chosen.bias_is_c
