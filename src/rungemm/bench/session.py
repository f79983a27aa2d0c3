"""Many measurements in one run: a suite's problems, contenders by name, one raw document, saved as it grows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..hardware import Gpu
from ..kernels import Unsupported
from ..problem import Problem
from .contenders import ConfigFor, Contender, NoKernelError, Ours, Unable, contender_named
from .device import Device
from .environment import describe_environment
from .measurement import Measurement, Settings, measure
from .store import measurement_record, raw_document, write_json

__all__ = ["Job", "run_session"]


@dataclass(frozen=True)
class Job:
    """One problem of a suite (the suite's name is "shapes" for the user's own)."""

    suite: str
    problem: Problem


@dataclass(frozen=True)
class Done:
    """A finished measurement, and the resources of our compiled kernels by contender."""

    job: Job
    measurement: Measurement
    resources: dict[str, dict[str, int]]


def run_session(
    jobs: Sequence[Job],
    names: Sequence[str],
    gpu: Gpu,
    *,
    settings: Settings,
    reference: str = "cublas",
    out: Path | None = None,
    config_for: ConfigFor | None = None,
    device: Device | None = None,
    workers: int | None = None,
    on_done: Callable[[Done], None] | None = None,
    on_failure: Callable[[Job, str], None] | None = None,
    say: Callable[[str], None] | None = None,
    extra: Sequence[Contender] = (),
    go_on: Callable[[], bool] | None = None,
) -> dict[str, Any]:
    """Measure every job and return the raw document; ``out`` is rewritten after every measurement.

    ``go_on`` is asked before every job: once it says no, the rest are left out, and the document's ``left_out`` names
    them.

    A job that cannot be measured at all (no contender runs, a figure is impossible, the cache was warm) is told to
    ``on_failure`` and left out; the rest go on. With no ``on_failure`` the error is raised.

    Raises:
        InputError: a contender's name is unknown. (One that does not take a problem is a failed lane of that problem.)
        UserError: as said.
    """
    tell = say or (lambda _: None)
    ready = [(job, _contenders(job.problem, names, gpu, config_for)) for job in jobs]
    tell("compiling")
    resources = _compile(ready, gpu, workers, tell)
    environment = describe_environment(gpu.name)
    records: list[dict[str, Any]] = []
    document = raw_document(environment, settings, records)
    for number, (job, contenders) in enumerate(ready, start=1):
        if go_on is not None and not go_on():
            document["left_out"] = [f"{left.suite} {left.problem}" for left, _ in ready[number - 1 :]]
            if out is not None:
                write_json(out, document)
            break
        try:
            measurement = measure(
                job.problem, [*contenders, *extra], gpu, reference=reference, settings=settings, device=device,
                on_stage=_prefixed(tell, f"{number}/{len(ready)} {job.problem}: "),
            )  # fmt: skip
        except UserError as error:
            if on_failure is None:
                raise
            on_failure(job, str(error))
            continue
        record = measurement_record(measurement, job.suite)
        used = resources.get(job, {})
        for name, taken in used.items():
            record["lanes"][name]["resources"] = taken
        records.append(record)
        document = raw_document(environment, settings, records)
        if out is not None:
            write_json(out, document)
        if on_done is not None:
            on_done(Done(job, measurement, used))
        _free()
    return document


def _prefixed(tell: Callable[[str], None], prefix: str) -> Callable[[str], None]:
    return lambda stage: tell(prefix + stage)


def _contenders(problem: Problem, names: Iterable[str], gpu: Gpu, config_for: ConfigFor | None) -> list[Contender]:
    found: list[Contender] = []
    for name in names:
        try:
            found.append(contender_named(name, gpu, problem, config_for))
        except NoKernelError as error:
            found.append(Unable(name, str(error)))
    return found


def _compile(
    ready: Sequence[tuple[Job, list[Contender]]], gpu: Gpu, workers: int | None, tell: Callable[[str], None]
) -> dict[Job, dict[str, dict[str, int]]]:
    """Compile all our plans in parallel; what each takes. What does not compile fails later, in its own lane."""
    from ..compiling import CompileError, compile_many

    owners: list[tuple[Job, str]] = []
    plans = []
    for job, contenders in ready:
        for contender in contenders:
            if isinstance(contender, Ours):
                try:
                    plans.append((contender.plan(job.problem), gpu.arch))
                except Unsupported:
                    continue
                owners.append((job, contender.name))
    done = 0

    def count(_: int, __: object) -> None:
        nonlocal done
        done += 1
        tell(f"compiled {done} of {len(plans)}")

    resources: dict[Job, dict[str, dict[str, int]]] = {}
    for (job, name), result in zip(owners, compile_many(plans, workers=workers, on_done=count), strict=True):
        if isinstance(result, CompileError) or not result:
            continue
        resources.setdefault(job, {})[name] = {
            "registers": max(launch.registers for launch in result),
            "spill_bytes": sum(launch.spill_bytes for launch in result),
            "shared_bytes": max(launch.shared_bytes for launch in result),
            "warps": max(launch.num_warps for launch in result),
        }
    return resources


def _free() -> None:
    """Give the operands' memory back before the next shape wants its own."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()
