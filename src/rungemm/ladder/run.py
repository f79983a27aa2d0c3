"""Climbing: every rung in order is run, checked against float64, counted, compiled, and put in a record."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

from ..compiling import Compiled, CompileError, compile_many
from ..hardware import Gpu
from ..kernels import LADDER, Kernel
from .counting import count_tile, count_whole
from .pose import Posed, Refused, Task, pose
from .record import Record
from .resources import bounds_of, resources_of
from .runners import Outcome, Runner

__all__ = ["climb", "describe"]

OnStage = Callable[[str], None]


def describe(kernel: Kernel[Any]) -> Record:
    """A record with what the rung says of itself, and nothing run."""
    position = next((i for i, other in enumerate(LADDER, 1) if other.name == kernel.name), 0)
    return Record(kernel.name, position, kernel.family, kernel.idea, kernel.expects, kernel.below)


def climb(
    kernels: Sequence[Kernel[Any]], task: Task, card: Gpu, runner: Runner, *, on_stage: OnStage | None = None
) -> Iterator[Record]:
    """The rungs' records in order, each as soon as it is complete but for its speed.

    The kernels are compiled for the card in child processes while the rungs run here.

    Args:
        task: the operands.
        card: what the plans are made for and the figures are of.
        runner: where the rungs run.
        on_stage: told what is being done, a few words each time.
    """
    say = on_stage or (lambda _: None)
    posed = [pose(kernel, task, card) for kernel in kernels]
    compiled = _compile_beside([p for p in posed if isinstance(p, Posed)], card)
    for item in posed:
        record = describe(item.kernel)
        record.m, record.n, record.k = task.shape
        record.alpha, record.beta, record.seed = task.alpha, task.beta, task.seed
        if isinstance(item, Refused):
            record.why = item.why
            yield record
            continue
        problem = item.problem
        record.dtype, record.precision, record.layout = problem.a.dtype.name, problem.precision, problem.layout
        record.config, record.ran_on = item.config.to_dict(), runner.name
        say(f"{item.kernel.name}: running")
        outcome = _attempt(runner, item, task)
        record.correct, record.why, record.seconds = outcome.correct, outcome.why, outcome.seconds
        record.error, record.tolerance = outcome.error, outcome.tolerance
        if outcome.report is not None:
            record.counts = count_whole(problem, outcome.report)
        elif outcome.correct and not problem.is_empty:
            say(f"{item.kernel.name}: counting")
            record.counts = count_tile(item, card)
        say(f"{item.kernel.name}: compiling")
        code = compiled[item.kernel.name].result()
        if isinstance(code, CompileError):
            record.correct, record.why = False, record.why or f"does not compile for sm_{card.arch}: {code}"
        else:
            record.resources = resources_of(item.plan, code, card)
        record.bounds = bounds_of(problem, record.counts, card)
        yield record


def _attempt(runner: Runner, item: Posed, task: Task) -> Outcome:
    started = time.monotonic()
    outcome = runner.run(item, task)
    outcome.seconds = time.monotonic() - started
    return outcome


def _compile_beside(posed: Sequence[Posed], card: Gpu) -> dict[str, Future[tuple[Compiled, ...] | CompileError]]:
    """Start compiling all plans in a thread of their own (the work is in child processes); one future a rung."""
    futures: dict[str, Future[tuple[Compiled, ...] | CompileError]] = {item.kernel.name: Future() for item in posed}
    order = [futures[item.kernel.name] for item in posed]

    def settle(index: int, result: tuple[Compiled, ...] | CompileError) -> None:
        order[index].set_result(result)

    def work() -> None:
        try:
            compile_many([(item.plan, card.arch) for item in posed], on_done=settle)
        except BaseException as error:
            for future in order:
                if not future.done():
                    future.set_exception(error)

    if order:
        threading.Thread(target=work, name="rungemm-compile", daemon=True).start()
    return futures
