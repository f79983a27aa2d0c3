"""A device in one float: launches advance it, marks read it. What the real clock does, without the card."""

from __future__ import annotations

from collections.abc import Callable

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
