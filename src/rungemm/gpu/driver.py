"""The part of the CUDA driver that launching needs, called through ctypes.

Triton's own launcher takes 20 us a call with TMA descriptors, encodes them anew every time, needs a C compiler on the
user's machine, and changes from release to release; the driver's interface does none of that. Nothing here imports
torch, and nothing is loaded before the first use.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

__all__ = ["OVERLAPPING", "CudaDriver", "CudaError", "LaunchAttribute", "LaunchConfig", "driver"]

TENSOR_MAP_BYTES = 128
TENSOR_MAP_ALIGNMENT = 64

# Values of cuda.h.
_INVALID_CONTEXT = 201
_MAX_SHARED_PER_BLOCK_OPTIN = 97
_FUNC_NUM_REGS = 4
_FUNC_MAX_DYNAMIC_SHARED = 8
_CACHE_PREFER_SHARED = 1
_DEFAULT_SHARED_LIMIT = 48 * 1024
_L2_PROMOTION_128B = 2
_CAPTURE_RELAXED = 2
_PROGRAMMATIC_STREAM_SERIALIZATION = 6
_PROGRAMMATIC_SINCE = 12030
"""CUDA 12.3: the first driver that captures such launches in a graph."""

_SYMBOLS = (
    "cuInit",
    "cuDriverGetVersion",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDevicePrimaryCtxRetain",
    "cuCtxSetCurrent",
    "cuModuleLoadData",
    "cuModuleGetFunction",
    "cuFuncSetAttribute",
    "cuFuncSetCacheConfig",
    "cuFuncGetAttribute",
    "cuOccupancyMaxActiveBlocksPerMultiprocessor",
    "cuTensorMapEncodeTiled",
    "cuLaunchKernelEx",
    "cuThreadExchangeStreamCaptureMode",
)


class CudaError(RuntimeError):
    """A call to the driver failed; the message names the call and the driver's own words."""


class LaunchConfig(ctypes.Structure):
    """cuda.h's CUlaunchConfig."""

    _fields_ = (
        ("grid_x", ctypes.c_uint),
        ("grid_y", ctypes.c_uint),
        ("grid_z", ctypes.c_uint),
        ("block_x", ctypes.c_uint),
        ("block_y", ctypes.c_uint),
        ("block_z", ctypes.c_uint),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint),
    )


class LaunchAttribute(ctypes.Structure):
    """cuda.h's CUlaunchAttribute: a number for what, and 64 bytes for its value, of which the first is all we need."""

    _fields_ = (
        ("id", ctypes.c_int),
        ("padding", ctypes.c_char * 4),
        ("value", ctypes.c_int),
        ("rest", ctypes.c_char * 60),
    )


OVERLAPPING = LaunchAttribute(_PROGRAMMATIC_STREAM_SERIALIZATION, b"", 1, b"")
"""For a launch that may begin while the one before it on the stream still runs."""


