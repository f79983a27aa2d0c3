"""One measurement: a problem, its contenders, and all that a reader needs to believe the result.

The order of things: make enough operand sets to be cold; bind every contender to every set; run each once and estimate
its time; capture graphs of the short ones; warm up until the clocks settle; time in interleaved rounds with the card's
state logged; check the outputs that the timed launches wrote; refuse what is warm, wrong or impossible.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import UserError
from ..hardware import Gpu
from ..problem import Problem
from .checking import Checked, check_outputs
from .clocks import ClockLog
from .cold import Rotation, sets_needed
from .contenders import Contender, matched_precision
from .data import make_sets, outputs_for, poison, set_bytes
from .device import CudaDevice, Device
from .graph import SHORT_KERNEL_S, host_seconds, turns_for
from .guard import check_possible, peak_of
from .interleaved import Entry, Rounds, StopRule, estimate, launches_for, time_interleaved, warm_up
from .statistics import Ratio, spread_of

__all__ = ["Lane", "Measurement", "Settings", "measure"]


@dataclass(frozen=True)
class Settings:
    """How a measurement is made.

    Attributes:
        rule: when to stop.
        data: "normal", "uniform" or "zeros".
        warm: one operand set, results labelled warm; otherwise cold is proven or the measurement refused.
        sets: number of operand sets; ``None`` for as many as cold needs.
        graphs: replay short kernels from CUDA graphs.
        host_time: also measure the host's time a call.
        warm_up_s: most seconds of warm-up.
        sample_s: the length that a contender's sample in a round aims for.
        pause_s: how long the card rests before each sample. An endless row of large products is held by the card's
            power cap; a program that pauses between its products is not, and another kernel may be ahead there.
        seed: of data and order; from the system when ``None``.
    """

    rule: StopRule = field(default_factory=StopRule)
    data: str = "normal"
    warm: bool = False
    sets: int | None = None
    graphs: bool = True
    host_time: bool = True
    warm_up_s: float = 2.0
    sample_s: float = 0.01
    pause_s: float = 0.0
    seed: int | None = None


@dataclass
class Lane:
    """What one contender gave.

    Attributes:
        record: config and kernel, from the contender.
        seconds: per product, one entry a round.
        launches: products a round.
        graph: timed as graph replays.
        tflops: from the median.
        checked: the comparison with float64.
        host_s: host seconds a call, or ``None`` if not measured.
        failure: why it has no result; then the rest is empty.
    """

    record: dict[str, Any] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    launches: int = 0
    graph: bool = False
    tflops: float | None = None
    checked: Checked | None = None
    host_s: float | None = None
    failure: str | None = None


@dataclass
class Measurement:
    """The result of :func:`measure`; ``lanes`` are by contender name, failures included."""

    problem: Problem
    gpu: Gpu
    lanes: dict[str, Lane]
    rounds: Rounds
    cold: dict[str, Any]
    clocks: dict[str, Any]
    flags: dict[str, Any]
    data: str
    seed: int
    wall_s: float

    def ratio(self, contender: str, ours: str) -> Ratio | None:
        """Contender's time over ours (above 1: we are faster), or ``None`` if either has no right result."""
        for name in (contender, ours):
            lane = self.lanes.get(name)
            if lane is None or lane.failure is not None:
                return None
        return self.rounds.ratio(contender, ours)

    def peak_share(self, name: str) -> float | None:
        """The contender's TFLOPS over the card's dense peak."""
        peak, rate = peak_of(self.problem, self.gpu), self.lanes[name].tflops
        return rate / peak if peak and rate else None


