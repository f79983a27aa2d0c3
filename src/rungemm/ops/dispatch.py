"""Which kernel computes a problem: every one is asked, measurements decide where there are any, a model where not.

cuBLAS (through torch) is a contender like ours: it is called where it should be faster, and where nothing of ours takes
the problem. Plain data in and out: no torch, no GPU.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ..hardware import Gpu
from ..kernels import Config, Kernel, LaunchPlan, find_kernel
from ..kernels.plan import INT32_MAX
from ..problem import Epilogue, Matrix, Problem
from .batches import kernels_for
from .limits import cublas_refuses
from .model import CHAMPIONS, CUBLAS, UNTIMED, copies_seconds, cublas_seconds, elementwise_seconds, kernel_seconds
from .neighbours import UNKNOWN_GAIN, config_of, expectation
from .table import Entry, Table, table_of

__all__ = ["ELEMENTWISE", "Decision", "Option", "decide"]

ELEMENTWISE = "elementwise"
"""The choice where there is nothing to multiply: ``D = epilogue(beta * C)``."""

FUSED_SHARE = 0.35
"""Of the gain that a kernel of ours must promise over cuBLAS without a measurement, this share is enough where it fuses
what torch computes in kernels of their own: those cost what their bytes cost, whatever the product does."""

HOST_BOUND_S = 8e-6
"""Products of ours as short as this are over before the host has queued the next: 11 us a call, torch's as well."""

HOST_SAVED_S = 2e-6
"""So much longer than cuBLAS's they may be: a warm call through the library that ends in torch's own costs the host 4.5
us more than one that launches (results/h200/host_cost.json, 256^3 in bf16)."""

POOR = 0.97
"""A measured config that did worse than this against cuBLAS is no measurement of the kernel where it would not be the
kernel's first choice any more: then the model's word on that choice is held against cuBLAS's measured time."""

MODEL_ERROR = 0.06
"""The logarithm of the gain that it must promise then."""

TUNED = "tuned here"
"""The source of what this user's own tuning measured."""

ONE_RUN = 0.01
"""The logarithm of the gain to ask for where one run alone measured it: half of those timed again moved by 0.5%, a
quarter by 1.5% (results/h200: raw, tuning, repeat)."""

CONFIGS_ASKED = 48
"""So many of a champion's configs, best guess first, are asked before it is taken to refuse the problem."""


@dataclass(frozen=True)
class Option:
    """One way to compute the problem.

    Attributes:
        name: a rung's name, "cublas" or "elementwise".
        config: the rung's config, else ``None``.
        seconds: what it should take; the model's word is set right by what was measured near.
        source: where that comes from: "tuned here", "table", "model, set right by ..." or "model".
        measured: whether that is a measurement.
        needed: the logarithm of cuBLAS's seconds over these from which the option is called.
        problem: what the kernel is asked: the problem without the part of the epilogue that follows.
        bias_is_c: the bias goes in as C, with stride 0 and beta 1.
        after: the part of the epilogue that follows as elementwise steps of torch, or ``None``.
        realigned: cuBLAS on dense copies or on pieces, for it does not take the operands as they are.
        gpu: the card of a kernel of ours.
    """

    name: str
    config: Config | None
    seconds: float
    source: str
    problem: Problem = field(repr=False)
    measured: bool = False
    needed: float = UNKNOWN_GAIN
    bias_is_c: bool = False
    after: Epilogue | None = None
    realigned: bool = False
    gpu: Gpu | None = field(default=None, repr=False)

    @property
    def is_ours(self) -> bool:
        return self.config is not None

    @cached_property
    def plan(self) -> LaunchPlan | None:
        """How to launch it, made when first asked for; ``None`` for cuBLAS and elementwise."""
        if self.config is None or self.gpu is None:
            return None
        return find_kernel(self.name).plan(self.problem, self.config, self.gpu)


