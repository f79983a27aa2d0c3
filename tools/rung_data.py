"""What is counted for the rung pages: docs/rungs/data.json, one entry a rung, with a fingerprint of its sources.

Counting, compiling and drawing take a minute or two for the whole ladder; the pages and the test that they are fresh
only read the file. An entry is made anew when the rung's code, config or plan changed.
"""

from __future__ import annotations

import hashlib
import json
import linecache
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

TOOLS = Path(__file__).resolve().parent
sys.path[:0] = [str(TOOLS), str(TOOLS.parent / "src")]

from rung_layouts import layouts_of
from sass_stats import loop_stats

from rungemm.compat import TRITON_VERSION
from rungemm.compiling import CompileError, compile_many
from rungemm.compiling.fingerprint import describe_value, fingerprint
from rungemm.dtypes import BF16, FP16, FP32, DType
from rungemm.hardware import Gpu, find_gpu
from rungemm.kernels import LADDER, Kernel, Unsupported
from rungemm.ladder.pose import Posed, Task
from rungemm.ladder.resources import resources_of
from rungemm.operands import problem_of_arrays
from rungemm.problem import Precision, Problem
from rungemm.sim import simulate
from rungemm.verify import verify

__all__ = ["CARD", "SHAPE", "entry_fingerprint", "load", "posed_for_docs", "refresh", "save", "summary_of"]

DATA = TOOLS.parent / "docs" / "rungs" / "data.json"
SHAPE = (256, 256, 256)
SEED = 20261130
CARD: Gpu = find_gpu("h200")

CHOICES: dict[str, tuple[tuple[DType, Precision], ...]] = {
    "cuda_core": ((FP32, "ieee"),),
    "tensor_core": ((BF16, "ieee"), (FP16, "ieee"), (FP32, "tf32")),
    "hopper": ((BF16, "ieee"), (FP16, "ieee"), (FP32, "tf32")),
}
"""What a family's rungs are counted in: the first that the rung takes; in one order, so that neighbours compare."""


def posed_for_docs(kernel: Kernel[Any], shape: tuple[int, int, int] = SHAPE, config: Any = None) -> Posed:
    """The rung with its first config on a product of that shape.

    Raises:
        Unsupported: it takes the shape in none of its family's types.
    """
    task, reason = Task.random(*shape, seed=SEED), ""
    for dtype, precision in CHOICES[kernel.family]:
        x = task.operands(dtype)
        problem = problem_of_arrays(x["A"], x["B"], None, x["D"], precision=precision)
        try:
            chosen = config or config_for_docs(kernel, problem)
            return Posed(kernel, problem, chosen, kernel.plan(problem, chosen, CARD))
        except Unsupported as error:
            reason = reason or str(error)
    raise Unsupported(reason)


def config_for_docs(kernel: Kernel[Any], problem: Problem) -> Any:
    """The rung's first config. A champion chooses by shape, and a small one says nothing of it: at 4096^3."""
    if kernel.name.startswith("champion"):
        problem = Problem.dense(4096, 4096, 4096, dtype=problem.a.dtype, precision=problem.precision)
    return kernel.default_config(problem, CARD)


