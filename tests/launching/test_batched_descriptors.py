"""What the driver is asked for a batch: maps of three dimensions, boxes of one product, as the cubin has them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")

from test_parameters import sizes_in_cubin

from rungemm.compiling import compile_launch
from rungemm.dtypes import FP16
from rungemm.gpu.parameters import fields_of, tensor_maps_of
from rungemm.hardware import DEFAULT_GPU
from rungemm.kernels import BATCHED, find_kernel
from rungemm.kernels.hopper.champion_batched import BatchedConfig
from rungemm.problem import Problem


def test_boxes_hold_one_product(tmp_path: Path) -> None:
    problem = Problem.dense(200, 136, 72, dtype=FP16, batch=5)
    problem = replace(problem, b=replace(problem.b, batch_stride=0))
    config = BatchedConfig(tile_m=128, tile_n=64, tile_k=64, num_warps=8, stages=3, part_n=64)
    launch = find_kernel("champion_batched").plan(problem, config, DEFAULT_GPU).launches[-1]
    compiled = compile_launch(launch, 90)
    maps = tensor_maps_of(launch, compiled)
    found = {name: (m.shape, m.strides, m.box) for name, m in maps.items()}
    assert found == {
        "a": ((5, 200, 72), (200 * 72, 72, 1), (1, 128, 64)),
        "b": ((1, 72, 136), (72 * 136, 136, 1), (1, 64, 64)),  # for all products: one of it
        "d": ((5, 200, 136), (200 * 136, 136, 1), (1, 128, 64)),
    }
    assert all(m.swizzle == 3 for m in maps.values())
    assert [f.size for _, f in fields_of(launch)] == sizes_in_cubin(compiled.cubin, tmp_path)


@pytest.mark.parametrize("name", [kernel.name for kernel in BATCHED])
def test_fields_of_both_kernels(name: str, tmp_path: Path) -> None:
    kernel = find_kernel(name)
    for problem in (Problem.dense(77, 65, 51, dtype=FP16, batch=3), Problem.dense(9, 7, 0, dtype=FP16, batch=3)):
        for launch in kernel.plan(problem, kernel.default_config(problem, DEFAULT_GPU), DEFAULT_GPU).launches:
            expected = sizes_in_cubin(compile_launch(launch, 90).cubin, tmp_path)
            assert [f.size for _, f in fields_of(launch)] == expected
