"""The README's results: a table and a plot, made from summary.json and never by hand.

The text stands between the markers ``<!-- results: begin -->`` and ``<!-- results: end -->``; the plot is an SVG file
beside the other docs. :func:`stale_parts` says what no longer agrees with the results, and a test asks it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..bench.statistics import geometric_mean
from ..errors import UserError
from ..hardware import Gpu, find_gpu
from ..kernels import LADDER
from .bars_svg import Bar, bars_svg
from .data import load_summary

__all__ = ["BEGIN", "END", "ReadmeError", "plot_path", "results_text", "stale_parts", "update"]

BEGIN, END = "<!-- results: begin (rungemm report --readme writes this) -->", "<!-- results: end -->"
Record = dict[str, Any]


class ReadmeError(UserError):
    """The file cannot take the results; the message says what it lacks."""


def plot_path(readme: Path, folder: Path) -> Path:
    """Where the plot lies: ``docs/img/ladder-<card>.svg`` beside the README."""
    return readme.parent / "docs" / "img" / f"ladder-{folder.resolve().name}.svg"


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
    records = load_summary(folder)
    gpu = find_gpu(folder.resolve().name)
    plot = plot_path(readme, folder)
    link = os.path.relpath(plot, readme.parent)
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    yield readme, f"{before}{BEGIN}\n{results_text(records, gpu, link)}{END}{after}"
    ladder = _ladder(records)
    if ladder:
        yield plot, _plot(ladder, gpu)


def results_text(records: list[Record], gpu: Gpu, plot: str) -> str:
    """The Markdown between the markers: the plot, the ladder's table, and a line a suite."""
    lines = [""]
    ladder = _ladder(records)
    if ladder:
        m, n, k = (ladder[0][axis] for axis in "mnk")
        lines += [
            f"![TFLOPS of every fp32 rung on an {gpu.title} at {m}x{n}x{k}]({plot})",
            "",
            f"fp32 at {m}x{n}x{k} on an {gpu.title}, interleaved with cuBLAS, cold L2, normal data, outputs checked "
            "against float64:",
            "",
            "| rung | TFLOPS | of cuBLAS | 95% interval | of peak | error |",
            "| --- | ---: | ---: | ---: | ---: | ---: |",
            *(_row(record) for record in ladder),
            "",
        ]
    suites = list(_suites(records))
    if suites:
        lines += [
            "Ratio to cuBLAS by suite: cuBLAS's time over ours, so above 1 is faster.",
            "",
            "| suite | type | kernel | shapes | geometric mean | least | most |",
            "| --- | --- | --- | ---: | ---: | ---: | ---: |",
            *suites,
            "",
        ]
    if not ladder and not suites:
        lines += [f"Nothing measured on an {gpu.title} yet.", ""]
    else:
        newest = max(record["date"] for record in records)[:10]
        lines += [f"Measured up to {newest}; every sample is in `results/{gpu.name}/raw`, the method in "
                  "[docs/method.md](docs/method.md).", ""]  # fmt: skip
    return "\n".join(lines)


def _ladder(records: list[Record]) -> list[Record]:
    """The fp32 rungs at the ladder's first measured shape, in the ladder's order, cuBLAS last."""
    order = {kernel.name: position for position, kernel in enumerate(LADDER)} | {"cublas": len(LADDER)}
    found = [
        r
        for r in records
        if r["suite"] == "ladder" and r["kernel"] in order and (r["dtype"], r["precision"]) == ("fp32", "ieee")
        and r["layout"] == "NN" and r["cold_l2"]
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
    name = record["kernel"].replace("_", " ")
    return f"| {name} | {record['tflops']:.1f} | {versus} | {share} | {record['error']:.1e} |"


def _suites(records: list[Record]) -> Iterator[str]:
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
    for (suite, kind, kernel), ratios in sorted(groups.items()):
        yield (
            f"| {suite} | {kind} | {kernel} | {len(ratios)} | {geometric_mean(ratios):.3f} | {min(ratios):.3f} | "
            f"{max(ratios):.3f} |"
        )


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
    title = f"TFLOPS, fp32, {m}x{n}x{k}, {gpu.title}"
    marks = [("peak", gpu.peaks["fp32"])] + ([("cuBLAS", base["tflops"])] if base else [])
    return bars_svg(title, bars, marks)
