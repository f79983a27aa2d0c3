"""The CUDA clock: events on the current stream, about half a microsecond fine."""

from __future__ import annotations

from typing import Any

__all__ = ["CudaClock"]

LEAD_IN_CYCLES = 1_000_000
"""Half a millisecond of spinning at 2 GHz: longer than the host needs for the first few launches of a round. On the
H200, a round's first sample was 230 us longer without it."""


class CudaClock:
    """Marks are CUDA events on the device's current stream; satisfies :class:`..interleaved.Clock`."""

    def __init__(self, device: Any = None) -> None:
        import torch

        self._torch = torch
        self._device = device

    def lead_in(self) -> None:
        self._torch.cuda._sleep(LEAD_IN_CYCLES)

    def mark(self) -> Any:
        event = self._torch.cuda.Event(enable_timing=True)
        event.record(self._torch.cuda.current_stream(self._device))
        return event

    def synchronize(self) -> None:
        self._torch.cuda.synchronize(self._device)

    def seconds(self, start: Any, end: Any) -> float:
        return start.elapsed_time(end) * 1e-3
