"""The dispatcher's choice in words, on any machine: no torch, no GPU."""

from __future__ import annotations

import numbers
import sys
from typing import Any

from ..dtypes import FP32, DType, dtype_named
from ..hardware import DEFAULT_GPU, Gpu, detect_gpu, find_gpu
from ..problem import Epilogue, Precision, Problem, ProblemError
from .dispatch import Decision, Option, decide
from .model import CHAMPIONS

__all__ = ["describe", "explain_dispatch", "is_told"]

CHOSEN_FOR = ("fp32", "fp16", "bf16", "fp8e4m3", "fp8e5m2", "int8")
"""Types of operands for which the library has a choice."""


def explain_dispatch(
    problem: Problem | tuple[int, ...],
    *,
    gpu: Gpu | str | None = None,
    dtype: DType | str = FP32,
    layout: str = "NN",
    precision: Precision | None = None,
    beta: float = 0.0,
    epilogue: Epilogue | None = None,
) -> Decision:
    """What the library would run, and what it would not, and why; ``describe`` makes lines of it.

    Args:
        problem: a :class:`~rungemm.problem.Problem`, or (M, N, K) or (batch, M, N, K) of dense operands, for which the
            other arguments say the rest.
        gpu: a card or its name; the card at hand, else an H200.
        precision: of fp32; ``None`` is what a call without it would take: torch's setting, "ieee" where torch is not
            loaded.

    Raises:
        ValueError: a shape, a name or a combination that is none; the message says what is.
    """
    if isinstance(gpu, str):
        gpu = find_gpu(gpu)
    card = gpu or detect_gpu() or DEFAULT_GPU
    if not isinstance(problem, Problem):
        if len(problem) not in (3, 4):
            raise ProblemError(f"shape {problem} is not (M, N, K) or (batch, M, N, K)")
        if not all(isinstance(extent, numbers.Integral) for extent in problem):
            raise ProblemError(f"shape {problem} is not made of whole numbers: pass (M, N, K) or (batch, M, N, K)")
        *batch, m, n, k = map(int, problem)
        if dtype_named(dtype).name not in CHOSEN_FOR:
            raise ProblemError(
                f"{dtype_named(dtype).name} is always computed by torch, so there is no choice: ask for one of "
                f"{', '.join(CHOSEN_FOR)}"
            )
        problem = Problem.dense(
            m, n, k, dtype=dtype_named(dtype), layout=layout, batch=batch[0] if batch else 1, beta=beta,
            precision=precision or _default_precision(dtype_named(dtype)), epilogue=epilogue,
        )  # fmt: skip
    return decide(problem, card, database=users_database())


def _default_precision(dtype: DType) -> Precision:
    if dtype is not FP32 or "torch" not in sys.modules:
        return "ieee"
    from .fallback import current_precision

    return "tf32" if current_precision() == "tf32" else "ieee"


def users_database() -> Any:
    """This user's tuning results."""
    from ..tune.database import TuningDatabase

    return TuningDatabase()


def is_told(decision: Decision, option: Option) -> bool:
    """Whether an option's seconds are worth telling.

    A rung on the way up is called where it was measured to be the fastest, or where nothing else takes the problem. Of
    the others the model knows next to nothing: its time would be one that the measured ladder contradicts.
    """
    return not option.is_ours or option.measured or option.name in CHAMPIONS or option is decision.chosen


def describe(decision: Decision) -> list[str]:
    """The decision in lines: what was asked, what runs, what else could run, and what could not."""
    problem, chosen = decision.problem, decision.chosen
    asked = f"{problem} precision {problem.precision}, alpha {problem.alpha:g}, beta {problem.beta:g}"
    if problem.epilogue is not None:
        asked += f", epilogue {problem.epilogue}"
    lines = [f"problem   {asked} on {decision.gpu.title}", f"chosen    {chosen.name}: {decision.why}"]
    if chosen.config is not None:
        lines.append(f"config    {chosen.config}")
    if chosen.bias_is_c:
        lines.append("bias      read as C, with stride 0")
    if chosen.is_ours and chosen.problem.epilogue is not None:
        lines.append(f"epilogue  {chosen.problem.epilogue}, fused into the kernel")
    if chosen.after is not None:
        lines.append(f"after it  {chosen.after}, by elementwise kernels of torch (not fused)")
    if chosen.realigned:
        lines.append("operands  dense copies of those beyond cuBLAS's reach, or pieces of extents that are")
    if chosen.after is None and problem.epilogue is not None and not chosen.is_ours:
        lines.append("epilogue  by torch after the product (a row bias by cuBLASLt)")
    if decision.eager is not None:
        lines.append(
            f"eager     {decision.eager.name} {decision.eager.config}: outside a CUDA graph the host's time decides"
        )
    for option in decision.options:
        if option is not chosen and is_told(decision, option):
            lines.append(f"also      {option.name}: {1e6 * option.seconds:.1f} us by {option.source}")
    untold = [option.name for option in decision.options if not is_told(decision, option)]
    if untold:
        lines.append(f"not called {', '.join(untold)}: rungs on the way up, unless measured to be the fastest")
    lines.insert(2, f"time      {1e6 * chosen.seconds:.1f} us by {chosen.source}")
    lines += [f"rejected  {name}: {reason}" for name, reason in decision.rejected]
    return lines
