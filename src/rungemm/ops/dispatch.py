"""Which kernel computes a problem: every one is asked, measurements decide where there are any, a model where not.

cuBLAS (through torch) is a contender like ours: it is called where it should be faster, and where nothing of ours takes
the problem. Plain data in and out: no torch, no GPU.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from ..hardware import Gpu
from ..kernels import LADDER, Config, Kernel, LaunchPlan
from ..problem import Epilogue, Matrix, Problem
from .model import CHAMPIONS, CUBLAS, cublas_seconds, elementwise_seconds, kernel_seconds
from .table import Entry, Shape, Table, table_of

__all__ = ["ELEMENTWISE", "Decision", "Option", "decide"]

ELEMENTWISE = "elementwise"
"""The choice where there is nothing to multiply: ``D = epilogue(beta * C)``."""

UNMEASURED_GAIN = 0.10
"""On the model's word alone, a kernel of ours must promise so much over cuBLAS to be called instead of it."""

UNMEASURED_FUSED_GAIN = 0.05
"""Less where it fuses what torch computes in kernels of their own: those cost what their bytes cost, model or not."""

Known = tuple[Entry, Shape]

CONFIGS_ASKED = 48
"""So many of a champion's configs, best guess first, are asked before it is taken to refuse the problem."""


@dataclass(frozen=True)
class Option:
    """One way to compute the problem.

    Attributes:
        name: a rung's name, "cublas" or "elementwise".
        config: the rung's config, else ``None``.
        seconds: what it should take.
        source: where that comes from: "tuned here", "table", "table, near ..." or "model".
        measured: whether that is a measurement.
        problem: what the kernel is asked: the problem without the part of the epilogue that follows.
        bias_is_c: the bias goes in as C, with stride 0 and beta 1.
        after: the part of the epilogue that follows as elementwise steps of torch, or ``None``.
        plan: how to launch it; ``None`` for cuBLAS and elementwise.
    """

    name: str
    config: Config | None
    seconds: float
    source: str
    problem: Problem = field(repr=False)
    measured: bool = False
    bias_is_c: bool = False
    after: Epilogue | None = None
    plan: LaunchPlan | None = field(default=None, repr=False)

    @property
    def is_ours(self) -> bool:
        return self.plan is not None


@dataclass(frozen=True)
class Decision:
    """What was chosen for a problem on a card, and what was not.

    Attributes:
        chosen: what runs.
        options: all that could run, fastest first by their seconds.
        rejected: rungs that do not take the problem, each with its predicate's reason.
        why: one sentence.
    """

    problem: Problem
    gpu: Gpu
    chosen: Option
    options: tuple[Option, ...] = field(repr=False)
    rejected: tuple[tuple[str, str], ...] = field(repr=False)
    why: str


def decide(
    problem: Problem, gpu: Gpu, *, table: Table | None = None, database: Any = None, all_rungs: bool = True
) -> Decision:
    """Choose for a problem on a card.

    Args:
        table: measurements; those shipped for the card if not given.
        database: this user's own (a :class:`rungemm.tune.TuningDatabase`, or ``None``), which count before the table's.
        all_rungs: ask those too that cannot be chosen, for an explanation.
    """
    if problem.is_empty or problem.effective_k == 0:
        passes = 0 if problem.is_empty else 1
        option = Option(ELEMENTWISE, None, elementwise_seconds(problem, gpu, passes), "model", problem)
        why = "no element of D exists" if problem.is_empty else "K or alpha is 0: nothing is multiplied"
        return Decision(problem, gpu, option, (option,), (), why)
    table = table_of(gpu) if table is None else table
    plain = without_epilogue(problem)
    base = cublas_seconds(plain, gpu)
    cublas = _cublas(problem, gpu, base)
    options, rejected = [cublas], []
    known = table.find(plain)
    for kernel in LADDER:
        measured = known is not None and known[0].kernel == kernel.name
        if not (all_rungs or measured or kernel.name in CHAMPIONS):
            continue
        found = list(_options(kernel, problem, gpu, base, known, database))
        if found and isinstance(found[-1], Option):
            options.append(found[-1])
        else:
            rejected.append((kernel.name, next((str(reason) for reason in found), "it has no config for it")))
    options.sort(key=lambda option: option.seconds)
    chosen, why = _choose(options, cublas)
    return Decision(problem, gpu, chosen, tuple(options), tuple(rejected), why)


def _choose(options: list[Option], cublas: Option) -> tuple[Option, str]:
    ours = [option for option in options if option.is_ours and (option.measured or option.name in CHAMPIONS)]
    if not ours:
        return cublas, "no champion of ours takes this problem, and no other rung was measured on it"
    # A measurement outweighs any promise.
    best = min([option for option in ours if option.measured] or ours, key=lambda option: option.seconds)
    fuses = best.after is None and _passes(cublas.problem.epilogue, bias_is_free=True) > 0
    needed = UNMEASURED_FUSED_GAIN if fuses else UNMEASURED_GAIN
    gain = cublas.seconds / best.seconds - 1
    word = "measured" if best.measured else "the model says"
    if best.measured and gain >= 0:
        return best, f"{word}: {gain:.1%} faster than cuBLAS ({best.source})"
    if not best.measured and gain >= needed:
        return best, f"{word} {gain:.1%} faster than cuBLAS, and nothing was measured near here"
    if best.measured:
        return cublas, f"{word}: {best.name} is {-gain:.1%} slower than cuBLAS ({best.source})"
    return cublas, (
        f"{word} {best.name} gains {gain:.1%} on cuBLAS; unmeasured, it must gain {needed:.0%} to be called"
    )


