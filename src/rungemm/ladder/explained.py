"""What ``rungemm explain`` tells of one rung: its figures, the rung's below, its source line by line."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..analysis import Accesses, accesses_per_element, occupancy, roofline_of, tile_efficiency
from ..hardware import Gpu
from ..kernels import Kernel, LaunchPlan, Unsupported, find_kernel
from .pose import Posed, Refused, Task, pose
from .record import Record
from .run import climb
from .runners import Outcome, SimulatorRunner

if TYPE_CHECKING:
    from ..sim import SimReport

__all__ = ["Change", "Explained", "Line", "annotate", "changes", "explain", "on_paper"]


@dataclass(frozen=True)
class Change:
    """One figure of the rung below and of this one.

    Attributes:
        what: the figure, in words.
        before, after: its two values; ``None`` where it is not known.
    """

    what: str
    before: float | None
    after: float | None

    @property
    def factor(self) -> float | None:
        """After over before, or ``None`` where that says nothing."""
        return self.after / self.before if self.before and self.after is not None else None


@dataclass(frozen=True)
class Line:
    """One line of a kernel's source with what it costs; ``counts`` holds only counters that are not 0.

    What a helper function costs is on the line of the kernel that calls it.
    """

    number: int
    text: str
    counts: dict[str, int] = field(default_factory=dict)
    note: str = ""


@dataclass
class Explained:
    """Everything about one rung on one problem and card.

    Attributes:
        record, below: the rung's and the one below's, with their counts on this problem.
        changes: their figures side by side.
        apart: why their figures do not compare, so that no factor means anything; empty where they do.
        paper: loads for one element of C that the tile sizes imply.
        limits: blocks an SM that each resource allows.
        seconds_arithmetic, seconds_memory: the least time of each on the card, the roofline's two sides.
        tile_share: the share of the tiles' area that lies inside C.
        file, lines: the kernel's source.
    """

    record: Record
    below: Record | None
    changes: list[Change]
    paper: Accesses | None
    limits: dict[str, int]
    seconds_arithmetic: float
    seconds_memory: float
    tile_share: float
    file: str
    lines: list[Line]
    apart: str = ""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def on_paper(posed: Posed) -> Accesses | None:
    """The loads for one element of C that the tile sizes imply, or ``None`` for a config without them."""
    config = posed.config.to_dict()
    if not {"tile_m", "tile_n", "thread_m", "thread_n"} <= config.keys():
        return None
    shares = getattr(posed.kernel, "shared_bytes", lambda _: 0)(posed.config) > 0
    tile = (config["tile_m"], config["tile_n"]) if shares else None
    return accesses_per_element(posed.problem.effective_k, tile=tile, thread=(config["thread_m"], config["thread_n"]))


def changes(below: Record | None, record: Record) -> list[Change]:
    """The figures that a rung moves, against the rung below."""
    if below is None:
        return []
    found = []
    for what, get in _FIGURES:
        before, after = get(below), get(record)
        if before is not None or after is not None:
            found.append(Change(what, before, after))
    return found


def _figure(part: str, name: str) -> Callable[[Record], float | None]:
    return lambda record: getattr(getattr(record, part), name, None)


_FIGURES: tuple[tuple[str, Callable[[Record], float | None]], ...] = (
    ("registers a thread", _figure("resources", "registers")),
    ("shared memory a block, bytes", _figure("resources", "shared_bytes")),
    ("warps an SM", _figure("resources", "warps_per_sm")),
    ("global loads for one element of C", _figure("counts", "loads_per_c")),
    ("bytes in sectors for one element of C", _figure("counts", "sector_bytes_per_c")),
    ("shared loads for one element of C", _figure("counts", "shared_loads_per_c")),
    ("shared wavefronts for one element of C", _figure("counts", "wavefronts_per_c")),
    ("bank conflicts for one element of C", _figure("counts", "conflicts_per_c")),
    ("global load requests", _figure("counts", "global_load_requests")),
    ("TFLOPS allowed with no cache", _figure("bounds", "uncached_tflops")),
    ("TFLOPS allowed by shared memory", _figure("bounds", "shared_tflops")),
)


COMMON = ("bf16", "fp16", "tf32", "fp32")
"""What two rungs are counted in that would each be set another element type: the first that both take."""


def common_task(kernel: Kernel[Any], below: Kernel[Any], task: Task, card: Gpu) -> tuple[Task, str]:
    """The task in an arithmetic in which both rungs' counts compare, and why there is none, if there is none.

    fp32 operands multiplied as tf32 compare with fp32: they have the same bytes. A task that names its arithmetic, or
    has the user's own operands, stays as it is.
    """
    mine, other = pose(kernel, task, card), pose(below, task, card)
    if isinstance(mine, Refused) or isinstance(other, Refused) or mine.problem.a.dtype == other.problem.a.dtype:
        return task, ""
    for arithmetic in COMMON if task.seed is not None and task.arithmetic is None else ():
        shared = replace(task, arithmetic=arithmetic)
        if not any(isinstance(pose(each, shared, card), Refused) for each in (kernel, below)):
            return shared, ""
    names = f"{below.name} in {other.problem.a.dtype.name}, {kernel.name} in {mine.problem.a.dtype.name}"
    return task, f"no factors: counted on elements of different sizes, {names}; the two take no type in common"


def explain(
    kernel: Kernel[Any],
    task: Task,
    card: Gpu,
    *,
    schedule: str = "late",
    seed: int = 0,
    on_stage: Callable[[str], None] | None = None,
) -> Explained:
    """Run the rung and the one below it in the simulator, compile both, and put what they cost side by side.

    Where the two would be set different element types they are both set the first of :data:`COMMON` that both take.
    ``schedule`` and ``seed`` are the simulator's; the counts are the same under every schedule.

    Raises:
        Unsupported: the rung does not take the task on this card; the message is its predicate's.
    """
    apart = ""
    if kernel.below is not None:
        task, apart = common_task(kernel, find_kernel(kernel.below), task, card)
    posed = pose(kernel, task, card)
    if isinstance(posed, Refused):
        raise Unsupported(posed.why)
    runner = _Watching(schedule=schedule, seed=seed)
    pair = [find_kernel(kernel.below)] if kernel.below is not None else []
    records = list(climb([*pair, kernel], task, card, runner, on_stage=on_stage))
    record, below = records[-1], records[0] if len(records) > 1 else None
    resources, config = record.resources, posed.config
    limits = {}
    if resources is not None:
        fit = occupancy(
            card, threads=resources.threads, registers=resources.registers, shared_bytes=resources.shared_bytes
        )
        limits = fit.limits
    roof = roofline_of(posed.problem, card)
    tile = getattr(config, "tile_m", 1), getattr(config, "tile_n", 1)
    file, lines = annotate(posed.plan, runner.report)
    return Explained(
        record=record,
        below=below,
        changes=changes(below, record),
        paper=on_paper(posed),
        limits=limits,
        seconds_arithmetic=roof.flops_seconds,
        seconds_memory=roof.bytes_seconds,
        tile_share=tile_efficiency(posed.problem.m, posed.problem.n, *tile),
        file=file,
        lines=lines,
        apart=apart,
    )


class _Watching(SimulatorRunner):
    """A simulator that keeps the report of its last run."""

    report: SimReport | None = None

    def run(self, posed: Posed, task: Task) -> Outcome:
        outcome = super().run(posed, task)
        self.report = outcome.report
        return outcome


def annotate(plan: LaunchPlan, report: SimReport | None) -> tuple[str, list[Line]]:
    """The file of the plan's kernels and their source, with what each line and the helpers it calls cost."""
    costs: dict[tuple[str, int], Counter[str]] = {}
    notes: dict[tuple[str, int], str] = {}
    if report is not None:
        for (_, _, file, number), counts in report.per_line.items():
            costs.setdefault((file, number), Counter()).update(counts)
        for (_, _, file, number), conflict in report.observer.conflicts.items():
            lanes = ", ".join(str(lane) for lane in conflict.lanes[:8]) + (", ..." if len(conflict.lanes) > 8 else "")
            what = f"{conflict.degree}-way bank conflict of {conflict.instruction}"
            notes[file, number] = f"{what}: lanes {lanes} want different words of bank {conflict.bank}"
    lines: list[Line] = []
    main_file = ""
    for function in dict.fromkeys(getattr(launch.function, "fn", launch.function) for launch in plan.launches):
        source, first = inspect.getsourcelines(function)
        file = inspect.getsourcefile(function) or ""
        main_file = main_file or file
        for number, text in enumerate(source, first):
            key = (file, number)
            lines.append(Line(number, text.rstrip("\n"), dict(costs.get(key, {})), notes.get(key, "")))
    return main_file, lines
