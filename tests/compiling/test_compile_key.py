"""The cache key changes with everything the machine code depends on, and with nothing else."""

from __future__ import annotations

import dataclasses

import pytest

from rungemm.compat import gl
from rungemm.compiling.fingerprint import describe_value, fingerprint
from rungemm.compiling.request import request_of
from rungemm.dtypes import FP16, FP32
from rungemm.kernels import Launch
from rungemm.kernels.plan import Pointer, Scalar

HELPER = """
    from rungemm.compat import constexpr, gl, jit
    WIDTH = constexpr({width})
    FLAVOUR = constexpr({flavour!r})

    @jit
    def inner(x):
        return x + {add}
"""

KERNEL = """
    import {helper} as helper
    from {helper} import inner
    from rungemm.compat import aggregate, constexpr, gl, jit
    SCALE = constexpr({scale})
    LAYOUT = constexpr(gl.BlockedLayout([1], [32], [{warps}], [0]))

    @jit
    def kernel(x, n, N: constexpr):
        at = gl.arange(0, N, LAYOUT)
        gl.store(x + at, inner(gl.load(x + at)) * SCALE + helper.WIDTH)
"""


def write(write_module, *, add=1, width=2, flavour="plain", scale=3, warps=4, name="variant"):
    helper = write_module(HELPER.format(add=add, width=width, flavour=flavour), name=f"{name}_helper")
    return write_module(KERNEL.format(helper=helper.__name__, scale=scale, warps=warps), name=f"{name}_kernel").kernel


def test_fingerprint_covers_callees_globals_and_constants_of_modules(write_module) -> None:
    base = fingerprint(write(write_module))
    assert fingerprint(write(write_module)) == base, "the same text gives the same fingerprint"
    for change in ({"add": 7}, {"scale": 4}, {"warps": 8}, {"width": 9}):
        assert fingerprint(write(write_module, **change)) != base, change
    assert fingerprint(write(write_module, flavour="other")) == base, "a constant that no kernel names"


def test_fingerprint_sees_a_global_changed_at_run_time(write_module) -> None:
    kernel = write(write_module)
    before = fingerprint(kernel)
    kernel.fn.__globals__["SCALE"] = gl.constexpr(8)
    assert fingerprint(kernel) != before


def test_values_that_compile_differently_are_told_apart(write_module) -> None:
    inner = write_module(HELPER.format(add=1, width=2, flavour="x")).inner
    other = write_module(HELPER.format(add=2, width=2, flavour="x")).inner
    values = [
        1, 1.0, True, "1", None, (1,), [1], (1, 2), ((1,), 2), {"a": 1}, gl.float16, gl.float32, 0.0, -0.0, inner,
        other, gl.constexpr(1), gl.SwizzledSharedLayout(1, 1, 1, [1, 0]), gl.SwizzledSharedLayout(2, 1, 1, [1, 0]),
    ]  # fmt: skip
    described = [describe_value(value) for value in values]
    assert len(set(described)) == len(described)
    assert described == [describe_value(value) for value in values]


def test_key_changes_with_each_part_of_the_request(write_module, monkeypatch) -> None:
    kernel = write(write_module)
    launch = Launch(kernel, (1, 1, 1), (("x", Pointer("D", FP32)), ("n", Scalar.index(5))), (("N", 128),), 4)

    def with_arguments(pointer: Pointer, scalar: Scalar) -> Launch:
        return dataclasses.replace(launch, arguments=(("x", pointer), ("n", scalar)))

    variants = {
        "same": launch,
        "dtype": with_arguments(Pointer("D", FP16), Scalar.index(5)),
        "alignment": with_arguments(Pointer("D", FP32, 8), Scalar.index(5)),
        "a one": with_arguments(Pointer("D", FP32), Scalar.index(1)),
        "a multiple of 16": with_arguments(Pointer("D", FP32), Scalar.index(32)),
        "wide": with_arguments(Pointer("D", FP32), Scalar.index(5, wide=True)),
        "constant": dataclasses.replace(launch, constants=(("N", 256),)),
        "warps": dataclasses.replace(launch, num_warps=8),
        "registers": dataclasses.replace(launch, max_registers=64),
    }
    keys = {name: request_of(variant, 90).key for name, variant in variants.items()}
    keys["arch"] = request_of(launch, 80).key
    monkeypatch.setenv("DISABLE_LLVM_OPT", "1")
    keys["environment"] = request_of(launch, 90).key
    assert len(set(keys.values())) == len(keys), keys
    monkeypatch.delenv("DISABLE_LLVM_OPT")
    monkeypatch.setenv("TRITON_CACHE_DIR", "/elsewhere")
    assert request_of(launch, 90).key == keys["same"]
    grid = dataclasses.replace(with_arguments(Pointer("C", FP32), Scalar.index(7)), grid=(9, 9, 9))
    assert request_of(grid, 90).key == keys["same"], "the grid, the role and the value are not compiled in"


def test_a_kernel_inside_a_function_is_refused_with_the_remedy() -> None:
    from rungemm.compat import jit

    @jit
    def local(x):
        gl.store(x, 1.0)

    launch = Launch(local, (1, 1, 1), (("x", Pointer("D", FP32)),), (), 4)
    with pytest.raises(RuntimeError, match="move it to the top level"):
        request_of(launch, 90)
