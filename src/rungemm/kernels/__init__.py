"""The ladder: one file a rung, and the registry that lists them in order."""

from .base import Config, Kernel, TileConfig, Unsupported
from .plan import Launch, LaunchPlan
from .registry import BATCHED, LADDER, find_kernel

__all__ = ["BATCHED", "LADDER", "Config", "Kernel", "Launch", "LaunchPlan", "TileConfig", "Unsupported", "find_kernel"]
