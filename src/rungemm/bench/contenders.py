"""Who is timed: our kernels, torch's cuBLAS, torch.compile, and the user's own function.

A contender is a name and :meth:`Contender.bind`, which turns one problem and one operand set into a call without
arguments that queues the product into that set's ``D``. Everything that may take time (compiling, planning, choosing)
happens in ``bind``; the call is what is timed. Contenders that need more than torch's own calls have modules of their
own: :mod:`.cublaslt`, :mod:`.tl_dot`, :mod:`.peers`.
"""

from __future__ import annotations

import importlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ..hardware import Gpu
from ..inputs import InputError
from ..kernels import BATCHED, LADDER, Config, Kernel, LaunchPlan, Unsupported, find_kernel
from ..problem import Problem

__all__ = [
    "Contender",
    "Library",
    "NoKernelError",
    "Ours",
    "TorchCompile",
    "TorchMatmul",
    "Unable",
    "UserCallable",
    "champion_for",
    "contender_named",
    "matched_precision",
]

Operands = dict[str, Any]
Call = Callable[[], None]


class Contender(ABC):
    """One way to compute a problem."""

    name: str
    reuses_d: bool = True
    """Whether it writes into the ``D`` it is given (else its result is copied there, outside the timing)."""

    @abstractmethod
    def bind(self, problem: Problem, operands: Operands) -> Call:
        """A call that queues ``D = alpha * A @ B + beta * C`` on the current stream.

        Raises:
            InputError: this contender cannot compute the problem; the message says why.
        """

    def record(self) -> dict[str, Any]:
        """What the results file says of it besides the name."""
        return {}


ConfigFor = Callable[[Kernel[Any], Problem, Gpu], "Config | None"]
"""Where a config comes from when none was named: the tuning database, say. ``None`` means the kernel's default."""


@dataclass
class Ours(Contender):
    """One of our kernels with one config, or, without one, with what ``config_for`` or the kernel itself chooses.

    ``label`` is what summaries call it instead of the kernel's name ("champion").
    """

    kernel: Kernel[Any]
    gpu: Gpu
    config: Config | None = None
    name: str = ""
    label: str | None = None
    config_for: ConfigFor | None = None
    chosen: Config | None = None
    _plans: dict[Problem, LaunchPlan] = field(default_factory=dict, repr=False)
    _prepared: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.name = self.name or self.kernel.name

    def plan(self, problem: Problem) -> LaunchPlan:
        """The launch plan, made once a problem.

        Raises:
            Unsupported: with the predicate's reason.
        """
        if problem not in self._plans:
            self.chosen = self.config
            if self.chosen is None and self.config_for is not None:
                self.chosen = self.config_for(self.kernel, problem, self.gpu)
            if self.chosen is None:
                self.chosen = self.kernel.default_config(problem, self.gpu)
            self._plans[problem] = self.kernel.plan(problem, self.chosen, self.gpu)
        return self._plans[problem]

    def bind(self, problem: Problem, operands: Operands) -> Call:
        from ..gpu import prepare

        plan = self.plan(problem)
        if self._prepared is None or self._prepared.plan is not plan:
            self._prepared = prepare(plan, operands["D"].get_device())
        run = self._prepared.run
        operands = {role: operands[role] for role in ("A", "B", "C", "D") if role in operands}
        return lambda: run(operands)

    def record(self) -> dict[str, Any]:
        config = self.chosen or self.config
        record = {"kernel": self.kernel.name, "config": config.to_dict() if config is not None else None}
        return record | ({"label": self.label} if self.label else {})


@dataclass
class Library(Contender):
    """``rungemm.matmul``, dispatcher and all, as a user calls it."""

    name: str = "library"
    _ran: dict[str, Any] = field(default_factory=dict, repr=False)

    def bind(self, problem: Problem, operands: Operands) -> Call:
        try:
            library: Any = importlib.import_module("rungemm.ops")
        except ImportError as error:
            raise InputError(f"contender library: rungemm.ops cannot be imported ({error})") from error
        chosen = library.explain_dispatch(problem).chosen  # in a graph, that is what runs
        self._ran = {"kernel": chosen.name, "config": None if chosen.config is None else chosen.config.to_dict()}
        a, b, d, precision = operands["A"], operands["B"], operands["D"], problem.precision
        if problem.alpha == 1 and not problem.reads_c:
            return lambda: library.matmul(a, b, out=d, precision=precision)
        c, alpha, beta = operands.get("C"), problem.alpha, problem.beta
        return lambda: library.gemm(a, b, c, alpha=alpha, beta=beta, out=d, precision=precision)

    def record(self) -> dict[str, Any]:
        return self._ran


