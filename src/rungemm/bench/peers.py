"""Other people's GEMM libraries, where they are installed: QuACK, and NVIDIA's CUTLASS Operators.

Neither is needed, installed or imported unless it is asked for by name.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
from dataclasses import dataclass, field
from typing import Any

from ..hardware import Gpu
from ..inputs import InputError
from ..problem import Problem
from .choosing import Choose, Way, seconds_of
from .contenders import Call, Contender, Operands, UserCallable

__all__ = ["PEERS", "CutlassOperators", "peer_named"]

PEERS: dict[str, tuple[str, str]] = {
    "quack": ("quack.gemm_interface", "quack-kernels"),
    "cutlass": ("cutlass.operators", "nvidia-cutlass-operators"),
}
"""Peers by name: the module that must be importable, and the package that brings it."""

TRIED = 8
"""So many of the operators that CUTLASS offers for a problem are compiled and timed, its first ones."""


def peer_named(name: str, gpu: Gpu) -> Contender:
    """The peer of that name.

    Raises:
        InputError: its package is not installed; the message says which.
    """
    module, package = PEERS[name]
    try:
        there = importlib.util.find_spec(module) is not None
    except ImportError:  # a parent package is missing, or another package has its name
        there = False
    if not there:
        raise InputError(f"contender {name} needs the package {package}: pip install {package}, or leave it out")
    if name == "quack":
        return UserCallable(f"{module}:gemm", name=name)
    return CutlassOperators(gpu)


@dataclass
class CutlassOperators(Contender):
    """The fastest of the first operators that CUTLASS offers for the problem."""

    gpu: Gpu
    name: str = "cutlass"
    choose: Choose = seconds_of
    _chosen: dict[Problem, tuple[Any, Any, int, int]] = field(default_factory=dict, repr=False)

    def bind(self, problem: Problem, operands: Operands) -> Call:
        if problem.alpha != 1 or problem.reads_c or problem.epilogue is not None or problem.precision == "tf32x3":
            raise InputError(f"contender {self.name} computes A @ B, in ieee or tf32")
        operators: Any = importlib.import_module("cutlass.operators")
        arguments = self._arguments(operators, problem, operands)
        if problem not in self._chosen:
            self._chosen[problem] = self._choose(operators, problem, arguments)
        operator, artifact, _, _ = self._chosen[problem]
        return self._call(operator, arguments, artifact)

    @staticmethod
    def _arguments(operators: Any, problem: Problem, operands: Operands) -> Any:
        import torch

        total = torch.int32 if problem.a.dtype.name == "int8" else torch.float32
        return operators.GemmArguments(operands["A"], operands["B"], operands["D"], accumulator_type=total)

    @staticmethod
    def _call(operator: Any, arguments: Any, artifact: Any) -> Call:
        import torch

        on_card = torch.cuda.is_available()

        def call() -> None:
            stream = torch.cuda.current_stream() if on_card else None
            operator.run(arguments, compiled_artifact=artifact, stream=stream, assume_supported_args=True)

        return call

    def _choose(self, operators: Any, problem: Problem, arguments: Any) -> tuple[Any, Any, int, int]:
        found = operators.get_operators(arguments, target_sm=str(self.gpu.arch))
        if not found:
            raise InputError(f"CUTLASS Operators have none for {problem} on sm_{self.gpu.arch}")
        tried, artifacts = found[:TRIED], {}

        def way(place: int) -> Way:
            def bind(operands: Operands) -> Call:
                own = self._arguments(operators, problem, operands)
                if place not in artifacts:
                    artifacts[place] = tried[place].compile(own)
                return self._call(tried[place], own, artifacts[place])

            return bind

        took = self.choose([way(place) for place in range(len(tried))], problem)
        if min(took) == math.inf:
            raise InputError(f"none of CUTLASS's first {len(tried)} operators runs {problem}")
        best = took.index(min(took))
        return tried[best], artifacts[best], best, len(found)

    def record(self) -> dict[str, Any]:
        chosen = next(reversed(self._chosen.values()), None)
        if chosen is None:
            return {}
        name = str(getattr(getattr(chosen[0], "metadata", None), "operator_name", ""))
        return {"config": {"operator": name or str(chosen[2] + 1), "of": chosen[3]}}
