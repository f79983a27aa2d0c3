"""The CUDA clock: events on the current stream, about half a microsecond fine."""

from __future__ import annotations

from typing import Any

__all__ = ["CudaClock"]


class CudaClock:
    """Marks are CUDA events on the device's current stream; satisfies :class:`..interleaved.Clock`."""

    def __init__(self, device: Any = None) -> None:
        import torch

        self._torch = torch
        self._device = device

    def mark(self) -> Any:
        event = self._torch.cuda.Event(enable_timing=True)
        event.record(self._torch.cuda.current_stream(self._device))
        return event

    def synchronize(self) -> None:
        self._torch.cuda.synchronize(self._device)

    def seconds(self, start: Any, end: Any) -> float:
        return start.elapsed_time(end) * 1e-3
