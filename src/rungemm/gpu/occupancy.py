"""CUDA's own word on how many blocks of a compiled kernel an SM holds: what :mod:`rungemm.analysis` is held against."""

from __future__ import annotations

from dataclasses import dataclass

from ..compiling import Compiled
from .driver import driver

__all__ = ["OnCard", "ask_cuda"]

WARP = 32


@dataclass(frozen=True)
class OnCard:
    """What the driver says of a loaded kernel.

    Attributes:
        blocks: that one SM holds at once (``cuOccupancyMaxActiveBlocksPerMultiprocessor``).
        registers: of a thread.
    """

    blocks: int
    registers: int


def ask_cuda(compiled: Compiled, device: int = 0) -> OnCard:
    """Load the kernel on a device and ask the driver.

    Raises:
        CudaError: no driver, or the device cannot run the kernel.
    """
    cuda = driver()
    cuda.use_device(device)
    function = cuda.load_function(compiled.cubin, compiled.name, compiled.shared_bytes, device)
    threads = compiled.num_warps * WARP
    return OnCard(cuda.blocks_per_sm(function, threads, compiled.shared_bytes), cuda.registers(function))
