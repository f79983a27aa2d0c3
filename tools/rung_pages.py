"""Write docs/rungs/: a page a rung, with drawings, code, counts and measurements, none of them typed by hand.

    python tools/rung_pages.py            # count what changed, then write all pages, the index and the claims
    python tools/rung_pages.py --check    # only say what is stale; exit status 1 if anything is

The idea comes from the rung's docstring, the code from its file, the counts from docs/rungs/data.json (see
rung_data.py), the measurements from results/h200/summary.json. Words that none of these has stand in
docs/rungs/notes/NAME.md, see rung_notes.py.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import re
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

TOOLS = Path(__file__).resolve().parent
ROOT = TOOLS.parent
sys.path[:0] = [str(TOOLS), str(ROOT / "src")]

import claims_page
import rung_data
from rung_notes import code_of, notes_of

from rungemm.analysis import accesses_per_element
from rungemm.kernels import LADDER, Kernel, find_kernel

RUNGS = ROOT / "docs" / "rungs"
IMAGES = RUNGS / "img"
SUMMARY = ROOT / "results" / "h200" / "summary.json"
MARK = "<!-- written by tools/rung_pages.py: change the rung, its notes or the tool -->"

Record = dict[str, Any]


def page_name(kernel: Kernel[Any]) -> str:
    position = next(i for i, other in enumerate(LADDER, 1) if other.name == kernel.name)
    return f"{position:02d}-{kernel.name}.md"


def link(kernel: Kernel[Any]) -> str:
    return f"[{kernel.name}]({page_name(kernel)})"


def documentation(kernel: Kernel[Any]) -> tuple[str, str]:
    """The module's docstring as Markdown: its first line, and the rest."""
    text = inspect.getdoc(sys.modules[type(kernel).__module__]) or ""
    text = re.sub(r":\w+:`\.*~?([^`]+)`", r"`\1`", text).replace("``", "`")
    first, _, rest = text.partition("\n")
    return first.strip(), rest.strip()


# What it costs ----------------------------------------------------------------------------------------------------


def figures(entry: Record) -> dict[str, float | str | None]:
    """The rows of the table of costs: what, and its value."""
    c, r = entry["counters"], entry["resources"]

    def of(*names: str) -> int:
        return sum(c.get(name, 0) for name in names)

    rows: dict[str, float | str | None] = {
        "global load requests": of("global_load_requests"),
        "global load sectors": of("global_load_sectors"),
        "sectors a load request": _ratio(of("global_load_sectors"), of("global_load_requests")),
        "global store requests": of("global_store_requests"),
        "global store sectors": of("global_store_sectors"),
        "bytes loaded by TMA": of("tma_load_bytes"),
        "bytes stored by TMA": of("tma_store_bytes"),
        "bytes copied by cp.async": of("async_copy_bytes"),
        "shared load requests": of("shared_load_requests"),
        "shared store requests": of("shared_store_requests"),
        "shared wavefronts": of("shared_wavefronts"),
        "of them bank conflicts": of("bank_conflicts"),
        "FMAs": of("fmas"),
        "mma.sync instructions": of("mma_instructions"),
        "wgmma instructions": of("wgmma_instructions"),
        "bytes that wgmma reads from shared memory": of("wgmma_shared_bytes"),
        "multiply-adds a shared wavefront": _ratio(of("fmas", "tensor_macs"), of("shared_wavefronts")),
        "barriers": of("barriers"),
        "mbarrier arrivals": of("mbarrier_arrivals"),
        "registers a thread": r["registers"],
        "spilled bytes": r["spill_bytes"],
        "shared memory a block, bytes": r["shared_bytes"],
        "threads a block": r["threads"],
        "blocks an SM": r["blocks_per_sm"],
        "occupancy": f"{100 * r['occupancy']:.0f}%",
        "what limits it": r["limiter"],
    }
    loop = entry.get("loop")
    if loop and loop["ffma"] >= 64:
        rows["FFMAs' share of the main loop's instructions"] = f"{100 * loop['issue_share']:.0f}%"
        rows["register-port clocks an FFMA"] = loop["port_cost"]
        rows["TFLOPS that register ports and issue slots allow"] = port_bound(loop)
    return rows