def measure(
    problem: Problem,
    contenders: Sequence[Contender],
    gpu: Gpu,
    *,
    reference: str | None = "cublas",
    settings: Settings | None = None,
    device: Device | None = None,
    on_stage: Callable[[str], None] | None = None,
) -> Measurement:
    """Time the contenders on one problem.

    A contender that cannot take the problem, or computes it wrongly, is reported in its lane as a failure and has no
    figure; the others go on.

    Raises:
        WarmCacheError: the operands did not leave the L2 between uses, and warm was not asked for.
        ImpossibleResultError: a figure is beyond the card.
        ValueError: the problem is empty, or two contenders have one name.
    """
    import torch

    say = on_stage or (lambda _: None)
    settings = settings or Settings()
    started = time.monotonic()
    if problem.is_empty or problem.effective_k == 0:
        raise ValueError(f"{problem} has nothing to multiply: it cannot be timed")
    names = [contender.name for contender in contenders]
    if len(set(names)) != len(names):
        raise ValueError(f"two contenders have one name ({', '.join(sorted(names))}): give them names of their own")
    seed = settings.seed if settings.seed is not None else int(torch.randint(2**31, ()).item())
    device = device or CudaDevice()
    count = settings.sets or (1 if settings.warm else sets_needed(set_bytes(problem), device.l2_bytes))
    rotation = Rotation(count, set_bytes(problem), device.l2_bytes)
    clock = device.clock
    say(f"{problem}: {count} operand sets of {settings.data} data")
    lanes = {name: Lane() for name in names}
    with matched_precision(problem) as flags, torch.no_grad():
        sets = make_sets(problem, count, kind=settings.data, seed=seed, device=device.name)
        bound: dict[str, list[dict[str, Any]]] = {}
        entries: dict[str, Entry] = {}
        estimates: dict[str, float] = {}
        written: dict[str, set[int]] = {}
        for contender in contenders:
            say(f"preparing {contender.name}")
            try:
                mine = [
                    {**operands, "D": d}
                    for operands, d in zip(sets, outputs_for(problem, count, device.name), strict=True)
                ]
                calls = [contender.bind(problem, operands) for operands in mine]
                estimates[contender.name] = estimate(calls, clock)
            except Exception as error:  # any failure of a contender is its own result, not the end of the others'
                named = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
                lanes[contender.name].failure = (named.splitlines() or [type(error).__name__])[0]
                continue
            finally:
                lanes[contender.name].record = contender.record()
            bound[contender.name] = mine
            written[contender.name] = set()
            launch = _caller(calls, written[contender.name])
            entries[contender.name] = Entry(launch, launches_for(estimates[contender.name], settings.sample_s))
        short = settings.graphs and bool(entries) and min(estimates.values()) < SHORT_KERNEL_S
        if settings.host_time:
            for name, entry in entries.items():
                if estimates[name] < 0.002:  # of longer ones a hundred calls take long, and hide the host's time
                    lanes[name].host_s = host_seconds(entry.launch, count, clock.synchronize)
        if short:
            entries = {name: _graphed(device, entry, lanes[name], count) for name, entry in entries.items()}
        if not entries:
            raise ValueError("; ".join(f"{name}: {lane.failure}" for name, lane in lanes.items()))
        if reference not in entries:
            reference = None
        with ClockLog() as log:
            say("warming up")
            warm_up(entries, clock, rotation, budget_s=settings.warm_up_s)
            for name, mine in bound.items():
                written[name].clear()
                _poison_outputs(mine, replayed=lanes[name].graph)
            log.clear()
            say("timing")
            rounds = time_interleaved(
                entries, clock, rotation, reference=reference, rule=settings.rule, seed=seed,
                pause_s=settings.pause_s, on_round=lambda done: say(f"round {done}"),
            )  # fmt: skip
        cold = rotation.verdict(warm_allowed=settings.warm)
        say("checking the timed outputs against float64")
        for name in entries:
            if lanes[name].graph:
                written[name].update(range(count))
        _check(problem, sets, bound, written, lanes)
    for name, entry in entries.items():
        lane = lanes[name]
        lane.seconds = rounds.seconds[name]
        lane.launches = entry.launches
        if lane.failure is None:
            lane.tflops = check_possible(name, problem, spread_of(lane.seconds).median, gpu, cold=cold)
        else:
            lane.tflops = None
    return Measurement(
        problem, gpu, lanes, rounds, rotation.record(), log.record(), flags, settings.data, seed,
        time.monotonic() - started,
    )  # fmt: skip


def _caller(calls: list[Callable[[], None]], written: set[int]) -> Callable[[int], None]:
    def launch(index: int) -> None:
        written.add(index)
        calls[index]()

    return launch


def _graphed(device: Device, entry: Entry, lane: Lane, count: int) -> Entry:
    """The entry as graph replays of whole turns; if it cannot be captured, plain launches in whole turns."""
    turns = turns_for(count)
    inside = turns * count
    launches = max(inside, entry.launches // inside * inside)
    try:
        replay = device.capture(entry.launch, count, turns)
    except RuntimeError as error:
        lane.record["not_captured"] = str(error).splitlines()[0]
        return Entry(entry.launch, launches)
    lane.graph = True
    return Entry(entry.launch, launches, replay, turns)


def _poison_outputs(mine: list[dict[str, Any]], *, replayed: bool) -> None:
    """Spoil what one contender's launches have written so far: only what is written from here on can be right.

    A contender that returns its product leaves it under "result", and each launch puts a new one there. A replay runs
    no Python: it writes the tensors of the capture, so those stay, or nothing would be left that the timed work wrote.
    """
    for operands in mine:
        poison(operands["D"])
        if operands.get("result") is not None:
            poison(operands["result"])
            if not replayed:
                del operands["result"]


def _check(
    problem: Problem,
    sets: list[dict[str, Any]],
    bound: dict[str, list[dict[str, Any]]],
    written: dict[str, set[int]],
    lanes: dict[str, Lane],
) -> None:
    """Compare every set that a timed launch of a contender wrote; a wrong contender loses its figure."""
    outputs = {
        name: [
            operands.get("result", operands["D"]) if index in written[name] else None
            for index, operands in enumerate(mine)
        ]
        for name, mine in bound.items()
    }
    for name, checked in check_outputs(problem, sets, outputs).items():
        lanes[name].checked = checked
        if not checked.ok:
            lanes[name].failure = f"wrong result: {checked.why}"
