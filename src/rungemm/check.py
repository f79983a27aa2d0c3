"""The sweep: every rung against float64 on the shapes, strides, offsets, scalars and data that break kernels.

Each operand is a view into a buffer of its own, with a margin around it. After a run three things must hold: D equals
the float64 product, no input byte has changed, and nothing outside D's elements was written.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from .dtypes import DType
from .hardware import Gpu
from .kernels import Kernel, LaunchPlan, Unsupported
from .ladder.pose import CHOICES
from .operands import problem_of_arrays
from .problem import Precision, Problem
from .verify import verify

__all__ = [
    "CASES",
    "QUICK",
    "Case",
    "Checked",
    "View",
    "check",
    "launch_on_gpu",
    "launch_on_simulator",
    "plans_of",
    "simulator_launcher",
]

MARGIN = 64
"""Elements of a buffer before and after a view's own."""


@dataclass(frozen=True)
class Case:
    """One thing that a GEMM must get right.

    Attributes:
        name: what it tries.
        shape: M, N, K.
        alpha, beta: the scalars.
        layout: BLAS's letters for A and B; ``d_layout`` likewise for C and D.
        pitch: elements added to every row (or column, where column-major) of every operand.
        step: stride of the fast dimension, of A and B; -1 walks them backwards; 0 repeats one element.
        offset: elements by which every operand is moved off its aligned start.
        poison: operands filled with NaN, since they must not be read.
        special: put one NaN, one +Inf and one -Inf into A and B.
    """

    name: str
    shape: tuple[int, int, int]
    alpha: float = 1.0
    beta: float = 0.0
    layout: str = "NN"
    d_layout: str = "N"
    pitch: int = 0
    step: int = 1
    offset: int = 0
    poison: str = ""
    special: bool = False


def _cases() -> Iterator[Case]:
    for shape in ((1, 1, 1), (7, 5, 3), (33, 32, 32), (127, 129, 65), (1, 128, 1), (1000, 37, 51), (128, 128, 64)):
        yield Case("x".join(map(str, shape)), shape, alpha=1.5, beta=-0.5)
    yield Case("K is 0: D is beta C", (33, 17, 0), alpha=2.0, beta=0.5)
    yield Case("K is 0, beta is 0: D is 0", (33, 17, 0))
    yield Case("M is 0", (0, 17, 5), beta=1.0)
    yield Case("N is 0", (17, 0, 5), beta=1.0)
    yield Case("beta is 0: C, all NaN, is not read", (65, 33, 17), poison="C")
    yield Case("alpha is 0: A, all NaN, is not read", (65, 33, 17), alpha=0.0, beta=2.0, poison="A")
    yield Case("alpha is 0: B, all NaN, is not read", (65, 33, 17), alpha=0.0, beta=0.0, poison="B")
    yield Case("alpha is -1, beta is 1", (65, 130, 40), alpha=-1.0, beta=1.0)
    for layout in ("NT", "TN", "TT"):
        yield Case(f"layout {layout}", (67, 71, 37), layout=layout)
        yield Case(f"layout {layout}, whole tiles", (128, 128, 32), layout=layout)
    yield Case("C and D column-major", (67, 71, 37), beta=0.75, d_layout="T")
    yield Case("rows with a gap", (66, 70, 36), alpha=0.5, beta=0.5, pitch=3)
    yield Case("rows with a gap of 4, whole tiles", (128, 128, 32), beta=1.0, pitch=4)
    yield Case("every other element", (66, 70, 36), step=2, pitch=1)
    yield Case("backwards", (34, 38, 20), step=-1)
    yield Case("one element, repeated", (34, 38, 20), step=0)
    yield Case("one element off alignment", (66, 70, 36), beta=0.5, offset=1)
    yield Case("one element off alignment, whole tiles", (128, 128, 32), offset=1)
    yield Case("two elements off alignment, layout TN", (128, 128, 32), offset=2, layout="TN")
    yield Case("NaN and Inf in A and B", (65, 66, 33), special=True)
    yield Case("NaN and Inf in A and B, whole tiles", (128, 128, 32), special=True)


CASES: tuple[Case, ...] = tuple(_cases())
QUICK: tuple[Case, ...] = tuple(
    case
    for case in CASES
    if case.name in {"1x1x1", "33x32x32", "K is 0: D is beta C", "M is 0", "layout TN", "rows with a gap"}
    or case.poison
    or case.special
    or (case.offset == 1 and case.shape[0] != 128)
)
"""The cases of ``rungemm check --quick``."""


