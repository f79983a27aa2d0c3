"""Compile, on all cores, what tests/gpu/test_ops_ours.py launches: a run on the CPU says what that is."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "ops"), str(HERE.parents[1] / "src")]


def main() -> int:
    import test_ops_launch

    from rungemm.compiling import CompileError, compile_many

    plans = []
    real = test_ops_launch.Card.decide

    def remember(self, problem, gpu, **options):
        decision = real(self, problem, gpu, **options)
        if decision.chosen.plan is not None:
            plans.append(decision.chosen.plan)
        return decision

    test_ops_launch.Card.decide = remember  # type: ignore[method-assign]
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
