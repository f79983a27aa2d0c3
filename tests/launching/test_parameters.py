"""The parameters that we lay out are those that the cubin itself says it takes, and arrive at the driver whole."""

from __future__ import annotations

import ctypes
import dataclasses
import re
import struct
import subprocess
from pathlib import Path

import pytest
from launching_kernels import every_kind_launch

from rungemm.compat import compiler_tool, gl
from rungemm.compiling import compile_launch
from rungemm.dtypes import FP32
from rungemm.gpu.driver import CudaError, LaunchConfig
from rungemm.gpu.parameters import ParameterBlock, TensorMap, fields_of, tensor_maps_of
from rungemm.hardware import DEFAULT_GPU
from rungemm.kernels import LADDER
from rungemm.kernels.plan import Descriptor
from rungemm.problem import Problem, ProblemError


def sizes_in_cubin(cubin: bytes, folder: Path) -> list[int]:
    """Parameter sizes by ordinal, from the EIATTR_KPARAM_INFO records that the driver itself goes by."""
    path = folder / "kernel.cubin"
    path.write_bytes(cubin)
    text = subprocess.run(
        [str(compiler_tool("cuobjdump")), "-elf", str(path)], capture_output=True, text=True, check=True
    ).stdout
    record = r"Ordinal : 0x(\w+)\s+Offset\s+: 0x\w+\s+Size\s+: 0x(\w+)"
    found = {int(ordinal, 16): int(size, 16) for ordinal, size in re.findall(record, text)}
    return [found[ordinal] for ordinal in range(len(found))]


def test_fields_are_the_cubin_s_own_parameters(tmp_path: Path) -> None:
    launch = every_kind_launch()
    assert [f.size for _, f in fields_of(launch)] == sizes_in_cubin(compile_launch(launch, 90).cubin, tmp_path)


@pytest.mark.parametrize("name", ["naive", "vectorised"])
def test_fields_of_rungs(name: str, tmp_path: Path) -> None:
    kernel = next(k for k in LADDER if k.name == name)
    for problem in (Problem.dense(64, 64, 64, beta=1.0), Problem.dense(1, 33, 1)):
        plan = kernel.plan(problem, kernel.default_config(problem, DEFAULT_GPU), DEFAULT_GPU)
        for launch in plan.launches:
            expected = sizes_in_cubin(compile_launch(launch, 90).cubin, tmp_path)
            assert [f.size for _, f in fields_of(launch)] == expected


def test_a_launch_reaches_the_driver_whole(fake_cuda) -> None:
    launch = every_kind_launch()
    compiled = compile_launch(launch, 90)
    cuda = fake_cuda.driver

    def encode(address: int, m: TensorMap) -> bytes:
        return cuda.encode_tensor_map(address, m.element_type, m.element_bytes, m.shape, m.strides, m.box, m.swizzle)

    function = cuda.load_function(compiled.cubin, compiled.name, compiled.shared_bytes, 0)
    block = ParameterBlock(launch, compiled, encode)
    fake_cuda.expect([f.size for _, f in fields_of(launch)])
    config = LaunchConfig(3, 2, 1, 128, 1, 1, compiled.shared_bytes, 0xABCDEF0123, None, 0)
    far = 0x7F0000000000
    for c, a, d in ((far + 4, far + 0x1000, far + 0x2000), (0x104, 0x110, 0x120), (far + 4, 0x1000, 0x20)):
        block.fill({"A": a, "C": c, "D": d}, scratch=0x500)
        cuda.launch(ctypes.addressof(config), function, block.address, 0)
        values = fake_cuda.parameters()
        names = [name for name, _ in fields_of(launch)]
        got = dict(zip(names, values, strict=True))
        assert struct.unpack("<Q", got["x"]) == (c,) and struct.unpack("<Q", got["y"]) == (d,)
        assert struct.unpack("<i", got["n"]) == (5,) and struct.unpack("<q", got["wide"]) == (-(2**40),)
        assert struct.unpack("<f", got["factor"]) == (2.5,)
        # bf16, 512 wide and 1000 high, 1040 bytes a row, boxes of 64 x 128, 128-byte swizzle.
        assert fake_cuda.map_words(got["descriptor"]) == (9, a, 512, 1000, 1040, 64, 128, 3)
        shape = [struct.unpack("<i", got[f"descriptor.shape[{axis}]"])[0] for axis in (0, 1)]
        strides = [struct.unpack("<q", got[f"descriptor.strides[{axis}]"])[0] for axis in (0, 1)]
        assert shape == [1000, 512] and strides == [520, 1]
        assert struct.unpack("<Q", got["global_scratch"]) == (0x500,) and got["profile_scratch"] == bytes(8)
    assert fake_cuda.config == [3, 2, 1, 128, 1, 1, compiled.shared_bytes, 0, 0]
    assert fake_cuda.number("stream") == 0xABCDEF0123 and fake_cuda.number("function") == function
    assert fake_cuda.count("launches") == 3