@dataclass
class View:
    """A matrix inside a buffer with a margin, so that it can have any strides on the host and on a card."""

    buffer: np.ndarray
    offset: int
    rows: int
    cols: int
    row_stride: int
    col_stride: int

    @property
    def array(self) -> np.ndarray:
        """The matrix (rows, cols), sharing the buffer's memory."""
        size = self.buffer.itemsize
        return np.lib.stride_tricks.as_strided(
            self.buffer[self.offset :], (self.rows, self.cols), (self.row_stride * size, self.col_stride * size)
        )

    @staticmethod
    def blank(rows: int, cols: int, dtype: DType, letter: str, pitch: int, step: int, offset: int) -> View:
        """A view into a buffer of NaN; its first element lies ``offset`` elements past a 64-byte boundary."""
        fast, slow = (cols, rows) if letter == "N" else (rows, cols)
        stride = max(fast * max(abs(step), 1), 1) + pitch
        size = max(slow, 1) * stride + 2 * MARGIN + 64
        raw = np.full(size + 64, np.nan, np.float32).astype(dtype.numpy)
        skip = -raw.__array_interface__["data"][0] % 64 // raw.itemsize
        first = MARGIN + offset + (max(fast - 1, 0) * -step if step < 0 else 0)
        strides = (stride, step) if letter == "N" else (step, stride)
        return View(raw[skip : skip + size], first, rows, cols, *strides)


Operands = dict[str, View]
Launcher = Callable[[LaunchPlan, Operands], None]
"""Runs a plan and leaves what it wrote in D's buffer, and the inputs' buffers as they are after the run."""


@dataclass
class Checked:
    """What one rung made of one case, multiplied as ``arithmetic`` says (a key of CHOICES).

    ``ok`` is ``None`` when the rung's predicate declined it; ``why`` says why.
    """

    rung: str
    case: str
    ok: bool | None
    why: str = ""
    error: float | None = None
    tolerance: float | None = None
    seconds: float = 0.0
    arithmetic: str = ""
    shape: tuple[int, int, int] = field(default=(0, 0, 0))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def launch_on_simulator(plan: LaunchPlan, operands: Operands, schedule: str = "late", seed: int = 0) -> None:
    """Run on NumPy.

    Raises:
        SimulationFault: the kernel did something wrong on the way.
    """
    from .sim import simulate

    arrays = {role: view.array for role, view in operands.items()}
    simulate(plan, arrays, count=False, schedule=schedule, seed=seed)


def simulator_launcher(schedule: str, seed: int) -> Launcher:
    """:func:`launch_on_simulator` with asynchronous operations completing as that schedule says; see rungemm.sim."""
    return functools.partial(launch_on_simulator, schedule=schedule, seed=seed)


def launch_on_gpu(plan: LaunchPlan, operands: Operands) -> None:
    """Run on the current CUDA device: buffers go there whole and come back whole."""
    import torch

    from .gpu import run_plan

    bits = {1: np.uint8, 2: np.int16, 4: np.int32}
    buffers, tensors = {}, {}
    for role, view in operands.items():
        dtype = getattr(torch, _torch_name(view.buffer.dtype))
        flat = torch.from_numpy(view.buffer.view(bits[view.buffer.itemsize])).cuda()
        buffers[role] = flat
        extent, strides = (view.rows, view.cols), (view.row_stride, view.col_stride)
        tensors[role] = torch.as_strided(flat.view(dtype), extent, strides, view.offset)
    run_plan(plan, tensors)
    torch.cuda.synchronize()
    for role, view in operands.items():
        view.buffer.view(bits[view.buffer.itemsize])[:] = buffers[role].cpu().numpy()


def _torch_name(dtype: np.dtype) -> str:
    from .dtypes import dtype_named

    return dtype_named(dtype).torch


def check(
    kernels: Iterable[Kernel[Any]],
    card: Gpu,
    *,
    cases: Sequence[Case] = CASES,
    launch: Launcher = launch_on_simulator,
    seed: int = 0,
) -> Iterator[Checked]:
    """Every kernel with its default config on every case, in every arithmetic that it takes; results as they are known.

    A kernel that takes none has one result for the case, with its reason.
    """
    for kernel in kernels:
        for number, case in enumerate(cases):
            declined = []
            for name in CHOICES:
                started = time.monotonic()
                result = _check_one(kernel, case, name, card, launch, np.random.default_rng([seed, number]))
                result.seconds = time.monotonic() - started
                if result.ok is None:
                    declined.append(result)
                else:
                    yield result
            if len(declined) == len(CHOICES):
                yield declined[0]


