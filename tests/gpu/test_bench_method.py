"""The method on the card: what must be refused is, what must fail does, and a figure has all that belongs to it."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from rungemm.bench.cold import WarmCacheError  # noqa: E402
from rungemm.bench.contenders import Contender, Ours, TorchMatmul, contender_named  # noqa: E402
from rungemm.bench.cublaslt import WORKSPACE_BYTES, BestOfLt  # noqa: E402
from rungemm.bench.interleaved import StopRule  # noqa: E402
from rungemm.bench.measurement import Settings, measure  # noqa: E402
from rungemm.dtypes import BF16  # noqa: E402
from rungemm.hardware import DEFAULT_GPU, detect_gpu  # noqa: E402
from rungemm.kernels import find_kernel  # noqa: E402
from rungemm.problem import Problem  # noqa: E402

GPU = detect_gpu() or DEFAULT_GPU
QUICK = Settings(rule=StopRule(5, 10, 2.0), warm_up_s=0.2)


def test_a_warm_measurement_is_refused_or_labelled() -> None:
    problem = Problem.dense(512, 512, 512)
    with pytest.raises(WarmCacheError, match="--warm"):
        measure(problem, [TorchMatmul()], GPU, settings=Settings(rule=QUICK.rule, sets=1))
    assert measure(problem, [TorchMatmul()], GPU, settings=Settings(rule=QUICK.rule, warm=True)).cold["cold"] is False


def test_a_contender_that_writes_a_nan_fails() -> None:
    class Spoils(Contender):
        name = "spoils"

        def bind(self, problem: Problem, operands: dict[str, Any]) -> Any:
            product, d = TorchMatmul().bind(problem, operands), operands["D"]

            def call() -> None:
                product()
                d[3, 5] = float("nan")

            return call

    result = measure(Problem.dense(1024, 1024, 512), [TorchMatmul(), Spoils()], GPU, settings=QUICK)
    assert "wrong result" in (result.lanes["spoils"].failure or "") and result.lanes["spoils"].tflops is None
    assert result.lanes["cublas"].failure is None


@pytest.mark.parametrize(("size", "graph"), [(512, True), (4096, False)])
def test_a_figure_has_all_that_belongs_to_it(size: int, graph: bool) -> None:
    kernel = find_kernel("vectorised")
    result = measure(Problem.dense(size, size, size), [TorchMatmul(), Ours(kernel, GPU)], GPU, settings=QUICK)
    for lane in result.lanes.values():
        assert lane.failure is None and lane.graph is graph and lane.checked is not None and lane.checked.ok
        assert len(lane.seconds) == result.rounds.count >= 5
    assert result.cold["cold"] and result.cold["closest_reuse_bytes"] >= 2 * result.cold["l2_bytes"]
    assert result.clocks["source"] in ("nvml", "nvidia-smi") and result.clocks["sm_mhz"]["max"] > 0


def test_torch_against_itself_is_one() -> None:
    settings = Settings(rule=StopRule(30, 60, 10.0), host_time=False)
    problem = Problem.dense(2048, 2048, 2048, dtype=BF16, layout="NT")
    result = measure(problem, [TorchMatmul(), TorchMatmul(name="again")], GPU, settings=settings)
    ratio = result.ratio("cublas", "again")
    assert ratio is not None and abs(ratio.value - 1) < 0.01, str(ratio)


@pytest.mark.parametrize(
    "problem",
    [
        Problem.dense(1024, 1024, 1024, dtype=BF16, layout="NT"),
        Problem.dense(777, 513, 300, alpha=1.5, layout="TN"),
        Problem.dense(512, 256, 384, precision="tf32", layout="TT"),
        Problem.dense(256, 256, 128, dtype=BF16, batch=4),
    ],
    ids=str,
)
def test_cublaslt_is_right(problem: Problem) -> None:
    """How fast it is beside torch's choice is no test but a measurement: ``rungemm bench SHAPE -c cublaslt``."""
    result = measure(problem, [TorchMatmul(), BestOfLt()], GPU, settings=QUICK)
    lane = result.lanes["cublaslt"]
    assert lane.failure is None, lane.failure
    assert lane.checked is not None and lane.checked.ok and lane.tflops
    config = lane.record["config"]
    assert 1 <= config["proposal"] <= config["of"] and config["workspace"] <= WORKSPACE_BYTES


@pytest.mark.parametrize("name", ["tl-dot", "torch-compile"])
def test_other_contenders_are_right(name: str) -> None:
    problem = Problem.dense(1024, 512, 768, dtype=BF16)
    result = measure(problem, [TorchMatmul(), contender_named(name, GPU, problem)], GPU, settings=QUICK)
    assert result.lanes[name].failure is None, result.lanes[name].failure
    assert result.lanes[name].tflops
