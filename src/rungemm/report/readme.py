"""The README's results: tables and plots, made from summary.json and never by hand.

The text stands between the markers ``<!-- results: begin -->`` and ``<!-- results: end -->``; the plots are SVG files
beside the other docs. :func:`stale_parts` says what no longer agrees with the results, and a test asks it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..bench.statistics import geometric_mean
from ..errors import UserError
from ..hardware import Gpu, find_gpu
from ..kernels import LADDER
from .bars_svg import Bar, bars_svg
from .data import load_summary
from .ranges_svg import Range, ranges_svg
from .sessions import in_their_sessions

__all__ = ["BEGIN", "END", "ReadmeError", "plot_path", "results_text", "stale_parts", "update"]

BEGIN, END = "<!-- results: begin (rungemm report --readme writes this) -->", "<!-- results: end -->"
Record = dict[str, Any]

LADDERS = (("fp32", "ieee", "NN"), ("bf16", "ieee", "NT"))
"""Type, precision and layout of the ladders that are shown, where they were measured."""


PATH = (
    "A ladder is a path of ideas, not of speeds that only rise: where a rung is slower than the one before, "
    "[its page](docs/rungs/README.md) says why."
)


class ReadmeError(UserError):
    """The file cannot take the results; the message says what it lacks."""


def plot_path(readme: Path, folder: Path, what: str = "ladder") -> Path:
    """Where a plot lies: ``docs/img/<what>-<card>.svg`` beside the README."""
    return readme.parent / "docs" / "img" / f"{what}-{folder.resolve().name}.svg"


def update(readme: Path, folder: Path) -> list[Path]:
    """Write the results into the README and the plot beside it; returns the files that changed.

    Raises:
        ReadmeError: the README has no markers.
        StoreError: the results are missing or broken.
    """
    changed = []
    for path, content in _parts(readme, folder):
        if not path.exists() or path.read_text(encoding="utf-8") != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
            changed.append(path)
    return changed


def stale_parts(readme: Path, folder: Path) -> list[Path]:
    """The files that :func:`update` would change; empty when all is fresh."""
    return [
        path
        for path, content in _parts(readme, folder)
        if not path.exists() or path.read_text(encoding="utf-8") != content
    ]


def _parts(readme: Path, folder: Path) -> Iterator[tuple[Path, str]]:
    text = readme.read_text(encoding="utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ReadmeError(f"{readme} has no place for results: put the lines {BEGIN!r} and {END!r} where they go")
    records = in_their_sessions(load_summary(folder), folder)
    gpu = find_gpu(folder.resolve().name)
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]

    def link(what: str) -> str:
        return os.path.relpath(plot_path(readme, folder, what), readme.parent)

    yield readme, f"{before}{BEGIN}\n{results_text(records, gpu, link)}{END}{after}"
    for what, rows in _ladders(records):
        yield plot_path(readme, folder, what), _plot(rows, gpu)
    ranges = _ranges(records)
    if ranges:
        title = f"cuBLAS's time over ours by suite, {gpu.title}"
        yield plot_path(readme, folder, "suites"), ranges_svg(title, ranges)


def results_text(records: list[Record], gpu: Gpu, link: Callable[[str], str]) -> str:
    """The Markdown between the markers: for each ladder its plot and table, then the suites' plot and table.

    Args:
        link: from a plot's name ("ladder", "ladder-bf16", "suites") to the path that the README links to.
    """
    lines = [""]
    ladders = list(_ladders(records))
    if ladders:
        lines += [PATH, ""]
    for what, rows in ladders:
        m, n, k = (rows[0][axis] for axis in "mnk")
        kind = rows[0]["dtype"] if rows[0]["layout"] == "NN" else f"{rows[0]['dtype']} {rows[0]['layout']}"
        lines += [
            f"![TFLOPS of every {rows[0]['dtype']} rung on an {gpu.title} at {m}x{n}x{k}]({link(what)})",
            "",
            f"{kind} at {m}x{n}x{k} on an {gpu.title}, interleaved with cuBLAS, cold L2, normal data, outputs checked "
            "against float64:",
            "",
            "| rung | TFLOPS | of cuBLAS | 95% interval | of peak | error |",
            "| --- | ---: | ---: | ---: | ---: | ---: |",
            *(_row(record) for record in rows),
            "",
            *_apart(rows),
        ]
    ranges = _ranges(records)
    if ranges:
        lines += [
            f"![cuBLAS's time over ours by suite, on an {gpu.title}]({link('suites')})",
            "",
            "Ratio to cuBLAS by suite: cuBLAS's time over ours, so above 1 is faster.",
            "",
            "| suite | type | kernel | shapes | geometric mean | least | most |",
            "| --- | --- | --- | ---: | ---: | ---: | ---: |",
        ]
        for each in ranges:
            kind, kernel = each.what.rsplit(", ", 1)
            lines.append(
                f"| {each.name} | {kind} | {kernel} | {each.count} | {each.mean:.3f} | {each.least:.3f} | "
                f"{each.most:.3f} |"
            )
        lines += ["", *(f"- {note}" for note in _suite_notes(ranges)), ""]
    if not ladders and not ranges:
        lines += [f"Nothing measured on an {gpu.title} yet.", ""]
    else:
        newest = max(record["date"] for record in records)[:10]
        lines += [f"Measured up to {newest}; every sample is in `results/{gpu.name}/raw`, the method in "
                  "[docs/method.md](docs/method.md).", ""]  # fmt: skip
    return "\n".join(lines)


def _ladders(records: list[Record]) -> Iterator[tuple[str, list[Record]]]:
    """The ladders that were measured, each with the name of its plot."""
    for dtype, precision, layout in LADDERS:
        rows = _ladder(records, dtype, precision, layout)
        if rows:
            yield "ladder" if dtype == "fp32" else f"ladder-{dtype}", rows


def _ladder(records: list[Record], dtype: str, precision: str, layout: str) -> list[Record]:
    """The rungs of that arithmetic at the ladder's first measured shape, in the ladder's order, cuBLAS last."""
    order = {kernel.name: position for position, kernel in enumerate(LADDER)} | {"cublas": len(LADDER)}
    found = [
        r
        for r in records
        if r["suite"] == "ladder" and r["kernel"] in order and (r["dtype"], r["precision"]) == (dtype, precision)
        and r["layout"] == layout and r["cold_l2"]
    ]  # fmt: skip
    shapes = sorted({(r["m"] * r["n"] * r["k"], r["m"], r["n"], r["k"]) for r in found})
    for _, m, n, k in shapes:
        rows = [r for r in found if (r["m"], r["n"], r["k"]) == (m, n, k)]
        if len(rows) > 2:
            return sorted(rows, key=lambda record: order[record["kernel"]])
    return []


def _row(record: Record) -> str:
    share = f"{100 * record['peak_share']:.0f}%" if record["peak_share"] is not None else ""
    if record["kernel"] == "cublas":
        return f"| cuBLAS | {record['tflops']:.1f} | | | {share} | {record['error']:.1e} |"
    ratio, low, high = (record[name] for name in ("ratio", "ratio_low", "ratio_high"))
    versus = f"{100 * ratio:.1f}% | {100 * low:.1f} to {100 * high:.1f}" if ratio is not None else " | "
    name = record["kernel"].replace("_", " ") + ("\\*" if "apart" in record else "")
    return f"| {name} | {record['tflops']:.1f} | {versus} | {share} | {record['error']:.1e} |"


def _apart(rows: list[Record]) -> Iterator[str]:
    """The footnote to the rows that another run measured."""
    apart: dict[float | None, list[str]] = {}
    for record in rows:
        if "apart" in record:
            apart.setdefault(record["apart"], []).append(record["kernel"].replace("_", " "))
    for base, names in apart.items():
        there = f", against cuBLAS at {base:.1f} TFLOPS there" if base is not None else ""
        yield f"\\* {', '.join(names)}: measured in another run{there}."
        yield ""


def _suite_notes(ranges: list[Range]) -> Iterator[str]:
    """What the suites' table does not say by itself; only of what stands in it."""
    kernels = {each.what.rsplit(", ", 1)[1] for each in ranges}
    suites = {each.name for each in ranges}
    if "champion" in kernels:
        yield (
            "`champion` is one family of kernels, the ladder's last for that type, with the setting that it chooses by "
            "default; `library` is `rungemm.matmul`, which may call cuBLAS."
        )
    if "tensor" in suites:
        yield (
            "`tensor`: up to 7 products a type for the tensor cores, most of them large squares, besides few rows, "
            "long K and odd sizes."
        )
    if "fp32-small" in suites:
        yield (
            "`fp32-small`: six fp32 products: squares of 512 and 1024, two with few tiles and long K, two of odd sizes."
        )
    if any(each.what.startswith("tf32x3") for each in ranges):
        yield "tf32x3 adds up three tf32 products to fp32's accuracy; its reference is cuBLAS in full fp32."
    if any(each.name == "ragged" and each.what.startswith(("bf16", "fp16")) for each in ranges):
        yield (
            "Why ragged 16-bit ratios are large: where a row's pitch is not a multiple of 16 bytes cuBLAS "
            "loses most of its speed; the champion first copies the operands to aligned rows."
        )


