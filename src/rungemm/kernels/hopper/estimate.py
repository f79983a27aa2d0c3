"""How long a setting of the Hopper champion should take: a small model, to rank settings before any is timed.

    time = launch + copies + max(DRAM, work of the busiest SM)

An SM's work is a number of K steps, each as long as the slower of its products and its loads, or as the ring's depth
lets a load's latency be hidden, and for every tile the filling of the ring and an epilogue that nothing hides (but
ping-pong hides all but the last). The constants are fitted to 124 problems and 479 settings timed on an H200
(``tools/tuned_hopper.py --fit``): the setting that the model ranks first takes 1.004 times the best one's time in the
geometric mean, and its seconds are 8.5% off in the root mean square; on problems that a fit has not seen 1.006 times
and 9.2%. Without the ring's depth it was 1.023 times and 11%.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ACTIVATION_CLOCKS", "Work", "seconds"]

CLOCK = 1.71e9
"""Hz, under the power that tensor cores draw."""
PRODUCTS = 0.88
"""The share of the tensor cores' rate that a full pipeline reaches."""
L2_BYTES_A_CLOCK = 87
"""What an SM loads from L2, bytes a clock."""
OUTSIDE = 3.9
"""What a row outside the matrix, which TMA fills with zeros, takes of a loaded row's time."""
DRAM_SHARE = 0.86
"""The share of the datasheet's bandwidth that reading gets."""
LAUNCH = 1.9e-6
FILL = 0.15e-6
"""From the first load of a program to its first product."""
STEP = 33e-9
"""Of a K step, besides its bytes and products: the loader's and the multipliers' barriers."""
STORE = 1.22e-6
"""From a tile's last product to its last store, besides the bytes."""
SHARING = 3.9e-6
"""Of a tile that several programs share: leaving a part, counting, reading the others' parts."""
APART = 1.7
"""Programs that share tiles along K read different parts of A and B at one time: L2 hits less."""
LATENCY = 0.87e-6
"""From a free stage of the ring to its products' operands, loads under way in other stages or not."""
REDUCTION = 2.7e-6
"""A second launch that adds up the splits, besides its bytes."""
PARTIAL_BYTES = 3e12
"""Bytes a second at which it reads them, from L2."""
FROM_REGISTERS = 1.035
FROM_REGISTERS_BY_TURNS = 1.45
"""A through registers: how much longer the products take; by turns nobody hides the reading."""
ACTIVATION_CLOCKS = {
    "none": 0.0, "relu": 0.03, "silu": 0.15, "gelu_tanh": 0.17, "gelu": 0.25, "gelu_to_bf16": 0.13,
    "gelu_to_fp16": 0.16,
}  # fmt: skip
"""What an activation takes an SM, clocks an element of D: its instructions (2, 5, 8, 19, 10 and 12) at six tenths of
the issue rate, or its use of the special function unit's 16 a clock (2 of all but relu's, 1 into 16 bits). Counted in
SASS, not measured."""


@dataclass(frozen=True)
class Work:
    """What the model needs to know of a problem and a setting.

    Attributes:
        tile_m, tile_n, tile_k: the tile.
        tiles: of D.
        steps: along K.
        programs: in the grid.
        resident: programs that run at once, on all ``sms``.
        stages: of the ring.
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
        splits: runs of K steps into which every tile is cut.
        inside: share of the tiles' loaded rows that lie inside the matrices.
        sum_bytes: of D as fp32, once.
        activation_clocks: of one element of D.
    """

    tile_m: int
    tile_n: int
    tile_k: int
    tiles: int
    steps: int
    programs: int
    resident: int
    stages: int
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
    splits: int
    inside: float
    sum_bytes: int
    activation_clocks: float = 0.0


def product_seconds(work: Work) -> float:
    """The products of one K step of one tile."""
    products = 2 * work.tile_m * work.tile_n * work.tile_k / (work.flops_a_clock * PRODUCTS)
    # wgmma reads 64 rows of A for every instruction: of a narrow tile that takes longer than the products.
    instructions = work.tile_m // 64 * (work.tile_k * work.element_bytes // 32)
    products = max(products, instructions * (16 + work.tile_n / 4))
    if work.a_in_registers:
        products *= FROM_REGISTERS_BY_TURNS if work.turns else FROM_REGISTERS
    if work.promote:
        products *= 1 + 0.35 / work.promote
    return products / CLOCK


def step_seconds(work: Work, crowd: int) -> float:
    """One K step of each of ``crowd`` programs that share an SM: by its products, its loads, or the ring's depth.

    A stage is filled again only when its products are done, so that of every stage but one a load's latency and the
    products pass between two steps; other programs of the SM do not wait meanwhile.
    """
    products = product_seconds(work)
    loads = (work.tile_m + work.tile_n) * work.tile_k * work.element_bytes / (L2_BYTES_A_CLOCK * CLOCK)
    loads *= work.inside + (1 - work.inside) * OUTSIDE
    ring = (LATENCY + products) / max(1, work.stages - 1)
    return max(crowd * max(products, loads, 64.0 / CLOCK), ring)


def seconds(work: Work) -> float:
    """The estimate."""
    # More programs than an SM holds run one after another; the last of them share the SMs with fewer.
    rounds, rest = divmod(work.programs, work.resident)
    busy = rounds * _round_seconds(work, work.resident // work.sms)
    if rest:
        busy += _round_seconds(work, -(-rest // work.sms))
    if work.turns and work.tiles < 2 * work.programs:
        busy += 0.3e-6
    overhead = LAUNCH + work.copy_seconds
    if work.splits > 1:
        overhead += REDUCTION + work.splits * work.sum_bytes / PARTIAL_BYTES
    dram = work.dram_bytes / (DRAM_SHARE * work.dram_rate)
    shared = SHARING if work.stream and work.tiles * work.splits % work.programs else 0.0
    # Where DRAM decides, the setting with less to do besides is still the better one.
    return overhead + max(busy, dram + FILL + STORE + shared) + 0.03 * busy


def _round_seconds(work: Work, crowd: int) -> float:
    """Of programs that run at once, ``crowd`` of them on the fullest SM."""
    step = step_seconds(work, crowd)
    tile_bytes = work.tile_m * work.tile_n
    store = STORE + tile_bytes * (work.out_bytes / 32 + work.activation_clocks) / CLOCK
    pieces, steps = work.tiles * work.splits, work.steps / work.splits
    each, left_over = divmod(pieces, work.programs)
    shared = tail = 0.0
    if work.stream and left_over:
        most = each
        tail = left_over * work.steps / work.programs
        parts = 1 + work.programs / left_over
        # The last of a tile's programs reads all parts, one after the other, 4 bytes an element.
        shared = tail * step * APART + SHARING + (parts + 1) * tile_bytes * 4 / (48 * CLOCK)
    else:
        most = each + (left_over > 0)
    tiles_in_a_row = most + (shared > 0)
    hidden = max(0, tiles_in_a_row - 1) if work.turns else 0
    return FILL + most * steps * step + shared + (tiles_in_a_row - hidden) * store + (most * steps + tail) * STEP
