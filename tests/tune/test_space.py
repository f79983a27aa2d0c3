from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from rungemm.compiling import CompileError
from rungemm.hardware import ZOO
from rungemm.kernels import find_kernel
from rungemm.problem import Problem
from rungemm.tune.space import by_predicate, by_resources

H200 = ZOO["h200"]
PROBLEM = Problem.dense(256, 256, 64)
KERNEL = find_kernel("vectorised")
GOOD = KERNEL.default_config(PROBLEM, H200)


def compiled(registers: int = 100, spill: int = 0, shared: int = 8192, warps: int = 8) -> Any:
    return SimpleNamespace(registers=registers, spill_bytes=spill, shared_bytes=shared, num_warps=warps)


def test_the_predicate_splits_and_duplicates_count_once() -> None:
    bad = replace(GOOD, tile_m=48)
    space = by_predicate(KERNEL, PROBLEM, H200, [GOOD, bad, GOOD])
    assert [candidate.config for candidate in space.candidates] == [GOOD]
    (pruned,) = space.pruned
    assert pruned.config == bad and pruned.reason == KERNEL.supports(PROBLEM, bad, H200)


def test_resources_rule_out_with_reasons() -> None:
    configs = [replace(GOOD, group_m=group) for group in (1, 2, 4, 8)]
    space = by_predicate(KERNEL, PROBLEM, H200, configs)
    results = {
        1: (compiled(),),
        2: (compiled(spill=64),),
        4: CompileError("ptxas gave up"),
        8: (compiled(255, warps=32),),
    }

    def jobs(work: Any, workers: Any, on_done: Any) -> list[Any]:
        for index in range(len(work)):
            on_done(index, None)
        return [results[config.group_m] for config in configs]

    seen: list[tuple[int, int]] = []
    left = by_resources(space, H200, on_done=lambda done, total: seen.append((done, total)), compile_jobs=jobs)
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    (kept,) = left.candidates
    assert kept.config == configs[0] and (kept.registers, kept.blocks_per_sm) == (100, 2)
    reasons = {pruned.config.group_m: pruned.reason for pruned in left.pruned}  # type: ignore[attr-defined]
    assert "spills 64 bytes" in reasons[2] and "ptxas gave up" in reasons[4]
    assert "not one block fits" in reasons[8] and "registers" in reasons[8]


def test_where_all_spill_the_least_stays() -> None:
    configs = [replace(GOOD, group_m=group) for group in (1, 2)]
    space = by_predicate(KERNEL, PROBLEM, H200, configs)
    left = by_resources(space, H200, compile_jobs=lambda *_, **__: [(compiled(spill=64),), (compiled(spill=8),)])
    assert [candidate.config for candidate in left.candidates] == [configs[1]]


def test_really_compiled() -> None:
    left = by_resources(by_predicate(KERNEL, PROBLEM, H200, [GOOD]), H200, workers=1)
    (kept,) = left.candidates
    assert kept.registers and 32 <= kept.registers <= 255 and kept.shared_bytes and kept.blocks_per_sm
