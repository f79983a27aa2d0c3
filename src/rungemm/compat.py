"""Everything about Gluon that differs between Triton releases, in one place.

Gluon is experimental: names move, arguments come and go. Kernels and every other module of ours import Gluon
from here, so a new Triton release is one file's work. Reference release: 3.6.0; CI compiles every kernel under
the newest one too. ``docs/triton-versions.md`` lists what moved.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

import triton
import triton.language.core as _tl_core
from triton._C.libtriton import get_cache_invalidating_env_vars
from triton.backends.compiler import GPUTarget
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource
from triton.experimental.gluon.language import _core as _gl_core
from triton.experimental.gluon.language.nvidia.ampere import async_copy as _async_copy
from triton.experimental.gluon.language.nvidia.ampere import mbarrier as _ampere_mbarrier
from triton.experimental.gluon.language.nvidia.ampere import mma_v2
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)
from triton.runtime.jit import JITCallable

__all__ = [
    "TRITON_VERSION",
    "GPUTarget",
    "GluonASTSource",
    "JITCallable",
    "aggregate",
    "aggregate_source",
    "async_copy_commit",
    "async_copy_load",
    "async_copy_mbarrier_arrive",
    "async_copy_wait",
    "barrier",
    "compiler_environment",
    "compiler_stamp",
    "compiler_tool",
    "constexpr",
    "constexpr_parameters",
    "fence_async_shared",
    "gl",
    "gluon",
    "gluon_builtins",
    "grid_launch_dependents",
    "grid_wait",
    "is_aggregate",
    "is_builtin",
    "is_constexpr_function",
    "is_jit",
    "jit",
    "mbarrier",
    "mma_v2",
    "padded_shared_layout",
    "pinned_fma",
    "reciprocal",
    "skip_compiler_hash",
    "tma",
    "tma_load",
    "tma_store",
    "tma_store_wait",
    "triton",
    "warp_specialize",
    "warpgroup_mma",
    "warpgroup_mma_init",
    "warpgroup_mma_wait",
]

TRITON_VERSION: str = triton.__version__

jit = gluon.jit
constexpr = gl.constexpr


def _first(*places: tuple[Any, str]) -> Any:
    """The first of these attributes that exists: newest name first, since old names may remain as raising stubs."""
    for module, name in places:
        found = getattr(module, name, None)
        if found is not None:
            return found
    names = ", ".join(name for _, name in places)
    raise ImportError(f"Triton {TRITON_VERSION} has none of {names}: install triton 3.6.0 or a newer one CI tests")


# 3.7 renamed the CTA barrier.
barrier = _first((gl, "barrier"), (gl, "thread_barrier"))
# 3.8 renamed the copies.
tma_load = _first((tma, "async_load"), (tma, "async_copy_global_to_shared"))
tma_store = _first((tma, "async_store"), (tma, "async_copy_shared_to_global"))
tma_store_wait = tma.store_wait
async_copy_load = _first((_async_copy, "async_load"), (_async_copy, "async_copy_global_to_shared"))
async_copy_commit = _async_copy.commit_group
async_copy_wait = _async_copy.wait_group
async_copy_mbarrier_arrive = _async_copy.mbarrier_arrive
# 3.8 made it public.
aggregate = _first((gluon, "aggregate"), (_tl_core, "_aggregate"))


def padded_shared_layout(interval: int, padding: int, shape: list[int], order: list[int]) -> Any:
    """A row-padded shared layout: ``padding`` elements after every ``interval``."""
    return gl.PaddedSharedLayout.with_identity_for([[interval, padding]], shape, order)


class _Passing:
    """An object with some of its methods replaced."""

    def __init__(self, target: Any, **replaced: Any) -> None:
        self._target = target
        self._replaced = replaced

    def __getattr__(self, name: str) -> Any:
        return self._replaced.get(name) or getattr(self._target, name)


@_gl_core.builtin
def _warp_specialize_36(functions_and_args, worker_num_warps, worker_num_regs=None, _semantic=None, _generator=None):
    """3.6 always asks for registers, with which sm_80 and sm_89 do not compile; here it may leave them alone."""
    warps = [_gl_core._unwrap_if_constexpr(count) for count in worker_num_warps]
    if worker_num_regs is not None:
        registers = [_gl_core._unwrap_if_constexpr(count) for count in worker_num_regs]
        return _semantic.warp_specialize(functions_and_args, warps, registers, _generator)
    builder = _semantic.builder

    def create(*arguments: Any) -> Any:
        region = builder.create_warp_specialize(*arguments)
        return _Passing(region, set_requested_registers=lambda registers: None)

    _semantic.builder = _Passing(builder, create_warp_specialize=create)
    try:
        return _semantic.warp_specialize(functions_and_args, warps, [0] * len(warps), _generator)
    finally:
        _semantic.builder = builder


# 3.7 made the registers optional: ``warp_specialize(functions_and_args, worker_num_warps, worker_num_regs=None)``.
warp_specialize = _warp_specialize_36 if TRITON_VERSION.startswith("3.6.") else gl.warp_specialize


# --- the compiler itself -----------------------------------------------------------------------------------------


def compiler_tool(name: str) -> Path:
    """The path of a tool in Triton's package: "cuobjdump", "nvdisasm" or "ptxas"."""
    return Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name


