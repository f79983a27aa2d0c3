"""The launch plan: how one kernel runs for one problem and one config, as data.

Compiling, launching on a GPU and simulating all consume the same :class:`LaunchPlan`; none of them knows a
kernel by name. A plan holds no tensor: its pointer arguments say which operand they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ..dtypes import DType
from ..problem import Matrix

__all__ = ["Argument", "Descriptor", "Launch", "LaunchPlan", "Pointer", "Role", "Scalar", "Workspace"]

Role = str
"""Whose memory a pointer is: "A", "B", "C", "D", "bias", or the name of one of the plan's workspaces."""

INT32_MAX = 2**31 - 1


@dataclass(frozen=True)
class Pointer:
    """A pointer to the first element of an operand or a workspace."""

    role: Role
    dtype: DType
    alignment: int = 16

    @property
    def signature(self) -> str:
        return f"*{self.dtype.triton}"

    @property
    def divisible(self) -> bool:
        """The address is a multiple of 16 bytes: what lets the compiler use 128-bit accesses."""
        return self.alignment % 16 == 0


@dataclass(frozen=True)
class Scalar:
    """A number passed at launch. As Triton's own launcher does, a 1 is compiled in, and so is divisibility by 16.

    ``loose`` numbers keep their 1 for the launch: a K of 1 compiled in folds the loop along K away, on which passes of
    Triton 3.6 abort (the mma.sync rungs at K = 1).
    """

    value: int | float
    kind: Literal["i32", "i64", "fp32"]
    loose: bool = False

    @staticmethod
    def index(value: int, wide: bool = False) -> Scalar:
        """An extent or a stride; ``wide`` where products with it can pass 2^31."""
        return Scalar(value, "i64" if wide or abs(value) > INT32_MAX else "i32")

    @staticmethod
    def real(value: float) -> Scalar:
        return Scalar(float(value), "fp32")

    @property
    def signature(self) -> str:
        return "constexpr" if self.is_one else self.kind

    @property
    def is_one(self) -> bool:
        return self.kind != "fp32" and self.value == 1 and not self.loose

    @property
    def divisible(self) -> bool:
        return self.kind != "fp32" and not self.is_one and self.value % 16 == 0


@dataclass(frozen=True)
class Descriptor:
    """A host-made TMA descriptor of an operand: a matrix of ``shape`` with ``strides``, moved in blocks.

    ``strides`` are in elements; the last is 1. ``layout`` is the Gluon shared-memory layout of one block.
    ``round_to_tf32`` asks TMA to round fp32 to tf32 on the way.
    """

    role: Role
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    block: tuple[int, ...]
    layout: Any
    round_to_tf32: bool = False

    @property
    def signature(self) -> str:
        return f"tensordesc<{self.dtype.triton}{list(self.block)},{self.layout!r}>"


Argument = Pointer | Scalar | Descriptor


@dataclass(frozen=True)
class Workspace:
    """Scratch memory that a plan needs: ``elements`` of ``dtype``; zeroed before each run only if ``zeroed``.

    ``restored`` promises that the launches leave the memory zero again, so that a launcher that keeps the memory for
    this plan and stream may zero it once only, when it makes it.
    """

    name: str
    dtype: DType
    elements: int
    zeroed: bool = False
    restored: bool = False


@dataclass(frozen=True)
class Launch:
    """One kernel launch.

    Attributes:
        function: the ``@gluon.jit`` function.
        grid: programs along x, y, z.
        arguments: by parameter name, in the function's order.
        constants: the constexpr parameters by name.
        num_warps: warps of a program (of its default partition).
        max_registers: a cap for ptxas, or ``None``.
        pdl: on sm_90 the launch may begin while the one before it on the stream still runs (programmatic dependent
            launch), because every program calls ``grid_wait`` before it touches global memory.
    """

    function: Any
    grid: tuple[int, int, int]
    arguments: tuple[tuple[str, Argument], ...]
    constants: tuple[tuple[str, Any], ...]
    num_warps: int
    max_registers: int | None = None
    pdl: bool = False

    @property
    def programs(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]


@dataclass(frozen=True)
class LaunchPlan:
    """Launches in order on one stream, and the scratch memory they share. No launches: nothing to do."""

    kernel: str
    launches: tuple[Launch, ...] = ()
    workspaces: tuple[Workspace, ...] = field(default=())

    def overlapping(self) -> LaunchPlan:
        """The same plan, in which every launch may begin before the one before it has ended: their kernels wait."""
        return replace(self, launches=tuple(replace(launch, pdl=True) for launch in self.launches))

    def serialised(self) -> LaunchPlan:
        """The same plan, in which no launch begins before the one before it has ended: the same machine code."""
        return replace(self, launches=tuple(replace(launch, pdl=False) for launch in self.launches))


def strides_of(prefix: str, matrix: Matrix) -> Iterable[tuple[str, Argument]]:
    """``<prefix>_row`` and ``<prefix>_col``: a matrix's strides, 64 bits wide where its offsets need it."""
    wide = matrix.furthest_offset() > INT32_MAX
    yield f"{prefix}_row", Scalar.index(matrix.row_stride, wide)
    yield f"{prefix}_col", Scalar.index(matrix.col_stride, wide)
