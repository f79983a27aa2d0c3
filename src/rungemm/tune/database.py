"""What tuning found, kept for this user: the best config of a kernel for a problem on a card, and every timing.

An entry counts only for the card (compute capability, SM count), the Triton version and the kernel source that it was
measured with; a changed kernel makes it stale, and it is then ignored with a notice. Entries are JSON, written whole
under a lock, checked when read, and ignored when damaged (:mod:`rungemm.cache`).
"""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..cache import DiskStore
from ..compat import TRITON_VERSION
from ..compiling.fingerprint import fingerprint
from ..hardware import Gpu
from ..kernels import Config, Kernel, LaunchPlan
from ..problem import Matrix, Problem

__all__ = ["Tuned", "TuningDatabase", "problem_class", "source_of"]

log = logging.getLogger("rungemm")


@dataclass(frozen=True)
class Tuned:
    """One entry.

    Attributes:
        config: the fastest that was right.
        seconds: its median time a product.
        ratio: cuBLAS's time over it in the final rounds, if cuBLAS was there.
        error: against float64.
        timings: every config that was timed, as ``{"config", "us", "rounds", "dropped"}``, fastest first.
        date: when, ISO 8601, UTC.
    """

    config: Config
    seconds: float
    ratio: float | None = None
    error: float | None = None
    timings: list[dict[str, Any]] = field(default_factory=list, hash=False)
    date: str = ""


def problem_class(problem: Problem) -> dict[str, Any]:
    """What a tuned config depends on: extents, types, precision, layout, the alignment of rows, whether C is read."""

    def aligned(matrix: Matrix) -> bool:
        """Rows (or columns) start at multiples of 16 bytes: what 128-bit access and TMA need."""
        pitch = matrix.row_stride if matrix.is_row_major else matrix.col_stride
        return matrix.alignment % 16 == 0 and pitch * matrix.dtype.bytes % 16 == 0

    return {
        "m": problem.m,
        "n": problem.n,
        "k": problem.k,
        "batch": problem.batch,
        "dtype": problem.a.dtype.name,
        "out_dtype": problem.d.dtype.name,
        "precision": problem.precision,
        "layout": problem.layout,
        "aligned": [aligned(matrix) for matrix in (problem.a, problem.b, problem.d)],
        "reads_c": problem.reads_c,
        "epilogue": repr(problem.epilogue),
    }


def source_of(plan: LaunchPlan) -> str:
    """A fingerprint of the code that a plan launches."""
    parts = "\n".join(fingerprint(launch.function) for launch in plan.launches)
    return hashlib.sha256(parts.encode()).hexdigest()


class TuningDatabase:
    """The entries of this user (or of another folder, for tests and for shipping)."""

    def __init__(self, root: Path | None = None) -> None:
        self._store = DiskStore("tuned", root)

    @staticmethod
    def key(kernel: Kernel[Any], problem: Problem, gpu: Gpu) -> str:
        """The entry's name: kernel, problem class, card and Triton version, hashed."""
        parts = {
            "kernel": kernel.name,
            "problem": problem_class(problem),
            "arch": gpu.arch,
            "sms": gpu.sms,
            "triton": TRITON_VERSION,
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def load(self, kernel: Kernel[Any], problem: Problem, gpu: Gpu) -> Tuned | None:
        """The entry, or ``None`` if there is none, or it is damaged, stale, or no longer legal (with a notice)."""
        entry = self._store.load(self.key(kernel, problem, gpu))
        if entry is None:
            return None
        try:
            data = entry.data
            config = kernel.config_type.from_dict(data["config"])
            reason = kernel.supports(problem, config, gpu)
            if reason is None and data["source"] != source_of(kernel.plan(problem, config, gpu)):
                reason = "the kernel's source changed since"
            if reason is not None:
                log.warning(
                    "rungemm: tuned %s for %s ignored: %s; run rungemm tune again", kernel.name, problem, reason
                )
                return None
            return Tuned(config, data["seconds"], data["ratio"], data["error"], data["timings"], data["date"])
        except (KeyError, TypeError, ValueError) as error:
            log.warning("rungemm: tuned %s for %s ignored: %s; run rungemm tune again", kernel.name, problem, error)
            return None

    def save(self, kernel: Kernel[Any], problem: Problem, gpu: Gpu, tuned: Tuned) -> None:
        """Write an entry, replacing the one there was."""
        key = self.key(kernel, problem, gpu)
        data = {
            "kernel": kernel.name,
            "problem": problem_class(problem),
            "card": {"arch": gpu.arch, "sms": gpu.sms, "title": gpu.title},
            "triton": TRITON_VERSION,
            "source": source_of(kernel.plan(problem, tuned.config, gpu)),
            "config": tuned.config.to_dict(),
            "seconds": tuned.seconds,
            "ratio": tuned.ratio,
            "error": tuned.error,
            "timings": tuned.timings,
            "date": tuned.date,
        }
        with self._store.lock(key):
            self._store.save(key, data)
