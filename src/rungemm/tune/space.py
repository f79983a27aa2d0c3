"""The search space before any timing: what the one predicate and the compiled resources rule out, with reasons.

None of this needs a GPU: a laptop can say how much of a space fits a card, and why the rest does not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..analysis.occupancy import occupancy
from ..compiling import Compiled, CompileError, compile_many
from ..hardware import Gpu
from ..kernels import Config, Kernel, LaunchPlan
from ..problem import Problem

__all__ = ["Candidate", "Pruned", "Space", "by_predicate", "by_resources"]


@dataclass(frozen=True)
class Candidate:
    """A config that may be timed, with what its heaviest launch takes once compiled (``None`` before)."""

    config: Config
    plan: LaunchPlan = field(repr=False)
    registers: int | None = None
    spill_bytes: int | None = None
    shared_bytes: int | None = None
    blocks_per_sm: int | None = None


@dataclass(frozen=True)
class Pruned:
    """A config that will not be timed, and the sentence that says why."""

    config: Config
    reason: str


@dataclass
class Space:
    """What is left of a search space, best guess first, and what went."""

    candidates: list[Candidate] = field(default_factory=list)
    pruned: list[Pruned] = field(default_factory=list)


def by_predicate(kernel: Kernel[Any], problem: Problem, gpu: Gpu, configs: Sequence[Config] | None = None) -> Space:
    """The kernel's configs (or these), each once, split by :meth:`Kernel.supports`."""
    space, seen = Space(), set()
    for config in kernel.configs(problem, gpu) if configs is None else configs:
        if config in seen:
            continue
        seen.add(config)
        reason = kernel.supports(problem, config, gpu)
        if reason is None:
            space.candidates.append(Candidate(config, kernel.plan(problem, config, gpu)))
        else:
            space.pruned.append(Pruned(config, reason))
    return space


def by_resources(
    space: Space,
    gpu: Gpu,
    *,
    spill_limit: int = 0,
    workers: int | None = None,
    on_done: Callable[[int, int], None] | None = None,
    compile_jobs: Callable[..., list[Any]] = compile_many,
) -> Space:
    """Compile the candidates in parallel and drop what does not compile, does not fit an SM, or spills registers.

    Where everything spills, those with the fewest spilled bytes stay. ``on_done`` is told how many of how many are
    compiled.
    """
    total, done = len(space.candidates), 0

    def count(_: int, __: object) -> None:
        nonlocal done
        done += 1
        if on_done is not None:
            on_done(done, total)

    jobs = [(candidate.plan, gpu.arch) for candidate in space.candidates]
    results = compile_jobs(jobs, workers=workers, on_done=count)
    fitting: list[Candidate] = []
    pruned = list(space.pruned)
    for candidate, result in zip(space.candidates, results, strict=True):
        if isinstance(result, CompileError):
            pruned.append(Pruned(candidate.config, f"does not compile: {str(result).splitlines()[0]}"))
            continue
        kept = _with_resources(candidate, result, gpu)
        if isinstance(kept, Pruned):
            pruned.append(kept)
        else:
            fitting.append(kept)
    allowed = max(spill_limit, min((c.spill_bytes or 0 for c in fitting), default=0))
    candidates = []
    for candidate in fitting:
        if (candidate.spill_bytes or 0) <= allowed:
            candidates.append(candidate)
        else:
            reason = f"spills {candidate.spill_bytes} bytes of registers ({candidate.registers} a thread)"
            pruned.append(Pruned(candidate.config, reason))
    return Space(candidates, pruned)


def _with_resources(candidate: Candidate, launches: Sequence[Compiled], gpu: Gpu) -> Candidate | Pruned:
    blocks = None
    for launch in launches:
        threads = launch.num_warps * gpu.warp_size
        fits = occupancy(gpu, threads=threads, registers=launch.registers, shared_bytes=launch.shared_bytes)
        if fits.blocks == 0:
            takes = f"{threads} threads, {launch.registers} registers a thread, {launch.shared_bytes} bytes shared"
            return Pruned(candidate.config, f"not one block fits an SM of {gpu.title} ({fits.limiter}): {takes}")
        blocks = fits.blocks if blocks is None else min(blocks, fits.blocks)
    return Candidate(
        candidate.config,
        candidate.plan,
        registers=max((launch.registers for launch in launches), default=0),
        spill_bytes=sum(launch.spill_bytes for launch in launches),
        shared_bytes=max((launch.shared_bytes for launch in launches), default=0),
        blocks_per_sm=blocks,
    )
