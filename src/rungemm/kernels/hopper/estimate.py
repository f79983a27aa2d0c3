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

from typing import Any, NamedTuple

import numpy as np

from ..columns import choose, most
from ..common import cdiv

__all__ = ["ACTIVATION_CLOCKS", "Demand", "Work", "seconds"]

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


class Demand(NamedTuple):
    """What the model needs to know of a problem, one way round, on a card; arrays where it depends on the way round.

    Attributes:
        m, n, k: extents of D and steps along K (of a longer K for tf32x3).
        sms: of the card.
        element_bytes: of A and B.
        out_bytes: of D.
        flops_a_clock: dense, of one SM, in this arithmetic.
        dram_bytes: every operand read once, D written once.
        dram_rate: the card's, bytes a second.
        copy_seconds: of the copies before.
        a_in_registers: products wait for A's way through registers.
        sum_bytes: of D as fp32, once.
        activation_clocks: of one element of D.
    """

    m: Any
    n: Any
    k: Any
    sms: int
    element_bytes: int
    out_bytes: int
    flops_a_clock: float
    dram_bytes: int
    dram_rate: float
    copy_seconds: Any
    a_in_registers: Any
    sum_bytes: float
    activation_clocks: float = 0.0


class Work(NamedTuple):
    """What the model needs to know of a setting: numbers, or arrays with an element for each of many settings.

    Attributes:
        demand: what it needs to know besides.
        tile_m, tile_n, tile_k: the tile.
        tiles: of D.
        programs: in the grid.
        resident: programs that run at once, on all SMs.
        stages: of the ring.
        stream: left-over tiles are shared along K.
        turns: ping-pong.
        promote: K steps between additions outside the tensor cores; 0 for none.
        splits: runs of K steps into which every tile is cut.
    """

    demand: Demand
    tile_m: Any
    tile_n: Any
    tile_k: Any
    tiles: Any
    programs: Any
    resident: Any
    stages: Any
    stream: Any
    turns: Any
    promote: Any = 0
    splits: Any = 1


def product_seconds(work: Work) -> Any:
    """The products of one K step of one tile."""
    demand = work.demand
    products = 2 * work.tile_m * work.tile_n * work.tile_k / (demand.flops_a_clock * PRODUCTS)
    # wgmma reads 64 rows of A for every instruction: of a narrow tile that takes longer than the products.
    instructions = work.tile_m // 64 * (work.tile_k * demand.element_bytes // 32)
    products = most(products, instructions * (16 + work.tile_n / 4))
    if np.any(demand.a_in_registers):
        slower = choose(work.turns, FROM_REGISTERS_BY_TURNS, FROM_REGISTERS)
        products = products * choose(demand.a_in_registers, slower, 1.0)
    if np.any(work.promote):
        products = products * (1 + choose(work.promote > 0, 0.35 / most(work.promote, 1), 0.0))
    return products / CLOCK


def inside_share(work: Work) -> Any:
    """Share of the tiles' loaded rows that lie inside the matrices."""
    m, n, demand = work.tile_m, work.tile_n, work.demand
    rows, cols = most(cdiv(demand.m, m) * m, 1), most(cdiv(demand.n, n) * n, 1)
    return (demand.m / rows * m + demand.n / cols * n) / (m + n)


def step_seconds(work: Work) -> tuple[Any, Any]:
    """One K step of a program: how long it keeps an SM's tensor cores or loads busy, and the least by the ring's depth.

    A stage is filled again only when its products are done, so that of every stage but one a load's latency and the
    products pass between two steps; other programs of the SM do not wait meanwhile.
    """
    products, inside = product_seconds(work), inside_share(work)
    loads = (work.tile_m + work.tile_n) * work.tile_k * work.demand.element_bytes / (L2_BYTES_A_CLOCK * CLOCK)
    loads = loads * (inside + (1 - inside) * OUTSIDE)
    return most(most(products, loads), 64.0 / CLOCK), (LATENCY + products) / most(1, work.stages - 1)


def seconds(work: Work) -> Any:
    """The estimate, or the estimates."""
    demand = work.demand
    busy_step, least_step = step_seconds(work)

    def round_of(crowd: Any) -> Any:
        return _round_seconds(work, most(crowd * busy_step, least_step))

    # More programs than an SM holds run one after another; the last of them share the SMs with fewer.
    rounds, rest = divmod(work.programs, work.resident)
    busy = rounds * round_of(work.resident // demand.sms) if np.any(rounds) else 0.0
    busy = busy + choose(rest > 0, round_of(cdiv(rest, demand.sms)), 0.0)
    busy = busy + choose(work.turns & (work.tiles < 2 * work.programs), 0.3e-6, 0.0)
    reduction = REDUCTION + work.splits * demand.sum_bytes / PARTIAL_BYTES
    overhead = LAUNCH + demand.copy_seconds + choose(work.splits > 1, reduction, 0.0)
    dram = demand.dram_bytes / (DRAM_SHARE * demand.dram_rate)
    shared = choose(work.stream & (work.tiles * work.splits % work.programs > 0), SHARING, 0.0)
    # Where DRAM decides, the setting with less to do besides is still the better one.
    return overhead + most(busy, dram + FILL + STORE + shared) + 0.03 * busy


def _round_seconds(work: Work, step: Any) -> Any:
    """Of programs that run at once, with so many seconds a K step."""
    tile_bytes = work.tile_m * work.tile_n
    store = STORE + tile_bytes * (work.demand.out_bytes / 32 + work.demand.activation_clocks) / CLOCK
    all_steps = cdiv(work.demand.k, work.tile_k)
    steps = all_steps / work.splits
    each, left_over = divmod(work.tiles * work.splits, work.programs)
    shares = work.stream & (left_over > 0)
    tail = choose(shares, left_over * all_steps / work.programs, 0.0)
    parts = 1 + work.programs / most(left_over, 1)
    # The last of a tile's programs reads all parts, one after the other, 4 bytes an element.
    shared = choose(shares, tail * step * APART + SHARING + (parts + 1) * tile_bytes * 4 / (48 * CLOCK), 0.0)
    whole = each + (left_over > 0) * (1 - shares)
    tiles_in_a_row = whole + (shared > 0)
    hidden = choose(work.turns, most(0, tiles_in_a_row - 1), 0)
    return FILL + whole * steps * step + shared + (tiles_in_a_row - hidden) * store + (whole * steps + tail) * STEP
