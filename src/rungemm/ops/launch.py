"""From tensors to a running kernel: the choice is made once a problem class; after that a call looks up and launches.

Two levels of memory. The first (:mod:`.execute`) is keyed by what torch says of the tensors: shapes, strides, types,
the last four bits of each address, the scalars; a hit costs one dictionary look-up. The second is keyed by the
:class:`Problem` itself, so that tensors that differ in nothing that matters share a prepared launch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .. import hardware
from ..dtypes import dtype_named
from ..gpu import matrix_of, prepare
from ..gpu.driver import driver
from ..hardware import Gpu
from ..problem import Epilogue, Matrix, Precision, Problem
from . import fallback
from .dispatch import ELEMENTWISE, Decision, Option, decide
from .explain import users_database
from .far import compute_far
from .limits import cublas_refuses
from .model import CUBLAS

__all__ = ["Entry", "capturing", "decision_for", "entry_for", "forget", "gpu_of", "increment_version", "on_gpu", "span"]

ENTRIES_KEPT = 8192
"""Either level forgets all when it holds so many: a loop over ever new shapes must not fill the memory."""

Run = Callable[[Tensor, Tensor, "Tensor | None", "Tensor | None", Tensor], None]
"""Queues the product of (a, b, c, bias) into ``out``, which must share no memory with a, b and bias."""


@dataclass
class Entry:
    """What a call does.

    Attributes:
        run: with tensors.
        at: with the addresses of a, b, c, bias and out alone, where that is enough; else ``None``.
        a_bytes, b_bytes, c_bytes, bias_bytes, out_bytes: how far each tensor reaches from its first byte.
        c_is_out: C and D may be the same memory: an element is read before it is written.
        decision: why; ``None`` on a card we do not know.
        eager: as ``at``, where cuBLAS was chosen and that is what runs outside a capture (:attr:`.Decision.eager`).
        refused: cuBLAS does not take these operands (:mod:`.limits`): a call of torch's would raise.
    """

    run: Run
    at: Any
    a_bytes: int
    b_bytes: int
    c_bytes: int
    bias_bytes: int
    out_bytes: int
    c_is_out: bool
    decision: Decision | None = None
    eager: Any = None
    refused: bool = False

    @property
    def by_torch(self) -> bool:
        """torch's own call does it: cuBLAS was chosen, or the card is none we know, and it takes the operands."""
        return not self.refused and (self.decision is None or self.decision.chosen.name == CUBLAS)


capturing: Callable[[], bool] = (
    torch._C._cuda_isCurrentStreamCapturing if torch.backends.cuda.is_built() else lambda: False
)
"""Whether the current stream is being captured into a CUDA graph."""

_by_problem: dict[tuple[int, Problem], tuple[Decision, Any]] = {}
_lock = threading.RLock()
_gpus: dict[int, Gpu | None] = {}


def on_gpu(tensor: Tensor) -> bool:
    """Whether the tensor's products are launched by us; elsewhere torch computes them."""
    return tensor.is_cuda


def gpu_of(device: int) -> Gpu | None:
    """The card behind a CUDA device index, ``None`` where we know no card of its architecture."""
    if device not in _gpus:
        seen = torch.cuda.get_device_properties(device)
        known = hardware.match_gpu(seen.name, 10 * seen.major + seen.minor, seen.total_memory >> 20)
        # A slice of a card (MIG) has fewer SMs than the card.
        _gpus[device] = None if known is None else replace(known, sms=seen.multi_processor_count)
    return _gpus[device]


def forget() -> None:
    """Drop the choices and the prepared launches."""
    with _lock:
        _by_problem.clear()


def span(tensor: Tensor) -> int:
    """Bytes from the first element's first byte to the end of the last element."""
    if tensor.numel() == 0:
        return 0
    reach = sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (reach + 1) * tensor.element_size()


def increment_version(tensor: Tensor) -> None:
    """Tell autograd that a tensor was written: a launch of our own leaves no trace otherwise."""
    torch.autograd.graph.increment_version(tensor)