@dataclass
class TorchMatmul(Contender):
    """cuBLAS (or cuBLASLt) through torch, with the precision that the problem asks for; the yardstick."""

    name: str = "cublas"

    def bind(self, problem: Problem, operands: Operands) -> Call:
        import torch

        a, b, d = operands["A"], operands["B"], operands["D"]
        if problem.epilogue is not None:
            raise InputError("torch.matmul has no fused epilogue: time against torch.compile instead")
        if problem.a.dtype.name.startswith("fp8"):
            return self._scaled(problem, a, b, d)
        if problem.a.dtype.name == "int8":
            return lambda: torch._int_mm(a, b, out=d)
        product: Any = torch.mm if problem.batch == 1 else torch.bmm
        accumulate: Any = torch.addmm if problem.batch == 1 else torch.baddbmm
        alpha, beta = problem.alpha, problem.beta
        if problem.reads_c:
            c = operands["C"]
            return lambda: accumulate(c, a, b, beta=beta, alpha=alpha, out=d)
        if alpha != 1:
            return lambda: accumulate(d, a, b, beta=0, alpha=alpha, out=d)
        if a.dtype != d.dtype:
            return lambda: product(a, b, out_dtype=d.dtype, out=d)
        return lambda: product(a, b, out=d)

    @staticmethod
    def _scaled(problem: Problem, a: Any, b: Any, d: Any) -> Call:
        import torch

        if problem.batch != 1 or problem.layout != "NT":
            raise InputError("torch's fp8 product takes one NT product (A row-major, B column-major)")
        one = torch.ones((), device=a.device)
        return lambda: torch._scaled_mm(a, b, one, one, out_dtype=d.dtype, out=d)


@dataclass
class TorchCompile(Contender):
    """torch.compile in mode "max-autotune-no-cudagraphs" (the mode's own graphs would copy the operands)."""

    name: str = "torch-compile"
    _compiled: dict[Problem, Any] = field(default_factory=dict, repr=False)

    def bind(self, problem: Problem, operands: Operands) -> Call:
        import torch

        if problem not in self._compiled:
            alpha, beta = problem.alpha, problem.beta

            def product(a: Any, b: Any, c: Any) -> Any:
                out = a @ b
                if alpha != 1:
                    out = alpha * out
                return out if c is None else out + beta * c

            self._compiled[problem] = torch.compile(product, mode="max-autotune-no-cudagraphs", dynamic=False)
        function, a, b, c, d = self._compiled[problem], operands["A"], operands["B"], operands.get("C"), operands["D"]

        # It allocates its own result; the last one is kept as this set's output: the timed one is what is checked.
        def call() -> None:
            operands["result"] = function(a, b, c)

        call()
        _require_product(self.name, operands["result"], d)
        return call


@dataclass
class UserCallable(Contender):
    """``module:function``, called as ``function(a, b, out)`` or, if it takes two arguments, ``function(a, b)``.

    With two arguments it returns the product as a tensor of its own. alpha is 1 and beta 0 for it.
    """

    target: str
    name: str = ""
    _function: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        module_name, _, attribute = self.target.partition(":")
        if not module_name or not attribute:
            raise InputError(f"contender {self.target!r} is not module:function, like mypackage.mymodule:matmul")
        try:
            self._function = getattr(importlib.import_module(module_name), attribute)
        except ImportError as error:
            raise InputError(
                f"contender {self.target}: cannot import {module_name} ({error}): is it on PYTHONPATH?"
            ) from error
        except AttributeError as error:
            raise InputError(f"contender {self.target}: {module_name} has no {attribute}") from error
        self.name = self.name or self.target

    def bind(self, problem: Problem, operands: Operands) -> Call:
        import inspect

        if problem.alpha != 1 or problem.reads_c:
            raise InputError(
                f"contender {self.name} computes A @ B; the problem has alpha {problem.alpha}, beta {problem.beta}"
            )
        function, a, b, d = self._function, operands["A"], operands["B"], operands["D"]
        try:
            takes_out = len(inspect.signature(function).parameters) >= 3
        except (TypeError, ValueError):
            takes_out = False
        if takes_out:
            return lambda: function(a, b, d)

        def call() -> None:
            operands["result"] = function(a, b)

        call()
        _require_product(self.name, operands["result"], d)
        return call


def _require_product(name: str, result: Any, d: Any) -> None:
    """That a contender's own result is a tensor of D's shape on D's device."""
    import torch

    if not isinstance(result, torch.Tensor):
        raise InputError(f"contender {name} returned {type(result).__name__}: return the product as a tensor")
    if result.shape != d.shape or result.device != d.device:
        raise InputError(
            f"contender {name} returned shape {tuple(result.shape)} on {result.device}, where the product is "
            f"{tuple(d.shape)} on {d.device}"
        )


class NoKernelError(InputError):
    """No rung takes the problem; the message is the last rung's reason."""


