"""Short kernels are timed as replays of a captured CUDA graph, so that the host's launch time is not in the figure.

A launch costs the host tens of microseconds; a kernel that runs for ten cannot keep the device busy, and events would
time the gaps. A graph holds one product on every operand set, in order, so that a replay is one cold turn. The host's
own time per call is measured apart, by :func:`host_seconds`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from .statistics import spread_of

__all__ = ["SHORT_KERNEL_S", "capture", "host_seconds", "turns_for"]

SHORT_KERNEL_S = 150e-6
"""Kernels shorter than this are replayed from a graph: about the dearest launch (host-made TMA descriptors) here."""

LAUNCHES_IN_GRAPH = 64
"""At least so many: the device idles a microsecond or two between replays, which must not count against a kernel."""


def turns_for(sets: int) -> int:
    """How often a graph goes round the sets, so that the gap between two replays is spread over many launches."""
    return max(1, -(-LAUNCHES_IN_GRAPH // sets))


def capture(launch: Callable[[int], None], sets: int, turns: int = 1) -> Callable[[], None]:
    """A replay of ``launch(0), ..., launch(sets - 1)``, ``turns`` times over.

    Raises:
        RuntimeError: the contender cannot be captured (it synchronises or allocates from the host).
    """
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        launch(0)  # whatever is lazily made is made outside the capture
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph: Any = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(turns):
            for index in range(sets):
                launch(index)
    torch.cuda.synchronize()
    return graph.replay


def host_seconds(
    launch: Callable[[int], None],
    sets: int,
    synchronize: Callable[[], None],
    *,
    calls: int = 100,
    batch: int = 10,
    now: Callable[[], float] = time.perf_counter,
) -> float:
    """Median seconds the host spends in one call, the device's work not waited for.

    Calls come in short batches from an idle device, so that the launch queue never fills and blocks the host.
    """
    samples = []
    for first in range(0, calls, batch):
        synchronize()
        for offset in range(batch):
            start = now()
            launch((first + offset) % sets)
            samples.append(now() - start)
    synchronize()
    return spread_of(samples).median
