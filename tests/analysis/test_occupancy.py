"""The occupancy calculator against figures worked out by hand and against published examples."""

from __future__ import annotations

import pytest

from rungemm.analysis import occupancy
from rungemm.hardware import ZOO


def test_the_ladders_example():
    """LADDER.md: 1024 threads, 37 registers, 8 KiB on a 1536-thread SM of 65536 registers and 100 KiB."""
    found = occupancy(ZOO["a6000"], threads=1024, registers=37, shared_bytes=8192)
    assert (found.blocks, found.warps, found.max_warps) == (1, 32, 48)
    assert found.limiter == "threads"
    assert int(found.share * 100) == 66
    # 37 registers x 32 lanes = 1184, rounded to 1280 a warp; 51 warps' worth, 48 by quarters; one block of 32.
    assert found.limits["registers"] == 1
    # 8 KiB and the system's 1 KiB: 11 in 100 KiB.
    assert found.limits["shared memory"] == 11


def test_registers_are_rounded_to_256_a_warp():
    """33 registers are 1056 a warp, held as 1280: 12 warps a quarter, 48 an SM, so 12 blocks of 4 warps, not 15."""
    gpu = ZOO["h200"]
    assert occupancy(gpu, threads=128, registers=32, shared_bytes=0).limits["registers"] == 16
    assert occupancy(gpu, threads=128, registers=33, shared_bytes=0).limits["registers"] == 12
    assert occupancy(gpu, threads=128, registers=40, shared_bytes=0).limits["registers"] == 12


def test_a_warp_lives_on_one_quarter_of_the_sm():
    """255 registers are 8192 a warp: two warps a quarter, eight an SM. 80 are 2560: six a quarter, 24 an SM, where an
    undivided register file would hold 25.
    """
    found = occupancy(ZOO["h200"], threads=256, registers=255, shared_bytes=0)
    assert (found.blocks, found.limiter) == (1, "registers")
    assert occupancy(ZOO["h200"], threads=32, registers=80, shared_bytes=0).limits["registers"] == 24


@pytest.mark.parametrize(
    ("card", "shared_bytes", "blocks"),
    [
        ("h200", 227 * 1024, 1),
        ("h200", 113 * 1024, 2),  # 2 x (113 + 1) = 228 KiB, to the byte
        ("h200", 113 * 1024 + 1, 1),  # rounded up by 128: no room for the second
        ("a100-80", 81 * 1024, 2),
        ("rtx4090", 49 * 1024, 2),
        ("rtx4090", 99 * 1024, 1),
    ],
)
def test_shared_memory_with_the_systems_share(card, shared_bytes, blocks):
    found = occupancy(ZOO[card], threads=128, registers=32, shared_bytes=shared_bytes)
    assert (found.blocks, found.limiter) == (blocks, "shared memory")


def test_what_does_not_fit_has_no_block():
    assert occupancy(ZOO["rtx4090"], threads=128, registers=32, shared_bytes=100 * 1024).blocks == 0
    assert occupancy(ZOO["h200"], threads=128, registers=256, shared_bytes=0).blocks == 0
    assert occupancy(ZOO["h200"], threads=2048, registers=32, shared_bytes=0).blocks == 0
    assert occupancy(ZOO["h200"], threads=1024, registers=65, shared_bytes=0).blocks == 0


def test_the_block_limit():
    found = occupancy(ZOO["a6000"], threads=32, registers=16, shared_bytes=0)
    assert (found.blocks, found.limiter) == (16, "blocks")


@pytest.mark.parametrize("bad", [{"threads": 0}, {"registers": -1}, {"shared_bytes": -1}])
def test_nonsense_is_refused_by_name(bad):
    arguments = {"threads": 32, "registers": 32, "shared_bytes": 0} | bad
    with pytest.raises(ValueError, match=next(iter(bad))):
        occupancy(ZOO["h200"], **arguments)
