"""How many blocks of a kernel fit on one SM at a time, and what stops the next one.

The rules are the CUDA C++ Programming Guide's ("Hardware Implementation", "Compute Capabilities": the limits of an
SM) with the allocation units that CUDA's own calculator, ``cuda_occupancy.h``, uses: registers are handed out to a
warp in multiples of 256 from the quarter of the SM it runs on, shared memory to a block in multiples of 128 bytes
after 1 KiB that the system keeps for itself (compute capability 8.0 and up).
"""

from __future__ import annotations

from dataclasses import dataclass

from ..hardware import Gpu

__all__ = ["Occupancy", "occupancy"]

SHARED_UNIT = 128
"""Bytes: shared memory is handed out in multiples of this (``cuda_occupancy.h``, compute capability 8.x and 9.0)."""

SUB_PARTITIONS = 4
"""An SM's four schedulers own a quarter of the registers each, and a warp lives on one of them."""


@dataclass(frozen=True)
class Occupancy:
    """What an SM holds of one kernel.

    Attributes:
        blocks: blocks resident at once; 0 when not even one fits.
        warps: resident warps, ``blocks`` times the warps of a block.
        max_warps: warps that the SM could hold.
        limits: blocks allowed by each resource: "threads", "blocks", "registers", "shared memory".
        limiter: the resource that allows the fewest, the first of the order above when several do.
    """

    blocks: int
    warps: int
    max_warps: int
    limits: dict[str, int]
    limiter: str

    @property
    def share(self) -> float:
        """Resident warps over those the SM could hold, 0 to 1."""
        return self.warps / self.max_warps

    def __str__(self) -> str:
        blocks = f"{self.blocks} block{'s' if self.blocks != 1 else ''}"
        return f"{blocks} an SM, {self.warps} of {self.max_warps} warps ({self.share:.0%}), held by {self.limiter}"


def occupancy(gpu: Gpu, *, threads: int, registers: int, shared_bytes: int) -> Occupancy:
    """The occupancy of a kernel with ``threads`` a block, ``registers`` a thread and ``shared_bytes`` a block.

    Args:
        threads: threads of a block, all its partitions together.
        registers: 32-bit registers of a thread as ptxas reports them; 0 when unknown sets no limit.
        shared_bytes: static and dynamic shared memory of a block, bytes, without the system's own.

    Raises:
        ValueError: a count that is negative, or no thread at all.
    """
    for name, value, least in (("threads", threads, 1), ("registers", registers, 0), ("shared_bytes", shared_bytes, 0)):
        if value < least:
            raise ValueError(f"{name} is {value}: it must be {least} or more")
    warps = -(-threads // gpu.warp_size)
    limits = {
        "threads": gpu.max_warps_per_sm // warps if threads <= gpu.max_threads_per_block else 0,
        "blocks": gpu.max_blocks_per_sm,
        "registers": _blocks_by_registers(gpu, warps, registers),
        "shared memory": _blocks_by_shared(gpu, shared_bytes),
    }
    limiter = min(limits, key=limits.__getitem__)
    blocks = limits[limiter]
    return Occupancy(blocks, blocks * warps, gpu.max_warps_per_sm, limits, limiter)


def _blocks_by_registers(gpu: Gpu, warps: int, registers: int) -> int:
    if registers == 0:
        return gpu.max_blocks_per_sm
    if registers > gpu.max_registers_per_thread:
        return 0
    per_warp = _round_up(registers * gpu.warp_size, gpu.register_unit)
    resident = gpu.registers_per_sm // SUB_PARTITIONS // per_warp * SUB_PARTITIONS
    return resident // warps


def _blocks_by_shared(gpu: Gpu, shared_bytes: int) -> int:
    if shared_bytes > gpu.shared_per_block:
        return 0
    taken = _round_up(shared_bytes + gpu.shared_reserved, SHARED_UNIT)
    return gpu.shared_per_sm // taken


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