def port_bound(loop: Record) -> float:
    """TFLOPS if the main loop waits for nothing but register ports and issue slots: sass_stats's window model."""
    return round(float(rung_data.CARD.peaks["fp32"]) * loop["bound"], 1)


def _ratio(a: float, b: float) -> float | None:
    return a / b if b else None


def number(value: float | str | None) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def kind_of(record: Record) -> str:
    """What it multiplies: an element type, or how fp32 operands are multiplied."""
    return str(record["dtype"] if record["precision"] == "ieee" else record["precision"])


def comparable(entry: Record, below: Record) -> bool:
    """Whether both were counted on operands of one type: else every count of bytes differs by that alone."""
    return bool(entry["dtype"] == below["dtype"])


def cost_table(entry: Record, below: Record | None, names: tuple[str, str]) -> Iterator[str]:
    mine, other = figures(entry), figures(below) if below else {}
    factors = below is not None and comparable(entry, below)
    if below is not None and kind_of(entry) != kind_of(below):
        names = (f"{names[0]}, {kind_of(below)}", f"{names[1]}, {kind_of(entry)}")
    yield ("| |" + (f" {names[0]} |" if below else "") + f" {names[1]} |" + (" factor |" if factors else ""))
    yield "| --- |" + " ---: |" * (1 + (below is not None) + factors)
    for what in dict.fromkeys([*mine, *other]):
        after, before = mine.get(what), other.get(what)
        if not after and not before:
            continue
        if below is None:
            yield f"| {what} | {number(after)} |"
            continue
        if not factors:
            yield f"| {what} | {number(before)} | {number(after)} |"
            continue
        factor = ""
        if isinstance(after, (int, float)) and isinstance(before, (int, float)) and before and after != before:
            factor = f"x {after / before:.3g}"
        yield f"| {what} | {number(before)} | {number(after)} | {factor} |"
    if below is not None and not factors:
        yield ""
        yield (
            f"No factors: the two take no type in common, and {kind_of(below)} elements have another size than "
            f"{kind_of(entry)}."
        )


def on_paper(kernel: Kernel[Any], entry: Record) -> str:
    """The formulas of rungemm.analysis.traffic for the rung's tiles, and what was counted."""
    config = entry["config"]
    if not {"thread_m", "thread_n"} <= config.keys() or "warp_m" in config:
        return ""
    shares = bool(entry["resources"]["shared_bytes"])
    tile = (config["tile_m"], config["tile_n"]) if shares else None
    paper = accesses_per_element(1, tile=tile, thread=(config["thread_m"], config["thread_n"]))
    elements = rung_data.SHAPE[0] * rung_data.SHAPE[1]
    loads = entry["counters"].get("global_load_elements", 0) / elements
    text = f"On paper an element of C costs {_of_k(paper.global_loads)} global loads ({loads:.3g} counted)"
    if shares:
        shared = entry["counters"].get("shared_load_elements", 0) / elements
        text += f" and {_of_k(paper.shared_loads)} reads of shared memory ({shared:.3g} counted)"
    return text + f"; K is {rung_data.SHAPE[2]}."


def _of_k(value: float) -> str:
    share = Fraction(value).limit_denominator(4096)
    top = "K" if share.numerator == 1 else f"{share.numerator}K"
    return top if share.denominator == 1 else f"{top}/{share.denominator}"


# What was measured ------------------------------------------------------------------------------------------------


def measured(kernel: Kernel[Any], summary: list[Record]) -> list[Record]:
    """The rung's records on the ladder's shapes, smallest first."""
    found = [r for r in summary if r["kernel"] == kernel.name and r["suite"] == "ladder" and r["cold_l2"]]
    found = [r for r in found if r["data"] == "normal"]
    return sorted(found, key=lambda r: (r["m"] * r["n"] * r["k"], r["dtype"], r["precision"], r["layout"]))


