"""How long a setting of the Hopper champion should take: a small model, to rank settings before any is timed.

    time = launch + copies + max(DRAM, work of the busiest SM)

An SM's work is a number of K steps, each as long as the slower of its products and its loads, and for every tile the
filling of the ring and an epilogue that nothing hides (but ping-pong hides all but the last). The constants are of an
H200 (benchmarks/champion_hopper.py); only their ratios matter for a ranking.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Work", "seconds"]

CLOCK = 1.55e9
"""Hz, under the power that tensor cores draw."""
PRODUCTS = 0.92
"""The share of the tensor cores' rate that a full pipeline reaches."""
L2_BYTES_A_CLOCK = 64
"""What an SM loads from L2, bytes a clock."""
DRAM_SHARE = 0.85
"""The share of the datasheet's bandwidth that reading gets."""
LAUNCH = 2.5e-6
FILL = 1.2e-6
"""From the first load of a program to its first product."""
STORE = 0.8e-6
"""From a tile's last product to its last store, besides the bytes."""
SHARING = 2.0e-6
"""Of a tile that several programs share: leaving a part, counting, reading the others' parts."""
APART = 1.6
"""Programs that share tiles along K read different parts of A and B at one time: L2 hits less."""


@dataclass(frozen=True)
class Work:
    """What the model needs to know of a problem and a setting.

    Attributes:
        tile_m, tile_n, tile_k: the tile.
        tiles: of D.
        steps: along K.
        programs: in the grid.
        resident: programs that run at once, on all ``sms``.
        sms: of the card.
        element_bytes: of A and B.
        out_bytes: of D.
        flops_a_clock: dense, of one SM, in this arithmetic.
        dram_bytes: every operand read once, D written once.
        dram_rate: the card's, bytes a second.
        copy_seconds: of the copies before.
        stream: left-over tiles are shared along K.
        turns: ping-pong.
        a_in_registers: products wait for A's way through registers.
        promote: K steps between additions outside the tensor cores; 0 for none.
    """

    tile_m: int
    tile_n: int
    tile_k: int
    tiles: int
    steps: int
    programs: int
    resident: int
    sms: int
    element_bytes: int
    out_bytes: int
    flops_a_clock: float
    dram_bytes: int
    dram_rate: float
    copy_seconds: float
    stream: bool
    turns: bool
    a_in_registers: bool
    promote: int


def step_seconds(work: Work) -> float:
    """One K step of one tile on an SM of its own."""
    products = 2 * work.tile_m * work.tile_n * work.tile_k / (work.flops_a_clock * PRODUCTS)
    # wgmma reads 64 rows of A for every instruction: of a narrow tile that takes longer than the products.
    instructions = work.tile_m // 64 * (work.tile_k * work.element_bytes // 32)
    products = max(products, instructions * (16 + work.tile_n / 4))
    if work.a_in_registers:
        products *= 1.1
    if work.promote:
        products *= 1 + 0.35 / work.promote
    loads = (work.tile_m + work.tile_n) * work.tile_k * work.element_bytes / L2_BYTES_A_CLOCK
    return max(products, loads, 64.0) / CLOCK


def seconds(work: Work) -> float:
    """The estimate."""
    step = step_seconds(work)
    tile_bytes = work.tile_m * work.tile_n
    store = STORE + tile_bytes * work.out_bytes / (32 * CLOCK)
    each = work.tiles // work.programs
    left_over = work.tiles % work.programs
    shared = 0.0
    if work.stream and left_over:
        most = work.tiles // work.programs
        tail = left_over * work.steps / work.programs
        parts = 1 + work.programs / left_over
        # The last of a tile's programs reads all parts, one after the other, 4 bytes an element.
        shared = tail * step * APART + SHARING + (parts + 1) * tile_bytes * 4 / (48 * CLOCK)
    else:
        most = each + (left_over > 0)
    tiles_in_a_row = most + (shared > 0)
    hidden = max(0, tiles_in_a_row - 1) if work.turns else 0
    busy = most * work.steps * step + shared + FILL + (tiles_in_a_row - hidden) * store
    # More programs than SMs share the SMs; their stores and fills overlap.
    rounds = max(1.0, work.programs / work.resident)
    crowd = max(1.0, min(work.programs, work.resident) / work.sms)
    busy = rounds * (busy + (crowd - 1) * most * work.steps * step)
    if work.turns and work.tiles < 2 * work.programs:
        busy += 0.3e-6
    dram = work.dram_bytes / (DRAM_SHARE * work.dram_rate)
    # Where DRAM decides, the setting with less to do besides is still the better one.
    return LAUNCH + work.copy_seconds + max(busy, dram + FILL + STORE + (SHARING if shared else 0.0)) + 0.03 * busy
