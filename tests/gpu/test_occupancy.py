"""Our occupancy calculator against CUDA's own, on the card, for every kernel of every rung and several configs."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from rungemm.analysis import occupancy  # noqa: E402
from rungemm.compiling import CompileError, compile_many  # noqa: E402
from rungemm.dtypes import FP32  # noqa: E402
from rungemm.gpu.occupancy import ask_cuda  # noqa: E402
from rungemm.hardware import Gpu  # noqa: E402
from rungemm.kernels import LADDER, Kernel, LaunchPlan, Unsupported  # noqa: E402
from rungemm.problem import PRECISIONS, Problem  # noqa: E402

CONFIGS = 3


def plans_of(kernel: Kernel[Any], card: Gpu) -> list[LaunchPlan]:
    """The rung's default for every element type and precision that it takes, and a few more configs of each."""
    plans = []
    for dtype in kernel.dtypes:
        for precision in PRECISIONS if dtype == FP32 else ("ieee",):
            problem = Problem.dense(4096, 4096, 4096, dtype=dtype, layout="NT", precision=precision)  # type: ignore[arg-type]
            try:
                configs = [kernel.default_config(problem, card)]
            except Unsupported:
                continue
            legal = (c for c in kernel.configs(problem, card) if kernel.supports(problem, c, card) is None)
            configs += [c for c in itertools.islice(legal, CONFIGS) if c != configs[0]]
            plans += [kernel.plan(problem, config, card) for config in configs]
    return plans


@pytest.fixture(scope="module")
def compiled(card: Gpu) -> dict[str, list[Any]]:
    """Machine code by rung, compiled in parallel; a config that does not compile is left out."""
    plans = [plan for kernel in LADDER for plan in plans_of(kernel, card)]
    found: dict[str, list[Any]] = {}
    for plan, result in zip(plans, compile_many([(plan, card.arch) for plan in plans]), strict=True):
        if not isinstance(result, CompileError):
            found.setdefault(plan.kernel, []).extend(result)
    return found


@pytest.mark.parametrize("kernel", LADDER, ids=lambda kernel: kernel.name)
def test_blocks_on_an_sm_are_what_cuda_says(kernel: Kernel[Any], card: Gpu, compiled: dict[str, list[Any]]) -> None:
    for code in compiled[kernel.name]:
        said = ask_cuda(code, torch.cuda.current_device())
        assert said.registers == code.registers, f"{code.name}: ptxas and the driver disagree on registers"
        ours = occupancy(
            card, threads=32 * code.num_warps, registers=code.registers, shared_bytes=code.shared_bytes
        )  # fmt: skip
        assert ours.blocks == said.blocks > 0, f"{code.name}: {ours}, CUDA says {said.blocks} blocks"


def test_a_kernel_grown_until_nothing_fits(card: Gpu, compiled: dict[str, list[Any]]) -> None:
    """With more and more shared memory asked for at launch, blocks fall one by one, where ours says they do."""
    from rungemm.gpu.driver import driver

    code = compiled["naive"][0]
    cuda, device = driver(), torch.cuda.current_device()
    cuda.use_device(device)
    function = cuda.load_function(code.cubin, code.name, card.shared_per_block, device)
    seen = set()
    for shared_bytes in range(0, card.shared_per_block + 1, 1024 - 128):
        said = cuda.blocks_per_sm(function, 32 * code.num_warps, shared_bytes)
        ours = occupancy(card, threads=32 * code.num_warps, registers=code.registers, shared_bytes=shared_bytes)
        assert ours.blocks == said, f"at {shared_bytes} bytes: {ours}, CUDA says {said}"
        seen.add(said)
    assert len(seen) >= 2
