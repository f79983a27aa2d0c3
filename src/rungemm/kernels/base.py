"""What a rung is: a :class:`Kernel` with a name, one idea, and ONE predicate that says what it takes.

The dispatcher, the tuner, the bench, the tests and ``rungemm check`` all call :meth:`Kernel.supports`; its
answer, when it is not ``None``, is the sentence shown to the user.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Generic, TypeVar

from ..dtypes import FP32, DType
from ..errors import UserError
from ..hardware import Gpu
from ..problem import Problem
from .plan import LaunchPlan

__all__ = ["Config", "Kernel", "TileConfig", "Unsupported"]


class Unsupported(UserError):
    """The kernel does not take this problem with this config; the message is the predicate's reason."""


@dataclass(frozen=True)
class Config:
    """One tuning choice of one kernel: frozen, hashable, and a plain dict on disk."""

    num_warps: int = 4

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def with_(self: ConfigT, **changes: Any) -> ConfigT:
        """A copy with some fields replaced: :func:`dataclasses.replace` in a tenth of its time, for searches.

        Names are not checked.
        """
        copy = object.__new__(type(self))
        copy.__dict__.update(self.__dict__, **changes)
        return copy

    @classmethod
    def from_dict(cls: type[ConfigT], data: dict[str, Any]) -> ConfigT:
        """The config that :meth:`to_dict` wrote.

        Raises:
            ValueError: a field that this kernel's configs do not have.
        """
        known = {f.name for f in fields(cls)}
        unknown = sorted(set(data) - known)
        if unknown:
            raise ValueError(f"{cls.__name__} has no field {', '.join(unknown)}: it has {', '.join(sorted(known))}")
        return cls(**data)

    def __str__(self) -> str:
        return " ".join(f"{key}={value}" for key, value in self.to_dict().items())


@dataclass(frozen=True)
class TileConfig(Config):
    """The tile of C that one program computes, and how far along K one step goes."""

    tile_m: int = 32
    tile_n: int = 32
    tile_k: int = 32


ConfigT = TypeVar("ConfigT", bound=Config)


class Kernel(ABC, Generic[ConfigT]):
    """One rung. Subclasses set the class attributes and write three methods.

    Attributes:
        name: what the user types ("shared_tile").
        idea: one line: what it does that the rung below does not.
        expects: one line: what should move because of it, and why.
        below: the name of the rung it is compared with, or ``None`` for the first.
        family: "cuda_core", "tensor_core" or "hopper".
        min_arch: the lowest architecture it compiles for (80 is sm_80).
        dtypes: element types of A and B.
        peak: which of the card's peaks it is measured against.
    """

    name: ClassVar[str]
    idea: ClassVar[str]
    expects: ClassVar[str]
    below: ClassVar[str | None] = None
    family: ClassVar[str] = "cuda_core"
    min_arch: ClassVar[int] = 80
    dtypes: ClassVar[tuple[DType, ...]] = (FP32,)
    config_type: ClassVar[type[Config]] = Config

    def supports(self, problem: Problem, config: ConfigT, gpu: Gpu) -> str | None:
        """Why this kernel cannot take the problem with this config on this card, or ``None`` if it can."""
        reason = self.refuses(problem, gpu)
        if reason is not None:
            return reason
        if not isinstance(config, self.config_type):
            return f"{self.name} takes a {self.config_type.__name__}, not a {type(config).__name__}"
        threads = config.num_warps * gpu.warp_size
        if config.num_warps < 1 or config.num_warps & (config.num_warps - 1):
            return f"{config.num_warps} warps: Triton wants a power of two"
        if threads > gpu.max_threads_per_block:
            return f"{config.num_warps} warps are {threads} threads; a block has at most {gpu.max_threads_per_block}"
        return self.rejects(problem, config, gpu)

    def refuses(self, problem: Problem, gpu: Gpu) -> str | None:
        """Why no config makes this kernel take the problem on this card, or ``None`` if one may.

        The part of the predicate that is asked before configs are ranked; a kernel with many of them adds its own.
        """
        if gpu.arch < self.min_arch:
            return f"{self.name} needs sm_{self.min_arch}; {gpu.title} is sm_{gpu.arch}"
        for operand, matrix in (("A", problem.a), ("B", problem.b)):
            if matrix.dtype not in self.dtypes:
                takes = ", ".join(d.name for d in self.dtypes)
                return f"{self.name} takes {takes}; {operand} is {matrix.dtype}"
        if problem.a.dtype != problem.b.dtype:
            return f"A is {problem.a.dtype} and B is {problem.b.dtype}: {self.name} wants one dtype for both"
        return None

    @abstractmethod
    def rejects(self, problem: Problem, config: ConfigT, gpu: Gpu) -> str | None:
        """The kernel's own part of the predicate: the reason, or ``None``."""

    @abstractmethod
    def configs(self, problem: Problem, gpu: Gpu) -> Iterator[ConfigT]:
        """Configs worth trying, best guess first; not all need be supported."""

    def default_config(self, problem: Problem, gpu: Gpu) -> ConfigT:
        """The first supported config.

        Raises:
            Unsupported: none is; the message is the first one's reason.
        """
        reason = None
        for config in self.configs(problem, gpu):
            why = self.supports(problem, config, gpu)
            if why is None:
                return config
            reason = reason or why
        raise Unsupported(reason or f"{self.name} has no config for {problem}")

    def plan(self, problem: Problem, config: ConfigT, gpu: Gpu) -> LaunchPlan:
        """How to run it.

        Raises:
            Unsupported: with the predicate's reason.
        """
        reason = self.supports(problem, config, gpu)
        if reason is not None:
            raise Unsupported(reason)
        if problem.is_empty:
            return LaunchPlan(self.name)
        return self.build(problem, config, gpu)

    @abstractmethod
    def build(self, problem: Problem, config: ConfigT, gpu: Gpu) -> LaunchPlan:
        """The plan of a supported, non-empty problem."""
