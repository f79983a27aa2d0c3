"""What is known of one rung after it was climbed: plain numbers, the same for people and for JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["Bounds", "Counts", "Record", "Resources", "Speed"]


@dataclass(frozen=True)
class Resources:
    """What the compiled kernel takes and what of it fits on an SM, for the card that was asked about.

    Attributes:
        card: name of the card in the zoo.
        registers: 32-bit registers of a thread.
        spill_bytes: bytes of register spills in the code, stores and loads together.
        shared_bytes: shared memory of a block, bytes, without the system's own.
        threads: threads of a block.
        blocks_per_sm, warps_per_sm, max_warps_per_sm: resident at once, and how many could be.
        occupancy: resident warps over possible ones.
        limiter: the resource that allows no further block.
        launches: kernel launches of the plan; the figures are those of the one whose blocks take most.
        programs: blocks of the grid.
        waves: rounds of blocks over the card, whole; ``wave_efficiency`` is the share of block slots that work.
    """

    card: str
    registers: int
    spill_bytes: int
    shared_bytes: int
    threads: int
    blocks_per_sm: int
    warps_per_sm: int
    max_warps_per_sm: int
    occupancy: float
    limiter: str
    launches: int
    programs: int
    waves: int
    wave_efficiency: float


@dataclass(frozen=True)
class Counts:
    """What the simulator counted. Totals are of the part named by ``counted_on``; ``..._per_c`` divide by its elements.

    Attributes:
        counted_on: "the whole problem", or the full tile that stands for every other one, as MxNxK.
        elements: elements of C in that part.
        global_load_requests, global_store_requests: warp instructions (cp.async among the loads).
        global_load_sectors, global_store_sectors: 32-byte sectors that they touched.
        shared_wavefronts: passes of the shared memory's 32 banks.
        bank_conflicts: those of them that a conflict-free access would not have needed.
        fmas: multiply-adds of single threads.
        loads_per_c: global element loads of single threads for one element of C, before any cache.
        shared_loads_per_c: shared-memory element loads of single threads for one element of C.
        sector_bytes_per_c: bytes of the global sectors, loads and stores, and of TMA copies, for one element of C.
        wavefronts_per_c, conflicts_per_c: of shared memory, for one element of C.
        other: every further counter of the simulator by its name.
    """

    counted_on: str
    elements: int
    global_load_requests: int
    global_store_requests: int
    global_load_sectors: int
    global_store_sectors: int
    shared_wavefronts: int
    bank_conflicts: int
    fmas: int
    loads_per_c: float
    shared_loads_per_c: float
    sector_bytes_per_c: float
    wavefronts_per_c: float
    conflicts_per_c: float
    other: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Bounds:
    """What the card allows, TFLOPS and FLOP a byte.

    Attributes:
        intensity: operations for a byte of compulsory traffic; ``ridge`` is the card's own, above it arithmetic rules.
        bound: "compute" or "memory", by the compulsory traffic.
        roof_tflops: the roofline of the problem, which no kernel passes.
        counted_intensity: operations for a byte of the sectors that the kernel asks for, before any cache.
        uncached_tflops: the roofline with that traffic: what the kernel could do if no cache helped it.
        shared_tflops: what the SMs' shared memory allows, one wavefront an SM and clock; ``None`` if it uses none.
    """

    intensity: float
    ridge: float
    bound: str
    roof_tflops: float
    counted_intensity: float | None = None
    uncached_tflops: float | None = None
    shared_tflops: float | None = None


@dataclass(frozen=True)
class Speed:
    """What the card at hand did, interleaved with cuBLAS in one run on normal random data, caches cold.

    Attributes:
        tflops: from the median time.
        cublas_tflops: cuBLAS's, from the same rounds.
        ratio: cuBLAS's time over ours (above 1: we are faster), with ``ratio_low`` and ``ratio_high`` around it.
        peak_share: our TFLOPS over the card's dense peak.
        rounds: how many were timed.
    """

    tflops: float
    cublas_tflops: float | None
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    peak_share: float | None
    rounds: int


@dataclass
class Record:
    """One rung, climbed.

    Attributes:
        name, family, idea, expects, below: the rung's own.
        position: on the ladder, from 1.
        correct: whether every element agrees with float64 within the tolerance; ``None`` when it was not run.
        ran_on: "simulator", or the card's title.
        why: why it is not correct or was not run; empty otherwise.
        error, tolerance: ``||out - ref|| / ||ref||`` against float64, and what is allowed for the dtype and K.
        m, n, k, dtype, precision, layout, alpha, beta: the problem that it solved.
        seed: of the random matrices, ``None`` for the user's own.
        config: the kernel's tuning choice.
        seconds: wall time of the run, with counting; says nothing of a GPU's speed.
        resources, counts, bounds, speed: see there; ``None`` for what is not known.
    """

    name: str
    position: int
    family: str
    idea: str
    expects: str
    below: str | None
    correct: bool | None = None
    ran_on: str = ""
    why: str = ""
    error: float | None = None
    tolerance: float | None = None
    m: int = 0
    n: int = 0
    k: int = 0
    dtype: str = ""
    precision: str = ""
    layout: str = ""
    alpha: float = 1.0
    beta: float = 0.0
    seed: int | None = None
    config: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    resources: Resources | None = None
    counts: Counts | None = None
    bounds: Bounds | None = None
    speed: Speed | None = None

    def to_dict(self) -> dict[str, Any]:
        """The record as nested plain data, ready for JSON."""
        return asdict(self)
