"""Compile every rung under the newest Triton that pip offers, in an environment of its own.

    python tools/newest_triton.py             newest release
    python tools/newest_triton.py 3.7.1       that one

The environment is made in the temporary folder, or in RUNGEMM_TRITON_VENV, and used again if it has the right release.
Exits with 1 if a rung does not compile: what moved between releases is ``rungemm.compat``'s to hide.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INSIDE = "--inside"
CARDS = {80: "a100-80", 90: "h200"}
RAGGED = (129, 257, 77)


def newest_release() -> str:
    """The newest Triton for this Python, as pip says."""
    command = [sys.executable, "-m", "pip", "index", "versions", "triton", "--disable-pip-version-check"]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"triton \(([^)]+)\)", said.stdout)
    if found is None:
        sys.exit(f"pip does not say which Triton is newest: {(said.stderr or said.stdout).strip()[-300:]}")
    return found[1]


def environment_with(release: str) -> Path:
    """The Python of an environment with that release and what rungemm needs."""
    default = Path(tempfile.gettempdir()) / f"rungemm-triton-{release}-py{sys.version_info[0]}{sys.version_info[1]}"
    folder = Path(os.environ.get("RUNGEMM_TRITON_VENV") or default)
    python = folder / "bin" / "python"
    if not python.exists() or installed_in(python) != release:
        print(f"making {folder} with triton {release}", flush=True)
        venv.create(folder, with_pip=True, clear=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, f"triton=={release}", str(ROOT)], check=True)
        # Only its dependencies are wanted: the package itself is taken from the tree, as it is now.
        subprocess.run([str(python), "-m", "pip", "uninstall", "--quiet", "--yes", "rungemm"], check=True)
    return python


def installed_in(python: Path) -> str:
    ask = "import importlib.metadata as m; print(m.version('triton'))"
    return subprocess.run([str(python), "-c", ask], capture_output=True, text=True, check=False).stdout.strip()


def compile_every_rung() -> int:
    """Inside the environment: each rung, dtype and precision for sm_80 and sm_90; the number that failed."""
    from rungemm.compat import TRITON_VERSION
    from rungemm.compiling import CompileError, compile_many
    from rungemm.hardware import ZOO
    from rungemm.kernels import LADDER, Unsupported
    from rungemm.problem import PRECISIONS, Problem

    names, jobs, idle = [], [], []
    for kernel in LADDER:
        before = len(jobs)
        for arch, card in CARDS.items():
            shapes = [(512, 512, 512), RAGGED] if arch == 90 else [(512, 512, 512)]
            for dtype in kernel.dtypes:
                # Only fp32 operands can be multiplied in several ways.
                for precision in PRECISIONS if dtype.name == "fp32" else ("ieee",):
                    for m, n, k in shapes:
                        beta = 0.5 if (m, n, k) == RAGGED else 0.0
                        problem = Problem.dense(m, n, k, dtype=dtype, precision=precision, beta=beta)
                        try:
                            plan = kernel.plan(problem, kernel.default_config(problem, ZOO[card]), ZOO[card])
                        except Unsupported:
                            continue
                        names.append(f"{kernel.name} {dtype} {precision} {m}x{n}x{k} sm_{arch}")
                        jobs.append((plan, arch))
                    shapes = shapes[:1]  # masks are the same code for the next type: once is enough
        if len(jobs) == before:
            idle.append(kernel.name)
    start = time.monotonic()
    results = compile_many(jobs)
    failed = [(name, r) for name, r in zip(names, results, strict=True) if isinstance(r, CompileError)]
    for name, error in failed:
        print(f"FAILED {name}: {error}")
    for name in idle:
        print(f"FAILED {name}: it takes none of the problems tried")
    print(
        f"triton {TRITON_VERSION}: {len(LADDER)} rungs, {len(jobs) - len(failed)} of {len(jobs)} plans compile "
        f"({time.monotonic() - start:.0f} s)"
    )
    return len(failed) + len(idle)


def main() -> int:
    if sys.argv[1:] == [INSIDE]:
        return 1 if compile_every_rung() else 0
    release = sys.argv[1] if len(sys.argv) > 1 else newest_release()
    python = environment_with(release)
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    return subprocess.run([str(python), __file__, INSIDE], env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