def tidy(matrix: Matrix) -> Matrix:
    """The same elements, with the stride along an extent of one as a dense matrix would have it."""
    rows, cols = matrix.row_stride, matrix.col_stride
    if matrix.cols == 1 and matrix.rows == 1:
        rows, cols = 1, 1
    elif matrix.cols == 1:
        rows, cols = (1, matrix.rows) if rows == 1 else (rows, 1)
    elif matrix.rows == 1:
        rows, cols = (matrix.cols, 1) if cols == 1 else (1, cols)
    return replace(matrix, row_stride=rows, col_stride=cols)


def problem_of(
    a: Tensor,
    b: Tensor,
    c: Tensor | None,
    bias: Tensor | None,
    out: Tensor,
    alpha: float,
    beta: float,
    precision: Precision,
    epilogue: Epilogue | None,
) -> Problem:
    """The problem that these tensors pose; shapes are known to agree."""
    batch = max((x.shape[0] for x in (a, b, out) if x.dim() == 3), default=1)
    bias_at = bias.data_ptr() if bias is not None else 0
    return Problem(
        a=tidy(matrix_of("A", a)),
        b=tidy(matrix_of("B", b)),
        c=None if c is None or beta == 0 else tidy(matrix_of("C", c)),
        d=tidy(matrix_of("D", out)),
        batch=batch,
        alpha=alpha,
        beta=beta,
        precision=precision if a.dtype == torch.float32 else "ieee",
        epilogue=epilogue,
        bias_dtype=None if bias is None else dtype_named(bias.dtype),
        bias_alignment=min(bias_at & -bias_at, 16) if bias_at else 16,
    )


def entry_for(
    a: Tensor,
    b: Tensor,
    c: Tensor | None,
    bias: Tensor | None,
    out: Tensor,
    alpha: float,
    beta: float,
    precision: Precision,
    epilogue: Epilogue | None,
) -> Entry:
    """What to do for these tensors and for all others like them (CUDA tensors of one device)."""
    problem = problem_of(a, b, c, bias, out, alpha, beta, precision, epilogue)
    decision, prepared = _decided(problem, a.get_device())
    same = c is not None and c.stride() == out.stride() and c.dtype == out.dtype and epilogue is None
    of_c, of_bias = (0 if x is None else span(x) for x in (c, bias))
    spans = span(a), span(b), of_c, of_bias, span(out), same
    refused = cublas_refuses(problem) is not None
    if refused and (decision is None or decision.chosen.name == CUBLAS):
        asked = precision if a.dtype == torch.float32 else None
        return Entry(_far_run(alpha, beta, epilogue, asked), None, *spans, decision, refused=True)
    if decision is None or decision.chosen.name == CUBLAS:
        by_torch = _torch_run(a, b, c, bias, out, alpha, beta, precision, epilogue)
        if prepared is None or decision is None or decision.eager is None:
            return Entry(by_torch, None, *spans, decision)
        if a.is_cuda:
            # A capture that follows goes to cuBLAS, whose handle may not be made in it.
            with torch.cuda.device(a.get_device()):
                torch.cuda.current_blas_handle()
        eager = prepared.launcher(_roles(decision.eager))
        return Entry(_eager_run(eager, by_torch), None, *spans, decision, eager)
    if decision.chosen.name == ELEMENTWISE:
        return Entry(_elementwise_run(alpha, beta, epilogue), None, *spans, decision)
    option = decision.chosen

    def run(a: Tensor, b: Tensor, c: Tensor | None, bias: Tensor | None, out: Tensor) -> None:
        d = out
        if option.after is not None and option.after.gated:
            d = out.new_empty((*out.shape[:-1], 2 * out.shape[-1]))
        addresses = {"A": a.data_ptr(), "B": b.data_ptr(), "D": d.data_ptr()}
        if option.bias_is_c:
            assert bias is not None
            addresses["C"] = bias.data_ptr()
        else:
            if c is not None:
                addresses["C"] = c.data_ptr()
            if bias is not None:
                addresses["bias"] = bias.data_ptr()
        prepared.run_addresses(addresses)
        if option.after is not None:
            fallback.finish(d, bias if option.after.bias else None, option.after, out)

    at = None
    if option.after is None:
        at = prepared.launcher(_roles(option))
    return Entry(run, at, *spans, decision, refused=refused)


def _roles(option: Option) -> tuple[str, ...]:
    """What the addresses of a, b, c, bias and out are to the plan."""
    return ("A", "B", "unread", "C", "D") if option.bias_is_c else ("A", "B", "C", "bias", "D")


