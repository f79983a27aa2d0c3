"""Compile, on all cores, what tests/gpu/test_ops_ours.py launches: a run on the CPU says what that is."""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "ops"), str(HERE.parents[1] / "src")]


def far_and_odd_problems() -> Iterator[Any]:
    """What test_ops_h200.py asks with views into larger matrices and at odd addresses."""
    import test_ops_h200 as cases

    from rungemm.dtypes import BF16, FP16, FP32
    from rungemm.problem import Epilogue, Matrix, Problem

    def aligned(address: int) -> int:
        return min(address & -address, 16) if address else 16

    def view(rows: int, cols: int, dtype: Any, margin: int, transposed: bool) -> Matrix:
        pitch = (rows if transposed else cols) + 2 * margin
        strides = (1, pitch) if transposed else (pitch, 1)
        return Matrix(rows, cols, dtype, *strides, 0, aligned(margin * (pitch + 1) * dtype.bytes))

    for dtype, layout in itertools.product((FP32, FP16, BF16), cases.LAYOUTS):
        for (m, n, k), margin in zip(cases.RAGGED, cases.MARGINS, strict=True):
            a, b = view(m, k, dtype, margin, layout[0] == "T"), view(k, n, dtype, margin, layout[1] == "T")
            yield Problem(a, b, None, view(m, n, dtype, margin, False))
    m, n, k = cases.BUG_E
    for dtype, names, offset in itertools.product((FP32, FP16, BF16), cases.ODD, cases.OFFSETS):
        x, w, bias, c, out = (
            aligned(offset * dtype.bytes if name in names else 0) for name in ("x", "w", "bias", "c", "out")
        )
        a, b = Matrix(m, k, dtype, k, 1, 0, x), Matrix(k, n, dtype, 1, k, 0, w)
        c_there, d, new = Matrix(m, n, dtype, n, 1, 0, c), Matrix(m, n, dtype, n, 1, 0, out), Matrix(m, n, dtype, n, 1)
        yield Problem(a, b, None, d)
        yield Problem(a, b, None, new, epilogue=Epilogue("row", "gelu"), bias_dtype=dtype, bias_alignment=bias)
        row = Epilogue("row")
        yield Problem(a, b, c_there, d, beta=1.0, epilogue=row, bias_dtype=dtype, bias_alignment=bias)


def main() -> int:
    import test_audit_calls
    import test_ops_launch

    from rungemm.compiling import CompileError, compile_many
    from rungemm.dtypes import BF16, FP16, FP32
    from rungemm.hardware import DEFAULT_GPU
    from rungemm.problem import Problem

    plans = []
    real = test_ops_launch.Card.decide

    def remember(self, problem, gpu, **options):
        decision = real(self, problem, gpu, **options)
        if decision.chosen.plan is not None:
            plans.append(decision.chosen.plan)
        return decision

    test_ops_launch.Card.decide = remember  # type: ignore[method-assign]
    # What test_ops.py adds for a card alone.
    card = test_ops_launch.Card()
    shapes = [
        (512, 512, 512), (1024, 768, 4096), (333, 777, 555), (64, 64, 16384), (2048, 2048, 2048), (256, 256, 256),
        (1024, 1024, 1024), (66_000, 24, 33_000), (66, 24, 33_000), (66_000, 33_000, 16), (255, 257, 4099),
    ]  # fmt: skip
    shapes += [(200 + number, 170, 300) for number in range(6)]
    shapes += [(512, 512, 512), (336, 784, 560), (4096, 24, 4096), (1, 4096, 4096), (512, 768, 1024), (130, 90, 70)]
    for dtype, (m, n, k) in itertools.product((FP32, FP16, BF16), shapes):
        remember(card, Problem.dense(m, n, k, dtype=dtype), DEFAULT_GPU)
    for problem in far_and_odd_problems():
        remember(card, problem, DEFAULT_GPU)
    # The seed decides what the tests ask: the run on the card must have the same (it is printed).
    os.environ.setdefault("RUNGEMM_SEED", "7")
    print(f"RUNGEMM_SEED={os.environ['RUNGEMM_SEED']}")
    test_audit_calls.QUESTIONS = 10
    files = ("test_ops_launch.py", "test_audit_launch.py")
    paths = [str(HERE.parent / "ops" / name) for name in files]
    code = pytest.main(["-q", "-p", "no:cacheprovider", "-k", "not cublas", *paths])
    started = time.monotonic()
    results = compile_many([(plan, 90) for plan in plans])
    failed = [result for result in results if isinstance(result, CompileError)]
    print(f"{len(plans)} plans compiled in {time.monotonic() - started:.0f} s, {len(failed)} failed")
    for error in failed[:5]:
        print(error)
    return int(code) or bool(failed)


if __name__ == "__main__":
    sys.exit(main())
