"""Compile, on all cores, what tests/gpu/test_ops_ours.py launches: a run on the CPU says what that is."""

from __future__ import annotations

import itertools
import sys
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "ops"), str(HERE.parents[1] / "src")]


def main() -> int:
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
    for dtype, (m, n, k) in itertools.product((FP32, FP16, BF16), shapes):
        remember(card, Problem.dense(m, n, k, dtype=dtype), DEFAULT_GPU)
    code = pytest.main(["-q", "-p", "no:cacheprovider", str(HERE.parent / "ops" / "test_ops_launch.py")])
    started = time.monotonic()
    results = compile_many([(plan, 90) for plan in plans])
    failed = [result for result in results if isinstance(result, CompileError)]
    print(f"{len(plans)} plans compiled in {time.monotonic() - started:.0f} s, {len(failed)} failed")
    for error in failed[:5]:
        print(error)
    return int(code) or bool(failed)


if __name__ == "__main__":
    sys.exit(main())
