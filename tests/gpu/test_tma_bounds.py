"""What TMA writes stops where D stops: extents that are no multiple of 16 bytes, in rows and columns with a gap."""

from __future__ import annotations

import itertools

import pytest

torch = pytest.importorskip("torch")

from rungemm.bench.checking import check_outputs  # noqa: E402
from rungemm.compiling import compile_many  # noqa: E402
from rungemm.dtypes import BF16, FP32  # noqa: E402
from rungemm.gpu import problem_of, run_plan  # noqa: E402
from rungemm.hardware import Gpu  # noqa: E402
from rungemm.kernels import find_kernel  # noqa: E402

GUARD = 64
"""Elements before and after D that nobody may write."""

EXTENTS = (1, 2, 3, 5, 7, 66, 129)


def guarded(rows: int, cols: int, columns: bool, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """A D (rows, cols) that TMA can write, inside a buffer of NaN; stored by columns if asked."""
    lines, length = (cols, rows) if columns else (rows, cols)
    pitch = -(-length // 8) * 8 + 8
    base = torch.full((GUARD + lines * pitch + GUARD,), float("nan"), dtype=dtype, device="cuda")
    strides = (1, pitch) if columns else (pitch, 1)
    return base, base.as_strided((rows, cols), strides, GUARD)


@pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("name", ["subtiled_epilogue", "stream_k", "champion_hopper"])
def test_nothing_outside_d_is_written(name: str, columns: bool, card: Gpu) -> None:
    kernel = find_kernel(name)
    cases = []
    for dtype, m, n in itertools.product((FP32, BF16), EXTENTS, EXTENTS):
        scalar = getattr(torch, dtype.torch)
        a, b = (torch.randn(shape, device="cuda").to(scalar) for shape in ((m, 64), (64, n)))
        base, d = guarded(m, n, columns, scalar)
        problem = problem_of(a, b, None, d, 1.0, 0.0, "tf32" if dtype == FP32 else "ieee")
        cases.append((kernel.plan(problem, kernel.default_config(problem, card), card), problem, a, b, base, d))
    compile_many([(case[0], card.arch) for case in cases])
    wrong = []
    for plan, problem, a, b, base, d in cases:
        run_plan(plan, {"A": a, "B": b, "C": None, "D": d})
        checked = check_outputs(problem, [{"A": a, "B": b, "C": None, "D": d}], {"ours": [d]})["ours"]
        written = torch.zeros_like(base, dtype=torch.bool)
        written.as_strided(d.shape, d.stride(), d.storage_offset()).fill_(True)
        outside = (~base.isnan() & ~written).nonzero().flatten().tolist()
        if outside or not checked.ok:
            wrong.append(f"{problem}: outside {[o - GUARD for o in outside[:6]]} {checked.why}")
    assert not wrong, f"{len(wrong)} of {len(cases)}:\n" + "\n".join(wrong[:20])