def of_same(record: Record, others: list[Record]) -> Record | None:
    keys = ("dtype", "precision", "layout", "batch", "m", "n", "k")
    return next((r for r in others if all(r[key] == record[key] for key in keys)), None)


def measured_text(kernel: Kernel[Any], data: Record, summary: list[Record]) -> Iterator[str]:
    records = measured(kernel, summary)
    if not records:
        yield "Not measured yet."
        return
    below = find_kernel(kernel.below) if kernel.below else None
    others = measured(below, summary) if below else []
    yield "On an H200, interleaved with cuBLAS, cold L2, normal data, outputs checked against float64:"
    yield ""
    yield "| product | TFLOPS | of cuBLAS (95% interval) | of peak | rung below | error |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: |"
    slower: list[str] = []
    for r in records:
        kind = kind_of(r)
        product = f"{r['m']}x{r['n']}x{r['k']} {kind} {r['layout']}"
        ratio = "" if r["ratio"] is None else (
            f"{100 * r['ratio']:.1f}% ({100 * r['ratio_low']:.1f} to {100 * r['ratio_high']:.1f})"
        )  # fmt: skip
        share = "" if r["peak_share"] is None else f"{100 * r['peak_share']:.1f}%"
        before = of_same(r, others)
        was = "" if before is None else f"{before['tflops']:.4g}"
        yield f"| {product} | {r['tflops']:.4g} | {ratio} | {share} | {was} | {r['error']:.1e} |"
        if before is not None and r["tflops"] < 0.995 * before["tflops"]:
            slower.append(f"{r['tflops']:.3g} against {before['tflops']:.3g} TFLOPS at {product}")
    if slower and below is not None:
        yield ""
        yield f"**Slower than {link(below)}**: {'; '.join(slower)}."
        entry, other = data["rungs"][kernel.name], data["rungs"][below.name]
        worse = list(_worse(entry, other)) if comparable(entry, other) else []
        if worse:
            yield f"What got worse by the counters above: {'; '.join(worse)}."
        why = notes_of(kernel.name).slower
        if why:
            yield why
        else:
            print(f"note missing: {kernel.name} is slower than {below.name}; say why in its notes", file=sys.stderr)


def _worse(mine: Record, below: Record) -> Iterator[str]:
    """Counters that rose by a tenth and more, and occupancy that fell."""
    a, b = figures(mine), figures(below)
    for what in ("global load requests", "global load sectors", "shared wavefronts", "of them bank conflicts",
                 "register-port clocks an FFMA", "spilled bytes"):  # fmt: skip
        after, before = a.get(what), b.get(what)
        before = 0 if before is None else before
        if isinstance(after, (int, float)) and isinstance(before, (int, float)) and after > 1.1 * before:
            name = "bank conflicts" if what == "of them bank conflicts" else what
            yield f"{name} {number(before)} to {number(after)}"
    if mine["resources"]["occupancy"] < below["resources"]["occupancy"]:
        yield f"occupancy {b['occupancy']} to {a['occupancy']}"


# Pages ------------------------------------------------------------------------------------------------------------


