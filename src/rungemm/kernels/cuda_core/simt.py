"""What the fp32 rungs on the CUDA cores share: a tile config, the predicate for it, and the plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from ...compat import gl, padded_shared_layout
from ...dtypes import FP32
from ...hardware import Gpu
from ...problem import Problem
from ..base import Kernel, TileConfig
from ..common import cdiv, gemm_arguments, gemm_constants
from ..plan import INT32_MAX, Launch, LaunchPlan

__all__ = [
    "BufferedConfig", "BufferedKernel", "QuadConfig", "QuadTileKernel", "SimtConfig", "SimtKernel", "ThreadTileKernel",
]  # fmt: skip

MAX_REGISTERS = 255
MOST_ACCUMULATORS = 128
"""Elements of C in a thread's registers, beyond which fragments and addresses find no room."""


@dataclass(frozen=True)
class SimtConfig(TileConfig):
    """A tile of C, the part of it that one thread computes, and the order in which programs take the tiles.

    ``group_m`` is the number of tile rows walked together (1: row by row). ``max_registers`` caps what ptxas may give a
    thread, where one or two registers more would cost an SM its second block.
    """

    thread_m: int = 1
    thread_n: int = 1
    group_m: int = 1
    max_registers: int | None = None


class SimtKernel(Kernel[SimtConfig]):
    """A rung with one launch, one program a tile, and the arguments of :func:`gemm_arguments`."""

    function: ClassVar[Any]
    default: ClassVar[SimtConfig]
    tiles_a_step: ClassVar[int] = 1  # tiles along K that one turn of the kernel's loop takes
    config_type = SimtConfig
    dtypes = (FP32,)

    def refuses(self, problem: Problem, gpu: Gpu) -> str | None:
        reason = super().refuses(problem, gpu)
        if reason is not None:
            return reason
        if problem.batch != 1:
            return f"{self.name} computes one product; batch is {problem.batch}: loop over the batch"
        if problem.precision != "ieee":
            return f"{self.name} multiplies in fp32; precision {problem.precision!r} needs a tensor-core kernel"
        reason = self.rejects_epilogue(problem)
        if reason is not None:
            return reason
        if problem.d.dtype != FP32 or (problem.c is not None and problem.c.dtype != FP32):
            return f"{self.name} writes fp32; D is {problem.d.dtype}: ask for an fp32 result"
        return None

    def rejects(self, problem: Problem, config: SimtConfig, gpu: Gpu) -> str | None:
        for name in ("tile_m", "tile_n", "tile_k", "thread_m", "thread_n"):
            value = getattr(config, name)
            if value < 1 or value & (value - 1):
                return f"{name} is {value}: Triton wants a power of two"
        threads = config.num_warps * gpu.warp_size
        covered = self.covered(config)
        if covered != config.tile_m * config.tile_n:
            return (
                f"{threads} threads of {config.thread_m}x{config.thread_n} elements cover {covered}; "
                f"the tile {config.tile_m}x{config.tile_n} has {config.tile_m * config.tile_n}"
            )
        tiles = cdiv(problem.m, config.tile_m) * cdiv(problem.n, config.tile_n)
        if tiles > INT32_MAX:
            return f"{tiles} tiles: a grid has at most {INT32_MAX} programs"
        needed = self.shared_bytes(config)
        if needed > gpu.shared_per_block:
            return f"needs {needed} bytes of shared memory; {gpu.title} gives a block {gpu.shared_per_block}"
        return self.rejects_layout(config)

    def covered(self, config: SimtConfig) -> int:
        """Elements of C that the threads of a block compute."""
        return config.num_warps * 32 * config.thread_m * config.thread_n

    def rejects_epilogue(self, problem: Problem) -> str | None:
        """What of an epilogue is not fused: here all of it."""
        if problem.epilogue is not None:
            return f"{self.name} has no fused epilogue: apply it afterwards, or use champion_fp32"
        return None

    def rejects_layout(self, config: SimtConfig) -> str | None:
        """What the rung's own layouts ask of a config."""
        return None

    def shared_bytes(self, config: SimtConfig) -> int:
        """Shared memory that the tiles take, in bytes; 0 for a kernel that uses none."""
        return 0

    def configs(self, problem: Problem, gpu: Gpu) -> Iterator[SimtConfig]:
        yield self.default

    def constants(self, config: SimtConfig) -> Iterable[tuple[str, Any]]:
        """Constants beyond the common ones."""
        return (("GROUP_M", config.group_m),)

    def common_constants(self, problem: Problem, config: SimtConfig) -> Iterable[tuple[str, Any]]:
        """Those of :func:`gemm_constants`, masks along K where whole steps do not fill it, and the warps."""
        step = config.tile_k * self.tiles_a_step
        for name, value in gemm_constants(problem, config.tile_m, config.tile_n, step):
            yield name, config.tile_k if name == "TILE_K" else value
        yield "NUM_WARPS", config.num_warps

    def build(self, problem: Problem, config: SimtConfig, gpu: Gpu) -> LaunchPlan:
        tiles = cdiv(problem.m, config.tile_m) * cdiv(problem.n, config.tile_n)
        constants = (*self.common_constants(problem, config), *self.constants(config))
        launch = Launch(
            self.function, (tiles, 1, 1), tuple(gemm_arguments(problem)), constants, config.num_warps,
            config.max_registers,
        )  # fmt: skip
        return LaunchPlan(self.name, (launch,))


