"""What the fp32 rungs on the CUDA cores share: a tile config, the predicate for it, and the plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from ...dtypes import FP32
from ...hardware import Gpu
from ...problem import Problem
from ..base import Kernel, TileConfig
from ..common import cdiv, gemm_arguments, gemm_constants
from ..plan import INT32_MAX, Launch, LaunchPlan

__all__ = ["SimtConfig", "SimtKernel", "ThreadTileKernel"]


@dataclass(frozen=True)
class SimtConfig(TileConfig):
    """A tile of C, the part of it that one thread computes, and the order in which programs take the tiles.

    ``group_m`` is the number of tile rows walked together (1: row by row).
    """

    thread_m: int = 1
    thread_n: int = 1
    group_m: int = 1


class SimtKernel(Kernel[SimtConfig]):
    """A rung with one launch, one program a tile, and the arguments of :func:`gemm_arguments`."""

    function: ClassVar[Any]
    default: ClassVar[SimtConfig]
    config_type = SimtConfig
    dtypes = (FP32,)

    def rejects(self, problem: Problem, config: SimtConfig, gpu: Gpu) -> str | None:
        if problem.batch != 1:
            return f"{self.name} computes one product; batch is {problem.batch}: loop over the batch"
        if problem.precision != "ieee":
            return f"{self.name} multiplies in fp32; precision {problem.precision!r} needs a tensor-core kernel"
        if problem.epilogue is not None:
            return f"{self.name} has no fused epilogue: apply it afterwards, or use rungemm's champion kernels"
        if problem.d.dtype != FP32 or (problem.c is not None and problem.c.dtype != FP32):
            return f"{self.name} writes fp32; D is {problem.d.dtype}: ask for an fp32 result"
        for name in ("tile_m", "tile_n", "tile_k", "thread_m", "thread_n"):
            value = getattr(config, name)
            if value < 1 or value & (value - 1):
                return f"{name} is {value}: Triton wants a power of two"
        threads = config.num_warps * gpu.warp_size
        covered = threads * config.thread_m * config.thread_n
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
        return ()

    def build(self, problem: Problem, config: SimtConfig, gpu: Gpu) -> LaunchPlan:
        tiles = cdiv(problem.m, config.tile_m) * cdiv(problem.n, config.tile_n)
        constants = (
            *gemm_constants(problem, config.tile_m, config.tile_n, config.tile_k),
            ("NUM_WARPS", config.num_warps),
            *self.constants(config),
        )
        launch = Launch(self.function, (tiles, 1, 1), tuple(gemm_arguments(problem)), constants, config.num_warps)
        return LaunchPlan(self.name, (launch,))


class ThreadTileKernel(SimtKernel):
    """A rung from the 1D thread tile on: shared tiles of A and B, and several elements of C a thread."""

    def shared_bytes(self, config: SimtConfig) -> int:
        return 4 * config.tile_k * (config.tile_m + config.tile_n)

    def constants(self, config: SimtConfig) -> Iterable[tuple[str, Any]]:
        return (("THREAD_M", config.thread_m), ("THREAD_N", config.thread_n), ("GROUP_M", config.group_m))

    def rejects_thread_grid(self, config: SimtConfig) -> str | None:
        """Threads laid row by row over the tile: whole rows of threads to a warp, or whole warps to a row."""
        across = config.tile_n // config.thread_n
        if across < 1 or (across > 32 and config.num_warps % (across // 32)):
            return f"{across} threads across the tile do not divide into {config.num_warps} warps"
        return None
