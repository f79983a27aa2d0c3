"""The card's state while it is timed: SM clock, power, temperature and throttle reasons, sampled by NVML.

The same call moves by a quarter with the card's power and heat, so a figure without its clocks and watts says little.
NVML (package ``nvidia-ml-py``, module ``pynvml``) is read in a thread; without it ``nvidia-smi`` is asked once at
each end; without that either, the record says so. The card's settings are only read, never changed.
"""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["CardState", "ClockLog", "decode_throttle", "nvml_reader", "smi_reader"]

# nvml.h, nvmlClocksEventReason*
_REASONS = {
    0x1: "idle",
    0x2: "application clocks",
    0x4: "software power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "hardware power brake",
    0x100: "display clocks",
}


@dataclass(frozen=True)
class CardState:
    """One sample: SM clock in MHz, power in W, temperature in degrees C, NVML's bit mask of throttle reasons."""

    sm_mhz: int
    watts: float
    celsius: int
    throttle: int


def decode_throttle(mask: int) -> list[str]:
    """The names of the throttle reasons in NVML's bit mask."""
    return [name for bit, name in _REASONS.items() if mask & bit]


def nvml_reader(index: int = 0) -> Callable[[], CardState] | None:
    """A function that reads the card by NVML, or ``None`` where the package or the driver is missing."""
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    except Exception:  # any failure of a foreign driver library means the same: no NVML here
        return None
    reasons = getattr(pynvml, "nvmlDeviceGetCurrentClocksEventReasons", None) or getattr(
        pynvml, "nvmlDeviceGetCurrentClocksThrottleReasons", None
    )

    def read() -> CardState:
        return CardState(
            sm_mhz=int(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)),
            watts=pynvml.nvmlDeviceGetPowerUsage(handle) / 1000,
            celsius=int(pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)),
            throttle=int(reasons(handle)) if reasons else 0,
        )

    try:
        read()
    except Exception:
        return None
    return read


def smi_reader(index: int = 0) -> Callable[[], CardState] | None:
    """The same by ``nvidia-smi`` (tens of milliseconds a sample), or ``None``."""
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return None
    command = [
        smi, f"--id={index}", "--format=csv,noheader,nounits",
        "--query-gpu=clocks.sm,power.draw,temperature.gpu,clocks_throttle_reasons.active",
    ]  # fmt: skip

    def read() -> CardState:
        text = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
        mhz, watts, celsius, mask = (part.strip() for part in text.strip().splitlines()[0].split(","))
        return CardState(int(mhz), float(watts), int(celsius), int(mask, 16))

    try:
        read()
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return read


TRACE = 120
"""Points of a record's trace at most; a long measurement is thinned evenly."""


@dataclass
class ClockLog:
    """Samples the card in a thread while the ``with`` block runs.

    ``reader`` is any function that returns a :class:`CardState`; ``None`` looks for NVML, then nvidia-smi.
    """

    reader: Callable[[], CardState] | None = None
    interval_s: float = 0.02
    samples: list[CardState] = field(default_factory=list)
    source: str = "given"
    _times: list[float] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> ClockLog:
        if self.reader is None:
            self.reader, self.source = nvml_reader(), "nvml"
        if self.reader is None:
            self.reader, self.source, self.interval_s = smi_reader(), "nvidia-smi", max(self.interval_s, 0.5)
        if self.reader is None:
            self.source = "none"
            return self
        self._stop.clear()
        self._thread = threading.Thread(target=self._run, name="rungemm-clocks", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        assert self.reader is not None
        while True:
            try:
                state = self.reader()
                self.samples.append(state)
                self._times.append(time.monotonic())
            except Exception:  # a failed sample must not end a measurement; the count in the record shows it
                time.sleep(self.interval_s)
            if self._stop.wait(self.interval_s):
                return

    def clear(self) -> None:
        """Forget what was sampled so far: the warm-up, say. Sampling goes on."""
        self.samples.clear()
        self._times.clear()

    def record(self) -> dict[str, Any]:
        """Minimum, median and maximum of each quantity, the throttle reasons seen with their share of samples, and a
        trace: seconds since the first sample, MHz, watts and degrees, at most TRACE of each."""
        record: dict[str, Any] = {"source": self.source, "samples": len(self.samples)}
        if not self.samples:
            return record
        for name in ("sm_mhz", "watts", "celsius"):
            values = sorted(getattr(sample, name) for sample in self.samples)
            record[name] = {"min": values[0], "median": values[len(values) // 2], "max": values[-1]}
        seen: dict[str, float] = {}
        for sample in self.samples:
            for reason in decode_throttle(sample.throttle):
                seen[reason] = seen.get(reason, 0) + 1 / len(self.samples)
        record["throttle"] = {reason: round(share, 3) for reason, share in seen.items()}
        step = -(-len(self.samples) // TRACE)
        kept = list(zip(self._times, self.samples, strict=False))[::step]
        record["trace"] = {
            "seconds": [round(at - kept[0][0], 3) for at, _ in kept],
            "sm_mhz": [state.sm_mhz for _, state in kept],
            "watts": [round(state.watts, 1) for _, state in kept],
            "celsius": [state.celsius for _, state in kept],
        }
        return record