class CudaDriver:
    """libcuda's entry points, with errors raised.

    Attributes:
        overlaps: programmatic dependent launches work, in graphs too.
        queue: cuLaunchKernelEx itself; :meth:`launch` does what else there is to do when it returns an error's number.

    Raises:
        CudaError: the library is not there, or is older than CUDA 12 (no cuTensorMapEncodeTiled).
    """

    def __init__(self, library: str = "libcuda.so.1") -> None:
        try:
            loaded = ctypes.CDLL(library)
        except OSError as error:
            raise CudaError(f"{library} cannot be loaded ({error}): install NVIDIA's driver") from error
        missing = [name for name in _SYMBOLS if not hasattr(loaded, name)]
        if missing:
            raise CudaError(f"{library} has no {', '.join(missing)}: the driver must be of CUDA 12 or newer")
        self._calls: dict[str, Any] = {name: getattr(loaded, name) for name in _SYMBOLS}
        for call in self._calls.values():
            call.restype = ctypes.c_int
        # The one call of every launch gets prototypes, so that plain integers pass as pointers without conversion.
        self.queue = self._calls["cuLaunchKernelEx"]
        self.queue.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        self._check("cuInit", 0)
        version = ctypes.c_int()
        self._check("cuDriverGetVersion", ctypes.byref(version))
        self.overlaps = version.value >= _PROGRAMMATIC_SINCE

    def _error(self, name: str, code: int) -> CudaError:
        words = []
        for describe in ("cuGetErrorName", "cuGetErrorString"):
            text = ctypes.c_char_p()
            if self._calls[describe](code, ctypes.byref(text)) == 0 and text.value:
                words.append(text.value.decode())
        return CudaError(f"{name} failed: {': '.join(words) or f'error {code}'}")

    def _check(self, name: str, *arguments: Any) -> None:
        code = self._calls[name](*arguments)
        if code != 0:
            raise self._error(name, code)

    def use_device(self, index: int) -> None:
        """Make the device's primary context (the one torch uses) current in this thread."""
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._check("cuDeviceGet", ctypes.byref(device), index)
        self._check("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._check("cuCtxSetCurrent", context)

    def load_function(self, cubin: bytes, name: str, shared_bytes: int, device: int) -> int:
        """The handle of a kernel, ready to be launched with ``shared_bytes`` of dynamic shared memory.

        The module stays loaded for the life of the process.

        Raises:
            CudaError: the card cannot run the cubin, or has not that much shared memory.
        """
        limit = ctypes.c_int()
        self._check("cuDeviceGetAttribute", ctypes.byref(limit), _MAX_SHARED_PER_BLOCK_OPTIN, device)
        if shared_bytes > limit.value:
            raise CudaError(f"{name} needs {shared_bytes} bytes of shared memory; this card has {limit.value} a block")
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self._check("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(cubin))
        self._check("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
        if shared_bytes > _DEFAULT_SHARED_LIMIT:
            self._check("cuFuncSetCacheConfig", function, _CACHE_PREFER_SHARED)
            self._check("cuFuncSetAttribute", function, _FUNC_MAX_DYNAMIC_SHARED, shared_bytes)
        return function.value or 0

    def blocks_per_sm(self, function: int, threads: int, shared_bytes: int) -> int:
        """CUDA's own count of the blocks of a loaded kernel that one SM of the current device holds at once.

        Args:
            function: from :meth:`load_function`.
            threads: of a block.
            shared_bytes: dynamic shared memory of a block.
        """
        blocks = ctypes.c_int()
        self._check(
            "cuOccupancyMaxActiveBlocksPerMultiprocessor",
            ctypes.byref(blocks), ctypes.c_void_p(function), threads, ctypes.c_size_t(shared_bytes),
        )  # fmt: skip
        return blocks.value

    def registers(self, function: int) -> int:
        """Registers of a thread of a loaded kernel, by the driver's word."""
        count = ctypes.c_int()
        self._check("cuFuncGetAttribute", ctypes.byref(count), _FUNC_NUM_REGS, ctypes.c_void_p(function))
        return count.value

    @contextmanager
    def relaxed_capture(self) -> Iterator[None]:
        """Inside, a CUDA graph capture in progress does not forbid this thread what is no stream operation.

        Loading a module is such: without this, the first call of a problem class inside a capture would break it.
        """
        mode = ctypes.c_int(_CAPTURE_RELAXED)
        self._check("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
        try:
            yield
        finally:
            self._check("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))

    def encode_tensor_map(
        self,
        address: int,
        element_type: int,
        element_bytes: int,
        shape: Sequence[int],
        strides: Sequence[int],
        box: Sequence[int],
        swizzle: int,
    ) -> bytes:
        """A TMA descriptor (cuda.h's CUtensorMap), 128 bytes.

        Args:
            address: of the first element, a multiple of 16 bytes.
            element_type: cuda.h's CUtensorMapDataType.
            shape, strides, box: outermost first; strides in elements, the last is 1 and not encoded.
            swizzle: cuda.h's CUtensorMapSwizzle (0 none, 1 to 3: 32, 64, 128 bytes).
        """
        rank = len(shape)
        space = ctypes.create_string_buffer(TENSOR_MAP_BYTES + TENSOR_MAP_ALIGNMENT)
        skip = -ctypes.addressof(space) % TENSOR_MAP_ALIGNMENT
        # The driver counts dimensions from the innermost.
        self._check(
            "cuTensorMapEncodeTiled",
            ctypes.c_void_p(ctypes.addressof(space) + skip),
            element_type,
            rank,
            ctypes.c_void_p(address),
            (ctypes.c_uint64 * rank)(*reversed(shape)),
            (ctypes.c_uint64 * rank)(*(stride * element_bytes for stride in reversed(strides[:-1])), 0),
            (ctypes.c_uint32 * rank)(*reversed(box)),
            (ctypes.c_uint32 * rank)(*[1] * rank),
            0,  # no interleave
            swizzle,
            _L2_PROMOTION_128B,
            0,  # out of bounds reads as zero
        )
        return space.raw[skip : skip + TENSOR_MAP_BYTES]

    def launch(self, config: int, function: int, parameters: int, device: int) -> None:
        """Put a kernel on its stream.

        Args:
            config: address of a :class:`LaunchConfig`.
            function: from :meth:`load_function`.
            parameters: address of an array of pointers, one to each kernel parameter.
            device: whose context is made current if this thread has none yet.
        """
        code = self.queue(config, function, parameters, None)
        if code == _INVALID_CONTEXT:
            # A thread that torch has not touched, such as one of autograd's.
            self.use_device(device)
            code = self.queue(config, function, parameters, None)
        if code != 0:
            raise self._error("cuLaunchKernelEx", code)


@functools.cache
def driver() -> CudaDriver:
    """The machine's driver."""
    return CudaDriver()