def _cublas(problem: Problem, gpu: Gpu, base: float) -> Option:
    """cuBLAS, with the steps that torch adds after it: a row bias is in cuBLASLt's own epilogue."""
    passes = _passes(problem.epilogue, bias_is_free=True)
    return Option(CUBLAS, None, base + elementwise_seconds(problem, gpu, passes), "model", problem)


def _passes(epilogue: Epilogue | None, bias_is_free: bool = False) -> int:
    """Elementwise kernels that torch launches for an epilogue."""
    if epilogue is None:
        return 0
    bias = epilogue.bias is not None and not (bias_is_free and epilogue.bias == "row")
    return bias + (epilogue.activation is not None) + epilogue.gated + (epilogue.scale != 1.0)


def without_epilogue(problem: Problem) -> Problem:
    """The product alone, into a dense D where a gated epilogue would have halved it."""
    if problem.epilogue is None:
        return problem
    d = problem.d
    if problem.epilogue.gated:
        d = Matrix.dense(problem.m, problem.n, d.dtype)
    return replace(problem, epilogue=None, d=d, bias_dtype=None, bias_alignment=16)


def _variants(problem: Problem) -> Iterator[tuple[Problem, bool, Epilogue | None]]:
    """The problem with less and less of the epilogue left to the kernel: (problem, bias as C, what follows)."""
    epilogue = problem.epilogue
    if epilogue is None:
        yield problem, False, None
        return
    yield problem, False, None
    rest = replace(epilogue, bias=None)
    if epilogue.bias is not None and not rest.is_identity:
        with_bias = replace(
            without_epilogue(problem), epilogue=Epilogue(epilogue.bias), bias_dtype=problem.bias_dtype,
            bias_alignment=problem.bias_alignment,
        )  # fmt: skip
        yield with_bias, False, rest
    if epilogue.bias is not None and not problem.reads_c:
        strides = (0, 1) if epilogue.bias == "row" else (1, 0)
        c = Matrix(problem.m, problem.n, problem.bias_type, *strides, 0, problem.bias_alignment)
        with_c = replace(problem, c=c, beta=1.0, bias_dtype=None, bias_alignment=16)
        if not rest.is_identity:
            yield replace(with_c, epilogue=rest), True, None
        yield without_epilogue(with_c), True, None if rest.is_identity else rest
    yield without_epilogue(problem), False, epilogue


def _options(
    kernel: Kernel, problem: Problem, gpu: Gpu, base: float, known: Known | None, database: Any
) -> Iterator[Option | str]:
    """Reasons why the kernel does not take the problem, until it does: measured configs first, then its own order."""
    for inner, bias_is_c, after in _variants(problem):
        for config, ratio, source in _configs(kernel, inner, gpu, known, database):
            reason = kernel.supports(inner, config, gpu)
            if reason is not None:
                yield reason
                continue
            plan = kernel.plan(inner, config, gpu)
            guess = kernel_seconds(kernel, inner, config, gpu, plan) if ratio is None else base / ratio
            if ratio is not None:
                guess += _added(kernel, inner, config, gpu)
            guess += elementwise_seconds(problem, gpu, _passes(after))
            yield Option(kernel.name, config, guess, source, inner, ratio is not None, bias_is_c, after, plan)
            return


def _configs(
    kernel: Kernel, problem: Problem, gpu: Gpu, known: Known | None, database: Any
) -> Iterator[tuple[Config, float | None, str]]:
    """Configs to consider, each with the measured ratio to cuBLAS if there is one, and where it comes from."""
    if database is not None:
        tuned = database.load(kernel, without_epilogue(problem), gpu)
        if tuned is not None:
            yield _hiding(kernel, problem, tuned.config, gpu), tuned.ratio, "tuned here"
    if known is not None and known[0].kernel == kernel.name:
        entry, shape = known
        exact = shape == (problem.batch, problem.m, problem.n, problem.k)
        source = "table" if exact else "table, near " + "x".join(map(str, shape[1:]))
        config = _read(kernel, entry.config)
        if config is not None:
            yield _hiding(kernel, problem, config, gpu), entry.ratio, source
    few = kernel.name not in CHAMPIONS or problem.a.dtype not in kernel.dtypes
    for config in itertools.islice(kernel.configs(problem, gpu), 1 if few else CONFIGS_ASKED):
        yield config, None, "model"


def _hiding(kernel: Kernel, problem: Problem, config: Config, gpu: Gpu) -> Config:
    """A config that was measured on the product alone, or the kernel's own choice for the epilogue that it fuses."""
    adapt = getattr(kernel, "hiding", None)
    if adapt is None or problem.epilogue is None or kernel.supports(problem, config, gpu) is not None:
        return config
    return adapt(problem, config, gpu)


def _added(kernel: Kernel, problem: Problem, config: Config, gpu: Gpu) -> float:
    """Seconds that a fused epilogue adds to the product by the kernel's own estimate, if it has one."""
    estimate = getattr(kernel, "estimate", None)
    if estimate is None or problem.epilogue is None:
        return 0.0
    return max(0.0, estimate(problem, config, gpu) - estimate(without_epilogue(problem), config, gpu))


def _read(kernel: Kernel, data: dict[str, Any]) -> Config | None:
    """A config of the table, unless the kernel has changed its fields since."""
    try:
        return kernel.config_type.from_dict(data)
    except (TypeError, ValueError):
        return None
