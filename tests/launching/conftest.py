"""A stand-in for the CUDA driver, compiled against the cuda.h that Triton's package carries."""

from __future__ import annotations

import ctypes
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rungemm.compat import compiler_tool
from rungemm.gpu.driver import CudaDriver


class FakeCuda:
    """The stand-in and what it recorded."""

    def __init__(self, library: Path) -> None:
        self.driver = CudaDriver(str(library))
        self._library = ctypes.CDLL(str(library))

    def expect(self, sizes: list[int]) -> None:
        self._sizes = sizes
        self._library.expect_parameters(len(sizes), (ctypes.c_uint * len(sizes))(*sizes))

    def parameters(self) -> list[bytes]:
        """The bytes of each parameter of the last launch."""
        recorded = (ctypes.c_ubyte * 8192).in_dll(self._library, "recorded_parameters")
        values, at = [], 0
        for size in self._sizes:
            values.append(bytes(recorded[at : at + size]))
            at += size
        return values

    @property
    def config(self) -> list[int]:
        """Grid x, y, z, block x, y, z, shared bytes, attributes, whether an attribute list was passed."""
        return list((ctypes.c_uint * 9).in_dll(self._library, "recorded_config"))

    def number(self, name: str) -> int:
        return ctypes.c_ulonglong.in_dll(self._library, f"recorded_{name}").value

    def count(self, name: str) -> int:
        return ctypes.c_int.in_dll(self._library, f"recorded_{name}").value

    def set(self, name: str, value: int) -> None:
        ctypes.c_int.in_dll(self._library, name).value = value

    @staticmethod
    def map_words(encoded: bytes) -> tuple[int, ...]:
        """Type, address, extents (inner, outer), pitch, box (inner, outer), swizzle, as the stand-in encodes them."""
        return struct.unpack("<16Q", encoded)[:8]


@pytest.fixture
def fake_cuda(tmp_path: Path) -> Iterator[FakeCuda]:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler to build the stand-in for libcuda")
    headers = compiler_tool("ptxas").parent.parent / "include"
    library = tmp_path / "libfake_cuda.so"
    source = Path(__file__).parent / "fake_cuda.c"
    subprocess.run([compiler, "-shared", "-fPIC", f"-I{headers}", str(source), "-o", str(library)], check=True)
    yield FakeCuda(library)