@functools.cache
def compiler_stamp() -> str:
    """What tells one build of Triton from another: its version, and size and time of its library and of ptxas.

    Triton's own key hashes the library's hundreds of megabytes, half a second in every process; a build that differs
    in neither size nor time does not happen by accident.
    """
    parts = [TRITON_VERSION]
    for path in (*sorted(Path(triton.__file__).parent.glob("_C/libtriton*.so")), compiler_tool("ptxas")):
        status = path.stat()
        parts.append(f"{path.name} {status.st_size} {status.st_mtime_ns}")
    return "; ".join(parts)


def skip_compiler_hash() -> None:
    """For a process whose Triton cache is its own and empty: do not hash the whole of Triton for its key.

    Half a second to a second in each of our compiling children, for a key that is never looked up again.
    """
    module = triton.runtime.cache
    if hasattr(module, "triton_key"):
        module.triton_key = compiler_stamp


_NOT_FOR_CODE = ("TRITON_CACHE_", "TRITON_HOME", "TRITON_DUMP_", "TRITON_PRINT_", "TRITON_KERNEL_DUMP")


def compiler_environment() -> dict[str, str]:
    """The environment variables that can change the code Triton makes, as they are now."""
    named = set(get_cache_invalidating_env_vars())
    return {
        name: value
        for name, value in sorted(os.environ.items())
        if name in named or (name.startswith("TRITON_") and not name.startswith(_NOT_FOR_CODE))
    }


@jit
def pinned_fma(a, b, c):
    """``a * b + c`` in fp32, one rounding, NOT moved by the compiler: calls keep their order, and so do the elements.

    LLVM sorts ordinary multiply-adds as it likes, and with them goes the reuse of register reads. Marked as having a
    side effect, they reach ptxas in the order written; ptxas keeps to it nearly. Same result as ``gl.fma``.
    """
    return gl.inline_asm_elementwise(
        "fma.rn.f32 $0, $1, $2, $3;", "=f,f,f,f", [a, b, c], dtype=gl.float32, is_pure=False, pack=1
    )


@jit
def reciprocal(x):
    """``1 / x`` in fp32 to one unit in the last place, in one instruction (a division takes six); subnormals are 0."""
    return gl.inline_asm_elementwise(
        "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=gl.float32, is_pure=True, pack=1
    )


def _grid_control(instruction: str, semantic: Any) -> None:
    """One griddepcontrol instruction; before sm_90, which has none and no launches that overlap, nothing."""
    arch = int("".join(c for c in str(semantic.builder.options.arch) if c.isdigit()))
    if arch >= 90:
        _tl_core.inline_asm_elementwise(
            f"griddepcontrol.{instruction}; // $0", "=r", [], dtype=gl.int32, is_pure=False, pack=1, _semantic=semantic
        )


