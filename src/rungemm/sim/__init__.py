"""The simulator: runs Gluon kernels' own source on NumPy arrays, finds their faults and counts what they do.

No GPU and no torch. :func:`simulate` runs a launch plan, :func:`run` any kernel of the supported subset.
``docs/simulator.md`` says what is modelled and what is not.
"""

from __future__ import annotations

from .faults import NotSimulated, SimulationFault
from .launch import SimReport, TensorMap, run, simulate
from .program import SCHEDULES

__all__ = ["SCHEDULES", "NotSimulated", "SimReport", "SimulationFault", "TensorMap", "run", "simulate"]
