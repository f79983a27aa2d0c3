"""What compiling a launch gives: machine code and the resources it takes."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

from ..cache import DiskStore
from . import sass

__all__ = ["Compiled"]


@dataclass(frozen=True)
class Compiled:
    """One compiled kernel. No tensors, no launch: plain data, the same on every machine.

    Attributes:
        name: the kernel's entry point in the cubin.
        arch: compute capability times ten.
        num_warps: warps of a block, all partitions of a warp-specialised kernel together.
        registers: registers a thread is launched with.
        spill_bytes: bytes of register spills, stores and loads together, in the code (as ptxas counts them).
        stack_bytes: local memory of a thread, bytes.
        shared_bytes: dynamic shared memory of a block, bytes (without the 1 KiB that sm_90 reserves).
        ptx, cubin: the code.
        metadata: what Triton recorded beside it (scratch sizes, descriptor boxes, version).
        key: its name in the compile cache.
    """

    name: str
    arch: int
    num_warps: int
    registers: int
    spill_bytes: int
    stack_bytes: int
    shared_bytes: int
    ptx: str = field(repr=False)
    cubin: bytes = field(repr=False)
    metadata: dict[str, Any] = field(repr=False, hash=False)
    key: str = field(default="", repr=False)

    @functools.cached_property
    def sass(self) -> dict[str, int]:
        """How often each SASS opcode, with its modifiers ("LDS.128"), stands in the code; made when first asked for.

        Raises:
            CompileError: Triton's nvdisasm cannot read the cubin.
        """
        store = DiskStore("sass")
        key = sass.key_of(self.cubin)
        entry = store.load(key)
        if entry is None:
            counts = dict(sass.histogram(sass.disassemble(self.cubin)))
            store.save(key, counts)
            return counts
        return {opcode: int(count) for opcode, count in entry.data.items()}

    def to_entry(self) -> tuple[dict[str, Any], bytes]:
        """What the cache stores: JSON data and the cubin."""
        names = ("name", "arch", "num_warps", "registers", "spill_bytes", "stack_bytes", "shared_bytes", "ptx")
        return {name: getattr(self, name) for name in names} | {"metadata": self.metadata}, self.cubin

    @staticmethod
    def from_entry(data: dict[str, Any], cubin: bytes, key: str) -> Compiled:
        """The inverse of :meth:`to_entry`.

        Raises:
            TypeError: the data has other fields.
        """
        return Compiled(**data, cubin=cubin, key=key)