def test_rounding_to_tf32_is_asked_of_tma() -> None:
    base = every_kind_launch()
    layout = gl.NVMMASharedLayout(128, 32, 2)
    for rounded, expected in ((False, 7), (True, 11)):
        descriptor = Descriptor("A", FP32, (1000, 512), (512, 1), (128, 32), layout, round_to_tf32=rounded)
        arguments = tuple((n, descriptor if n == "descriptor" else x) for n, x in base.arguments)
        launch = dataclasses.replace(base, arguments=arguments)
        compiled = dataclasses.replace(
            compile_launch(base, 90), metadata={"tensordesc_meta": [{"block_size": [128, 32], "swizzle": 3}]}
        )
        assert tensor_maps_of(launch, compiled)["descriptor"].element_type == expected


def test_missing_and_misaligned_operands_are_named() -> None:
    launch = every_kind_launch()
    block = ParameterBlock(launch, compile_launch(launch, 90), lambda address, tensor_map: bytes(128))
    with pytest.raises(ProblemError, match="reads C, which was not given"):
        block.fill({"A": 0x100, "D": 0x100})
    with pytest.raises(ProblemError, match=r"D begins at 0x104.*multiple of 16"):
        block.fill({"A": 0x100, "C": 0x104, "D": 0x104})
    with pytest.raises(ProblemError, match=r"A begins at 0x108.*multiple of 16"):
        block.fill({"A": 0x108, "C": 0x104, "D": 0x100})


def test_driver_errors_are_words_and_a_missing_context_is_set(fake_cuda) -> None:
    cuda = fake_cuda.driver
    with pytest.raises(CudaError, match="needs 300000 bytes of shared memory; this card has 232448"):
        cuda.load_function(b"\x7fELF", "k", 300_000, 0)
    with pytest.raises(CudaError, match="cuModuleLoadData failed: CUDA_ERROR_X: in words"):
        cuda.load_function(b"junk", "k", 0, 0)
    function = cuda.load_function(b"\x7fELF", "k", 100_000, 0)
    assert fake_cuda.count("shared_limit") == 100_000
    fake_cuda.expect([])
    fake_cuda.set("context_missing", 1)
    config = LaunchConfig(1, 1, 1, 32, 1, 1, 0, None, None, 0)
    cuda.launch(ctypes.addressof(config), function, ctypes.addressof(config), 3)
    assert fake_cuda.count("launches") == 1 and fake_cuda.number("context") == 103 * 16
    config.grid_x = 0
    with pytest.raises(CudaError, match="cuLaunchKernelEx failed: CUDA_ERROR_INVALID_VALUE"):
        cuda.launch(ctypes.addressof(config), function, 0, 0)
    with pytest.raises(CudaError, match="cannot be loaded"):
        type(cuda)("libnowhere.so")


def test_what_the_driver_says_of_a_kernel(fake_cuda) -> None:
    cuda = fake_cuda.driver
    function = cuda.load_function(b"\x7fELF", "k", 200_000, 0)
    assert cuda.registers(function) == 168
    assert cuda.blocks_per_sm(function, 384, 200_000) == 5
    assert cuda.blocks_per_sm(function, 384, 1 << 33) == 0  # a size_t: more than 32 bits go through
    with pytest.raises(CudaError, match="cuOccupancyMaxActiveBlocksPerMultiprocessor failed"):
        cuda.blocks_per_sm(0x1234, 384, 0)


def test_capture_mode_is_relaxed_and_put_back(fake_cuda) -> None:
    mode = ctypes.c_int.in_dll(fake_cuda._library, "capture_mode")
    with pytest.raises(KeyError), fake_cuda.driver.relaxed_capture():
        assert mode.value == 2
        raise KeyError
    assert mode.value == 0