def _eager_run(eager: Any, by_torch: Run) -> Run:
    """Ours, or in a capture torch's."""

    def run(a: Tensor, b: Tensor, c: Tensor | None, bias: Tensor | None, out: Tensor) -> None:
        if capturing():
            by_torch(a, b, c, bias, out)
            return
        c_at, bias_at = (0 if x is None else x.data_ptr() for x in (c, bias))
        eager(a.data_ptr(), b.data_ptr(), c_at, bias_at, out.data_ptr())

    return run


def decision_for(problem: Problem, device: int) -> Decision | None:
    """The choice for a problem on a CUDA device; ``None`` where the card is none we know, so that torch computes."""
    return _decided(problem, device)[0]


def _decided(problem: Problem, device: int) -> tuple[Decision | None, Any]:
    gpu = gpu_of(device)
    if gpu is None:
        return None, None
    known = _by_problem.get((device, problem))
    if known is not None:
        return known
    with _lock:
        known = _by_problem.get((device, problem))
        if known is None:
            decision, prepared = decide(problem, gpu, database=users_database(), all_rungs=False), None
            runs = decision.chosen
            if runs.name == CUBLAS and decision.eager is not None and not capturing():
                # In a capture nothing is compiled for it: cuBLAS, now and later.
                runs = decision.eager
            if runs.plan is not None:
                # Loading a module is no stream operation, yet a capture in progress forbids it unless told otherwise.
                with driver().relaxed_capture():
                    prepared = prepare(runs.plan, device)
            if len(_by_problem) >= ENTRIES_KEPT:
                _by_problem.clear()
            known = _by_problem[device, problem] = (decision, prepared)
    return known


def _far_run(alpha: float, beta: float, epilogue: Epilogue | None, precision: Precision | None) -> Run:
    """Beyond cuBLAS's limits, and nothing of ours takes it."""

    def run(a: Tensor, b: Tensor, c: Tensor | None, bias: Tensor | None, out: Tensor) -> None:
        compute_far(a, b, c, bias, out, alpha, beta, epilogue, precision)

    return run


def _elementwise_run(alpha: float, beta: float, epilogue: Epilogue | None) -> Run:
    def run(a: Tensor, b: Tensor, c: Tensor | None, bias: Tensor | None, out: Tensor) -> None:
        if out.numel() == 0:
            return
        if epilogue is None and (c is None or beta == 0):
            out.zero_()
        else:
            out.copy_(fallback.compute(a, b, c, bias, 0.0, beta, epilogue, out.dtype))

    return run


def _torch_run(
    a: Tensor, b: Tensor, c: Tensor | None, bias: Tensor | None, out: Tensor, alpha: float, beta: float,
    precision: Precision, epilogue: Epilogue | None,
) -> Run:  # fmt: skip
    """The product by torch: straight into ``out`` where one call of torch does it all."""
    asked = precision if a.dtype == torch.float32 else None
    same = a.dtype == out.dtype and (c is None or beta == 0 or c.dtype == a.dtype) and a.dim() == b.dim()
    plain = epilogue is None and same and a.dtype in (torch.float32, torch.float16, torch.bfloat16)
    two = a.dim() == 2

    if plain and (c is None or beta == 0) and alpha == 1:
        product = torch.mm if two else torch.bmm

        def run(a: Tensor, b: Tensor, c: Tensor | None, bias: Tensor | None, out: Tensor) -> None:
            if asked is None or fallback.current_precision() == asked:
                product(a, b, out=out)
            else:
                with fallback.torch_precision(a, asked):
                    product(a, b, out=out)

    elif plain and c is not None and beta != 0:
        accumulate = torch.addmm if two else torch.baddbmm

        def run(a: Tensor, b: Tensor, c: Tensor | None, bias: Tensor | None, out: Tensor) -> None:
            with fallback.torch_precision(a, asked):
                accumulate(c, a, b, alpha=alpha, beta=beta, out=out)

    else:

        def run(a: Tensor, b: Tensor, c: Tensor | None, bias: Tensor | None, out: Tensor) -> None:
            out.copy_(fallback.compute(a, b, c, bias, alpha, beta, epilogue, out.dtype, asked))

    return run
