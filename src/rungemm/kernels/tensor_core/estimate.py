"""How long a setting of the mma.sync champion should take: a roofline in waves, to rank settings before any is timed.

    time = launch + copies + max(DRAM, busiest SM) + second launch

An SM works on several blocks at once. What its parts can do in a clock bounds all of them together
(:func:`step_clocks`: tensor cores, shared memory, loads from L2, instructions issued, integer units); what one block
waits for bounds each of them, whatever the others do. A product takes the longer of the two, and for every round of
blocks the filling of the ring and an epilogue.

The figures of an SM are from the architecture whitepapers (the tensor rate by :mod:`rungemm.hardware`, 128 bytes of
shared memory and 4 instructions a clock, integers at half rate). That its parts hide each other only in part, the root
of the sum of squares of their clocks, and :data:`MEASURED` fit what five settings of mma_multistage (fp16, 274 to 424
TFLOPS) measured at 4096^3 on an H200. Nothing was timed on sm_80, 86 or 89.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..columns import choose, least, most
from ..common import cdiv

__all__ = ["Work", "seconds", "step_clocks"]

SYNC_SHARE = {90: 0.62}
"""Of the peak, what mma.sync can reach where wgmma sets the peak."""
MEASURED = 1.07
"""Clocks measured for one of the model."""
SHARED_BYTES_A_CLOCK = 128
L2_BYTES_A_CLOCK = {80: 48, 86: 32, 89: 40, 90: 64}
"""What an SM loads from L2, bytes a clock."""
DRAM_SHARE = 0.9
ISSUED_A_CLOCK = 4
INTEGER_A_CLOCK = 2
"""Warp instructions that an SM issues in a clock, and those of its integer units."""
NUDGES, INTEGER_NUDGES = {1: 2, 3: 5}, {1: 1, 3: 4}
"""Instructions on an fp32 element of a fragment, for one or three products, and those of them for the integer units."""
NARROW = 6
"""Instructions for a vector that goes through registers; one that cp.async moves takes half as many."""
STEP_WAIT = 60
"""Clocks of a K step in which a block alone on an SM does nothing: the barrier, the first fragments."""
FILL = 1.0e-6
STORE = 0.8e-6
LAUNCH = 3e-6
REDUCTION = 2.5e-6
"""A second launch, besides its bytes."""


class Work(NamedTuple):
    """What the model needs to know of a problem and a setting: numbers, or arrays with an element for each of many.

    Attributes:
        arch, sms: of the card; hertz: its clock; flops_a_clock: dense, of one SM, in this arithmetic.
        tile_m, tile_n, tile_k, warps_m, warps_n: the tile and its warps.
        blocks: of all tiles and splits; resident: blocks that an SM holds at once; steps: of one block.
        element_bytes, out_bytes: of A and B, and of D.
        products: 1, or 3 for tf32x3.
        vector_bytes: of A's and of B's vectors.
        dram_bytes, dram_rate: every operand read once and D written once, and what the card moves, bytes a second.
        copy_seconds: of the copies before.
        sum_bytes: of the partial sums, written once; 0 without splits.
    """

    arch: int
    sms: int
    hertz: float
    flops_a_clock: float
    tile_m: Any
    tile_n: Any
    tile_k: Any
    warps_m: Any
    warps_n: Any
    blocks: Any
    resident: Any
    steps: Any
    element_bytes: int
    out_bytes: int
    products: int
    vector_bytes: tuple[Any, Any]
    dram_bytes: int
    dram_rate: float
    copy_seconds: Any
    sum_bytes: Any


def step_clocks(work: Work) -> Any:
    """Clocks of an SM for one K step of one block, if nothing waits."""
    m, n, k = work.tile_m, work.tile_n, work.tile_k
    tensor = 2 * m * n * k * work.products / (work.flops_a_clock * SYNC_SHARE.get(work.arch, 1.0))
    # Every warp reads its own rows of A and columns of B: the tile of A as often as there are warps across.
    read = (m * work.warps_n + n * work.warps_m) * k
    shared = (read + (m + n) * k) * work.element_bytes / SHARED_BYTES_A_CLOCK
    loads = (m + n) * k * work.element_bytes / L2_BYTES_A_CLOCK.get(work.arch, 64)
    issued = read * work.element_bytes / 512 + m * n * k * work.products / (16 * 8 * (32 // work.element_bytes))
    integer: Any = 0.0
    if work.element_bytes == 4:
        issued = issued + read * NUDGES[work.products] / 32
        integer = integer + read * INTEGER_NUDGES[work.products] / 32
    for side, wide in zip((m, n), work.vector_bytes, strict=True):
        vectors = side * k * work.element_bytes / wide / 32 * NARROW / choose(wide < 4, 1, 2)
        issued, integer = issued + vectors, integer + vectors
    squares = tensor * tensor + shared * shared + loads * loads
    squares = squares + (issued / ISSUED_A_CLOCK) ** 2 + (integer / INTEGER_A_CLOCK) ** 2
    return MEASURED * np.sqrt(squares)


def seconds(work: Work) -> Any:
    """The estimate, or the estimates."""
    step = step_clocks(work)
    busiest = cdiv(work.blocks, work.sms)
    rounds = cdiv(busiest, work.resident)
    throughput = busiest * work.steps * step
    alone = rounds * work.steps * (step + STEP_WAIT)
    tile_bytes = work.tile_m * work.tile_n * choose(work.sum_bytes > 0, 4, work.out_bytes)
    # A block's first loads and its stores are hidden by the other blocks on its SM, if there are any.
    apart = rounds * (FILL + STORE) / least(work.resident, busiest) + busiest * tile_bytes / (32 * work.hertz)
    busy = most(throughput, alone) / work.hertz + apart
    dram = (work.dram_bytes + 2 * work.sum_bytes) / (DRAM_SHARE * work.dram_rate)
    overhead = LAUNCH + work.copy_seconds + choose(work.sum_bytes > 0, REDUCTION, 0.0)
    # Where DRAM decides, the setting with less to do besides is still the better one.
    return overhead + most(busy, dram + FILL + STORE) + 0.03 * busy
