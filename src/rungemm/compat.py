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
from triton.experimental.gluon.language.nvidia.ampere import async_copy as _async_copy
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
    "async_copy_commit",
    "async_copy_load",
    "async_copy_mbarrier_arrive",
    "async_copy_wait",
    "barrier",
    "compiler_environment",
    "compiler_stamp",
    "compiler_tool",
    "constexpr",
    "fence_async_shared",
    "gl",
    "gluon",
    "jit",
    "mbarrier",
    "mma_v2",
    "padded_shared_layout",
    "tma",
    "tma_load",
    "tma_store",
    "tma_store_wait",
    "triton",
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


_NOT_FOR_CODE = ("TRITON_CACHE_", "TRITON_HOME", "TRITON_DUMP_", "TRITON_PRINT_", "TRITON_KERNEL_DUMP")


def compiler_environment() -> dict[str, str]:
    """The environment variables that can change the code Triton makes, as they are now."""
    named = set(get_cache_invalidating_env_vars())
    return {
        name: value
        for name, value in sorted(os.environ.items())
        if name in named or (name.startswith("TRITON_") and not name.startswith(_NOT_FOR_CODE))
    }
