"""Timing that can be believed: interleaved contenders, cold L2, checked outputs, logged clocks. See docs/method.md.

Only measuring itself needs torch, and imports it inside its functions.
"""

from .contenders import Contender, Ours, TorchCompile, TorchMatmul, UserCallable, contender_named
from .interleaved import Entry, Rounds, StopRule, time_interleaved
from .measurement import Measurement, Settings, measure
from .statistics import Ratio, Spread, geometric_mean, paired_ratio, spread_of
from .suites import SUITES, Shape, parse_shape, read_shapes, suite_named

__all__ = [
    "SUITES",
    "Contender",
    "Entry",
    "Measurement",
    "Ours",
    "Ratio",
    "Rounds",
    "Settings",
    "Shape",
    "Spread",
    "StopRule",
    "TorchCompile",
    "TorchMatmul",
    "UserCallable",
    "contender_named",
    "geometric_mean",
    "measure",
    "paired_ratio",
    "parse_shape",
    "read_shapes",
    "spread_of",
    "suite_named",
    "time_interleaved",
]
