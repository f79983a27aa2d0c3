"""The simulator against the card: the same bits for CUDA-core rungs, within a rounding for tensor cores."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from seeding import SEED  # noqa: E402

from rungemm.gpu import problem_of, run_plan  # noqa: E402
from rungemm.hardware import Gpu  # noqa: E402
from rungemm.kernels import LADDER, Kernel, Unsupported  # noqa: E402
from rungemm.sim import simulate  # noqa: E402

RAGGED = ((127, 129, 65), (33, 200, 51), (257, 70, 130))


@pytest.mark.parametrize("shape", RAGGED, ids=lambda s: "x".join(map(str, s)))
@pytest.mark.parametrize("kernel", LADDER, ids=lambda k: k.name)
def test_the_simulator_computes_what_the_card_computes(
    kernel: Kernel[Any], shape: tuple[int, int, int], card: Gpu
) -> None:
    m, n, k = shape
    dtype = getattr(torch, kernel.dtypes[0].torch)
    generator = torch.Generator("cuda").manual_seed(SEED)

    def random(rows: int, cols: int) -> torch.Tensor:
        return torch.randn(rows, cols, device="cuda", generator=generator).to(dtype)

    a, b, c = random(m, k), random(k, n), random(m, n)
    d = torch.full_like(c, float("nan"))
    for precision in ("ieee", "tf32"):
        problem = problem_of(a, b, c, d, alpha=1.25, beta=-0.75, precision=precision)
        try:
            plan = kernel.plan(problem, kernel.default_config(problem, card), card)
            break
        except Unsupported as reason:
            why = str(reason)
    else:
        pytest.skip(why)
    run_plan(plan, {"A": a, "B": b, "C": c, "D": d})
    torch.cuda.synchronize()

    element = kernel.dtypes[0].numpy
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[element.itemsize]

    def array(tensor: torch.Tensor) -> Any:
        return tensor.cpu().contiguous().view(bits).numpy().view(element)

    operands = {"A": array(a), "B": array(b), "C": array(c), "D": array(torch.full_like(c, float("nan")))}
    simulate(plan, operands, count=False)
    card_bits, ours = array(d), operands["D"]
    if kernel.family == "cuda_core":
        different = int((card_bits.view(f"u{element.itemsize}") != ours.view(f"u{element.itemsize}")).sum())
        assert different == 0, f"{different} of {ours.size} elements differ in their bits"
        return
    # One rounding of D's type at the size of the terms, and what the tensor cores cut while they accumulate.
    exact = array(d).astype("f8")
    size = (a.double().abs() @ b.double().abs()).cpu().numpy() * 1.25 + 0.75 * c.double().abs().cpu().numpy()
    allowed = kernel.dtypes[0].epsilon * abs(exact) + 2.0**-20 * size
    assert (abs(ours.astype("f8") - exact) <= allowed).all()
