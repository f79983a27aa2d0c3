from __future__ import annotations

import pytest

from rungemm.bench.contenders import NoKernelError, Ours, TorchCompile, TorchMatmul, champion_for, contender_named
from rungemm.dtypes import FP16
from rungemm.hardware import ZOO
from rungemm.kernels import LADDER, Unsupported
from rungemm.problem import Problem

H200 = ZOO["h200"]


def test_names() -> None:
    assert isinstance(contender_named("cublas", H200), TorchMatmul)
    assert isinstance(contender_named("torch-compile", H200), TorchCompile)
    for kernel in LADDER:
        ours = contender_named(kernel.name, H200)
        assert isinstance(ours, Ours) and ours.kernel is kernel and ours.config is None


def test_a_rung_with_a_config() -> None:
    text = "vectorised@num_warps=4,tile_m=64,tile_n=128,tile_k=8,thread_m=8,thread_n=8"
    ours = contender_named(text, H200)
    assert isinstance(ours, Ours) and ours.name == text and ours.config is not None
    assert ours.config.to_dict()["tile_m"] == 64
    assert ours.plan(Problem.dense(64, 128, 8)).launches
    impossible = contender_named("vectorised@tile_m=48", H200)
    assert isinstance(impossible, Ours)
    with pytest.raises(Unsupported, match="power of two"):
        impossible.plan(Problem.dense(64, 128, 8))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("cubla", "rung 'cubla' is unknown.*or cublas, cublaslt, .*quack, cutlass or module:function"),
        ("vectorised@tile_q=4", "no field tile_q"),
        ("vectorised@tile_m", "not key=value"),
        ("nothere.module:f", "cannot import nothere.module"),
        ("math:gemm", "math has no gemm"),
        ("quack", "pip install"),
    ],
)
def test_unknown_names_say_what_to_do(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        contender_named(text, H200)


def test_the_champion_of_a_batch_is_a_kernel_of_batches() -> None:
    aligned, tiny = (
        Problem.dense(*shape, dtype=FP16, batch=batch) for batch, shape in ((8, (1024,) * 3), (64, (49, 32, 49)))
    )
    assert champion_for(aligned, H200).name == "champion_batched"
    assert champion_for(tiny, H200).name == "batched_mma"
    assert champion_for(aligned, ZOO["a100-80"]).name == "batched_mma"
    with pytest.raises(NoKernelError, match="fp32"):
        champion_for(Problem.dense(64, 64, 64, batch=3), H200)
