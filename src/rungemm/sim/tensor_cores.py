"""Tensor cores: mma.sync on register tiles, and wgmma with its asynchronous accumulators."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compat import gl
from . import numeric
from .context import MACHINE, emit
from .faults import SOURCES, fault_at, short
from .program import Flight, Partition
from .shared import View
from .synchronisation import shared_view
from .tile import Tile, canonical
from .types import F16, F32, FP8, I32, ElementType

__all__ = ["PendingTile", "mma_v2", "warpgroup_mma", "warpgroup_mma_init", "warpgroup_mma_wait"]


class PendingTile(Tile):
    """The accumulator of a wgmma that may still run. Its numbers can be used only after a covering wait."""

    __slots__ = ("holder", "issued_at", "partition", "time", "token")

    def __init__(
        self, like: Tile, holder: list[np.ndarray], partition: Partition, time: int, token: bool, site: Any
    ) -> None:
        self.element = like.element
        self.layout = like.layout
        self.shape = like.shape
        self._align = None
        self.factors = None
        self.holder = holder
        self.partition = partition
        self.time = time
        self.token = token
        self.issued_at = site

    @property
    def complete(self) -> bool:
        queue = self.partition.queue("wgmma")
        return self.partition.clock.get(queue.component, 0) >= self.time

    @property
    def data(self) -> np.ndarray:  # type: ignore[override]
        if MACHINE.physical:
            return self.holder[0] if self.holder else np.full(self.shape, np.nan).astype(self.element.numpy)
        where = f" at {short(self.issued_at)}" if self.issued_at else ""
        if self.token:
            raise fault_at(
                "read-before-arrival",
                f"the result of the asynchronous warpgroup_mma{where} is used directly: use what "
                "warpgroup_mma_wait returns",
            )
        if not self.complete:
            raise fault_at(
                "read-before-arrival",
                f"the result of the warpgroup_mma{where} is used while it may still run: wait with fewer outstanding",
            )
        return self.holder[0]


def warpgroup_mma_init(value: Any) -> Any:
    return value


_WGMMA_INPUTS = ("fp16", "bf16", "fp32", "fp8e4nv", "fp8e5", "int8", "uint8")


def _operand(value: Any, name: str, number: int, acc: Tile) -> tuple[tuple[int, ...], ElementType]:
    if isinstance(value, Tile):
        layout = value.layout
        if not isinstance(layout, gl.DotOperandLayout) or layout.operand_index != number:
            raise fault_at("layout-mismatch", f"{name} is in {layout}: it must be DotOperandLayout({number}, ...)")
        if canonical(layout.parent) is not acc.layout:
            raise fault_at("layout-mismatch", f"{name} has the parent {layout.parent}, the accumulator {acc.layout}")
    return value.shape, value.element


def _check_mma(a: Any, b: Any, acc: Any, what: str, version: int) -> None:
    if not isinstance(acc, Tile):
        raise fault_at("type-error", f"{what} takes an accumulator tile, not a {type(acc).__name__}")
    layout = acc.layout
    if not isinstance(layout, gl.NVMMADistributedLayout) or next(iter(layout.version)) != version:
        raise fault_at(
            "layout-mismatch", f"{what} wants an accumulator in NVMMADistributedLayout version {version}, not {layout}"
        )
    (m, k), ta = _operand(a, f"{what}'s a", 0, acc)
    (k2, n), tb = _operand(b, f"{what}'s b", 1, acc)
    if k != k2 or (m, n) != acc.shape:
        raise fault_at("type-error", f"{what} of {m}x{k} and {k2}x{n} into {list(acc.shape)}")
    if ta is not tb and not (ta in FP8 and tb in FP8):
        raise fault_at("type-error", f"{what} of {ta} and {tb}: both operands need one type")
    if ta.name not in _WGMMA_INPUTS:
        raise fault_at("type-error", f"{what} does not take {ta}")
    wanted = (I32,) if ta.kind == 1 else (F32, F16) if ta is F16 or ta in FP8 else (F32,)
    if acc.element not in wanted:
        names = " or ".join(t.name for t in wanted)
        raise fault_at("type-error", f"{what} of {ta} accumulates in {names}, not in {acc.element}")


def warpgroup_mma(
    a: Any, b: Any, acc: Any, *, use_acc: Any = True, precision: Any = None, max_num_imprecise_acc: Any = None,
    is_async: Any = False,
) -> Any:  # fmt: skip
    """wgmma: ``a @ b + acc``, with b (and often a) in shared memory."""
    partition = MACHINE.active
    view_b = shared_view(b, "warpgroup_mma's b")
    _check_mma(a, b, acc, "warpgroup_mma", 3)
    if partition.num_warps % 4:
        raise fault_at("type-error", f"warpgroup_mma needs groups of 4 warps; the partition has {partition.num_warps}")
    element = view_b.element
    for name, view in (("a", a), ("b", b)):
        if isinstance(view, View) and not isinstance(view.layout, gl.NVMMASharedLayout):
            raise fault_at(
                "layout-mismatch", f"warpgroup_mma's {name} is in {view.layout}: it must be an NVMMASharedLayout"
            )
    if element.bits != 16:
        # K must be the contiguous dimension of both; for b that is the layout marked as transposed.
        if not view_b.layout.transposed:
            raise fault_at("layout-mismatch", f"warpgroup_mma of {element} wants b with K contiguous in shared memory")
        if isinstance(a, View) and a.layout.transposed:
            raise fault_at("layout-mismatch", f"warpgroup_mma of {element} wants a with K contiguous in shared memory")
    queue = partition.queue("wgmma")
    time = queue.issue()
    for view in (a, b):
        if isinstance(view, View):
            if view.allocation.alias is not None:
                view.allocation.alias.touch(view.allocation, write=False)
            view.note(False, "wgmma", asynchronous=True, component=queue.component, time=time)
            if not view.allocation.complete:
                view.require_arrived("warpgroup_mma")
    if MACHINE.observer is not None:
        (m, k), n = a.shape, b.shape[1]
        emit(
            "wgmma", layout=acc.layout, shape=(m, n), k=k, operands=(element.name, acc.element.name),
            a_in_registers=isinstance(a, Tile), element_bytes=element.bytes,
            key=(id(acc.layout), m, n, k, element.name, acc.element.name, isinstance(a, Tile)),
        )  # fmt: skip
    holder: list[np.ndarray] = []
    registers = a.data if isinstance(a, Tile) else None
    use = bool(use_acc)
    before = acc if isinstance(acc, PendingTile) else None
    start = acc.data if use and before is None else None
    if before is not None and before.partition is not partition:
        raise fault_at("type-error", "an accumulator of another partition cannot be used")
    out = acc.element.numpy

    def land() -> None:
        left = registers if registers is not None else a.seen_by_proxy()
        previous = (before.holder[0] if before is not None else start) if use else None
        holder.append(numeric.matmul(left, view_b.seen_by_proxy(), previous, out))

    flight = Flight(land, lambda: "a wgmma", queue=("wgmma", queue.component))
    queue.open.append(flight)
    queue.commit()
    MACHINE.running.launch_flight(flight)
    if is_async:
        return PendingTile(acc, holder, partition, time, True, SOURCES.here())
    queue.wait(0, partition)
    return Tile(holder[0], acc.element, acc.layout)


def warpgroup_mma_wait(num_outstanding: Any = 0, deps: Any = None) -> Any:
    """All but the newest ``num_outstanding`` wgmmas are complete; returns ``deps`` to go on with."""
    if deps is None:
        raise fault_at("type-error", "warpgroup_mma_wait needs deps=(...): the accumulators that it waits for")
    partition = MACHINE.active
    if MACHINE.observer is not None:
        emit("wgmma_wait", count=int(num_outstanding))
    MACHINE.running.point()
    partition.queue("wgmma").wait(int(num_outstanding), partition)
    results = []
    for dep in deps:
        if isinstance(dep, PendingTile):
            if dep.complete:
                results.append(Tile(dep.holder[0], dep.element, dep.layout))
            else:
                results.append(PendingTile(dep, dep.holder, partition, dep.time, False, dep.issued_at))
        else:
            results.append(dep)
    return results[0] if len(results) == 1 else tuple(results)


def mma_v2(a: Any, b: Any, acc: Any, input_precision: Any = None) -> Tile:
    """mma.sync: both operands in registers."""
    _check_mma(a, b, acc, "mma_v2", 2)
    if not isinstance(a, Tile) or not isinstance(b, Tile):
        raise fault_at("type-error", "mma_v2 takes tiles in registers: load them with a DotOperandLayout")
    if MACHINE.observer is not None:
        (m, k), n = a.shape, b.shape[1]
        emit(
            "mma", layout=acc.layout, shape=(m, n), k=k, operands=(a.element.name, acc.element.name),
            a_in_registers=True,
            element_bytes=a.element.bytes, key=(id(acc.layout), m, n, k, a.element.name, acc.element.name),
        )  # fmt: skip
    return Tile(
        numeric.matmul(a.data, b.data, acc.data, acc.element.numpy, saturate=acc.element is I32),
        acc.element,
        acc.layout,
    )
