"""Compile plans: look in the cache, ask a child for what is missing, remember the answer."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed

from ..cache import DiskStore
from ..kernels.plan import Launch, LaunchPlan
from . import pool
from .compiled import Compiled
from .errors import CompileError
from .request import SUPPORTED_ARCHS, Request, request_of

__all__ = ["SUPPORTED_ARCHS", "compile_launch", "compile_many", "compile_plan"]

Result = tuple[Compiled, ...] | CompileError
OnDone = Callable[[int, Result], None]


def compile_launch(launch: Launch, arch: int, *, cache: bool = True) -> Compiled:
    """Machine code of one launch for ``sm_<arch>`` (80, 86, 89 or 90). Needs no GPU.

    Raises:
        CompileError: the architecture is not supported, or the kernel does not compile for it.
    """
    return _obtain(request_of(launch, arch), cache)


def compile_plan(plan: LaunchPlan, arch: int, *, cache: bool = True) -> tuple[Compiled, ...]:
    """Machine code of each launch of a plan, in order; ``cache=False`` neither reads nor writes the disk cache.

    Raises:
        CompileError: as :func:`compile_launch`.
    """
    return tuple(compile_launch(launch, arch, cache=cache) for launch in plan.launches)


def compile_many(
    jobs: Sequence[tuple[LaunchPlan, int]],
    *,
    workers: int | None = None,
    on_done: OnDone | None = None,
    cache: bool = True,
) -> list[Result]:
    """Compile many plans, each for its architecture, in parallel child processes.

    A plan that fails gives its :class:`CompileError` in its place; the others go on. Launches that compile to the
    same code are compiled once.

    Args:
        jobs: plans and architectures.
        workers: child processes; as many as this process has cores if not said.
        on_done: called in this thread with a job's index and result, as each job is done (any order).
    """
    results: list[Result | None] = [None] * len(jobs)
    waiting: dict[str, list[int]] = {}
    requests: dict[str, Request] = {}
    parts: list[list[str]] = []
    done: dict[str, Compiled | CompileError] = {}

    def settle(index: int) -> None:
        found = [done[key] for key in parts[index] if key in done]
        failed = next((item for item in found if isinstance(item, CompileError)), None)
        if results[index] is not None or (failed is None and len(found) < len(parts[index])):
            return
        result: Result = failed if failed is not None else tuple(c for c in found if isinstance(c, Compiled))
        results[index] = result
        if on_done is not None:
            on_done(index, result)

    for index, (plan, arch) in enumerate(jobs):
        parts.append([])
        try:
            for request in [request_of(launch, arch) for launch in plan.launches]:
                parts[index].append(request.key)
                requests.setdefault(request.key, request)
                waiting.setdefault(request.key, []).append(index)
        except CompileError as error:
            parts[index] = [f"failed {index}"]
            done[f"failed {index}"] = error
        settle(index)

    store = DiskStore("compiled") if cache else None
    missing = []
    for key, request in requests.items():
        known = _recall(store, request)
        if known is None:
            missing.append(request)
            continue
        done[key] = known
        for index in waiting[key]:
            settle(index)
    if missing:
        count = min(workers or len(os.sched_getaffinity(0)), len(missing))
        with ThreadPoolExecutor(max(count, 1), "rungemm-compile") as threads:
            futures: dict[Future[Compiled], str] = {
                threads.submit(_obtain, request, cache, store): request.key for request in missing
            }
            try:
                for future in as_completed(futures):
                    key = futures[future]
                    try:
                        done[key] = future.result()
                    except CompileError as error:
                        done[key] = error
                    for index in waiting[key]:
                        settle(index)
            except BaseException:
                threads.shutdown(wait=False, cancel_futures=True)
                raise
    return [result for result in results if result is not None]


def _recall(store: DiskStore | None, request: Request) -> Compiled | None:
    entry = store.load(request.key) if store is not None else None
    if entry is None:
        return None
    try:
        return Compiled.from_entry(entry.data, entry.blob, request.key)
    except TypeError:
        return None  # another version's fields: made anew


def _obtain(request: Request, cache: bool, store: DiskStore | None = None) -> Compiled:
    if not cache:
        return Compiled.from_entry(*pool.ask(request), request.key)
    store = store or DiskStore("compiled")
    known = _recall(store, request)
    if known is not None:
        return known
    with store.lock(request.key):
        # Another process may have made it while this one waited.
        known = _recall(store, request)
        if known is None:
            data, cubin = pool.ask(request)
            store.save(request.key, data, cubin)
            known = Compiled.from_entry(data, cubin, request.key)
    return known
