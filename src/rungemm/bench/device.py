"""The device that measurements run on: its clock, its L2, and how it captures a graph.

:class:`CudaDevice` is a CUDA card through torch. :class:`HostDevice` is torch on the CPU, with the host's clock: it is
how the whole method is tested where there is no card, and no figure from it is ever stored.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from .events import CudaClock
from .graph import capture
from .interleaved import Clock

__all__ = ["CudaDevice", "Device", "HostDevice"]


class Device(Protocol):
    """What :func:`..measurement.measure` needs of a device."""

    name: Any
    """torch's name of it."""
    l2_bytes: int
    clock: Clock

    def capture(self, launch: Callable[[int], None], sets: int, turns: int = 1) -> Callable[[], None]:
        """A replay of one launch on each set, ``turns`` times over. Raises RuntimeError where that cannot be."""


class CudaDevice:
    """The current CUDA device."""

    def __init__(self) -> None:
        import torch

        if not torch.cuda.is_available():
            raise RuntimeError("no CUDA device: timing needs a GPU (rungemm doctor says what is missing)")
        index = torch.cuda.current_device()
        self.name: Any = torch.device("cuda", index)
        self.l2_bytes = int(torch.cuda.get_device_properties(index).L2_cache_size)
        self.clock: Clock = CudaClock(self.name)

    def capture(self, launch: Callable[[int], None], sets: int, turns: int = 1) -> Callable[[], None]:
        return capture(launch, sets, turns)


class HostClock:
    """The host's clock: work on the CPU is done when the call returns."""

    def lead_in(self) -> None:
        return None

    def mark(self) -> float:
        return time.perf_counter()

    def synchronize(self) -> None:
        return None

    def seconds(self, start: float, end: float) -> float:
        return end - start


class HostDevice:
    """torch on the CPU, pretending to an L2 of ``l2_bytes``."""

    def __init__(self, l2_bytes: int = 1 << 16, clock: Clock | None = None) -> None:
        self.name: Any = "cpu"
        self.l2_bytes = l2_bytes
        self.clock: Clock = clock or HostClock()

    def capture(self, launch: Callable[[int], None], sets: int, turns: int = 1) -> Callable[[], None]:
        def replay() -> None:
            for _ in range(turns):
                for index in range(sets):
                    launch(index)

        return replay
