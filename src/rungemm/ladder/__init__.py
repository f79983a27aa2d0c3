"""The ladder, climbed: run, check, count and explain every rung on one problem."""

from .pose import Task
from .record import Record
from .run import climb, describe
from .runners import GpuRunner, SimulatorRunner, gpu_is_usable

__all__ = ["GpuRunner", "Record", "SimulatorRunner", "Task", "climb", "describe", "gpu_is_usable"]