def _ranges(records: list[Record]) -> list[Range]:
    """A range for every suite, type and kernel of ours that users get: the champion and the library."""
    groups: dict[tuple[str, str, str], list[float]] = {}
    for r in records:
        if (
            r["ratio"] is None
            or r["kernel"] not in ("champion", "library")
            or not r["cold_l2"]
            or r["data"] != "normal"
        ):
            continue
        kind = r["dtype"] if r["precision"] == "ieee" else r["precision"]
        groups.setdefault((r["suite"], f"{kind} {r['layout']}", r["kernel"]), []).append(r["ratio"])
    return [
        Range(suite, f"{kind}, {kernel}", geometric_mean(ratios), min(ratios), max(ratios), len(ratios))
        for (suite, kind, kernel), ratios in sorted(groups.items())
    ]


def _plot(ladder: list[Record], gpu: Gpu) -> str:
    base = next((record for record in ladder if record["kernel"] == "cublas"), None)
    bars = []
    for record in ladder:
        text = f"{record['tflops']:.1f}"
        if record is not base and record["ratio"] is not None:
            text += f", {100 * record['ratio']:.0f}% of cuBLAS"
        name = "cuBLAS" if record is base else record["kernel"].replace("_", " ")
        bars.append(Bar(name, record["tflops"], text, record is base))
    m, n, k = (ladder[0][axis] for axis in "mnk")
    dtype = ladder[0]["dtype"]
    title = f"TFLOPS, {dtype}, {m}x{n}x{k}, {gpu.title}"
    marks = [("peak", gpu.peaks[dtype])] + ([("cuBLAS", base["tflops"])] if base else [])
    return bars_svg(title, bars, marks)
