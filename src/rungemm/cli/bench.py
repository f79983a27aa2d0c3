"""``rungemm bench``: time contenders on suites of shapes, store everything, compare with an older run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .common import JsonOption, chosen_card, err, out, print_json, why_no_gpu

if TYPE_CHECKING:
    from ..bench.compare import Change
    from ..bench.session import Done, Job
    from ..bench.suites import Shape

__all__ = ["bench"]


def bench(
    shapes: Annotated[list[str] | None, typer.Argument(metavar="[SHAPE]...", help="MxNxK or BATCHxMxNxK.")] = None,
    suite: Annotated[
        list[str] | None, typer.Option("--suite", metavar="NAME", help="Shapes of a suite; --list shows them.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--shapes", metavar="FILE.csv", help="Shapes from a CSV file with columns m,n,k.")
    ] = None,
    from_model: Annotated[
        str | None, typer.Option("--from-model", metavar="MODULE:CALLABLE", help="Shapes that a model multiplies.")
    ] = None,
    contender: Annotated[
        list[str] | None,
        typer.Option(
            "--contender", "-c", metavar="NAME",
            help="champion, library, cublaslt, torch-compile, tl-dot, quack, cutlass, a rung, rung@key=value,..., "
            "module:function. "
            "[default: champion]",
        ),
    ] = None,
    reference: Annotated[str, typer.Option("--reference", metavar="NAME", help="Whom to compare with.")] = "cublas",
    dtype: Annotated[str, typer.Option("--dtype", help="fp32, fp16, bf16, fp8e4m3, int8 ...")] = "fp32",
    precision: Annotated[str, typer.Option("--precision", help="For fp32: ieee, tf32 or tf32x3.")] = "ieee",
    layout: Annotated[str | None, typer.Option("--layout", help="NN, NT, TN, TT. [default: the suite's or NN]")] = None,
    data: Annotated[str, typer.Option("--data", help="normal, uniform or zeros (labelled).")] = "normal",
    warm: Annotated[bool, typer.Option("--warm", help="One set of operands, in L2 where it fits (labelled).")] = False,
    pause: Annotated[
        float,
        typer.Option(
            "--pause", metavar="SECONDS", min=0.0, max=10.0,
            help="Let the card rest before each sample: its power cap then does not hold large products.",
        ),
    ] = 0.0,
    rounds: Annotated[int, typer.Option("--rounds", min=2, help="Least rounds a shape.")] = 20,
    budget: Annotated[str, typer.Option("--budget", metavar="TIME", help="Most time a shape, as 30s or 2m.")] = "30s",
    save: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write all samples here; under results/CARD/raw/ "
                                  "the summary is made anew.")
    ] = None,
    compare: Annotated[
        Path | None, typer.Option("--compare", metavar="OLD.json", help="Measure what it did again, and compare.")
    ] = None,
    new: Annotated[
        Path | None, typer.Option("--new", metavar="NEW.json", help="With --compare: this file instead of measuring.")
    ] = None,
    threshold: Annotated[
        float, typer.Option("--threshold", metavar="SHARE", help="Smallest change that --compare counts.")
    ] = 0.03,
    list_: Annotated[
        bool, typer.Option("--list", help="List the suites, or the products asked for; run nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> int:  # fmt: skip
    """Time contenders, interleaved with cuBLAS, on cold caches and normal random data; outputs are checked.

    The ratio is the reference's time over the contender's: above 1, the contender is faster. Its interval is a 95%
    bootstrap over paired rounds. docs/method.md says how and why.

    Exits with 1 if a contender failed or computed wrongly, or if --compare found one that became slower.

    \b
    Example: rungemm bench 8192x8192x4096 --suite ragged \\
               -c champion -c library --out results/h200/raw/today.json
    """
    from ..inputs import InputError

    _vet(dtype, precision, layout)
    if list_ and not (shapes or suite or file or from_model):
        return _list(as_json)
    if new is not None and compare is None:
        raise InputError("--new is what --compare compares with: name the older file by --compare OLD.json")
    if new is not None:
        assert compare is not None
        return _compare_files(compare, new, reference, threshold, as_json)
    jobs, names = _work(shapes, suite, file, from_model, contender, dtype, precision, layout)
    if list_:
        return _list_jobs(jobs, as_json)
    old = None
    if compare is not None:
        old, jobs, names = _again(compare, jobs, names)
    names = [reference, *(name for name in names if name != reference)]
    document, failures = _measure(jobs, names, reference, data, warm, pause, rounds, budget, save, as_json)
    code = 1 if failures or _failed(document) else 0
    if save is not None and save.parent.name == "raw":
        _summarise(save.parent.parent)
    if old is not None:
        return max(code, _print_changes(old, document, reference, threshold, as_json))
    if as_json:
        print_json(document)
    return code


def _vet(dtype: str, precision: str, layout: str | None) -> None:
    """Of every bench, whether or not it has a shape that they would shape.

    Raises:
        InputError: an unknown name.
    """
    from ..dtypes import dtype_named
    from ..inputs import InputError
    from ..problem import LAYOUTS, PRECISIONS

    try:
        dtype_named(dtype)
    except ValueError as error:
        raise InputError(f"--dtype: {error}") from None
    if layout is not None and layout.upper() not in LAYOUTS:
        raise InputError(f"--layout is {layout!r}: use one of {', '.join(LAYOUTS)}")
    if precision not in PRECISIONS:
        raise InputError(f"--precision is {precision!r}: use one of {', '.join(PRECISIONS)}")


def _list(as_json: bool) -> int:
    from ..bench.suites import SUITES, suite_named

    if as_json:
        print_json([{"name": name, "what": what, "shapes": [str(s) for s in suite_named(name)]}
                    for name, (what, _) in SUITES.items()])  # fmt: skip
        return 0
    for name, (what, _) in SUITES.items():
        out().print(f"{name:<10} {len(suite_named(name)):>3} shapes  {what}")
    return 0


def _list_jobs(jobs: list[Job], as_json: bool) -> int:
    if as_json:
        print_json([{"suite": job.suite, "problem": str(job.problem), "precision": job.problem.precision,
                     "flops": job.problem.flops} for job in jobs])  # fmt: skip
        return 0
    for job in jobs:
        precision = "" if job.problem.precision == "ieee" else f" {job.problem.precision}"
        out().print(f"{job.suite:<10} {job.problem}{precision}", soft_wrap=True)
    return 0


def _work(
    shapes: list[str] | None,
    suites: list[str] | None,
    file: Path | None,
    from_model: str | None,
    contenders: list[str] | None,
    dtype: str,
    precision: str,
    layout: str | None,
) -> tuple[list[Job], list[str]]:
    """The problems asked for, each once a suite, and the contenders; what :func:`_vet` vets is right.

    Raises:
        InputError: an unknown suite or a bad shape.
    """
    from ..bench.session import Job
    from ..bench.suites import parse_shape, read_shapes, suite_named
    from ..dtypes import dtype_named
    from ..inputs import InputError
    from ..problem import ProblemError

    found: list[tuple[str, Shape]] = [("shapes", parse_shape(text)) for text in shapes or []]
    element = dtype_named(dtype)
    try:
        for name in suites or []:
            found += [(name, shape) for shape in suite_named(name)]
    except ValueError as error:
        raise InputError(str(error)) from None
    if file is not None:
        found += [("shapes", shape) for shape in read_shapes(file)]
    if from_model is not None:
        from ..bench.from_model import shapes_of_model

        found += [("model", shape) for shape in shapes_of_model(from_model)]
    jobs: dict[Job, None] = {}
    for name, shape in found:
        try:
            problem = shape.problem(element, layout.upper() if layout else None, precision)  # type: ignore[arg-type]
        except ProblemError as error:
            raise InputError(f"shape {shape}: {error}") from None
        if problem.is_empty or problem.effective_k == 0:
            raise InputError(f"shape {shape} has nothing to multiply: every extent must be at least 1 to be timed")
        jobs[Job(name, problem)] = None
    return list(jobs), contenders or ["champion"]


def _again(path: Path, jobs: list[Job], names: list[str]) -> tuple[dict[str, Any], list[Job], list[str]]:
    """The old document, and its problems and contenders to measure again (or those asked for)."""
    from ..bench.session import Job
    from ..bench.store import load_raw
    from ..dtypes import dtype_named
    from ..problem import Problem

    old = load_raw(path)
    if jobs:
        return old, jobs, names
    seen: dict[Job, None] = {}
    who: dict[str, None] = {}
    for measurement in old["measurements"]:
        p = measurement["problem"]
        problem = Problem.dense(
            p["m"], p["n"], p["k"], dtype=dtype_named(p["dtype"]), out_dtype=dtype_named(p["out_dtype"]),
            layout=p["layout"], batch=p["batch"], alpha=p["alpha"], beta=p["beta"], precision=p["precision"],
        )  # fmt: skip
        seen[Job(measurement["suite"], problem)] = None
        who.update(dict.fromkeys(name for name, lane in measurement["lanes"].items() if not lane["failure"]))
    return old, list(seen), list(who)


def _measure(
    jobs: list[Job], names: list[str], reference: str, data: str, warm: bool, pause: float, rounds: int, budget: str,
    save: Path | None, as_json: bool,
) -> tuple[dict[str, Any], list[str]]:  # fmt: skip
    """Measure every job, a table row each; the document, and what could not be measured."""
    from ..bench.data import KINDS
    from ..bench.interleaved import StopRule
    from ..bench.measurement import Settings
    from ..bench.session import run_session
    from ..inputs import InputError
    from .tune import seconds_of, tuned_config

    if not jobs:
        raise InputError("no shapes: give some, as 4096x4096x4096, or --suite NAME (--list shows the suites)")
    if data not in KINDS:
        raise InputError(f"--data is {data!r}: use one of {', '.join(KINDS)}")
    missing = why_no_gpu()
    if missing is not None:
        raise InputError(f"bench times on a GPU, and there is none to use: {missing}")
    card, _ = chosen_card(None)
    rule = StopRule(rounds, max(rounds, 200), seconds_of("--budget", budget))
    settings = Settings(rule=rule, data=data, warm=warm, pause_s=pause)
    failures: list[str] = []
    console = err()

    def fail(job: Job, why: str) -> None:
        failures.append(f"{job.problem}: {why}")
        console.print(f"[red]{job.problem}: {why}[/red]")

    with console.status("starting") as status:
        document = run_session(
            jobs, names, card, settings=settings, reference=reference, out=save, config_for=tuned_config,
            on_done=lambda done: None if as_json else _print_rows(done, reference),
            on_failure=fail, say=lambda text: status.update(text),
        )  # fmt: skip
    if not as_json:
        _print_means(document, reference)
        if save is not None:
            console.print(f"samples in {save}")
    return document, failures


def _print_rows(done: Done, reference: str) -> None:
    from ..bench.statistics import spread_of

    console, measurement = out(), done.measurement
    marks = [] if measurement.cold["cold"] else ["warm"]
    marks += [] if measurement.data == "normal" else [measurement.data]
    sm = measurement.clocks.get("sm_mhz", {}).get("median")
    watts = measurement.clocks.get("watts", {}).get("median")
    card = f", {sm} MHz, {watts:.0f} W" if sm and watts else ""
    console.print(f"[bold]{measurement.problem}[/bold] {' '.join(marks)} {measurement.rounds.count} rounds{card}")
    for name, lane in measurement.lanes.items():
        if lane.failure is not None:
            console.print(f"  {name:<20} [red]FAILED: {lane.failure}[/red]", soft_wrap=True)
            continue
        spread, ratio = spread_of(lane.seconds), measurement.ratio(reference, name)
        share = measurement.peak_share(name)
        text = f"  {name[:20]:<20}{lane.tflops or 0:>9.2f} TFLOPS"
        text += f"{100 * share:>6.1f}% of peak" if share is not None else ""
        text += f"{1e6 * spread.median:>11.1f} us ±{50 * spread.relative:.1f}%"
        if ratio is not None and name != reference:
            text += f"  {ratio.value:.3f}x [{ratio.low:.3f}, {ratio.high:.3f}]"
        text += f"  error {lane.checked.error:.1e}" if lane.checked else ""
        text += f"  host {1e6 * lane.host_s:.1f} us" if lane.host_s is not None else ""
        console.print(text, soft_wrap=True)


def _print_means(document: dict[str, Any], reference: str) -> None:
    from ..bench.statistics import geometric_mean
    from ..bench.store import summary_records

    ratios: dict[str, list[float]] = {}
    for record in summary_records(document, "", reference):
        if record["ratio"] is not None and record["kernel"] != reference:
            ratios.setdefault(record["kernel"], []).append(record["ratio"])
    for name, values in ratios.items():
        if len(values) > 1:
            out().print(f"{name}: {geometric_mean(values):.3f}x {reference} (geometric mean of {len(values)}), "
                        f"least {min(values):.3f}x, most {max(values):.3f}x")  # fmt: skip


def _failed(document: dict[str, Any]) -> bool:
    return any(lane["failure"] for measurement in document["measurements"] for lane in measurement["lanes"].values())


def _summarise(folder: Path) -> None:
    from ..bench.store import summarise

    records = summarise(folder)
    err().print(f"{folder / 'summary.json'}: {len(records)} records")


def _compare_files(old: Path, new: Path, reference: str, threshold: float, as_json: bool) -> int:
    from ..bench.store import load_raw

    return _print_changes(load_raw(old), load_raw(new), reference, threshold, as_json)


def _print_changes(old: dict[str, Any], new: dict[str, Any], reference: str, threshold: float, as_json: bool) -> int:
    from dataclasses import asdict

    from ..bench.compare import AGREEMENT, agreement, compare
    from ..inputs import InputError

    try:
        changes: list[Change] = compare(old, new, reference=reference, threshold=threshold)
    except ValueError as error:
        raise InputError(str(error)) from None
    if not changes:
        raise InputError("the two runs have no contender and problem in common: nothing to compare")
    slower = sum(change.verdict == "slower" for change in changes)
    if as_json:
        print_json([asdict(change) for change in changes])
    else:
        order = {"slower": 0, "unsure": 1, "faster": 2, "same": 3}
        colours = {"slower": "red", "unsure": "yellow", "faster": "green", "same": "dim"}
        for change in sorted(changes, key=lambda change: (order[change.verdict], change.change)):
            out().print(f"[{colours[change.verdict]}]{str(change).replace('[', chr(92) + '[')}[/]", soft_wrap=True)
        out().print(f"{len(changes)} compared, {slower} slower by more than {100 * threshold:g}%")
        ratios = agreement(old, new, reference=reference)
        if ratios:
            within = sum(abs(change.change - 1) <= AGREEMENT for change in ratios)
            out().print(
                f"{within} of {len(ratios)} ratios to {reference} agree within {100 * AGREEMENT:g}%; "
                f"the largest change is {100 * (ratios[0].change - 1):+.1f}%"
            )
    return 1 if slower else 0
