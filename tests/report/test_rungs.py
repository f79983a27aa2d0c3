"""The figures of the rungs: counted traffic against the formulas, and which rungs one tile can stand for."""

from __future__ import annotations

from pathlib import Path

import pytest

from rungemm.hardware import ZOO
from rungemm.kernels import find_kernel
from rungemm.report import rungs
from rungemm.report.rungs import load_rungs, posed_rungs, stands_for_all, write_rungs

H200 = ZOO["h200"]


def test_counted_loads_are_those_of_the_formulas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = [find_kernel(name) for name in ("coalesced", "shared_tile", "thread_tile_1d")]
    monkeypatch.setattr(rungs, "LADDER", named)
    path, failures = write_rungs(tmp_path, H200)
    assert path == tmp_path / "rungs.json" and not failures
    rows = {row["kernel"]: row for row in load_rungs(tmp_path)}
    assert list(rows) == [kernel.name for kernel in named]
    k = 4096  # LADDER.md: 2K, K/16 and K/32 global loads for one element of C
    assert [row["counts"]["loads_per_c"] for row in rows.values()] == [2 * k, k / 16, k / 32]
    tile = rows["shared_tile"]
    assert tile["counts"]["sector_bytes_per_c"] == 4 * (k / 16 + 1)
    assert tile["bounds"]["counted_intensity"] == pytest.approx(2 * k / (4 * (k / 16 + 1)))
    assert tile["resources"]["blocks_per_sm"] == 2 and tile["resources"]["programs"] == 128 * 128


def test_one_tile_stands_for_all_but_those_of_stream_k() -> None:
    alone = {item.kernel.name for item in posed_rungs(H200) if not stands_for_all(item, H200)}
    assert "stream_k" in alone
    assert not alone & {"naive", "split_k", "persistent", "ping_pong", "mma_multistage"}


def test_no_file_is_no_figures(tmp_path: Path) -> None:
    assert load_rungs(tmp_path) == []
