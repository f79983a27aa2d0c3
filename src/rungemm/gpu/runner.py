"""Launching plans: allocate scratch memory, fill in the pointers, and put each kernel on torch's current stream.

With RUNGEMM_PDL=1 in the environment, on sm_90, a launch whose plan says ``pdl`` may begin while the one before it
still runs; its kernel waits before it touches memory, so nothing else changes. It is off by default: measured
(results/h200/pdl.json), it gains up to a third where our own short launches follow each other, and costs 2 to 3%
between kernels of others.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ..compiling import Compiled, compile_plan
from ..kernels.plan import Launch, LaunchPlan, Workspace
from ..problem import ProblemError
from .driver import OVERLAPPING, CudaDriver, LaunchConfig, driver
from .parameters import ParameterBlock, TensorMap

__all__ = ["Prepared", "prepare", "run_plan"]

WARP = 32
CAPTURES = 256
"""Captured launches of one plan whose zeroed memory is made beforehand; later ones zero theirs in the graph."""

_captured: list[torch.Tensor] = []
"""What captured launches took of it: graphs hold addresses, may outlive the plan, and do not say when they go."""


class _Kernel:
    """One launch of a plan, loaded on a device, with its parameters laid out."""

    def __init__(self, launch: Launch, compiled: Compiled, device: int, cuda: CudaDriver) -> None:
        if compiled.metadata.get("num_ctas", 1) != 1:
            raise RuntimeError(f"{compiled.name} is compiled for clusters, which launches do not ask for yet")
        self.compiled = compiled
        self.device = device
        self.cuda = cuda
        self.function = _function(compiled, device, cuda)
        overlapping = launch.pdl and compiled.arch >= 90 and cuda.overlaps and os.environ.get("RUNGEMM_PDL") == "1"
        attributes = (ctypes.addressof(OVERLAPPING), 1) if overlapping else (None, 0)
        threads = compiled.num_warps * WARP
        self.config = LaunchConfig(*launch.grid, threads, 1, 1, compiled.shared_bytes, None, *attributes)
        self._config_at = ctypes.addressof(self.config)
        self.parameters = ParameterBlock(launch, compiled, self._encode)
        self.scratch_bytes = compiled.metadata.get("global_scratch_size", 0) * launch.programs

    def _encode(self, address: int, tensor_map: TensorMap) -> bytes:
        return self.cuda.encode_tensor_map(
            address,
            tensor_map.element_type,
            tensor_map.element_bytes,
            tensor_map.shape,
            tensor_map.strides,
            tensor_map.box,
            tensor_map.swizzle,
        )

    def launch(self, addresses: Mapping[str, int], stream: int, where: torch.device) -> None:
        # Kept until the launch is queued; torch's allocator then hands the memory only to later work of the stream.
        scratch = None
        if self.scratch_bytes:
            scratch = torch.empty(self.scratch_bytes, dtype=torch.uint8, device=where)
        self.parameters.fill(addresses, scratch.data_ptr() if scratch is not None else 0)
        self.config.stream = stream
        self.cuda.launch(self._config_at, self.function, self.parameters.address, self.device)


_functions: dict[tuple[int, int, bytes], int] = {}
_functions_lock = threading.Lock()


def _function(compiled: Compiled, device: int, cuda: CudaDriver) -> int:
    """The kernel's handle on a device; loaded once, whichever plan asks.

    Shared memory is no part of the cubin: a ring with more room may have the same code, but wants another limit.
    """
    key = (device, compiled.shared_bytes, compiled.cubin)
    with _functions_lock:
        handle = _functions.get(key)
        if handle is None:
            cuda.use_device(device)
            handle = cuda.load_function(compiled.cubin, compiled.name, compiled.shared_bytes, device)
            _functions[key] = handle
        return handle


class Prepared:
    """A plan compiled and loaded on one device: running it again with other pointers costs a few microseconds.

    Everything that the plan holds is fixed (extents, strides, alpha and beta, the alignment of each pointer); the
    operands' addresses are not. Safe to use from several threads.

    Attributes:
        plan: what runs.
        device: the CUDA device's index.
        compiled: machine code, one a launch.
    """

    def __init__(self, plan: LaunchPlan, device: int, compiled: tuple[Compiled, ...], cuda: CudaDriver) -> None:
        self.plan = plan
        self.device = device
        self.compiled = compiled
        self._kernels = [
            _Kernel(launch, code, device, cuda) for launch, code in zip(plan.launches, compiled, strict=True)
        ]
        self._where = _place(device)
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, int], torch.Tensor] = {}
        self._spare = self._zeros_for_captures()

    def run(self, operands: Mapping[str, torch.Tensor]) -> None:
        """Launch on the current stream of the device; returns at once.

        Args:
            operands: by role ("A", "B", "C", "D", ...): tensors of this device, laid out as the plan's problem says.

        Raises:
            ProblemError: an operand is missing, on another device, or aligned worse than the plan was made for.
            CudaError: the driver refused the launch.
        """
        addresses = {}
        for role, operand in operands.items():
            if operand is not None:
                if operand.get_device() != self.device:
                    raise ProblemError(f"{role} is on {operand.device}: this plan runs on cuda:{self.device}")
                addresses[role] = operand.data_ptr()
        self.run_addresses(addresses)

    def run_addresses(self, addresses: Mapping[str, int]) -> None:
        """As :meth:`run`, with the addresses of first elements in place of tensors, unchecked but for alignment."""
        if torch.cuda.current_device() != self.device:
            with torch.cuda.device(self.device):
                self._run(addresses)
        else:
            self._run(addresses)

    def launcher(self, roles: tuple[str, ...]) -> Callable[..., None]:
        """:meth:`run_addresses` as a function of the addresses alone, in the order of ``roles``, nothing checked.

        For a plan of one launch without scratch memory it does the least that a launch can: it fills in the pointers
        and calls the driver, about 2 us. The caller sees to the operands' alignment.

        Raises:
            ProblemError: the plan reads a role that is not in ``roles``.
        """
        for kernel in self._kernels:
            spaces = tuple(space.name for space in self.plan.workspaces)
            kernel.parameters.places(roles + spaces)
        if len(self._kernels) != 1 or self.plan.workspaces or self._kernels[0].scratch_bytes:
            return lambda *addresses: self.run_addresses(dict(zip(roles, addresses, strict=True)))
        kernel, device, lock = self._kernels[0], self.device, self._lock
        parameters, config, config_at, function = kernel.parameters, kernel.config, kernel._config_at, kernel.function
        plain, described = parameters.places(roles)
        words, describe, parameters_at = parameters.words, parameters.describe, parameters.address
        queue, again = kernel.cuda.queue, kernel.cuda.launch
        current_stream, current_device = _current_stream_of(), _current_device_of()

        def run(*addresses: int) -> None:
            if current_device() != device:
                self.run_addresses(dict(zip(roles, addresses, strict=True)))
                return
            with lock:
                # What this function's last launch put there is there still, unless another has written since.
                if parameters.holder is not plain or parameters.held != addresses:
                    parameters.holder = None
                    for place, word in plain:
                        words[word] = addresses[place]
                    for place, at, tensor_map in described:
                        describe(at, addresses[place], tensor_map)
                    parameters.holder, parameters.held = plain, addresses
                config.stream = current_stream(device)
                if queue(config_at, function, parameters_at, None):
                    again(config_at, function, parameters_at, device)

        return run

    def _run(self, addresses: Mapping[str, int]) -> None:
        stream = _current_stream(self.device)
        held = []  # as with a launch's scratch memory: kept until all is queued
        if self.plan.workspaces:
            addresses = dict(addresses)
            for workspace in self.plan.workspaces:
                memory = self._scratch(workspace, stream)
                held.append(memory)
                addresses[workspace.name] = memory.data_ptr()
        with self._lock:
            for kernel in self._kernels:
                kernel.launch(addresses, stream, self._where)

    def _scratch(self, workspace: Workspace, stream: int) -> torch.Tensor:
        dtype = getattr(torch, workspace.dtype.torch)
        where = self._where
        if not workspace.zeroed:
            return torch.empty(workspace.elements, dtype=dtype, device=where)
        # Memory first made inside a CUDA graph belongs to the graph: never kept.
        if not workspace.restored:
            return torch.zeros(workspace.elements, dtype=dtype, device=where)
        if torch.cuda.is_current_stream_capturing():
            with self._lock:
                spare = self._spare.get(workspace.name)
                memory = spare.pop() if spare else None
            if memory is None:
                return torch.zeros(workspace.elements, dtype=dtype, device=where)
            _captured.append(memory)
            return memory
        kept = self._kept.get((workspace.name, stream))
        if kept is None:
            kept = self._kept[workspace.name, stream] = torch.zeros(workspace.elements, dtype=dtype, device=where)
        return kept

    def _zeros_for_captures(self) -> dict[str, list[torch.Tensor]]:
        """Zeroed memory, made before any capture, for every restored workspace of CAPTURES captured launches.

        A captured launch takes its own for good: graphs that replay at one time must not share it, and zeroing it in
        the graph would cost every replay a node, a microsecond or two of a ten-microsecond product.
        """
        restored = [w for w in self.plan.workspaces if w.zeroed and w.restored]
        if not restored or torch.cuda.is_current_stream_capturing():
            return {}
        found = {}
        for workspace in restored:
            dtype = getattr(torch, workspace.dtype.torch)
            # Rows of whole cache lines: no two launches write to one.
            line = -(-workspace.elements * workspace.dtype.bytes // 128) * 128 // workspace.dtype.bytes
            rows = torch.zeros((CAPTURES, line), dtype=dtype, device=self._where)
            found[workspace.name] = [row[: workspace.elements] for row in rows]
        if self._where.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()  # a replay may come on any stream
        return found


def _place(device: int) -> torch.device:
    return torch.device("cuda", device)


def _current_stream(device: int) -> int:
    return _current_stream_of()(device)


def _current_stream_of() -> Callable[[int], int]:
    """The current stream's handle by device; torch.cuda.current_stream() builds an object, a microsecond a call."""
    raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return raw if raw is not None else lambda device: torch.cuda.current_stream(device).cuda_stream


