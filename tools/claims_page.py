"""docs/claims.md: the claims that the originals of our rungs make, and what counting and measuring say of them.

Counts of the controls come from the simulator (kept in docs/rungs/data.json), times from the raw files of
``benchmarks/claims_h200.py`` in results/h200/raw. A verdict follows from the numbers by a fixed rule, so that new
measurements cannot leave an old verdict standing. Called by rung_pages.py.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))

import numpy as np
import rung_data
from claims_kernels import ColumnReads, PaddedBoth, one_column_kernel

from rungemm.bench.statistics import Ratio, paired_ratio
from rungemm.compiling.fingerprint import fingerprint
from rungemm.kernels import find_kernel
from rungemm.kernels.cuda_core.thread_tile_2d import ThreadTile2D
from rungemm.sim import run
from rungemm.sim.counters import Counters

__all__ = ["PAGE", "page", "refresh"]

PAGE = ROOT / "docs" / "claims.md"
RAW = ROOT / "results" / "h200" / "raw"
SUITE = "claims"
EVEN = 0.005
"""A ratio whose interval lies within this of 1 is no difference: what timing a kernel against itself gives."""

Record = dict[str, Any]


@dataclass(frozen=True)
class Pair:
    """Two settings that differ in one thing; the claim says that ``better`` is the faster one.

    A pair that is only ``shown`` has no part in the verdict.
    """

    better: str
    worse: str
    kind: str = "fp32"
    shown: bool = False


@dataclass(frozen=True)
class Claim:
    """What an original says, how it is settled, and the pairs that settle it. ``least``, ``most``: the gain claimed."""

    title: str
    says: str
    settled_by: str
    pairs: tuple[Pair, ...] = ()
    counted: tuple[str, ...] = ()
    least: float = 1.0
    most: float | None = None
    note: str = ""
    by_count: Callable[[Record], str] | None = None


def _column_verdict(counted: Record) -> str:
    """The claim on columns, by the degrees that the simulator finds for the read of A."""

    def degree(name: str) -> int:
        reads = [c["degree"] for c in counted[name]["conflicts"] if c["text"].startswith(("column", "a_column"))]
        return max(reads, default=1)

    alone, compiled, ours = degree("one column, warp 4 x 8"), degree("column_reads pad=0"), degree("thread_tile_2d")
    holds = "Holds for one column read alone" if alone == 4 else "Does not hold"
    return (
        f"**{holds}: {alone}-way with a warp of 4 x 8 threads. In the kernel as compiled it is {compiled}-way, and "
        f"{'none' if ours == 1 else f'{ours}-way'} with our rung's 2 x 16.**"
    )


def _padding(together: int, a: int, b: int) -> str:
    return f"padded_both together={together} pad={a} pad_b={b}"


def _pipeline(tile_n: int, tile_k: int, stages: int) -> str:
    part = f"tile_n={tile_n} " if tile_n != 256 else ""
    return f"tma_pipeline {part}tile_k={tile_k} stages={stages}"


CLAIMS = (
    Claim(
        "Two stages beat three and four",
        "In the tf32 kernels on mma.sync with cp.async, on an RTX 4090, two stages were the fastest.",
        "One kernel, one tile, 2 to 5 stages. The original's shape is the mma.sync rung; the TMA pipeline is the same "
        "question on Hopper's own path.",
        (
            *(Pair("tf32_mma stages=2", f"tf32_mma stages={n}", "tf32") for n in (3, 4, 5)),
            *(Pair(_pipeline(128, 32, 2), _pipeline(128, 32, n), "tf32") for n in (3, 4, 5)),
            *(Pair(_pipeline(256, 64, 2), _pipeline(256, 64, n), "bf16") for n in (3, 4)),
        ),
        note="More stages cost shared memory and nothing else as long as the occupancy stays. Where the tile already "
        "leaves one block an SM, a stage more can only hide more latency.",
    ),
    Claim(
        "Padding B beats padding A",
        "Of the two shared tiles, the one to pad is B's.",
        "bank_conflict_free with 0 or 4 elements after each row of A's transposed tile and of B's, with a thread's "
        "rows and columns in one piece (8) and split (4 + 4).",
        (
            Pair(_padding(8, 0, 4), _padding(8, 4, 0)),
            Pair(_padding(4, 0, 4), _padding(4, 4, 0)),
            Pair(_padding(8, 0, 4), _padding(8, 0, 0), shown=True),
            Pair(_padding(8, 4, 0), _padding(8, 0, 0), shown=True),
            Pair(_padding(4, 0, 4), _padding(4, 0, 0), shown=True),
            Pair(_padding(4, 4, 0), _padding(4, 0, 0), shown=True),
        ),
        tuple(_padding(t, a, b) for t in (8, 4) for a, b in ((0, 0), (4, 0), (0, 4), (4, 4))),
        note="Padding shifts the start of ROWS, so it helps an access that goes down a column: the stores that "
        "transpose A. B is stored and read along its rows, where all lanes of an access stay in one row; padding "
        "cannot change which of them meet in a bank.",
    ),
    Claim(
        "Reading A by column is a 4-way conflict",
        "A lies row by row in shared memory, tile_k = 8 wide, and a thread reads its 8 rows of one column.",
        "The simulator's degree of the conflict when one column is read alone, for three shapes of the warp; the same "
        "in the 2D thread tile, with a warp of 2 x 16 (thread_tile_2d) and 4 x 8 threads (column_reads), with and "
        "without one element of padding after each row; and what the padding is worth in time.",
        (Pair("column_reads pad=1", "column_reads pad=0", shown=True),),
        ("one column, warp 2 x 16", "one column, warp 4 x 8", "one column, warp 8 x 4",
         "thread_tile_2d", "column_reads pad=0", "column_reads pad=1"),
        note="A lane's rows begin 8 rows of 8 words after its neighbour's: 64 words, so the same bank. A column read "
        "alone is as many ways in conflict as the warp has lanes down the tile, so the claim is right for a warp of "
        "4 x 8 threads. But the loop reads all columns of the tile, and ptxas joins four of them into one LDS.128: "
        "then up to sixteen lanes read at a time, which lie in half as many rows of the tile. One word of padding "
        "undoes the conflict, and the joining with it.",
        by_count=_column_verdict,
    ),
    Claim(
        "Warp specialisation beats multistage at equal tile",
        "A producer warp and consumer warps beat one pipeline of all warps, tile for tile.",
        "mma_multistage and mma_warp_specialised, tma_pipeline and warp_specialised; the same tile, stages, number "
        "of multiplying warps.",
        (
            *(Pair(f"mma_warp_specialised stages={n}", f"mma_multistage stages={n}", "fp16") for n in (3, 4)),
            Pair("warp_specialised tile_k=64 stages=4", _pipeline(256, 64, 4), "bf16"),
            *(Pair(f"warp_specialised tile_n=128 tile_k=64 stages={n}", _pipeline(128, 64, n), "bf16")
              for n in (2, 3, 4)),
            Pair("warp_specialised tile_k=32 stages=4", _pipeline(256, 32, 4), "tf32"),
            Pair("warp_specialised tile_n=128 tile_k=32 stages=4", _pipeline(128, 32, 4), "tf32"),
        ),
    ),
    Claim(
        "Double buffering is worth 5 to 22%",
        "Loading the next tile under the multiplication of this one gains 5 to 22%.",
        "double_buffer against the bank-conflict free kernel with the same padding, tile order and order of "
        "multiply-adds, which is pinned or left to LLVM in both (see the [log](log.md)).",
        tuple(
            Pair(f"double_buffer pad={pad} pinned={pinned}", _padding(4, pad, 0) if not pinned else
                 f"padded_both together=4 pad={pad} pinned")
            for pad in (0, 4) for pinned in (False, True)
        ),
        least=1.05,
        most=1.22,
    ),
    Claim(
        "Block swizzle does nothing, or gains a little",
        "One author saw no gain from walking tiles in an order made for L2; another a little.",
        "Each rung with tiles walked row by row (1) and in groups of 8 and 16 rows. The pairs claim the gain.",
        (
            *(Pair(f"{rung} group_m={g}", f"{rung} group_m=1")
              for rung in ("thread_tile_2d", "vectorised", "double_buffer", "champion_fp32") for g in (8, 16)),
            *(Pair(f"tf32_mma group={g}", "tf32_mma group=1", "tf32") for g in (8, 16)),
            *(Pair(f"mma_multistage group={g}", "mma_multistage group=1", "fp16") for g in (8, 16)),
            *(Pair(f"persistent tile_k=32 group={g}", "persistent tile_k=32 group=1", "tf32") for g in (8, 16)),
            *(Pair(f"persistent tile_k=64 group={g}", "persistent tile_k=64 group=1", "bf16") for g in (8, 16)),
        ),
        note="It pays where L2 or DRAM is what a kernel waits for. fp32 on CUDA cores asks little of them for each "
        "multiply-add; tensor cores use the same bytes up to 15 times as fast.",
    ),
)  # fmt: skip


# Counting the controls ----------------------------------------------------------------------------------------------


def _controls() -> Iterator[tuple[str, rung_data.Posed]]:
    both, column = PaddedBoth(), ColumnReads()
    for together in (8, 4):
        for a in (0, 4):
            for b in (0, 4):
                config = replace(both.default, together=together, pad=a, pad_b=b)
                yield _padding(together, a, b), rung_data.posed_for_docs(both, config=config)
    for pad in (0, 1):
        config = replace(column.default, pad=pad)
        yield f"column_reads pad={pad}", rung_data.posed_for_docs(column, config=config)
    yield "thread_tile_2d", rung_data.posed_for_docs(ThreadTile2D())


def _columns(lanes_m: int) -> Record:
    """Counts of one column read alone."""
    a, out = np.arange(128 * 8, dtype=np.float32), np.zeros(128, np.float32)
    report = run(one_column_kernel, 1, a, out, num_warps=1, observer=Counters(), LANES_M=lanes_m)
    if not np.array_equal(out, a.reshape(128, 8)[:, 3]):
        raise RuntimeError("one_column_kernel is wrong")
    return {"fingerprint": fingerprint(one_column_kernel)[:16], **rung_data.summary_of(report)}


def refresh(data: Record, *, everything: bool = False) -> None:
    """Count the controls whose code or config changed; the caller writes the data."""
    old, new = data.get("claims", {}), {}
    for name, posed in _controls():
        mark = rung_data.entry_fingerprint(posed)
        known = old.get(name)
        if known is None or known["fingerprint"] != mark or everything:
            known = {"fingerprint": mark, **rung_data.count(posed)}
        new[name] = known
    for lanes in (2, 4, 8):
        new[f"one column, warp {lanes} x {32 // lanes}"] = _columns(lanes)
    data["claims"] = new


def stale_counts(data: Record) -> list[str]:
    """Controls that changed since they were counted."""
    known = data.get("claims", {})
    return [
        name for name, posed in _controls()
        if known.get(name, {}).get("fingerprint") != rung_data.entry_fingerprint(posed)
    ]  # fmt: skip


# Measurements and verdicts ------------------------------------------------------------------------------------------


def measurements() -> list[Record]:
    """The claims suite's measurements in all raw files, newest first."""
    found = []
    for path in sorted(RAW.glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        for measurement in document.get("measurements", ()):
            if measurement["suite"] == SUITE:
                found.append((document["environment"]["date"], measurement))
    return [measurement for _, measurement in sorted(found, key=lambda item: item[0], reverse=True)]


def ratio_of(pair: Pair, found: list[Record]) -> tuple[Ratio, float, float, str] | None:
    """The worse one's time over the better one's from rounds that both were in, both TFLOPS, and the product."""
    for measurement in found:
        problem, lanes = measurement["problem"], measurement["lanes"]
        kind = problem["dtype"] if problem["precision"] == "ieee" else problem["precision"]
        one, other = lanes.get(pair.better), lanes.get(pair.worse)
        if kind != pair.kind or not one or not other or one["failure"] or other["failure"]:
            continue
        product = f"{problem['m']}x{problem['n']}x{problem['k']} {kind}"
        return paired_ratio(other["us"], one["us"]), one["tflops"], other["tflops"], product
    return None


def verdict(claim: Claim, ratios: list[Ratio]) -> str:
    """By rule: a pair says yes, no or even by where the interval of its ratio lies."""
    if not ratios:
        return "Not measured yet."
    if claim.most is not None:
        low, high = min(r.value for r in ratios), max(r.value for r in ratios)
        gains = f"{100 * (low - 1):.1f}% to {100 * (high - 1):.1f}%" if high - low > EVEN else f"{100 * (low - 1):.1f}%"
        within = claim.least <= low and high <= claim.most
        more = "It is worth more than that" if low > claim.most else "It is worth less" if high < claim.least else (
            "Holds" if within else "In part")  # fmt: skip
        return f"**{more}: {gains}.**"
    yes = sum(r.low > 1 + EVEN for r in ratios)
    no = sum(r.high < 1 - EVEN for r in ratios)
    even = len(ratios) - yes - no
    span = f" (ratios {min(r.value for r in ratios):.3f} to {max(r.value for r in ratios):.3f})"
    if yes == len(ratios):
        return f"**Holds**, in every pair{span}."
    if no == len(ratios):
        return f"**Does not hold**: in every pair it is the other way round{span}."
    if even == len(ratios):
        return f"**No difference** beyond {100 * EVEN:.1f}% in any pair."
    return f"**Not in general**: {yes} of {len(ratios)} pairs say yes, {no} the opposite, {even} no difference{span}."


def naive_text(summary: list[Record]) -> Iterator[str]:
    """The one claim that the ladder itself settles."""
    yield "## Naive is \"too slow to measure\""
    yield ""
    yield "An original leaves its naive kernel out of the measurements. Ours is on the ladder like every other rung."
    yield ""
    found = [r for r in summary if r["kernel"] == find_kernel("naive").name and r["suite"] == "ladder"]
    if not found:
        yield "Not measured yet."
    for r in found[:2]:
        ratio = f", {100 * r['ratio']:.1f}% of cuBLAS" if r["ratio"] else ""
        yield (
            f"**Does not hold**: {r['m']}x{r['n']}x{r['k']} takes {r['us'] / 1000:.0f} ms, {r['tflops']:.2f} TFLOPS"
            f"{ratio}, from {r['rounds']} rounds."
        )


def page(data: Record, summary: list[Record]) -> str:
    """The whole page."""
    found = measurements()
    lines = [
        "<!-- written by tools/rung_pages.py from tools/claims_page.py, data.json and results/h200 -->", "",
        "# Claims, settled", "",
        "What the kernels that the ladder follows were said to show, each put to the test here. Two settings that "
        "differ in one thing are timed in the same rounds (`benchmarks/claims_h200.py`, by the [method](method.md): "
        "cold L2, normal data, outputs checked); the ratio is the second one's time over the first one's, so above 1 "
        "the claim is right, with its 95% interval. Counts are the simulator's at "
        f"{'x'.join(map(str, data['shape']))}. A pair is even if its interval reaches within {100 * EVEN:.1f}% of 1. "
        "The controls that are on no rung are in `benchmarks/claims_kernels.py`.", "",
    ]  # fmt: skip
    for claim in CLAIMS:
        lines += [f"## {claim.title}", "", claim.says, "", f"*Settled by:* {claim.settled_by}", ""]
        if claim.counted:
            lines += ["| counted | load conflicts | store conflicts | wavefronts | worst |",
                      "| --- | ---: | ---: | ---: | --- |"]  # fmt: skip
            lines += [_counted(name, data["claims"][name]) for name in claim.counted] + [""]
        ratios, rows = [], []
        for pair in claim.pairs:
            result = ratio_of(pair, found)
            if result is not None:
                ratio, better, worse, product = result
                ratios += [] if pair.shown else [ratio]
                interval = f"{ratio.value:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"
                rows.append(f"| {pair.better} | {pair.worse} | {product} | {better:.4g} | {worse:.4g} | {interval} |")
        if rows:
            lines += ["| said to be better | than | product | TFLOPS | TFLOPS | ratio |",
                      "| --- | --- | --- | ---: | ---: | ---: |", *rows, ""]  # fmt: skip
        settled = claim.by_count(data["claims"]) if claim.by_count else verdict(claim, ratios)
        lines += [settled + (f" {claim.note}" if claim.note else ""), ""]
    lines += naive_text(summary)
    return "\n".join(lines).rstrip() + "\n"


def _counted(name: str, entry: Record) -> str:
    c, worst = entry["counters"], entry["conflicts"]
    most = f"{worst[0]['degree']}-way, `{worst[0]['text']}`" if worst else "none"
    return (
        f"| {name} | {c.get('shared_load_conflicts', 0):,} | {c.get('shared_store_conflicts', 0):,} | "
        f"{c.get('shared_wavefronts', 0):,} | {most} |"
    )
