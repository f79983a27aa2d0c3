"""What a figure was measured on and with: card, driver, versions, host, command, commit."""

from __future__ import annotations

import datetime
import os
import platform
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from .. import __version__

__all__ = ["commit_of", "describe_environment"]


def commit_of(directory: Path | None = None) -> str | None:
    """The short commit of rungemm's checkout, "+" appended if tracked files differ; ``None`` outside a checkout.

    ``RUNGEMM_COMMIT`` overrides it, for machines that get a copy of the files without the repository.
    """
    given = os.environ.get("RUNGEMM_COMMIT")
    if given:
        return given
    where = directory or Path(__file__).resolve().parent

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(where), *arguments], capture_output=True, text=True, timeout=20, check=False
            )
        except (OSError, subprocess.SubprocessError):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    commit = git("rev-parse", "--short=12", "HEAD")
    if not commit:
        return None
    return commit + "+" if git("status", "--porcelain", "--untracked-files=no") else commit


def describe_environment(gpu_name: str) -> dict[str, Any]:
    """The environment record of a results file; what cannot be found out is ``None``."""
    record: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "command": shlex.join(sys.argv),
        "commit": commit_of(),
        "rungemm": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "gpu": gpu_name,
        "card": None,
        "torch": None,
        "cuda": None,
        "triton": None,
        "driver": None,
        "cublas": None,
    }
    try:
        import triton

        record["triton"] = triton.__version__
    except ImportError:
        pass
    try:
        import torch

        record["torch"], record["cuda"] = torch.__version__, torch.version.cuda
        if torch.cuda.is_available():
            card = torch.cuda.get_device_properties(torch.cuda.current_device())
            record["card"] = {
                "name": card.name,
                "capability": f"{card.major}.{card.minor}",
                "sms": card.multi_processor_count,
                "l2_bytes": card.L2_cache_size,
                "memory_bytes": card.total_memory,
            }
    except ImportError:
        pass
    record["driver"] = _driver()
    record["cublas"] = _cublas()
    return record


def _driver() -> str | None:
    try:
        with open("/proc/driver/nvidia/version", encoding="ascii") as file:
            words = file.readline().split()
    except OSError:
        return None
    return next((word for word in words if word.count(".") >= 1 and word[0].isdigit()), None)


def _cublas() -> str | None:
    from importlib import metadata

    for package in ("nvidia-cublas", "nvidia-cublas-cu12", "nvidia-cublas-cu13"):
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return None