def _current_device_of() -> Callable[[], int]:
    """The current device's index, without torch.cuda's question whether CUDA has begun: tensors are there already."""
    raw = getattr(torch._C, "_cuda_getDevice", None)
    return raw if raw is not None else torch.cuda.current_device


def prepare(plan: LaunchPlan, device: int | None = None, compiled: tuple[Compiled, ...] | None = None) -> Prepared:
    """Compile a plan (unless ``compiled`` is given) and load it on a device (the current one if not said).

    Raises:
        ProblemError: there is no CUDA device.
        CompileError: the plan does not compile for the device.
        CudaError: the device cannot run it.
    """
    if not torch.cuda.is_available():
        raise ProblemError("no CUDA device is available to torch: simulate the plan instead, or see rungemm doctor")
    index = torch.cuda.current_device() if device is None else device
    if compiled is None:
        major, minor = torch.cuda.get_device_capability(index)
        compiled = compile_plan(plan, 10 * major + minor)
    # Loading makes the device's context current; the guard puts back what was.
    with torch.cuda.device(index):
        return Prepared(plan, index, compiled, driver())


_recent: dict[tuple[int, int], Any] = {}
_RECENT_KEPT = 128


def run_plan(plan: LaunchPlan, operands: Mapping[str, torch.Tensor]) -> None:
    """Run a plan on its operands' device and torch's current stream there; returns when all is queued.

    Args:
        operands: CUDA tensors by role ("A", "B", "C", "D", ...), laid out as the plan's problem says.

    Raises:
        ProblemError: an operand is missing, not on a CUDA device, or aligned worse than the plan was made for.
        CompileError: the plan does not compile for the device.
        CudaError: the driver refused.
    """
    if not plan.launches:
        return
    device = None
    for role, operand in operands.items():
        if operand is None:
            continue
        if not operand.is_cuda:
            raise ProblemError(f"{role} is on {operand.device}: move it to a GPU, e.g. {role}.cuda()")
        device = operand.get_device() if device is None else device
    # By identity: hashing a plan costs more than launching it. The plan is held, so its identity stays its own.
    key = (id(plan), -1 if device is None else device)
    known = _recent.get(key)
    if known is None:
        known = prepare(plan, device)
        if len(_recent) >= _RECENT_KEPT:
            _recent.pop(next(iter(_recent)), None)
        _recent[key] = known
    known.run(operands)