@_gl_core.builtin
def grid_wait(_semantic=None):
    """Wait until the launches before this one have ended and all that they wrote is visible.

    For launches with ``pdl`` (:class:`rungemm.kernels.plan.Launch`), which may begin before that; otherwise nothing is
    waited for. Every partition calls it before it touches global memory, in every program, so that the end of one
    launch says that all launches before it have ended too.
    """
    _grid_control("wait", _semantic)


@_gl_core.builtin
def grid_launch_dependents(_semantic=None):
    """Let the next launch begin, if it has ``pdl``, once every program of this one has come here or ended."""
    _grid_control("launch_dependents", _semantic)


# What the simulator needs to recognise in a kernel's names. It replaces them one by one; see sim/reglobal.py.


def gluon_builtins() -> list[tuple[str, Any]]:
    """Every builtin of Gluon with the name that the simulator knows it by, whatever this release calls it.

    One operation may appear several times, as Triton's own function and as Gluon's.
    """
    found = [(name, getattr(gl, name)) for name in dir(gl) if callable(getattr(gl, name)) and not name.startswith("_")]
    for module in (_tl_core, triton.language.math, triton.language.standard):
        found += [(name, getattr(module, name)) for name, _ in found if getattr(module, name, None) is not None]
    found += [
        ("async_copy_load", async_copy_load),
        ("async_copy_commit", async_copy_commit),
        ("async_copy_wait", async_copy_wait),
        ("async_copy_mbarrier_arrive", async_copy_mbarrier_arrive),
        ("mbarrier_init", mbarrier.init),
        ("mbarrier_invalidate", mbarrier.invalidate),
        ("mbarrier_expect", mbarrier.expect),
        ("mbarrier_arrive", mbarrier.arrive),
        ("mbarrier_wait", mbarrier.wait),
        ("fence_async_shared", fence_async_shared),
        ("make_tensor_descriptor", tma.make_tensor_descriptor),
        ("tma_load", tma_load),
        ("tma_store", tma_store),
        ("tma_store_wait", tma_store_wait),
        ("warpgroup_mma_init", warpgroup_mma_init),
        ("warpgroup_mma", warpgroup_mma),
        ("warpgroup_mma_wait", warpgroup_mma_wait),
        ("mma_v2", mma_v2),
        ("barrier", barrier),
        ("warp_specialize", warp_specialize),
        ("pinned_fma", pinned_fma),
        ("reciprocal", reciprocal),
        ("grid_wait", grid_wait),
        ("grid_launch_dependents", grid_launch_dependents),
    ]
    ampere = _first((_ampere_mbarrier, "arrive"))
    return [*found, ("mbarrier_arrive", ampere)]


def is_jit(value: Any) -> bool:
    """A ``@gluon.jit`` or ``@triton.jit`` function; its raw Python function is ``.fn``."""
    return isinstance(value, triton.runtime.jit.JITFunction)


def constexpr_parameters(kernel: Any) -> set[str]:
    """The names of a jitted function's compile-time parameters."""
    return {parameter.name for parameter in kernel.params if parameter.is_constexpr}


def is_constexpr_function(value: Any) -> bool:
    """A function that runs in the compiler; ``.fn`` likewise."""
    return isinstance(value, triton.runtime.jit.ConstexprFunction)


def is_builtin(value: Any) -> bool:
    """A builtin of the language, known or not."""
    return bool(getattr(value, "__triton_builtin__", False))


def is_aggregate(value: Any) -> bool:
    """A class made by :data:`aggregate`."""
    return isinstance(value, type) and bool(getattr(value, "__triton_aggregate__", False))


def aggregate_source(value: Any) -> type:
    """The class that the user wrote, which ``aggregate`` keeps in the closure of its constructor."""
    for function in (value.__new__, value.__setattr__):
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            if name == "cls":
                return cell.cell_contents
    raise TypeError(f"{value!r} is not an aggregate of Triton {TRITON_VERSION}")