@dataclass(frozen=True)
class Decision:
    """What was chosen for a problem on a card, and what was not.

    Attributes:
        chosen: what runs.
        options: all that could run, fastest first by their seconds.
        rejected: rungs that do not take the problem, each with its predicate's reason.
        why: one sentence.
        eager: cuBLAS was chosen, but outside a CUDA graph this runs: the call takes longer than the product, and this
            call less than cuBLAS's.
    """

    problem: Problem
    gpu: Gpu
    chosen: Option
    options: tuple[Option, ...] = field(repr=False)
    rejected: tuple[tuple[str, str], ...] = field(repr=False)
    why: str
    eager: Option | None = None


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
    refusal = cublas_refuses(problem)
    cublas = _cublas(problem, gpu, base, refusal is not None)
    options, rejected = [cublas], [] if refusal is None else [(CUBLAS, refusal)]
    known = table.find(plain)
    kernels = kernels_for(problem)
    if not all_rungs:
        kernels = tuple(sorted(kernels, key=lambda kernel: _rank(kernel, known)))
    for kernel in kernels:
        asked = all_rungs or refusal is not None or _rank(kernel, known) == 0
        if not asked and not _is_worth_asking(kernel, options, plain, database, gpu):
            continue
        found = list(_options(kernel, problem, gpu, base, known, table, database))
        fused = table.find_fused(problem) if found and isinstance(found[-1], Option) else None
        if fused is not None and fused.kernel == kernel.name and found[-1].source != TUNED:  # type: ignore[union-attr]
            found.append(_fused(kernel, problem, gpu, cublas, fused, found[-1]))  # type: ignore[arg-type]
        if found and isinstance(found[-1], Option):
            options.append(found[-1])
        else:
            rejected.append((kernel.name, next((str(reason) for reason in found), "it has no config for it")))
    options.sort(key=lambda option: option.seconds)
    if refusal is not None:
        chosen, why = _without_cublas(options, refusal)
        return Decision(problem, gpu, chosen, tuple(options), tuple(rejected), why)
    chosen, why = _choose(options, cublas)
    if known is not None and known.kernel == CUBLAS and not any(option.measured for option in options):
        why = "measured: what was timed of ours is less exact than cuBLAS here"
        return Decision(problem, gpu, cublas, tuple(options), tuple(rejected), why)
    eager = _eager(options, cublas) if chosen is cublas else None
    return Decision(problem, gpu, chosen, tuple(options), tuple(rejected), why, eager)


def _rank(kernel: Kernel, known: Entry | None) -> int:
    """The order in which kernels are asked for a choice alone: what was measured, then what was timed at all."""
    if known is not None and known.kernel == kernel.name:
        return 0
    return 2 if kernel.name in UNTIMED else 1


def _is_worth_asking(kernel: Kernel, options: list[Option], plain: Problem, database: Any, gpu: Gpu) -> bool:
    """Whether a kernel that the table does not name may yet be chosen: a champion's word costs milliseconds.

    A measurement outweighs it, and so does, for a kernel that was not timed on the cards it is for, one that was.
    """
    if kernel.name not in CHAMPIONS:
        return False
    ours = [option for option in options if option.is_ours]
    outdone = any(option.measured for option in ours) or (
        kernel.name in UNTIMED and any(option.name in CHAMPIONS and option.name not in UNTIMED for option in ours)
    )
    return not outdone or (database is not None and database.load(kernel, plain, gpu) is not None)


def _without_cublas(options: list[Option], refusal: str) -> tuple[Option, str]:
    """A champion if one takes the problem; else the fastest of all, cuBLAS on copies or pieces among them.

    An extent that is beyond cuBLAS is beyond our kernels' 32-bit indices of rows, columns and steps as well.
    """
    problem = options[0].problem
    if max(problem.m, problem.n, problem.effective_k, problem.batch) > INT32_MAX:
        chosen = next(option for option in options if option.name == CUBLAS)
    else:
        champions = [option for option in options if option.is_ours and option.name in CHAMPIONS]
        chosen = (champions or options)[0]
    return chosen, f"{refusal}; " + (f"{chosen.name} does" if chosen.is_ours else "so it gets dense copies or pieces")


def _eager(options: list[Option], cublas: Option) -> Option | None:
    """The champion that is quicker to call than cuBLAS, where the host's time is all that shows."""
    for option in options:
        if option.is_ours and option.name in CHAMPIONS and option.name not in UNTIMED and not option.after:
            short = option.seconds <= min(HOST_BOUND_S, cublas.seconds + HOST_SAVED_S)
            if short and option.plan is not None and len(option.plan.launches) == 1 and not option.plan.workspaces:
                return option
    return None


def _choose(options: list[Option], cublas: Option) -> tuple[Option, str]:
    ours = [option for option in options if option.is_ours and (option.measured or option.name in CHAMPIONS)]
    if not ours:
        return cublas, "no champion of ours takes this problem, and no other rung was measured on it"
    # A measurement outweighs any promise.
    best = min([option for option in ours if option.measured] or ours, key=lambda option: option.seconds)
    gain = cublas.seconds / best.seconds - 1
    if best.measured:
        needed = math.expm1(best.needed)
        if gain >= needed:
            return best, f"measured: {gain:.1%} faster than cuBLAS ({best.source})"
        if gain >= 0:
            return cublas, f"measured in one run: {gain:.1%} faster than cuBLAS, of {needed:.1%} needed ({best.source})"
        return cublas, f"measured: {best.name} is {-gain:.1%} slower than cuBLAS ({best.source})"
    fuses = best.after is None and _passes(cublas.problem.epilogue, bias_is_free=True) > 0
    needed = math.expm1(best.needed * (FUSED_SHARE if fuses else 1.0))
    if gain >= needed:
        return best, f"the {best.source}: {best.name} {gain:.1%} faster than cuBLAS, of {needed:.1%} needed unmeasured"
    return cublas, (
        f"the {best.source}: {best.name} gains {gain:.1%} on cuBLAS; unmeasured, it must gain {needed:.1%} to be called"
    )


