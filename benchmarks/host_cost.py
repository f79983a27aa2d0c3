"""Host time of a warm call, ours against torch.matmul's, for small products with ``out=``.

    PYTHONPATH=src python benchmarks/host_cost.py [--out results/h200/host_cost.json]

Calls are timed in bursts short enough that the queue to the card never fills, contenders in random order in a round;
the figure is the median over rounds of a burst's time for a call. "ours" forces our kernel where one takes the problem,
"library" is what the dispatcher chooses; "the driver's own call" is the launch without anything around it.
"""

from __future__ import annotations

import argparse
import copy
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from needs_card import need_card, need_torch

need_torch()
import torch

import rungemm
from rungemm.bench.environment import describe_environment
from rungemm.bench.store import write_json
from rungemm.gpu import prepare
from rungemm.ops import dispatch, launch
from rungemm.ops.front import Front, fronts

BURST, ROUNDS = 200, 60


def burst(call: Callable[[], object]) -> float:
    """Microseconds of host time a call."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(BURST):
        call()
    spent = time.perf_counter() - begin
    torch.cuda.synchronize()
    return 1e6 * spent / BURST


def ours_if_any(problem, gpu, **options):
    decision = dispatch.decide(problem, gpu, **options)
    ours = [option for option in decision.options if option.is_ours]
    return replace(decision, chosen=ours[0]) if ours else decision


def our_entry(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> launch.Entry | None:
    """What a call would do if our kernels were the only ones."""
    real, launch.decide = launch.decide, ours_if_any
    rungemm.forget()
    try:
        entry = launch.entry_for(a, b, None, None, out, 1.0, 0.0, "ieee", None)
    finally:
        launch.decide = real
        rungemm.forget()
    return entry if entry.decision is not None and entry.decision.chosen.is_ours else None


def bare_launch(entry: launch.Entry, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> Callable[[], object]:
    """cuLaunchKernelEx with parameters that are filled in already: less than this no launch of ours can cost."""
    assert entry.decision is not None and entry.decision.chosen.plan is not None
    (kernel,) = prepare(entry.decision.chosen.plan, a.get_device())._kernels
    kernel.parameters.fill({"A": a.data_ptr(), "B": b.data_ptr(), "D": out.data_ptr()})
    kernel.config.stream = torch.cuda.current_stream().cuda_stream
    place = kernel._config_at, kernel.function, kernel.parameters.address, None
    return lambda: kernel.cuda.queue(*place)


def front_of(call: Callable[[], torch.Tensor]) -> Front:
    """What the library remembers of a call. To change it is to change what the call does, wherever it is looked up.

    Raises:
        RuntimeError: it is not.
    """
    rungemm.forget()
    for _ in range(3):  # the long way, the short one, and from then on the shortest
        call()
    (front,) = fronts.values()
    before, mark = copy.copy(front), torch.empty(0)
    front.call = front.captured = lambda *operands: mark
    marked = call() is mark
    become(front, before)
    if not marked or call() is mark:
        raise RuntimeError("a change of its front does not change a call: look up in ops/front.py what does")
    return front


def become(front: Front, other: Front) -> None:
    for name in Front.__slots__:
        setattr(front, name, getattr(other, name))


def measure(dtype: torch.dtype, shape: tuple[int, int, int]) -> list[dict[str, object]]:
    """One record a contender."""
    m, n, k = shape
    a, b = torch.randn(m, k, device="cuda").to(dtype), torch.randn(k, n, device="cuda").to(dtype)
    w, bias = b.mT.contiguous(), torch.zeros(n, device="cuda", dtype=dtype)
    out = torch.empty(m, n, device="cuda", dtype=dtype)
    ours = our_entry(a, b, out)
    matmul, linear = rungemm.matmul, rungemm.linear
    calls = {
        "torch": lambda: torch.matmul(a, b, out=out),
        "library": lambda: matmul(a, b, out=out),
        "torch, new result": lambda: torch.matmul(a, b),
        "library, new result": lambda: matmul(a, b),
        "torch linear + bias": lambda: torch.nn.functional.linear(a, w, bias),
        "library linear + bias": lambda: linear(a, w, bias),
    }
    if ours is not None:
        calls["the driver's own call"] = bare_launch(ours, a, b, out)
    live = front_of(calls["library"])
    chosen = copy.copy(live)
    for call in calls.values():
        call()
    mine = None if ours is None else Front(tuple(out.shape), out.dtype, out.device, ours)
    if mine is not None:
        calls["ours"] = calls["library"]
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name in random.sample(list(calls), len(calls)):
            become(live, mine if name == "ours" and mine is not None else chosen)
            calls[name]()
            samples[name].append(burst(calls[name]))
    base = statistics.median(samples["torch"])
    records: list[dict[str, object]] = []
    for name, values in samples.items():
        middle, ordered = statistics.median(values), sorted(values)
        decision = chosen.entry.decision
        kernel = (decision.eager or decision.chosen).name if name == "library" and decision is not None else None
        records.append(
            {
                "dtype": str(dtype).removeprefix("torch."),
                "shape": list(shape),
                "contender": name,
                "chosen": kernel,
                "host_us": round(middle, 3),
                "low_us": round(ordered[len(ordered) // 10], 3),
                "high_us": round(ordered[-1 - len(ordered) // 10], 3),
                "share_of_torch_matmul_out": round(middle / base, 3),
                "samples_us": [round(value, 3) for value in values],
            }
        )
        print(f"{dtype!s:15} {shape} {name:24} {middle:7.2f} us {middle / base:5.2f} of torch's {kernel or ''}")
    return records


def processor() -> str:
    """The host's processor by its name, as Linux has it: what host time is about."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        lines = []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    need_card()
    records = []
    with torch.no_grad():
        for dtype in (torch.float32, torch.bfloat16):
            for shape in ((256, 256, 256), (64, 64, 64)):
                records += measure(dtype, shape)
    if arguments.out:
        write_json(arguments.out, {
            "what": "host time of a warm call", "environment": describe_environment(torch.cuda.get_device_name()),
            "cpu": processor(), "burst": BURST, "rounds": ROUNDS, "records": records,
        })  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main())
