"""Does the method itself hold on this card? Four questions, answered by running them, written as JSON.

    PYTHONPATH=src python3 benchmarks/method_h200.py --out $OUT/method.json

1. cuBLAS against itself: the ratio must be 1 within 1%.
2. A kernel made 10% slower (the same product, then a spin of a tenth of its time) must be flagged by compare, and an
   identical one must not: 20 pairs of runs each.
3. One operand set, cold asked for: must be refused. With --warm it must be labelled.
4. A contender that writes a NaN, and one that writes nothing, must FAIL.

The file belongs beside raw/, as results/<card>/method.json: its contenders are no kernels.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

# The lent machine has no platformdirs, which finds the cache's usual place.
os.environ.setdefault("RUNGEMM_CACHE_DIR", os.path.join(tempfile.gettempdir(), f"rungemm-cache-{os.getuid()}"))

from needs_card import need_card

from rungemm.bench.cold import WarmCacheError
from rungemm.bench.compare import compare
from rungemm.bench.contenders import Contender, TorchMatmul
from rungemm.bench.environment import describe_environment
from rungemm.bench.interleaved import StopRule
from rungemm.bench.measurement import Settings, measure
from rungemm.bench.statistics import spread_of
from rungemm.bench.store import measurement_record, raw_document, write_json
from rungemm.dtypes import dtype_named
from rungemm.hardware import DEFAULT_GPU, detect_gpu
from rungemm.problem import Problem


class Altered(Contender):
    """cuBLAS's product, then something."""

    def __init__(self, name: str, after: Any) -> None:
        self.name, self.after = name, after

    def bind(self, problem: Problem, operands: dict[str, Any]) -> Any:
        product = TorchMatmul().bind(problem, operands)

        def call() -> None:
            product()
            self.after(operands["D"])

        return call


class WritesNothing(Contender):
    name = "writes nothing"

    def bind(self, problem: Problem, operands: dict[str, Any]) -> Any:
        import torch

        return lambda: torch.cuda._sleep(100_000)


def check_method(size: int = 2048, dtype: str = "fp32", trials: int = 20) -> tuple[dict[str, Any], bool]:
    """The raw document with the verdicts under "method", and whether all of them are as they must be."""
    import torch

    started = time.monotonic()
    gpu = detect_gpu() or DEFAULT_GPU
    problem = Problem.dense(size, size, size, dtype=dtype_named(dtype))
    settings = Settings(rule=StopRule(20, 40, 5.0), host_time=False, warm_up_s=0.2, sample_s=0.005, graphs=False)
    environment = describe_environment(gpu.name)
    first = measure(problem, [TorchMatmul()], gpu, settings=settings)
    product_s = spread_of(first.lanes["cublas"].seconds).median

    # A spin takes cycles of the SM clock; how many make a tenth of the product is measured, not assumed.
    torch.cuda._sleep(1_000_000)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    torch.cuda._sleep(20_000_000)
    end.record()
    torch.cuda.synchronize()
    cycles = int(0.1 * product_s / (begin.elapsed_time(end) * 1e-3 / 20_000_000))

    contenders = [TorchMatmul(), TorchMatmul(name="mine"), Altered("slower", lambda _: torch.cuda._sleep(cycles))]
    runs = [measurement_record(measure(problem, contenders, gpu, settings=settings), "method")
            for _ in range(trials + 1)]  # fmt: skip
    verdicts: dict[str, list[str]] = {"identical": [], "slower": []}
    changes: dict[str, list[float]] = {"identical": [], "slower": []}
    for before, after in itertools.pairwise(runs):
        for case, lane in (("identical", "mine"), ("slower", "slower")):
            lanes = {"cublas": after["lanes"]["cublas"], "mine": after["lanes"][lane]}
            old = {"measurements": [{**before, "lanes": {n: before["lanes"][n] for n in ("cublas", "mine")}}]}
            (change,) = compare(old, {"measurements": [{**after, "lanes": lanes}]})
            verdicts[case].append(change.verdict)
            changes[case].append(round(change.change, 4))
    self_ratios = []
    for run in runs:
        pairs = sorted(a / b for a, b in zip(run["lanes"]["cublas"]["us"], run["lanes"]["mine"]["us"], strict=True))
        self_ratios.append(round(pairs[len(pairs) // 2], 4))

    refused = ""
    try:
        measure(problem, [TorchMatmul()], gpu, settings=replace(settings, sets=1))
    except WarmCacheError as error:
        refused = str(error)
    warm = measure(problem, [TorchMatmul()], gpu, settings=replace(settings, warm=True))

    def nan(d: Any) -> None:
        d[-1, -1] = float("nan")

    wrong = measure(problem, [TorchMatmul(), Altered("writes a NaN", nan), WritesNothing()], gpu, settings=settings)
    report = {
        "problem": str(problem),
        "self_ratios": self_ratios,
        "identical": {"not_flagged": sum(v not in ("slower", "faster") for v in verdicts["identical"]),
                      "of": trials, "verdicts": verdicts["identical"], "changes": changes["identical"]},
        "ten_percent_slower": {"flagged": verdicts["slower"].count("slower"), "of": trials,
                               "verdicts": verdicts["slower"], "changes": changes["slower"]},
        "warm_refused": refused,
        "warm_labelled_cold": warm.cold["cold"],
        "failures": {name: lane.failure for name, lane in wrong.lanes.items()},
        "seconds": round(time.monotonic() - started, 1),
    }  # fmt: skip
    good = (
        report["identical"]["not_flagged"] == trials  # type: ignore[index]
        and report["ten_percent_slower"]["flagged"] == trials  # type: ignore[index]
        and all(abs(ratio - 1) < 0.01 for ratio in self_ratios)
        and refused != ""
        and warm.cold["cold"] is False
        and wrong.lanes["cublas"].failure is None
        and all(wrong.lanes[name].failure for name in ("writes a NaN", "writes nothing"))
    )
    return raw_document(environment, settings, runs) | {"method": report | {"holds": good}}, good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--size", type=int, default=2048)
    parser.add_argument("--dtype", default="fp32")
    parser.add_argument("--trials", type=int, default=20)
    options = parser.parse_args()
    need_card()
    document, good = check_method(options.size, options.dtype, options.trials)
    write_json(options.out, document)
    for key, value in document["method"].items():
        print(f"{key}: {value}")
    print("the method holds" if good else "THE METHOD DOES NOT HOLD")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