def _cublas(problem: Problem, gpu: Gpu, base: float, realigned: bool) -> Option:
    """cuBLAS, with the steps that torch adds after it: a row bias is in cuBLASLt's own epilogue.

    Copies of far operands cost what a pass over each costs.
    """
    passes = _passes(problem.epilogue, bias_is_free=True)
    seconds = base + elementwise_seconds(problem, gpu, passes)
    if realigned:
        seconds += copies_seconds(problem, gpu)
    return Option(CUBLAS, None, seconds, "model", problem, realigned=realigned)


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
    kernel: Kernel, problem: Problem, gpu: Gpu, base: float, known: Entry | None, table: Table, database: Any
) -> Iterator[Option | str]:
    """Reasons why the kernel does not take the problem, until it does: measured configs first, then its own order."""
    for inner, bias_is_c, after in _variants(problem):
        reason = kernel.refuses(inner, gpu)
        if reason is not None:
            yield reason
            continue
        for config, ratio, source in _configs(kernel, inner, gpu, known, database):
            reason = kernel.supports(inner, config, gpu)
            if reason is not None:
                yield reason
                continue
            needed = 0.0
            if ratio is not None:
                needed = ONE_RUN if known is not None and known.runs == 1 and source != TUNED else 0.0
                guess = base / ratio + _added(kernel, inner, config, gpu)
            else:
                guess = kernel_seconds(kernel, inner, config, gpu)
                if kernel.name in CHAMPIONS and known is not None and known.cublas_us > 0:
                    guess *= base / (1e-6 * known.cublas_us) * _too_hopeful(kernel, inner, gpu, known)
                    needed = MODEL_ERROR
                    source = f"{source}, against {known.cublas_us:.1f} us measured of cuBLAS"
                elif kernel.name in CHAMPIONS:
                    expected = expectation(kernel, without_epilogue(inner), gpu, table)
                    guess, needed = guess * math.exp(-expected.correction), expected.needed
                    if expected.nearest is not None:
                        source = f"{source}, set right by what was measured near, as on {expected.nearest}"
            guess += elementwise_seconds(problem, gpu, _passes(after))
            yield Option(
                kernel.name, config, guess, source, inner, ratio is not None, needed, bias_is_c, after, gpu=gpu
            )  # fmt: skip
            return


def _fused(kernel: Kernel, problem: Problem, gpu: Gpu, cublas: Option, known: Entry, guessed: Option) -> Option:
    """The kernel with its epilogue as it was measured, where the config still takes the problem."""
    config = config_of(kernel, known)
    if config is None or kernel.supports(problem, config, gpu) is not None:
        return guessed
    return Option(kernel.name, config, cublas.seconds / known.ratio, "table, fused", problem, True, 0.0, gpu=gpu)


def _told(known: Entry) -> str:
    """What the table says, in words."""
    if not known.rested:
        return "table"
    rested = f"{'about ' if known.guessed else ''}{known.rested:.3f} on a card that rests"
    return f"table: the mean of {known.sustained:.3f} of cuBLAS's speed in a row and {rested}"


def _too_hopeful(kernel: Kernel, problem: Problem, gpu: Gpu, known: Entry) -> float:
    """How much longer, if longer, another config of the kernel took on this very problem than the model has it."""
    config = config_of(kernel, known) if known.kernel == kernel.name else None
    plain = without_epilogue(problem)
    if config is None or known.ratio <= 0 or kernel.supports(plain, config, gpu) is not None:
        return 1.0
    took = 1e-6 * known.cublas_us / known.ratio
    return max(1.0, took / kernel_seconds(kernel, plain, config, gpu))


def _configs(
    kernel: Kernel, problem: Problem, gpu: Gpu, known: Entry | None, database: Any
) -> Iterator[tuple[Config, float | None, str]]:
    """Configs to consider, each with the measured ratio to cuBLAS if there is one, and where it comes from."""
    if database is not None:
        tuned = database.load(kernel, without_epilogue(problem), gpu)
        if tuned is not None:
            yield _hiding(kernel, problem, tuned.config, gpu), tuned.ratio, TUNED
    if known is not None and known.kernel == kernel.name:
        config = config_of(kernel, known)
        outdated = known.ratio < POOR and config != next(iter(kernel.configs(without_epilogue(problem), gpu)), config)
        if config is not None and not outdated:
            yield _hiding(kernel, problem, config, gpu), known.ratio, _told(known)
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