def page(kernel: Kernel[Any], data: Record, summary: list[Record]) -> str:
    """One rung's page."""
    position = next(i for i, other in enumerate(LADDER, 1) if other.name == kernel.name)
    entry = data["rungs"][kernel.name]
    below = find_kernel(kernel.below) if kernel.below else None
    first, rest = documentation(kernel)
    # By the module's name: the package may be an installed copy, and the page links to the checkout's file.
    file = ROOT / "src" / f"{type(kernel).__module__.replace('.', '/')}.py"
    around = [f"[{LADDER[i].name}]({page_name(LADDER[i])})" for i in (position - 2, position) if 0 <= i < len(LADDER)]
    notes = notes_of(kernel.name)
    lines = [MARK, "", f"# {position}. {kernel.name.replace('_', ' ')}", "", first, "", rest, ""]
    lines += [f"**Expected:** {kernel.expects}.", ""]
    source = os.path.relpath(file, RUNGS)
    compared = f"; compared with {link(below)}" if below else ""
    lines += [f"The file: [{file.name}]({source}){compared}. On the ladder beside it: {', '.join(around)}, "
              "[all rungs](README.md).", ""]  # fmt: skip
    lines += ["## The lines that matter", ""]
    for label, code in code_of(kernel, file):
        lines += [label, "", "```python", code, "```", ""] if label else ["```python", code, "```", ""]
    lines += ["## Layouts", "", *layouts_text(kernel, data), ""]
    m, n, k = data["shape"]
    kind = kind_of(entry)
    config = ", ".join(f"{key} {value}" for key, value in entry["config"].items() if value is not None)
    chosen = " (its choice at 4096x4096x4096)" if kernel.name.startswith("champion") else ""
    lines += ["## What it costs", ""]
    lines += [f"Counted by the simulator on a product {m}x{n}x{k} in {kind}; registers, shared memory and occupancy of "
              f"the kernel compiled for sm_90 by Triton {data['triton']}, on an H200. Config{chosen}: {config}.",
              ""]  # fmt: skip
    lines += [*cost_table(entry, data["rungs"][below.name] if below else None,
                          (below.name if below else "", kernel.name)), ""]  # fmt: skip
    paper = on_paper(kernel, entry)
    lines += [paper, ""] if paper else []
    if entry["conflicts"]:
        lines += ["Bank conflicts, the worst access of each line:", ""]
        lines += [f"- {c['degree']}-way, {c['instruction']}: `{c['text']}`" for c in entry["conflicts"]] + [""]
    lines += [notes.costs, ""] if notes.costs else []
    lines += ["## Measured", "", *measured_text(kernel, data, summary), ""]
    lines += [notes.measured, ""] if notes.measured else []
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def layouts_text(kernel: Kernel[Any], data: Record) -> Iterator[str]:
    """The drawings that no earlier rung's page shows; the others are named with that page."""
    seen: dict[str, Kernel[Any]] = {}
    for other in LADDER:
        if other.name == kernel.name:
            break
        for drawing in data["rungs"][other.name]["drawings"]:
            seen.setdefault(drawing["file"], other)
    old: dict[str, list[str]] = {}
    for drawing in data["rungs"][kernel.name]["drawings"]:
        title = drawing["title"]
        if drawing["file"] in seen:
            old.setdefault(link(seen[drawing["file"]]), []).append(f"[{title}](img/{drawing['file']})")
        else:
            yield f"![{title}](img/{drawing['file']})"
            yield ""
    for where, titles in old.items():
        yield f"As on {where}: {'; '.join(titles)}."
        yield ""


HEADLINE = (("fp32", "NN"), ("bf16", "NT"), ("fp16", "NT"), ("tf32", "NT"), ("tf32", "NN"))
"""Type and layout of the speed that the index shows: the first that was measured."""


def headline(records: list[Record]) -> Record | None:
    """The record at 4096x4096x4096 that the index shows of a rung, if there is one."""
    found = {(kind_of(r), r["layout"]): r for r in records if (r["m"], r["n"], r["k"]) == (4096, 4096, 4096)}
    return next((found[key] for key in HEADLINE if key in found), None)


