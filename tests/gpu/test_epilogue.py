"""Fused epilogues on a card: the simulator's cases against float64, and the activations with the card's own exp2."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

sys.path.insert(0, str(Path(__file__).parents[1] / "kernels_tensor"))

import test_fused_epilogue as cases  # noqa: E402
from seeding import SEED  # noqa: E402

from rungemm.dtypes import FP32  # noqa: E402
from rungemm.gpu import run_plan  # noqa: E402
from rungemm.hardware import Gpu  # noqa: E402
from rungemm.kernels.hopper.champion import ChampionHopper  # noqa: E402
from rungemm.kernels.plan import Launch, LaunchPlan, Pointer  # noqa: E402
from rungemm.problem import ACTIVATIONS, Problem  # noqa: E402


def on_card(array: np.ndarray) -> torch.Tensor:
    """The same bits and strides on the card."""
    base = array.T if array.ndim == 2 and not array.flags.c_contiguous else array
    assert base.flags.c_contiguous
    bits = {2: np.int16, 4: np.int32}[base.itemsize]
    name = {"bfloat16": "bfloat16", "float16": "float16", "float32": "float32"}[base.dtype.name]
    tensor = torch.from_numpy(base.view(bits).copy()).cuda().view(getattr(torch, name))
    return tensor.T if base is not array else tensor


def activated(x: np.ndarray, name: str) -> np.ndarray:
    launch = Launch(
        cases.activate_kernel, (x.size // 128, 1, 1), (("x", Pointer("A", FP32)), ("y", Pointer("D", FP32))),
        (("NAME", name),), 4,
    )  # fmt: skip
    out = torch.full((x.size,), float("nan"), device="cuda")
    run_plan(LaunchPlan("activate", (launch,)), {"A": torch.from_numpy(x).cuda(), "D": out})
    return out.cpu().numpy()


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name: str, card: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "activated", activated)
    cases.test_activations_are_good_to_the_last_digits_of_fp32(name, np.random.default_rng(SEED))
    cases.test_activations_of_what_is_no_number_and_of_the_largest(name)


@pytest.mark.parametrize("name", cases.CASES)
def test_hopper_against_float64(name: str, card: Gpu) -> None:
    config, options, shape, epilogue = cases.CASES[name]
    kernel: Any = ChampionHopper()
    for beta in (0.0, -0.5):
        problem = Problem.dense(*shape, **{"alpha": 0.3, **options}, beta=beta, epilogue=epilogue)
        why = kernel.supports(problem, config, card)
        if why is not None:
            pytest.skip(why)
        operands, exact = cases.case_of(problem, np.random.default_rng(SEED))
        tensors = {role: on_card(array) for role, array in operands.items()}
        run_plan(kernel.plan(problem, config, card), tensors)
        error = (tensors["D"].double().cpu() - torch.from_numpy(exact)).norm() / np.linalg.norm(exact)
        assert float(error) < cases.limit_of(problem)