def entry_fingerprint(posed: Posed) -> str:
    """Changes with the kernels' code, their constants and arguments, the grid or the config."""
    parts = [str(posed.problem), json.dumps(posed.config.to_dict(), sort_keys=True)]
    for launch in posed.plan.launches:
        parts += [fingerprint(launch.function), str(launch.grid), str(launch.num_warps), str(launch.max_registers)]
        parts += [f"{name}={describe_value(value)}" for name, value in launch.constants]
        parts += [f"{name}:{argument.signature}" for name, argument in launch.arguments]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def load() -> dict[str, Any]:
    """The committed data; empty where there is none yet."""
    if not DATA.exists():
        return {"shape": list(SHAPE), "card": CARD.name, "triton": TRITON_VERSION, "rungs": {}}
    return json.loads(DATA.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def count(posed: Posed) -> dict[str, Any]:
    """Run it in the simulator: counters, error against float64, the worst bank conflicts by line.

    Raises:
        RuntimeError: the result is wrong.
    """
    task = Task.random(posed.problem.m, posed.problem.n, posed.problem.k, seed=SEED)
    operands = task.operands(posed.problem.a.dtype)
    report = simulate(posed.plan, operands)
    verdict = verify(posed.problem, operands)
    if not verdict.correct:
        raise RuntimeError(f"{posed.kernel.name} is wrong: {verdict.why}")
    return summary_of(report)


def summary_of(report: Any) -> dict[str, Any]:
    """A report's counters that are not 0, and its three worst bank conflicts by line."""
    worst: dict[str, dict[str, Any]] = {}
    for (_, _, file, line), conflict in report.observer.conflicts.items():
        text = linecache.getline(file, line).strip()
        if conflict.degree > worst.get(text, {}).get("degree", 1):
            worst[text] = {"text": text, "degree": conflict.degree, "instruction": conflict.instruction}
    conflicts = sorted(worst.values(), key=lambda item: (-item["degree"], item["text"]))
    return {"counters": {k: int(v) for k, v in report.counters.items() if v}, "conflicts": conflicts[:3]}


def compiled(posed: Posed, code: Any) -> dict[str, Any]:
    """Registers, shared memory and occupancy; and the main loop's register ports where it is made of FFMAs."""
    resources = resources_of(posed.plan, code, CARD)
    assert resources is not None
    found: dict[str, Any] = {"resources": asdict(resources)}
    main = max(code, key=lambda item: item.num_warps * 128 * item.registers + item.shared_bytes)
    if posed.kernel.family == "cuda_core":
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(main.cubin)
            file.flush()
            loop = loop_stats(Path(file.name))
        found["loop"] = {name: loop[name] for name in ("ffma", "instructions", "issue_share", "port_cost", "bound")}
    return found


def one_tile(posed: Posed) -> tuple[Any, dict[str, np.ndarray]]:
    """The rung's plan on a product of one tile, four steps along K, and operands for it."""
    config = posed.config.to_dict()
    shape = (config.get("tile_m", 128), config.get("tile_n", 128), 4 * config.get("tile_k", 32))
    small = posed_for_docs(posed.kernel, shape, posed.config)
    return small.plan, Task.random(*shape, seed=SEED).operands(small.problem.a.dtype)


def refresh(data: dict[str, Any], images: Path, *, everything: bool = False) -> list[str]:
    """Make the entries that are missing or stale, and write file and drawings; the names of those made.

    Raises:
        CompileError, RuntimeError, SimulationFault: a rung does not compile, or is wrong.
    """
    posed = {kernel.name: posed_for_docs(kernel) for kernel in LADDER}
    rungs = data["rungs"]
    if data["triton"] != TRITON_VERSION or tuple(data["shape"]) != SHAPE:
        everything = True
    stale = [
        name for name, item in posed.items()
        if everything or rungs.get(name, {}).get("fingerprint") != entry_fingerprint(item)
    ]  # fmt: skip
    codes = compile_many([(posed[name].plan, CARD.arch) for name in stale])
    for name, code in zip(stale, codes, strict=True):
        if isinstance(code, CompileError):
            raise code
        item = posed[name]
        print(f"{name}: counting", flush=True)
        problem = item.problem
        rungs[name] = {
            "fingerprint": entry_fingerprint(item),
            "dtype": problem.a.dtype.name,
            "precision": problem.precision,
            "config": item.config.to_dict(),
            **count(item),
            **compiled(item, code),
            "drawings": [],
        }
        for found in layouts_of(*one_tile(item)):
            digest = hashlib.sha256(found.svg.encode()).hexdigest()[:10]
            file = f"{found.key}-{digest}.svg"
            (images / file).write_text(found.svg, encoding="utf-8")
            rungs[name]["drawings"].append({"title": found.title, "file": file})
    data |= {"shape": list(SHAPE), "card": CARD.name, "triton": TRITON_VERSION}
    data["rungs"] = {name: rungs[name] for name in posed}
    used = {drawing["file"] for entry in data["rungs"].values() for drawing in entry["drawings"]}
    for image in images.glob("*.svg"):
        if image.name not in used:
            image.unlink()
    save(data)
    return stale


def save(data: dict[str, Any]) -> None:
    """Write the file."""
    DATA.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