class ThreadTileKernel(SimtKernel):
    """A rung from the 1D thread tile on: shared tiles of A and B, and several elements of C a thread."""

    def shared_bytes(self, config: SimtConfig) -> int:
        return 4 * config.tile_k * (config.tile_m + config.tile_n)

    def constants(self, config: SimtConfig) -> Iterable[tuple[str, Any]]:
        return (("THREAD_M", config.thread_m), ("THREAD_N", config.thread_n), *super().constants(config))

    def rejects_thread_grid(self, config: SimtConfig) -> str | None:
        """Threads laid row by row over the tile: whole rows of threads to a warp, or whole warps to a row."""
        across = config.tile_n // config.thread_n
        if across < 1 or (across > 32 and config.num_warps % (across // 32)):
            return f"{across} threads across the tile do not divide into {config.num_warps} warps"
        return None


@dataclass(frozen=True)
class QuadConfig(SimtConfig):
    """From the bank-conflict free rung on: how a thread's rows and A's rows in shared memory lie.

    Attributes:
        together: neighbouring rows (columns) that a thread holds; the next ones lie as far off as the threads reach.
        pad: elements of padding after each row of A's transposed tile.
    """

    together: int = 4
    pad: int = 0


class QuadTileKernel(ThreadTileKernel):
    """A rung from the bank-conflict free one on; ``buffers`` of each tile in shared memory."""

    buffers: ClassVar[int] = 1
    config_type = QuadConfig

    def shared_bytes(self, config: SimtConfig) -> int:
        assert isinstance(config, QuadConfig)
        return self.buffers * 4 * config.tile_k * (config.tile_m + config.pad + config.tile_n)

    def constants(self, config: SimtConfig) -> Iterable[tuple[str, Any]]:
        assert isinstance(config, QuadConfig)
        yield from super().constants(config)
        yield "TOGETHER", config.together
        yield "A_SHARED", a_transposed_layout(config)

    def rejects_layout(self, config: SimtConfig) -> str | None:
        assert isinstance(config, QuadConfig)
        if not 4 <= config.tile_k <= 128:
            return f"tile_k is {config.tile_k}: a thread copies four neighbours of A, tile_k from 4 to 128"
        if config.together < 1 or config.together & (config.together - 1):
            return f"together is {config.together}: Triton wants a power of two"
        if config.pad % 4:
            return f"pad is {config.pad}: rows must stay aligned to 16 bytes for 128-bit reads, a multiple of 4"
        if config.thread_m * config.thread_n > MOST_ACCUMULATORS:
            return (
                f"a thread's {config.thread_m}x{config.thread_n} accumulators and what feeds them do not fit the "
                f"{MAX_REGISTERS} registers that a thread may have: at most {MOST_ACCUMULATORS}"
            )
        return self.rejects_thread_grid(config)


@dataclass(frozen=True)
class BufferedConfig(QuadConfig):
    """From the double buffer on. ``pinned``: multiply-adds stay in the order written; otherwise LLVM sorts them."""

    pinned: bool = False


class BufferedKernel(QuadTileKernel):
    """A rung from the double buffer on: two of each tile, and two tiles along K a turn of the loop."""

    buffers = 2
    tiles_a_step = 2
    config_type = BufferedConfig

    def constants(self, config: SimtConfig) -> Iterable[tuple[str, Any]]:
        assert isinstance(config, BufferedConfig)
        yield from super().constants(config)
        yield "PINNED", config.pinned


def a_transposed_layout(config: QuadConfig) -> Any:
    """A's transposed tile in shared memory, tile_k x tile_m: rows one after the other, or ``pad`` elements apart."""
    if config.pad:
        return padded_shared_layout(config.tile_m, config.pad, [config.tile_k, config.tile_m], [1, 0])
    return gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