@dataclass
class Unable(Contender):
    """A contender that was asked for and does not take this problem: a lane of its own that says why."""

    name: str
    reason: str

    def bind(self, problem: Problem, operands: Operands) -> Call:
        raise InputError(self.reason)


def champion_for(problem: Problem, gpu: Gpu) -> Kernel[Any]:
    """The kernel to beat others with: the last champion of the ladder that takes the problem, else the last rung.

    Of the kernels of batches that take one, it is that with the least estimate.

    Raises:
        NoKernelError: none takes it.
    """
    ranked = sorted(LADDER, key=lambda kernel: kernel.name.startswith("champion"))  # stable: ladder order within
    if problem.batch > 1:
        ranked = sorted(BATCHED, key=lambda kernel: -_least_estimate(kernel, problem, gpu))
    reason = ""
    for kernel in reversed(ranked):
        try:
            kernel.default_config(problem, gpu)
        except Unsupported as error:
            reason = reason or str(error)
            continue
        return kernel
    raise NoKernelError(f"no rung takes {problem} on {gpu.title}: {reason}")


def _least_estimate(kernel: Kernel[Any], problem: Problem, gpu: Gpu) -> float:
    """Seconds by the kernel's model; infinite where it does not take the problem."""
    try:
        return float(kernel.estimate(problem, kernel.default_config(problem, gpu), gpu))  # type: ignore[attr-defined]
    except Unsupported:
        return math.inf


def contender_named(
    text: str, gpu: Gpu, problem: Problem | None = None, config_for: ConfigFor | None = None
) -> Contender:
    """A contender by what the user typed: "cublas" (or "torch"), "cublaslt", "torch-compile", "tl-dot", "library",
    "champion", a rung, "rung@key=value,key=value", a peer ("quack", "cutlass"), or "module:function".

    "champion" is a different kernel for different problems, so it needs one.

    Raises:
        InputError: it is none of these; the message lists what is.
    """
    key = text.strip()
    if key in ("cublas", "torch", "torch.matmul"):
        return TorchMatmul()
    if key in ("torch-compile", "torch.compile"):
        return TorchCompile()
    if key == "cublaslt":
        from .cublaslt import BestOfLt

        return BestOfLt()
    if key == "tl-dot":
        from .tl_dot import TlDot  # here, so that only who asks for it loads Triton's own language

        return TlDot()
    if key == "library":
        return Library()
    if key == "champion" and problem is not None:
        return Ours(champion_for(problem, gpu), gpu, name=key, label=key, config_for=config_for)
    if key in ("quack", "cutlass"):
        from .peers import peer_named

        return peer_named(key, gpu)
    if ":" in key:
        return UserCallable(key)
    name, _, settings = key.partition("@")
    try:
        kernel = find_kernel(name)
    except ValueError as error:
        others = "cublas, cublaslt, torch-compile, tl-dot, library, champion, quack, cutlass or module:function"
        raise InputError(f"contender {key!r}: {error}; or {others}") from error
    if not settings:
        return Ours(kernel, gpu, config_for=config_for)
    return Ours(kernel, gpu, config_from(kernel, settings), name=key)


def config_from(kernel: Kernel[Any], settings: str) -> Config:
    """A kernel's config from "key=value,key=value"; what is not named keeps the config type's default.

    Raises:
        InputError: not of that form, or no such field.
    """
    data: dict[str, Any] = {}
    for item in settings.split(","):
        field_name, equals, value = item.partition("=")
        if not equals:
            raise InputError(f"config {item!r} is not key=value")
        text = value.strip()
        if text.lower() in ("true", "false"):
            data[field_name.strip()] = text.lower() == "true"
        else:
            data[field_name.strip()] = int(text) if text.lstrip("-").isdigit() else text
    return kernel.config_type.from_dict(data)


@contextmanager
def matched_precision(problem: Problem) -> Iterator[dict[str, Any]]:
    """torch's flags set to the problem's precision, and set back afterwards; yields them for the record.

    fp32 products run in true fp32 for "ieee" and in tf32 for "tf32". The flags that let cuBLAS reduce partial sums of
    half-precision types in that type keep torch's default: that is what users of torch.matmul get, and its error is
    reported beside ours.
    """
    import torch

    matmul = torch.backends.cuda.matmul
    before = matmul.allow_tf32
    matmul.allow_tf32 = problem.precision == "tf32"
    try:
        yield {
            "allow_tf32": matmul.allow_tf32,
            "allow_fp16_reduced_precision_reduction": matmul.allow_fp16_reduced_precision_reduction,
            "allow_bf16_reduced_precision_reduction": matmul.allow_bf16_reduced_precision_reduction,
        }
    finally:
        matmul.allow_tf32 = before
