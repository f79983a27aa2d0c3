from __future__ import annotations

import threading

from rungemm.bench.clocks import TRACE, CardState, ClockLog, decode_throttle


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
    trace = record["trace"]
    assert trace["sm_mhz"][:5] == [1980, 1979, 1978, 1977, 1976] and trace["watts"][0] == 600.0
    assert trace["seconds"][0] == 0 and trace["seconds"] == sorted(trace["seconds"])
    assert {len(values) for values in trace.values()} == {len(trace["seconds"])}


def test_a_long_trace_is_thinned_and_the_warm_up_forgotten() -> None:
    log = ClockLog()
    for number in range(1000):
        log.samples.append(CardState(number, float(number), 50, 0))
        log._times.append(0.02 * number)
    trace = log.record()["trace"]
    assert len(trace["sm_mhz"]) <= TRACE and trace["sm_mhz"][:3] == [0, 9, 18] and trace["seconds"][1] == 0.18
    log.clear()
    assert log.record() == {"source": "given", "samples": 0}


def test_without_any_reader_the_record_says_so(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr("rungemm.bench.clocks.nvml_reader", lambda: None)
    monkeypatch.setattr("rungemm.bench.clocks.smi_reader", lambda: None)
    with ClockLog() as log:
        pass
    assert log.record() == {"source": "none", "samples": 0}
