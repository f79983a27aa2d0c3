"""Where a rung runs: in the simulator, or on the card at hand. Either way its D is compared with float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from ..errors import INSTALL_TORCH
from ..hardware import Gpu
from ..verify import tolerance_for, verify
from .pose import Posed, Task

__all__ = ["GpuRunner", "Outcome", "Runner", "SimulatorRunner", "gpu_is_usable", "to_device"]


@dataclass
class Outcome:
    """What running one rung gave.

    Attributes:
        correct, why, error, tolerance: as in :class:`rungemm.ladder.record.Record`.
        report: the simulator's report of the whole problem, if it was counted.
        seconds: wall time.
    """

    correct: bool
    why: str = ""
    error: float | None = None
    tolerance: float | None = None
    report: Any = None
    seconds: float = 0.0


class Runner(Protocol):
    """Runs one rung on the task's operands."""

    @property
    def name(self) -> str:
        """What records say of it."""

    def run(self, posed: Posed, task: Task) -> Outcome:
        """Run it and compare D with float64; a fault of the kernel is an outcome, not an exception."""


@dataclass
class SimulatorRunner:
    """Runs on NumPy, with the plan made for whatever card is reasoned about.

    Attributes:
        count: count what the kernel asks of memory along the way.
        processes: the programs of a grid are spread over this many.
        schedule, seed: when asynchronous operations complete, and the seed of the random schedule.
    """

    count: bool = True
    processes: int = 1
    schedule: str = "late"
    seed: int = 0
    name: str = "simulator"

    def run(self, posed: Posed, task: Task) -> Outcome:
        from ..sim import SimulationFault, simulate

        operands = task.operands(posed.problem.a.dtype)
        try:
            report = simulate(
                posed.plan, operands, count=self.count, processes=self.processes, schedule=self.schedule, seed=self.seed
            )
        except SimulationFault as fault:
            return Outcome(False, " ".join(str(fault).split()))
        verdict = verify(posed.problem, operands)
        why = verdict.why
        if not verdict.correct and self.schedule == "random":
            why += f" [schedule random, seed {self.seed}]"
        return Outcome(verdict.correct, why, verdict.error, verdict.tolerance, report if self.count else None)


@dataclass
class GpuRunner:
    """Runs on the card at hand through torch; the float64 product is made on the card too."""

    card: Gpu

    @property
    def name(self) -> str:
        return self.card.title

    def run(self, posed: Posed, task: Task) -> Outcome:
        import torch

        from ..bench.checking import check_outputs
        from ..gpu import run_plan

        operands = {role: to_device(x) for role, x in task.operands(posed.problem.a.dtype).items()}
        try:
            run_plan(posed.plan, operands)
            torch.cuda.synchronize()
        except Exception as error:  # compiler, driver and launcher each have their own; all are this rung's outcome
            return Outcome(False, " ".join(f"{type(error).__name__}: {error}".split())[:300])
        if posed.problem.is_empty:
            return Outcome(True, "", 0.0, tolerance_for(posed.problem))
        checked = check_outputs(posed.problem, [operands], {"ours": [operands["D"]]})["ours"]
        return Outcome(checked.ok, checked.why, checked.error, checked.tolerance)


def to_device(array: Any) -> Any:
    """A copy on the card with the array's values, shape and order of strides."""
    import numpy as np
    import torch

    from ..dtypes import dtype_named

    dtype = getattr(torch, dtype_named(array.dtype).torch)
    column_major = array.strides[0] < array.strides[1]
    dense = np.ascontiguousarray(array.T if column_major else array)
    # torch.from_numpy knows no bfloat16: the bits travel as integers of the same width.
    bits = {1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64}[dense.dtype.itemsize]
    tensor = torch.from_numpy(dense.view(bits)).cuda().view(dtype)
    return tensor.t() if column_major else tensor


def gpu_is_usable() -> str | None:
    """Why rungs cannot be launched on the card at hand, or ``None`` if they can."""
    try:
        import torch
    except ImportError:
        return f"torch is not installed: {INSTALL_TORCH}"
    except OSError as error:
        return f"torch cannot be loaded ({error}): reinstall it"
    return None if torch.cuda.is_available() else "torch sees no card: see rungemm doctor"
