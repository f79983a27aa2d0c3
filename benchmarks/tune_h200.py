"""Tune kernels on the lent machine: the bare version of ``rungemm tune``, with everything it found in one JSON file.

    PYTHONPATH=src python3 benchmarks/tune_h200.py --out $OUT/tune.json --rungs champion \
        --shapes 8192x8192x4096,4096x4096x4096 --budget 60
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

# The lent machine has no platformdirs, which finds the cache's usual place.
os.environ.setdefault("RUNGEMM_CACHE_DIR", os.path.join(tempfile.gettempdir(), f"rungemm-cache-{os.getuid()}"))

from needs_card import need_card

from rungemm.bench.contenders import champion_for
from rungemm.bench.environment import describe_environment
from rungemm.bench.store import write_json
from rungemm.bench.suites import parse_shape, suite_named
from rungemm.dtypes import dtype_named
from rungemm.errors import UserError
from rungemm.hardware import DEFAULT_GPU, detect_gpu
from rungemm.kernels import find_kernel
from rungemm.tune import tune
from rungemm.tune.report import tuning_lines, tuning_record


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rungs", default="champion", help="rungs by commas; champion is whichever takes the problem")
    parser.add_argument("--shapes", default=None)
    parser.add_argument("--suite", default=None)
    parser.add_argument("--dtype", default="fp32")
    parser.add_argument("--precision", default="ieee", choices=["ieee", "tf32", "tf32x3"])
    parser.add_argument("--layout", default=None)
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of timing for each rung and shape")
    parser.add_argument("--finalists", type=int, default=4)
    parser.add_argument("--spill-limit", type=int, default=0)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    options = parser.parse_args()
    need_card()

    gpu = detect_gpu() or DEFAULT_GPU
    shapes = suite_named(options.suite) if options.suite else [
        parse_shape(text) for text in (options.shapes or "4096x4096x4096").split(",")
    ]  # fmt: skip
    dtype, records, failed = dtype_named(options.dtype), [], 0
    environment = describe_environment(gpu.name)
    for shape in shapes:
        problem = shape.problem(dtype, options.layout, options.precision)
        for name in options.rungs.split(","):
            last = [0.0]

            def say(text: str, last: list[float] = last) -> None:
                if time.monotonic() - last[0] > 5:
                    last[0] = time.monotonic()
                    print(f"  {text}", flush=True)

            try:
                kernel = champion_for(problem, gpu) if name == "champion" else find_kernel(name)
                tuning = tune(
                    kernel, problem, gpu, budget_s=options.budget, finalists=options.finalists,
                    workers=options.workers, spill_limit=options.spill_limit, say=say,
                )  # fmt: skip
            except UserError as error:
                print(f"{name} on {problem}: {error}", flush=True)
                failed += 1
                continue
            print("\n".join(tuning_lines(tuning)), flush=True)
            records.append(tuning_record(tuning))
            write_json(options.out, {"schema": "rungemm.tune", "version": 1, "environment": environment,
                                     "tunings": records})  # fmt: skip
    print(f"wrote {options.out}; {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
