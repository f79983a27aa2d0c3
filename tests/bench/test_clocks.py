from __future__ import annotations

import threading

from rungemm.bench.clocks import CardState, ClockLog, decode_throttle


def test_throttle_names() -> None:
    assert decode_throttle(0) == []
    assert decode_throttle(0x4 | 0x40) == ["software power cap", "hardware thermal"]


def test_samples_while_the_block_runs_and_summarises() -> None:
    enough, count = threading.Event(), iter(range(10**6))

    def read() -> CardState:
        number = next(count)
        if number == 5:
            raise OSError("one bad sample must not end the log")
        if number >= 10:
            enough.set()
        return CardState(1980 - number, 600.0 + number, 50, 0x4 if number < 3 else 0)

    with ClockLog(read, interval_s=0.001) as log:
        assert enough.wait(20)
    record, kept = log.record(), len(log.samples)
    assert record["source"] == "given" and record["samples"] == kept >= 10
    assert record["sm_mhz"]["max"] == 1980 and record["watts"]["min"] == 600.0
    assert record["throttle"] == {"software power cap": round(3 / kept, 3)}
    assert threading.active_count() >= 1 and log._thread is None


def test_without_any_reader_the_record_says_so(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr("rungemm.bench.clocks.nvml_reader", lambda: None)
    monkeypatch.setattr("rungemm.bench.clocks.smi_reader", lambda: None)
    with ClockLog() as log:
        pass
    assert log.record() == {"source": "none", "samples": 0}
