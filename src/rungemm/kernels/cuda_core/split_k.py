"""Rung 13, split K: several blocks share one tile of C, each taking a part of K, and a second launch adds up.

A product with a small C and a long K has few tiles, and most SMs stand idle. Parts of K are independent until the last
addition. Each part's sum goes to a workspace, and a second kernel adds them in order, first to last: the same bits
every time. On request (``atomic``) the parts are added into D directly, in whatever order they finish: no workspace,
and a result whose last bits change from run to run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...compat import constexpr, gl, jit
from ...hardware import Gpu
from ...problem import Problem
from ..common import cdiv, gemm_arguments, store_tile, tile_of_program
from ..plan import Argument, Launch, LaunchPlan, Scalar
from .double_buffer import double_buffered
from .simt import BufferedConfig, BufferedKernel, SimtConfig
from .split import partial_arguments, partial_sums, prescale_launch, reduction_launch, split_stride

__all__ = ["SplitK", "SplitKConfig"]


@dataclass(frozen=True)
class SplitKConfig(BufferedConfig):
    """``splits``: parts of K. ``atomic``: add into D as they finish, instead of an ordered second launch."""

    splits: int = 1
    atomic: bool = False


@jit
def split_k_kernel(
    a, b, c, d, a_row, a_col, b_row, b_col, c_row, c_col, d_row, d_col, M, N, K, alpha, beta, split_k, split_stride,
    TILE_M: constexpr, TILE_N: constexpr, TILE_K: constexpr, READ_C: constexpr,
    MASK_M: constexpr, MASK_N: constexpr, MASK_K: constexpr, NUM_WARPS: constexpr,
    THREAD_M: constexpr, THREAD_N: constexpr, GROUP_M: constexpr, TOGETHER: constexpr, A_SHARED: constexpr,
    PINNED: constexpr, ATOMIC: constexpr,
):  # fmt: skip
    LANES_N: constexpr = min(TILE_N // THREAD_N, 32)
    LANES_M: constexpr = 32 // LANES_N
    WARPS_N: constexpr = TILE_N // (THREAD_N * LANES_N)
    C_LAYOUT: constexpr = gl.BlockedLayout(
        [min(THREAD_M, TOGETHER), min(THREAD_N, TOGETHER)],
        [LANES_M, LANES_N], [NUM_WARPS // WARPS_N, WARPS_N], [1, 0],
    )  # fmt: skip
    tile_m, tile_n = tile_of_program(M, N, TILE_M, TILE_N, GROUP_M)
    # The change: this program's part of K, and its own matrix of partial sums to store to.
    part = gl.program_id(1)
    k_begin = part * split_k
    k_end = min(K, k_begin + split_k)
    acc = double_buffered(
        a, b, a_row, a_col, b_row, b_col, tile_m, tile_n, M, N, k_begin, k_end,
        TILE_M, TILE_N, TILE_K, MASK_M, MASK_N, MASK_K, NUM_WARPS, A_SHARED, C_LAYOUT, PINNED,
    )  # fmt: skip
    rows = (tile_m * TILE_M + gl.arange(0, TILE_M, gl.SliceLayout(1, C_LAYOUT)))[:, None]
    cols = (tile_n * TILE_N + gl.arange(0, TILE_N, gl.SliceLayout(0, C_LAYOUT)))[None, :]
    if ATOMIC:
        gl.atomic_add(d + rows * d_row + cols * d_col, acc * alpha, mask=(rows < M) & (cols < N), sem="relaxed")
    else:
        d += part.to(gl.int64) * split_stride
        store_tile(acc, rows, cols, c, c_row, c_col, d, d_row, d_col, M, N, alpha, beta, READ_C, MASK_M, MASK_N)


class SplitK(BufferedKernel):
    name = "split_k"
    idea = "several blocks share one tile of C, each with a part of K; a second launch adds up in order"
    expects = "where C has few tiles, all SMs work; splits x M x N x 4 bytes are written and read once more"
    below = "double_buffer"
    function = split_k_kernel
    config_type = SplitKConfig
    default = SplitKConfig(num_warps=8, tile_m=128, tile_n=128, tile_k=8, thread_m=8, thread_n=8, pad=4)

    def configs(self, problem: Problem, gpu: Gpu) -> Iterator[SimtConfig]:
        """Splits that fill the card once, twice, four times; then no split; smaller tiles likewise."""
        for tile_m, tile_n, thread_n, warps in ((128, 128, 8, 8), (64, 64, 4, 4)):
            tiles = cdiv(max(problem.m, 1), tile_m) * cdiv(max(problem.n, 1), tile_n)
            longest = max(1, problem.effective_k // 64)
            splits = [min(longest, max(1, round(times * gpu.sms / tiles))) for times in (1, 2, 4)]
            for count in dict.fromkeys([*splits, 1]):
                yield replace(
                    self.default, num_warps=warps, tile_m=tile_m, tile_n=tile_n, thread_n=thread_n, splits=count
                )

    def rejects_layout(self, config: SimtConfig) -> str | None:
        assert isinstance(config, SplitKConfig)
        if not 1 <= config.splits <= 65535:
            return f"splits is {config.splits}: from 1 to 65535, a grid's height"
        return super().rejects_layout(config)

    def build(self, problem: Problem, config: SimtConfig, gpu: Gpu) -> LaunchPlan:
        assert isinstance(config, SplitKConfig)
        step = self.tiles_a_step * config.tile_k
        split_k = max(step, cdiv(cdiv(problem.effective_k, config.splits), step) * step)
        splits = max(1, cdiv(problem.effective_k, split_k))
        arguments: dict[str, Argument] = dict(gemm_arguments(problem))
        arguments |= {"split_k": Scalar.index(split_k), "split_stride": split_stride(problem, problem.n)}
        atomic = config.atomic and splits > 1
        reads_c = problem.reads_c
        if splits > 1:
            reads_c = False
            if not atomic:
                arguments.update(partial_arguments(problem.n))
        constants = dict(self.common_constants(problem, config)) | {"READ_C": reads_c}
        constants |= {**dict(self.constants(config)), "ATOMIC": atomic}
        tiles = cdiv(problem.m, config.tile_m) * cdiv(problem.n, config.tile_n)
        launch = Launch(
            split_k_kernel, (tiles, splits, 1), tuple(arguments.items()), tuple(constants.items()), config.num_warps
        )
        if splits == 1:
            return LaunchPlan(self.name, (launch,))
        if atomic:
            return LaunchPlan(self.name, (prescale_launch(problem), launch))
        launches = (launch, reduction_launch(problem, splits, problem.n))
        return LaunchPlan(self.name, launches, (partial_sums(problem, splits, problem.n),))