def plans_of(kernels: Iterable[Kernel[Any]], card: Gpu, *, cases: Sequence[Case] = CASES) -> Iterator[LaunchPlan]:
    """What :func:`check` will launch, so that it can be compiled in parallel beforehand."""
    rng = np.random.default_rng(0)
    posed = {}
    for kernel in kernels:
        for case in cases:
            for name in CHOICES:
                if (case, name) not in posed:
                    dtype, precision = CHOICES[name]
                    posed[case, name] = _problem(case, _operands(case, dtype, rng), precision)
                problem = posed[case, name]
                try:
                    plan = kernel.plan(problem, kernel.default_config(problem, card), card)
                except Unsupported:
                    continue
                if not problem.is_empty:
                    yield plan


def _check_one(
    kernel: Kernel[Any], case: Case, arithmetic: str, card: Gpu, launch: Launcher, rng: np.random.Generator
) -> Checked:
    result = Checked(kernel.name, case.name, None, arithmetic=arithmetic, shape=case.shape)
    if case.step < 0 and launch is launch_on_gpu:
        result.why = "torch has no negative strides"
        return result
    dtype, precision = CHOICES[arithmetic]
    operands = _operands(case, dtype, rng)
    problem = _problem(case, operands, precision)
    try:
        plan = kernel.plan(problem, kernel.default_config(problem, card), card)
    except Unsupported as error:
        result.why = str(error)
        return result
    before = {role: view.buffer.copy() for role, view in operands.items()}
    try:
        if not problem.is_empty:
            launch(plan, operands)
    except Exception as error:  # a fault of the simulator, the compiler or the driver: each fails this case alone
        result.ok, result.why = False, " ".join(f"{type(error).__name__}: {error}".split())
        return result
    return _judge(result, problem, operands, before)


def _operands(case: Case, dtype: DType, rng: np.random.Generator) -> Operands:
    m, n, k = case.shape
    made = {
        "A": View.blank(m, k, dtype, case.layout[0], case.pitch, case.step, case.offset),
        "B": View.blank(k, n, dtype, case.layout[1], case.pitch, case.step, case.offset),
        "C": View.blank(m, n, dtype, case.d_layout, case.pitch, 1, case.offset),
        "D": View.blank(m, n, dtype, case.d_layout, case.pitch, 1, case.offset),
    }
    for role, view in made.items():
        if role != "D" and role not in case.poison:
            view.array[...] = rng.standard_normal((view.rows, view.cols), dtype=np.float32).astype(dtype.numpy)
    if case.special:
        for view in (made["A"], made["B"]):
            for value in (np.nan, np.inf, -np.inf):
                view.array[rng.integers(view.rows), rng.integers(view.cols)] = value
    return made


def _problem(case: Case, operands: Operands, precision: Precision) -> Problem:
    a, b, c, d = (operands[role].array for role in "ABCD")
    return problem_of_arrays(a, b, c, d, alpha=case.alpha, beta=case.beta, precision=precision)


def _judge(result: Checked, problem: Problem, operands: Operands, before: dict[str, np.ndarray]) -> Checked:
    arrays = {role: view.array for role, view in operands.items()}
    verdict = verify(problem, arrays)
    result.ok, result.why, result.error, result.tolerance = (
        verdict.correct, verdict.why, verdict.error, verdict.tolerance,
    )  # fmt: skip
    for role in "ABC":
        if operands[role].buffer.tobytes() != before[role].tobytes():
            result.ok, result.why = False, f"{role} was written to: inputs must stay as they are"
    # What lies outside D's elements must still be what it was: put the old elements back and compare bytes.
    d = operands["D"]
    after = View(d.buffer.copy(), d.offset, d.rows, d.cols, d.row_stride, d.col_stride)
    old = View(before["D"], d.offset, d.rows, d.cols, d.row_stride, d.col_stride)
    after.array[...] = old.array
    if after.buffer.tobytes() != before["D"].tobytes():
        result.ok, result.why = False, "memory outside D's elements was written"
    return result
