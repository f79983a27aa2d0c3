"""The choice among ways, on a device whose time is what the ways say they take."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from rungemm.bench.choosing import HOPELESS, seconds_of  # noqa: E402
from rungemm.bench.cold import sets_needed  # noqa: E402
from rungemm.bench.data import set_bytes  # noqa: E402
from rungemm.bench.device import HostDevice  # noqa: E402
from rungemm.problem import Problem  # noqa: E402

from .fake import FakeClock  # noqa: E402

PROBLEM = Problem.dense(20, 24, 16)
L2 = 1 << 13
HOST = 60e-6
"""What a launch outside a graph costs on the pretended device, whatever is launched."""


class Bench:
    """Ways that take what they are told to, and a device on which plain launches of short ones all look alike."""

    def __init__(self, captures: bool = True) -> None:
        self.clock = FakeClock()
        self.runs: Counter[tuple[int, int]] = Counter()
        self.graphs = 0
        bench = self

        class Device(HostDevice):
            def capture(self, launch: Callable[[int], None], sets: int, turns: int = 1) -> Callable[[], None]:
                if not captures:
                    raise RuntimeError("nothing can be captured")
                replay = super().capture(launch, sets, turns)

                def gapless() -> None:
                    bench.graphs += 1
                    replay()
                    bench.graphs -= 1

                return gapless

        self.device = Device(L2, clock=self.clock)

    def way(self, place: int, seconds: float, noise: float = 0.0, rng: np.random.Generator | None = None) -> Any:
        def bind(operands: dict[str, Any]) -> Callable[[], None]:
            assert operands["A"].shape == (20, 16) and operands["D"].shape == (20, 24)
            key = operands["A"].data_ptr()

            def call() -> None:
                self.runs[place, key] += 1
                jitter = math.exp(noise * rng.standard_normal()) if rng is not None else 1.0
                self.clock.time += seconds * jitter if self.graphs else max(seconds, HOST)

            return call

        return bind

    def sets_of(self, place: int) -> int:
        return len({key for who, key in self.runs if who == place})


def test_short_ways_that_the_host_makes_alike_are_told_apart(rng: np.random.Generator) -> None:
    bench, fastest = Bench(), int(rng.integers(12))
    taken = [4e-6 if place == fastest else float(rng.uniform(4.4e-6, 12e-6)) for place in range(12)]
    ways = [bench.way(place, seconds, 0.02, rng) for place, seconds in enumerate(taken)]
    found = seconds_of(ways, PROBLEM, device=bench.device)
    assert found.index(min(found)) == fastest
    assert found[fastest] == pytest.approx(4e-6, rel=0.05)
    # Each went round all the sets that cold needs.
    assert {bench.sets_of(place) for place in range(12)} == {sets_needed(set_bytes(PROBLEM), L2)}


def test_what_cannot_be_captured_is_launched_and_pays_for_it() -> None:
    bench = Bench(captures=False)
    found = seconds_of([bench.way(0, 4e-6), bench.way(1, 90e-6)], PROBLEM, device=bench.device)
    assert found == pytest.approx([HOST, 90e-6])


def test_one_that_raises_is_out_and_so_is_one_far_off() -> None:
    bench = Bench()

    def broken(operands: dict[str, Any]) -> Callable[[], None]:
        raise ValueError("no such tile")

    slow = 1.5e-3 * (HOPELESS + 0.1)
    ways = [broken, bench.way(1, 1.5e-3), bench.way(2, slow), bench.way(3, 2e-3)]
    found = seconds_of(ways, PROBLEM, device=bench.device)
    assert found == [math.inf, pytest.approx(1.5e-3), math.inf, pytest.approx(2e-3)]
    assert seconds_of([broken], PROBLEM, device=bench.device) == [math.inf]


def test_only_finalists_are_timed_at_length() -> None:
    bench = Bench()
    ways = [bench.way(place, (3 + place) * 1e-4) for place in range(4)]
    found = seconds_of(ways, PROBLEM, device=bench.device, finalists=2)
    assert found == sorted(found) and found[2] >= found[1]
    runs = [sum(n for (who, _), n in bench.runs.items() if who == place) for place in range(4)]
    assert min(runs[:2]) > 2 * max(runs[2:])
