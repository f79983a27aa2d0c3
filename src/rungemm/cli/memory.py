"""How much memory this process may still take."""

from __future__ import annotations

from pathlib import Path

__all__ = ["available_bytes"]


def available_bytes() -> int | None:
    """Bytes to be had without swapping: the system's or, if less, the control group's; ``None`` if unknown."""
    found = [value for value in (_of_system(), _of_group()) if value is not None]
    return min(found) if found else None


def _of_system() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return None


def _of_group() -> int | None:
    """What a container (control groups, version 2) has left."""
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = Path("/sys/fs/cgroup/memory.current").read_text().strip()
    except OSError:
        return None
    return int(limit) - int(used) if limit.isdigit() and used.isdigit() else None
