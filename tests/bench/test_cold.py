from __future__ import annotations

import numpy as np
import pytest

from rungemm.bench.cold import Rotation, WarmCacheError, sets_needed

L2 = 60 << 20


@pytest.mark.parametrize("set_bytes", [1000, 1 << 20, L2 - 1, L2, 2 * L2, 2 * L2 + 1, 100 * L2])
def test_the_sets_needed_are_cold_and_one_fewer_is_not(set_bytes: int) -> None:
    needed = sets_needed(set_bytes, L2)
    assert needed >= 2
    for sets, cold in ((needed, True), (needed - 1, False)):
        rotation = Rotation(sets, set_bytes, L2)
        for _ in range(3 * sets):
            rotation.take()
        assert rotation.is_cold is cold, (sets, rotation.closest)


def test_a_warm_measurement_is_refused_or_labelled() -> None:
    rotation = Rotation(1, L2, L2)
    rotation.take()
    assert rotation.verdict() is True, "one use of anything is cold"
    rotation.take()
    with pytest.raises(WarmCacheError, match=r"rotate at least 3 sets \(there were 1\), or ask for --warm"):
        rotation.verdict()
    assert rotation.verdict(warm_allowed=True) is False
    assert rotation.record()["cold"] is False and rotation.record()["closest_reuse_bytes"] == 0


def test_closest_reuse_is_the_shortest_ever(rng: np.random.Generator) -> None:
    rotation, uses = Rotation(8, 10, 1), [int(x) for x in rng.integers(0, 8, 60)]
    for index in uses:
        rotation.use(index)
    distances = [
        10 * (here - max(j for j in range(here) if uses[j] == uses[here]) - 1)
        for here in range(len(uses))
        if uses[here] in uses[:here]
    ]
    assert rotation.closest == min(distances)


def test_a_turn_uses_every_set_once_and_starts_over() -> None:
    rotation = Rotation(5, 10, 1)
    rotation.turn()
    assert rotation.uses == 5 and rotation.closest is None and rotation.take() == 0
    assert rotation.closest == 40