def index(data: Record, summary: list[Record]) -> str:
    """docs/rungs/README.md: the rungs in one table."""
    lines = [MARK, "", "# The rungs", "",
             "Every rung changes one thing. Its page has the idea, the layouts drawn, the lines that matter, what the "
             "simulator counts and the compiler says, and what an H200 measured. `python tools/rung_pages.py` writes "
             "them all anew.", "",
             "| | rung | the change | registers | occupancy | shared wavefronts | TFLOPS |",
             "| ---: | --- | --- | ---: | ---: | ---: | ---: |"]  # fmt: skip
    for position, kernel in enumerate(LADDER, 1):
        entry, records = data["rungs"][kernel.name], measured(kernel, summary)
        best = headline(records)
        speed = "" if best is None else f"{best['tflops']:.3g} {kind_of(best)} {best['layout']}"
        c, r = entry["counters"], entry["resources"]
        lines.append(
            f"| {position} | {link(kernel)} | {kernel.idea} | {r['registers']} | {100 * r['occupancy']:.0f}% | "
            f"{c.get('shared_wavefronts', 0):,} | {speed or 'not yet'} |"
        )
    m, n, k = data["shape"]
    lines += ["", "Registers and occupancy: compiled for sm_90, on an H200. Wavefronts: counted at "
              f"{m}x{n}x{k}, CUDA-core rungs in fp32, the others in the type that their page names. TFLOPS: measured "
              "at 4096x4096x4096 in the type and layout named, bf16 where there is a choice; speeds in different "
              "types do not compare."]  # fmt: skip
    return "\n".join(lines) + "\n"


def load_summary() -> list[Record]:
    return json.loads(SUMMARY.read_text(encoding="utf-8")) if SUMMARY.exists() else []


def pages(data: Record, summary: list[Record]) -> dict[Path, str]:
    """Every file that the tool writes, but for data and drawings."""
    found = {RUNGS / page_name(kernel): page(kernel, data, summary) for kernel in LADDER}
    found[RUNGS / "README.md"] = index(data, summary)
    found[claims_page.PAGE] = claims_page.page(data, summary)
    return found


def stale(data: Record) -> list[str]:
    """What does not agree with the kernels, the data and the results."""
    found = []
    for kernel in LADDER:
        entry = data["rungs"].get(kernel.name)
        if entry is None or entry["fingerprint"] != rung_data.entry_fingerprint(rung_data.posed_for_docs(kernel)):
            found.append(f"{kernel.name}: its code or config changed since it was counted")
    if set(data["rungs"]) != {kernel.name for kernel in LADDER}:
        found.append("data.json has other rungs than the ladder")
        return found
    found += [f"{name}: a control of the claims changed" for name in claims_page.stale_counts(data)]
    if all(kernel.name in data["rungs"] for kernel in LADDER):
        wanted = pages(data, load_summary())
        found += [str(path.relative_to(ROOT)) for path, text in wanted.items()
                  if not path.exists() or path.read_text(encoding="utf-8") != text]  # fmt: skip
        strays = [path for path in RUNGS.glob("[0-9][0-9]-*.md") if path not in wanted]
        found += [f"{path.relative_to(ROOT)} is of no rung" for path in strays]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only say what is stale")
    parser.add_argument("--everything", action="store_true", help="count every rung anew, changed or not")
    options = parser.parse_args()
    try:
        return write(options.check, options.everything)
    except (ValueError, RuntimeError) as error:  # a quote that is gone, a rung that is wrong: one line says which
        print(f"rung_pages: {error}", file=sys.stderr)
        return 1


def write(check: bool, everything: bool) -> int:
    """Count what changed and write the pages, or only say what is stale; the exit status."""
    data = rung_data.load()
    if check:
        found = stale(data)
        print("\n".join(found) or "fresh")
        return 1 if found else 0
    IMAGES.mkdir(parents=True, exist_ok=True)
    counted = rung_data.refresh(data, IMAGES, everything=everything)
    claims_page.refresh(data, everything=everything)
    rung_data.save(data)
    wanted = pages(data, load_summary())
    for path in RUNGS.glob("[0-9][0-9]-*.md"):
        if path not in wanted and MARK in path.read_text(encoding="utf-8"):
            path.unlink()
    for path, text in wanted.items():
        path.write_text(text, encoding="utf-8")
    print(f"{len(counted)} rungs counted anew, {len(wanted)} pages written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
