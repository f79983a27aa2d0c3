"""The simulator's results beside the card's, bit for bit: every rung at ragged shapes, the same operands in both.

    PYTHONPATH=src python3 benchmarks/bits_h200.py --out $OUT/bits.json
    PYTHONPATH=src compute-sanitizer --tool memcheck python3 benchmarks/bits_h200.py --card-only

The fp32 rungs on the CUDA cores must agree in every bit: the same multiply-adds in the same order. Tensor cores add in
an order of their own, so there the largest difference is given in units of the last place of D. ``--card-only`` checks
the card's results against float64 only, which is the program that compute-sanitizer watches.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

# The lent machine has no platformdirs, which finds the cache's usual place.
os.environ.setdefault("RUNGEMM_CACHE_DIR", os.path.join(tempfile.gettempdir(), f"rungemm-cache-{os.getuid()}"))
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

import numpy as np
from needs_card import need_card

from rungemm.bench.environment import describe_environment
from rungemm.bench.store import write_json
from rungemm.compiling import compile_many
from rungemm.hardware import DEFAULT_GPU, detect_gpu
from rungemm.kernels import LADDER, find_kernel
from rungemm.ladder.pose import Posed, Task, pose
from rungemm.sim import SimulationFault, simulate
from rungemm.verify import verify

Shape = tuple[int, int, int]
SHAPES = "127x129x65 33x70x50 200x37x51"


def task_of(shape: Shape, seed: int) -> Task:
    return Task.random(*shape, alpha=1.25, beta=0.5, seed=seed)


def simulated(name: str, shape: Shape, seed: int) -> np.ndarray | str:
    """D as the simulator computes it, or the fault; in a process of its own."""
    task = task_of(shape, seed)
    posed = pose(find_kernel(name), task, detect_gpu() or DEFAULT_GPU)
    if not isinstance(posed, Posed):
        return posed.why
    operands = task.operands(posed.problem.a.dtype)
    try:
        simulate(posed.plan, operands, count=False)
    except SimulationFault as fault:
        return str(fault)
    return operands["D"]


def last_places(a: np.ndarray, b: np.ndarray) -> float:
    """The largest difference in units of the last place of the larger number."""
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    spacing = np.spacing(np.maximum(np.abs(a), np.abs(b)).astype(np.float32)).astype(np.float64)
    if a.dtype.itemsize == 2:
        spacing *= 2.0 ** (23 - (10 if a.dtype == np.float16 else 7))
    return float(np.max(np.abs(wide_a - wide_b) / spacing))


def on_card(posed: Posed, task: Task) -> tuple[dict[str, np.ndarray], str]:
    """Operands with D as the card computes it, and what is wrong with it against float64."""
    import torch

    from rungemm.gpu import run_plan
    from rungemm.ladder.runners import to_device

    operands = task.operands(posed.problem.a.dtype)
    tensors = {role: to_device(x) for role, x in operands.items()}
    run_plan(posed.plan, tensors)
    torch.cuda.synchronize()
    result = tensors["D"].cpu().view({2: torch.int16, 4: torch.int32}[tensors["D"].element_size()]).numpy()
    operands["D"] = result.view(operands["D"].dtype)
    verdict = verify(posed.problem, operands)
    return operands, "" if verdict.correct else verdict.why


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--card-only", action="store_true")
    parser.add_argument("--kernels", default=",".join(k.name for k in LADDER))
    parser.add_argument("--shapes", default=SHAPES, help="MxNxK, by spaces; TMA takes K and N of a multiple of 8 only")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3), "little"))
    options = parser.parse_args()
    need_card()
    card = detect_gpu() or DEFAULT_GPU
    shapes: list[Shape] = [tuple(map(int, text.split("x"))) for text in options.shapes.split()]  # type: ignore[misc]
    kernels = [find_kernel(name) for name in options.kernels.split(",")]
    posed = {
        (kernel.name, shape): (p, task)
        for kernel in kernels
        for shape, task in ((shape, task_of(shape, options.seed)) for shape in shapes)
        if isinstance(p := pose(kernel, task, card), Posed)
    }
    compile_many([(p.plan, card.arch) for p, _ in posed.values()])
    records, wrong = [], 0
    with ProcessPoolExecutor() as pool:
        futures = {}
        if not options.card_only:
            futures = {key: pool.submit(simulated, *key, options.seed) for key in posed}
        for (name, shape), (p, task) in posed.items():
            operands, why = on_card(p, task)
            dtype = p.problem.d.dtype.name
            record = {"kernel": name, "shape": list(shape), "dtype": dtype, "card": why or "correct"}
            wrong += bool(why)
            if futures:
                other = futures[name, shape].result()
                if isinstance(other, str):
                    record["simulator"] = other
                    wrong += 1
                else:
                    card_d = operands["D"]
                    record["equal_bits"] = bool(np.array_equal(card_d.view(np.uint8), other.view(np.uint8)))
                    record["largest_difference_ulp"] = last_places(card_d, other)
                    if find_kernel(name).family == "cuda_core":
                        wrong += not record["equal_bits"]
            records.append(record)
            print(*record.values(), flush=True)
    if options.out:
        document = {"environment": describe_environment(card.name), "seed": options.seed, "records": records}
        write_json(options.out, document)
    print(f"{len(records)} results, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
