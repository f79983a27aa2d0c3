"""cp.async and warp specialisation; and the table of Gluon's asynchronous operations."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from . import operations
from .context import MACHINE, emit
from .faults import SOURCES, fault_at
from .global_memory import emit_global, masked_by, pointers, read
from .program import Flight
from .synchronisation import (
    barrier_of,
    fence_async_shared,
    mbarrier_arrive,
    mbarrier_expect,
    mbarrier_init,
    mbarrier_invalidate,
    mbarrier_wait,
    shared_view,
)  # fmt: skip
from .tensor_cores import mma_v2, warpgroup_mma, warpgroup_mma_init, warpgroup_mma_wait
from .tma import TensorDescriptor, make_tensor_descriptor, tma_load, tma_store, tma_store_wait

__all__ = ["ASYNCHRONOUS", "TensorDescriptor"]


# cp.async


def async_copy_load(
    smem: Any, pointer: Any, mask: Any = None, cache_modifier: Any = "", eviction_policy: Any = "",
    volatile: Any = False,
) -> None:  # fmt: skip
    """cp.async: global to shared without registers; masked-off elements become zero."""
    partition = MACHINE.active
    buffer, offset, layout = pointers(pointer, "async_copy")
    offset, masked, layout = masked_by(pointer, mask, offset, layout)
    view = shared_view(smem, "async_copy")
    if view.shape != offset.shape:
        raise fault_at("type-error", f"async_copy of {list(offset.shape)} elements into {list(view.shape)}")
    if view.element is not buffer.element:
        raise fault_at("type-error", f"async_copy of {buffer.element} into {view.element}: it cannot convert")
    queue = partition.queue("cp_async")
    time = queue.issue()
    if MACHINE.observer is not None:
        region = view.region
        emit_global(
            "async_copy", pointer, offset, mask, masked, layout, shared=region, shared_bytes=view.byte_offsets
        )
    view.note(True, "cp.async", component=queue.component, time=time)
    values = read(buffer, offset, masked, "async_copy")
    if masked is not None:
        values = np.where(masked, values, np.zeros((), view.element.numpy))

    def land() -> None:
        view.land(values)

    flight = Flight(land, lambda: f"a cp.async into {view.named()}", queue=("cp_async", queue.component))
    queue.open.append(flight)
    MACHINE.running.launch_flight(flight)


def commit_group() -> None:
    MACHINE.active.queue("cp_async").commit()
    if MACHINE.observer is not None:
        emit("async_commit")


def wait_group(num_outstanding: Any = 0) -> None:
    """All but the newest ``num_outstanding`` groups have landed."""
    partition = MACHINE.active
    if MACHINE.observer is not None:
        emit("async_wait", count=int(num_outstanding))
    MACHINE.running.point()
    partition.queue("cp_async").wait(int(num_outstanding), partition)


def async_copy_mbarrier_arrive(mbarrier: Any, increment_count: Any = True) -> None:
    """Arrive once all earlier cp.async of the partition have landed.

    With ``increment_count`` the arrival is added to the pending count first (net zero); without, every thread of the
    partition makes one of the arrivals given to ``mbarrier.init``.
    """
    partition = MACHINE.active
    barrier = barrier_of(mbarrier)
    barrier.require("arrived at")
    queue = partition.queue("cp_async")
    time = queue.time
    earlier = [f for _, flights in queue.groups for f in flights] + list(queue.open)
    count = 1 if increment_count else 32 * partition.num_warps
    if increment_count:
        barrier.pending += 1
    site = SOURCES.here()
    if MACHINE.observer is not None:
        emit("mbarrier_arrive", count=count)

    def land() -> None:
        for flight in earlier:
            flight.land()
        barrier.arrive(count, {queue.component: time}, {}, site)

    flight = Flight(land, lambda: f"an arrival at {barrier.name} by cp.async", ("cp_async", queue.component), barrier)
    queue.open.append(flight)
    MACHINE.running.launch_flight(flight)


# Launches that overlap


def grid_wait() -> None:
    """Launches run one after the other here: what is kept is that the partition did wait."""
    MACHINE.active.grids_waited = True
    if MACHINE.observer is not None:
        emit("grid_wait")


# Warp specialisation


def warp_specialize(functions_and_args: Any, worker_num_warps: Any, worker_num_regs: Any = None) -> Any:
    """Run functions at the same time in partitions of warps; the first one's result is returned."""
    pairs = []
    for pair in functions_and_args:
        function, args = pair
        pairs.append((function, tuple(args) if isinstance(args, (tuple, list)) else (args,)))
    return MACHINE.running.specialise(pairs, list(worker_num_warps), lambda f: getattr(f, "__name__", "partition"))


def _removable(kind: str, operation: Any, without: Any = operations.nothing) -> Any:
    """The operation, unless the experiment that is running leaves it out at this line."""

    @functools.wraps(operation)
    def call(*args: Any, **kwargs: Any) -> Any:
        if MACHINE.removed:
            site = SOURCES.here()
            if site is not None and (site.file, site.line, kind) in MACHINE.removed:
                return without(*args, **kwargs)
        return operation(*args, **kwargs)

    return call


def _pass_on(num_outstanding: Any = 0, deps: Any = ()) -> Any:
    """A warpgroup_mma_wait that waits for nothing."""
    return warpgroup_mma_wait(1 << 30, deps)


ASYNCHRONOUS: dict[str, Any] = {
    "async_copy_load": async_copy_load,
    "async_copy_commit": _removable("async_commit", commit_group),
    "async_copy_wait": _removable("async_wait", wait_group),
    "async_copy_mbarrier_arrive": _removable("mbarrier_arrive", async_copy_mbarrier_arrive),
    "mbarrier_init": _removable("mbarrier_init", mbarrier_init),
    "mbarrier_invalidate": mbarrier_invalidate,
    "mbarrier_expect": _removable("mbarrier_expect", mbarrier_expect),
    "mbarrier_arrive": _removable("mbarrier_arrive", mbarrier_arrive),
    "mbarrier_wait": _removable("mbarrier_wait", mbarrier_wait),
    "fence_async_shared": _removable("fence", fence_async_shared),
    "make_tensor_descriptor": make_tensor_descriptor,
    "tma_load": tma_load,
    "tma_store": tma_store,
    "tma_store_wait": _removable("tma_store_wait", tma_store_wait),
    "warpgroup_mma_init": warpgroup_mma_init,
    "warpgroup_mma": warpgroup_mma,
    "warpgroup_mma_wait": _removable("wgmma_wait", warpgroup_mma_wait, _pass_on),
    "mma_v2": mma_v2,
    "warp_specialize": warp_specialize,
    "barrier": _removable("barrier", operations.barrier),
    "grid_wait": _removable("grid_wait", grid_wait),
    "grid_launch_dependents": operations.nothing,
}
"""By the names of :mod:`rungemm.compat`."""
