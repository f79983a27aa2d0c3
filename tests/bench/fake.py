"""A device in one float: launches advance it, marks read it. What the real clock does, without the card.

And a device whose graphs are recordings: a replay does torch's work again, and runs none of the contender's Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


class FakeClock:
    """Satisfies rungemm.bench.interleaved.Clock. ``time`` is the device's own; the host's never moves."""

    def __init__(self) -> None:
        self.time = 0.0

    def lead_in(self) -> None:
        return None

    def mark(self) -> float:
        return self.time

    def synchronize(self) -> None:
        return None

    def seconds(self, start: float, end: float) -> float:
        return end - start

    def kernel(
        self,
        seconds: float,
        rng: np.random.Generator,
        noise: float = 0.0,
        drift: Callable[[float], float] | None = None,
    ) -> Callable[[int], None]:
        """A launch that takes ``seconds``, times lognormal noise, times a drift that all kernels share."""

        def launch(_: int) -> None:
            slowdown = drift(self.time) if drift else 1.0
            self.time += seconds * slowdown * float(np.exp(noise * rng.standard_normal()))

        return launch


def recording_device(l2_bytes: int = 1 << 16) -> Any:
    """A HostDevice whose captures replay as CUDA's do: the same operations, on the tensors of the capture."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    from rungemm.bench.device import HostDevice

    class Tape(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.steps: list[tuple[Any, Any, Any, Any]] = []

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = function(*args, **(kwargs or {}))
            self.steps.append((function, args, kwargs or {}, result))
            return result

    class RecordingDevice(HostDevice):
        def capture(self, launch: Callable[[int], None], sets: int, turns: int = 1) -> Callable[[], None]:
            with Tape() as tape:
                for _ in range(turns):
                    for index in range(sets):
                        launch(index)

            def replay() -> None:
                for function, args, kwargs, result in tape.steps:
                    again = function(*args, **kwargs)
                    if isinstance(result, torch.Tensor) and again.data_ptr() != result.data_ptr():
                        result.copy_(again)

            return replay

    return RecordingDevice(l2_bytes)
