from __future__ import annotations

import numpy as np
import pytest

from rungemm.analysis import time_budget
from rungemm.analysis.budget import LAUNCH_S
from rungemm.dtypes import BF16
from rungemm.hardware import ZOO
from rungemm.problem import Problem

H200 = ZOO["h200"]


def parts(*arguments, **options) -> dict[str, float]:
    return {part.what: part.seconds for part in time_budget(*arguments, **options)}


def test_the_parts_add_up_to_the_time(rng: np.random.Generator) -> None:
    for _ in range(50):
        m, n, k = (int(x) for x in rng.integers(1, 3000, 3))
        seconds = float(10 ** rng.uniform(-6, -2))
        tile = (int(2 ** rng.integers(4, 9)), int(2 ** rng.integers(4, 9)))
        found = time_budget(
            seconds, Problem.dense(m, n, k), H200, tile=tile, wave_efficiency=float(rng.uniform(0.1, 1)),
            launches=int(rng.integers(1, 4)), scratch_bytes=int(rng.integers(0, 1 << 24)),
        )  # fmt: skip
        assert sum(part.seconds for part in found) == pytest.approx(seconds)
        assert all(part.seconds > 0 for part in found)


def test_a_full_grid_at_the_peak_is_all_arithmetic() -> None:
    problem = Problem.dense(4096, 4096, 4096)
    least = problem.flops / (H200.peaks["fp32"] * 1e12)
    assert parts(least, problem, H200, tile=(128, 128)) == {"multiply-adds at the card's peak": pytest.approx(least)}


def test_tile_edges_and_the_last_wave_by_hand() -> None:
    # 65 rows in tiles of 64: 128 are computed, so as much again is wasted, less one row in each.
    problem = Problem.dense(65, 64, 100_000)
    least = problem.flops / (H200.peaks["fp32"] * 1e12)
    found = parts(10 * least, problem, H200, tile=(64, 64), wave_efficiency=0.5)
    assert found["tiles' parts outside C"] == pytest.approx(least * (128 / 65 - 1))
    assert found["slots idle in the last wave"] == pytest.approx(least * 128 / 65)
    assert found["the kernel's other instructions, waits and start"] == pytest.approx(least * (10 - 2 * 128 / 65))


def test_a_memory_bound_product_is_told_in_bytes() -> None:
    problem = Problem.dense(16, 4096, 4096, dtype=BF16)
    found = parts(20e-6, problem, H200, tile=(64, 64), wave_efficiency=0.4, launches=2, scratch_bytes=4_800_000)
    reading = problem.minimum_bytes / 4.8e12
    assert found["reading A and B and writing D once, at DRAM's rate"] == pytest.approx(reading)
    assert found["further launches"] == LAUNCH_S
    assert found["partial sums and copies through memory"] == pytest.approx(2e-6)
    assert "slots idle in the last wave" not in found


def test_three_tf32_products_are_three_times_the_work() -> None:
    one, three = (Problem.dense(4096, 4096, 4096, precision=precision) for precision in ("tf32", "tf32x3"))
    key = "multiply-adds at the card's peak"
    assert parts(1.0, three, H200)[key] == pytest.approx(3 * parts(1.0, one, H200)[key])


@pytest.mark.parametrize(
    ("bad", "words"),
    [({"seconds": 0.0}, "time is 0.0"), ({"wave_efficiency": 1.5}, "efficiency is 1.5"), ({"launches": 0}, "launches")],
)
def test_nonsense_is_refused(bad: dict[str, float], words: str) -> None:
    arguments = {"seconds": 1e-3, "problem": Problem.dense(64, 64, 64), "gpu": H200} | bad
    with pytest.raises(ValueError, match=words):
        time_budget(**arguments)  # type: ignore[arg-type]
