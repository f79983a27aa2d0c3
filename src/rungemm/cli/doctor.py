"""``rungemm doctor``: what is installed, what it can do, and what to fix; found by trying, not by believing."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from ..errors import INSTALL_TORCH
from .common import JsonOption, no_card, out, print_json

__all__ = ["Finding", "doctor", "findings"]

State = Literal["ok", "absent", "broken"]

TRITON_TESTED = ("3.6.0", "3.9.0")
"""The reference release of Triton and the newest that CI compiled every kernel under (``docs/triton-versions.md``)."""

PYTHON_LEAST = (3, 10)


@dataclass(frozen=True)
class Finding:
    """One thing looked at.

    Attributes:
        name: what.
        state: "ok"; "absent", optional and not here; "broken", needed and not working.
        found: what was found, with versions.
        able: what works thanks to it, or does not without it.
        fix: what to do, empty when nothing is.
    """

    name: str
    state: State
    found: str
    able: str
    fix: str = ""


def doctor(as_json: JsonOption = False) -> int:
    """Say what is installed, what it can do, and what to fix.

    Exits with 1 if something that every command needs is broken; a missing GPU or torch is no fault.

    \b
    Example: rungemm doctor --json
    """
    found = []
    for finding in findings():
        found.append(finding)
        if not as_json:
            _show(finding)
    broken = [finding for finding in found if finding.state == "broken"]
    if as_json:
        print_json([asdict(finding) for finding in found])
    elif broken:
        fixes = "; ".join(finding.fix for finding in broken)
        out().print(f"\n[red]{len(broken)} to fix:[/red] {fixes}", soft_wrap=True)
    else:
        out().print("\nAll that is needed works. Try: rungemm ladder")
    return 1 if broken else 0


def _show(finding: Finding) -> None:
    console = out()
    mark = {"ok": "[green]ok     [/green]", "absent": "[yellow]absent [/yellow]", "broken": "[red]BROKEN [/red]"}
    console.print(f"{mark[finding.state]} [bold]{finding.name:<11}[/bold] {finding.found}", soft_wrap=True)
    console.print(f"                    [dim]{finding.able}[/dim]", soft_wrap=True)
    if finding.fix:
        console.print(f"                    fix: {finding.fix}", soft_wrap=True)


def findings() -> Iterator[Finding]:
    """Everything that is looked at, in an order in which each needs only those before it."""
    yield _python()
    for name, able in (
        ("numpy", "runs the simulator"),
        ("ml_dtypes", "gives NumPy bf16 and fp8"),
        ("greenlet", "runs the partitions of a warp-specialised kernel in the simulator"),
    ):
        yield _package(name, able)
    triton = _triton()
    yield triton
    yield _cache()
    if triton.state != "broken":
        yield _compiler()
        yield _simulator()
    card, driver = _card()
    yield card
    yield _torch(driver)
    yield _profiler()


def _python() -> Finding:
    version = platform.python_version()
    text = f"{version} on {platform.system()} {platform.machine()}, {sys.executable}"
    if sys.version_info < PYTHON_LEAST:
        return Finding("python", "broken", text, "rungemm needs 3.10 or newer", "install Python 3.10 or newer")
    return Finding("python", "ok", text, f"rungemm {importlib.import_module('rungemm').__version__} runs on it")


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _package(name: str, able: str) -> Finding:
    try:
        importlib.import_module(name)
    except Exception as error:  # a broken wheel can raise anything on import, and that is what is to be told
        return Finding(name, "broken", f"import fails: {error}", f"it {able}", f"pip install --force-reinstall {name}")
    return Finding(name, "ok", _version(name) or "unknown version", able)


def _triton() -> Finding:
    able = "compiles the kernels, with no GPU needed"
    if sys.platform != "linux":
        return Finding("triton", "broken", "not made for " + sys.platform, able, "use Linux, a container or WSL")
    try:
        compat = importlib.import_module("rungemm.compat")
    except Exception as error:  # Gluon is experimental: a release may miss any name, and import errors vary
        remedy = f"pip install triton=={TRITON_TESTED[0]}"
        return Finding("triton", "broken", f"{_version('triton') or 'not installed'}: {error}", able, remedy)
    version = compat.TRITON_VERSION
    if not _between(version, *TRITON_TESTED):
        remedy = f"if something fails: pip install triton=={TRITON_TESTED[0]}"
        tested = " to ".join(TRITON_TESTED)
        return Finding("triton", "ok", f"{version}, outside the tested range {tested}", able, remedy)
    return Finding("triton", "ok", f"{version}, tested", able)


def _between(version: str, first: str, last: str) -> bool:
    def key(text: str) -> tuple[int, ...]:
        return tuple(int(part) for part in text.split("+")[0].split(".")[:2] if part.isdigit())

    return key(first) <= key(version) <= key(last)


def _cache() -> Finding:
    from ..cache import cache_root

    root = cache_root()
    able = "remembers compiled kernels and tuning results"
    nearest = next((path for path in (root, *root.parents) if path.exists()), Path("/"))
    if not os.access(nearest, os.W_OK | os.X_OK):
        remedy = f"set RUNGEMM_CACHE_DIR to a folder of yours, or mend the permissions of {nearest}"
        return Finding("cache", "absent", f"{root} cannot be written", "without it every run compiles again", remedy)
    files = [path for path in root.rglob("*") if path.is_file()] if root.exists() else []
    size = sum(path.stat().st_size for path in files)
    return Finding("cache", "ok", f"{root}: {len(files)} files, {size / 1e6:.1f} MB", able)


def _compiler() -> Finding:
    import time

    from ..hardware import DEFAULT_GPU
    from ..kernels import LADDER
    from ..problem import Problem

    kernel, problem = LADDER[0], Problem.dense(64, 64, 64)
    able = "gives registers, spills, shared memory and SASS of every rung for sm_80, 86, 89 and 90"
    started = time.monotonic()
    try:
        from ..compiling import compile_plan

        plan = kernel.plan(problem, kernel.default_config(problem, DEFAULT_GPU), DEFAULT_GPU)
        compiled = compile_plan(plan, DEFAULT_GPU.arch, cache=False)[0]
    except Exception as error:  # whatever the compiler throws is the finding
        return Finding("compiling", "broken", _first_line(error), able, f"pip install triton=={TRITON_TESTED[0]}")
    took = time.monotonic() - started
    return Finding("compiling", "ok", f"{kernel.name} for sm_90: {compiled.registers} registers, {took:.1f} s", able)


def _simulator() -> Finding:
    import numpy as np

    from ..hardware import DEFAULT_GPU
    from ..inputs import random_matrix
    from ..kernels import LADDER
    from ..operands import problem_of_arrays
    from ..sim import simulate

    rng = np.random.default_rng()
    a, b = random_matrix(rng, 33, 17), random_matrix(rng, 17, 35)
    d = np.full((33, 35), np.nan, np.float32)
    problem, kernel = problem_of_arrays(a, b, None, d), LADDER[0]
    able = "runs, checks and counts every rung without a GPU"
    try:
        plan = kernel.plan(problem, kernel.default_config(problem, DEFAULT_GPU), DEFAULT_GPU)
        simulate(plan, {"A": a, "B": b, "D": d})
    except Exception as error:  # whatever it throws is the finding
        return Finding("simulator", "broken", _first_line(error), able, "report it: a bug")
    if not np.allclose(d, a.astype(np.float64) @ b, rtol=1e-4, atol=1e-4):
        return Finding("simulator", "broken", f"{kernel.name} gives a wrong product", able, "report it: a bug")
    return Finding("simulator", "ok", f"{kernel.name} at 33x35x17 is right", able)


def _card() -> tuple[Finding, str | None]:
    from ..hardware import detect_gpu

    able = "runs and times the rungs"
    card = detect_gpu()
    if card is None:
        return Finding("gpu", "absent", no_card(), f"a card {able}; without one the simulator does the running"), None
    driver = _output(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"])
    driver = driver.splitlines()[0] if driver else "unknown"
    return Finding("gpu", "ok", f"{card.title}, sm_{card.arch}, driver {driver}", able), driver


def _torch(driver: str | None) -> Finding:
    library = "the library (rungemm.matmul, linear, patch)"
    if importlib.util.find_spec("torch") is None:
        remedy = INSTALL_TORCH if driver else ""
        able = f"{library} needs it, also on a CPU; so do launching on a GPU and reading .pt files; the rest does not"
        return Finding("torch", "absent", "not installed", able, remedy)
    able = f"{library} works on its tensors; launches on a GPU, reads .pt files"
    try:
        torch = importlib.import_module("torch")
        usable = torch.cuda.is_available()
    except Exception as error:  # a broken wheel can raise anything on import, and that is what is to be told
        return Finding("torch", "absent", f"import fails: {_first_line(error)}", able, "reinstall torch")
    text = f"{torch.__version__}, CUDA {torch.version.cuda or 'not built in'}"
    if driver and not usable:
        remedy = "install a torch whose CUDA the driver supports (pytorch.org, Get started)"
        return Finding("torch", "absent", text + ": it does not see the GPU", able, remedy)
    if not usable:
        able = f"{library} works on its tensors, on the CPU; reads .pt files; no GPU to launch on"
    return Finding("torch", "ok", text, able)


def _profiler() -> Finding:
    able = "checks the simulator's counters against the card's"
    tool = shutil.which("ncu")
    if tool is None:
        return Finding("ncu", "absent", "Nsight Compute is not on PATH", able + "; nothing else needs it")
    version = _output([tool, "--version"]).strip().splitlines()
    return Finding("ncu", "ok", f"{tool}, {version[-1] if version else 'unknown version'}", able)


def _output(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
