"""The plan of the champion's kernel for few tiles, whose warps split K: the idea is in :mod:`.champion_few_kernel`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...compat import gl, padded_shared_layout
from ...problem import Matrix, Problem
from ..common import cdiv, gemm_arguments
from ..epilogue import epilogue_arguments, epilogue_constants
from ..plan import Argument, Launch, LaunchPlan, Scalar
from .champion_config import ChampionConfig
from .champion_few_kernel import champion_few_kernel
from .split import partial_arguments, partial_sums, reduction_launch, split_stride

__all__ = ["few_plan", "rejects_few", "shared_bytes_of_few"]

Bases = list[list[int]]


def _powers(first: int, count: int, way: tuple[int, int, int]) -> Bases:
    """Bases of ``count`` steps of ``first`` elements each, in one direction of (group, row, column)."""
    return [[first * w << i for w in way] for i in range(count.bit_length() - 1)]


K, DOWN, ACROSS = (1, 0, 0), (0, 1, 0), (0, 0, 1)


class Shape:
    """A tile's shape, the threads over it, and every layout that follows."""

    def __init__(self, config: ChampionConfig, tile_m: int, tile_n: int) -> None:
        self.config, self.tile_m, self.tile_n = config, tile_m, tile_n
        self.down, self.across = tile_m // config.thread_m, tile_n // config.thread_n
        warps = config.num_warps // config.k_groups
        # Lanes as nearly square as the tile lets them; what they do not cover, the group's warps do.
        self.lanes_m = min(self.down, max(config.lanes_m, 32 // max(1, min(32, self.across))))
        self.lanes_n = 32 // self.lanes_m
        self.warps_m = max(1, self.down // self.lanes_m)
        self.warps_n = warps // self.warps_m

    @property
    def fits(self) -> bool:
        """The threads of one group are as many as the tile has thread tiles, and lie over it without a gap."""
        return (
            self.down >= 1 and self.across >= 1
            and self.lanes_m * self.warps_m == self.down and self.lanes_n * self.warps_n == self.across
        )  # fmt: skip

    def _threads(self, down: int, across: int) -> tuple[Bases, Bases]:
        """Lane and warp bases for elements ``down`` rows and ``across`` columns apart."""
        lanes_n, lanes_m = _powers(across, self.lanes_n, ACROSS), _powers(down, self.lanes_m, DOWN)
        if self.config.interleaved:
            paired = min(len(lanes_n), len(lanes_m))
            lanes = [basis for pair in zip(lanes_n, lanes_m, strict=False) for basis in pair]
            lanes += lanes_n[paired:] + lanes_m[paired:]
        else:
            lanes = lanes_n + lanes_m
        warps = _powers(across * self.lanes_n, self.warps_n, ACROSS) + _powers(down * self.lanes_m, self.warps_m, DOWN)
        return lanes, warps + _powers(1, self.config.k_groups, K)

    @property
    def single(self) -> Any:
        """One accumulator for each thread of each group."""
        lanes, warps = self._threads(1, 1)
        return gl.DistributedLinearLayout([], lanes, warps, [], [self.config.k_groups, self.down, self.across])

    def fragment(self, way: int) -> Any:
        """GROUPS neighbouring k of an operand's tile as the threads read them; way 1 is A's, down, 2 is B's, across."""
        lanes, warps = self._threads(4, 4)
        threads, width, mine = (self.down, self.tile_m, DOWN) if way == 1 else (self.across, self.tile_n, ACROSS)
        registers = _powers(1, 4, mine) + _powers(4 * threads, width // (4 * threads), mine)
        keep = [[[basis[0], basis[way]] for basis in part] for part in (registers, lanes, warps)]
        return gl.DistributedLinearLayout(*keep, [], [self.config.k_groups, width])

    @property
    def whole(self) -> Any:
        """All accumulators: every group's part of the tile's sums."""
        lanes, warps = self._threads(4, 4)
        registers: Bases = []
        for threads, width, way in ((self.across, self.tile_n, ACROSS), (self.down, self.tile_m, DOWN)):
            registers += _powers(1, 4, way) + _powers(4 * threads, width // (4 * threads), way)
        return gl.DistributedLinearLayout(
            registers, lanes, warps, [], [self.config.k_groups, self.tile_m, self.tile_n]
        )

    @property
    def sums(self) -> Any:
        """The sums in shared memory: padded so that eight lanes, which write 16 bytes each at once, meet no bank twice.

        Lanes one above the other write four rows apart, a multiple of all banks.
        """
        lanes = self._threads(4, 4)[0]
        side_by_side = 1 << sum(basis[2] > 0 for basis in lanes[:3])
        shape = [self.config.k_groups, self.tile_m, self.tile_n]
        if side_by_side == 8:
            return gl.SwizzledSharedLayout(1, 1, 1, [2, 1, 0])
        return padded_shared_layout(4 * self.tile_n, 4 * side_by_side, shape, [2, 1, 0])

    @property
    def out(self) -> Any:
        """The sums' way to D: every group's part of an element in one thread, neighbours in a row side by side."""
        lanes = min(32, self.tile_n)
        return gl.BlockedLayout(
            [self.config.k_groups, 1, 1], [1, 32 // lanes, lanes], [1, self.config.num_warps, 1], [2, 1, 0]
        )

    def constants(self, wrap_m: bool, wrap_n: bool, mask: bool, ways: tuple[Way, Way]) -> tuple[Any, ...]:
        """What the kernel calls SHAPE."""
        a, b = ways
        return (
            self.tile_m, self.tile_n, wrap_m, wrap_n, mask,
            a.copy(self.config, self.tile_m), b.copy(self.config, self.tile_n),
            a.shared(self.config, self.tile_m), b.shared(self.config, self.tile_n),
            self.fragment(1), self.fragment(2), self.single, self.whole,
            self.sums, self.out,
        )  # fmt: skip


class Way:
    """How an operand's tile gets to shared memory: ``turned`` from neighbours along K, or ``vector`` at a time."""

    def __init__(self, matrix: Matrix, k_stride: int, other_stride: int) -> None:
        self.turned = k_stride == 1 and other_stride != 1
        extent = matrix.cols if matrix.col_stride == 1 else matrix.rows
        whole = matrix.alignment % 16 == 0 and k_stride % 4 == 0 and extent % 4 == 0
        self.vector = 4 if other_stride == 1 and whole else 1

    def copy(self, config: ChampionConfig, width: int) -> Any:
        """Which thread copies what of a part of a [TILE_K, width] tile."""
        warps = config.num_warps
        if self.turned:
            # 8 k of 4 rows a warp: whole sectors of global memory, and with the swizzle all 32 banks. The warps lie
            # down the tile, so that a thread's copies are of one row: one address and constants.
            warps_m = min(warps, width // 4)
            return gl.BlockedLayout([1, 1], [8, 4], [warps // warps_m, warps_m], [0, 1])
        lanes = min(32, width // self.vector)
        warps_k = min(warps, max(1, config.tile_k // config.parts * lanes // 32))
        return gl.BlockedLayout([1, self.vector], [32 // lanes, lanes], [warps_k, warps // warps_k], [1, 0])

    def shared(self, config: ChampionConfig, width: int) -> Any:
        """A turned tile is swizzled, so that k and k + 1 lie in different banks."""
        if not self.turned:
            return gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
        rows_a_phase = max(1, 32 // width)
        phases = min(width // 4, 8, max(1, config.k_groups // rows_a_phase))
        return gl.SwizzledSharedLayout(4, rows_a_phase, phases, [1, 0])


def rejects_few(problem: Problem, config: ChampionConfig) -> str | None:
    """Why the kernel for few tiles cannot take a config, or None."""
    if config.k_groups not in (2, 4, 8, 16) or config.num_warps % config.k_groups:
        return f"k_groups is {config.k_groups}: 2, 4, 8 or 16, and a divisor of {config.num_warps} warps"
    if config.tile_k < max(8, config.k_groups) or config.tile_k > 128:
        return f"tile_k is {config.tile_k}: 8 to 128, and one k for each of the {config.k_groups} groups"
    most = min(config.tile_k // 8, config.tile_k // config.k_groups)
    if config.parts < 1 or config.parts & (config.parts - 1) or config.parts > most:
        return f"parts is {config.parts}: a power of two up to {most}, eight k and a step of every group each"
    if not 2 <= config.stages <= 8:
        return f"stages is {config.stages}: 2 to 8"
    if not Shape(config, config.tile_m, config.tile_n).fits:
        return (
            f"{config.num_warps // config.k_groups} warps of a group with {config.thread_m}x{config.thread_n} elements "
            f"a thread do not lie over a tile of {config.tile_m}x{config.tile_n}"
        )
    if config.flush_k or config.realign:
        return "flush_k and realign are for large products: with k_groups over 1 leave them off"
    if config.strips and config.splits > 1:
        return "strips and splits exclude one another: use one"
    if config.splits > 1 and problem.n % 16:
        return f"with splits N must be a multiple of 16: it is {problem.n}"
    return None


def shared_bytes_of_few(config: ChampionConfig) -> int:
    """The ring of both operands' tiles, or the groups' sums, which take its place at the end."""
    widest = config.tile_m + config.tile_n
    if config.strips:
        widest = max(widest, 8 + config.tile_m * config.tile_n // 8)
    # The sums' padding is at most an eighth of a tile: 16 elements after four rows of 32 or more.
    sums = config.k_groups * config.tile_m * config.tile_n
    return max(4 * config.stages * config.tile_k * widest, 4 * (sums + sums // 8))


def strip_shape(config: ChampionConfig, left: int, below: bool) -> Shape | None:
    """Tiles for a strip of ``left`` rows (or columns): as thin as it, and so long that the area stays."""
    area = config.tile_m * config.tile_n
    thin = max(8, config.thread_m if below else config.thread_n, 1 << (left - 1).bit_length())
    while thin <= (config.tile_m if below else config.tile_n):
        shape = Shape(config, thin, area // thin) if below else Shape(config, area // thin, thin)
        if shape.fits:
            return shape
        thin *= 2
    return None


def few_plan(problem: Problem, config: ChampionConfig) -> LaunchPlan:
    """One launch, or with splits two."""
    a, b, m, n, k = problem.a, problem.b, problem.m, problem.n, problem.effective_k
    ways = Way(a, a.col_stride, a.row_stride), Way(b, b.row_stride, b.col_stride)
    steps = cdiv(k, config.tile_k)
    split_tiles = max(1, cdiv(steps, config.splits))
    splits = max(1, cdiv(steps, split_tiles))
    rows, cols = m, n
    below = right = None
    if config.strips and m > config.tile_m and n > config.tile_n:
        if m % config.tile_m and (below := strip_shape(config, m % config.tile_m, True)):
            rows = m - m % config.tile_m
        if n % config.tile_n and (right := strip_shape(config, n % config.tile_n, False)):
            cols = n - n % config.tile_n

    def constants(shape: Shape, end_m: int, end_n: int) -> tuple[Any, ...]:
        mask = end_m % shape.tile_m != 0 or end_n % shape.tile_n != 0
        return shape.constants(end_m < shape.tile_m, end_n < shape.tile_n, mask, ways)

    main = Shape(config, config.tile_m, config.tile_n)
    tiles = cdiv(rows, main.tile_m) * cdiv(cols, main.tile_n)
    tiles += cdiv(n, below.tile_n) if below else 0
    tiles += cdiv(rows, right.tile_m) if right else 0
    pitch = n
    arguments: dict[str, Argument] = dict(gemm_arguments(problem))
    if splits > 1:
        arguments.update(partial_arguments(pitch))
    arguments |= {
        "split_tiles": Scalar.index(split_tiles), "split_stride": split_stride(problem, pitch),
        "rows": Scalar.index(rows), "cols": Scalar.index(cols),
    }  # fmt: skip
    # With splits the second launch has the epilogue.
    finishing = replace(problem, epilogue=None) if splits > 1 else problem
    arguments.update(epilogue_arguments(finishing))
    launch = Launch(
        champion_few_kernel, (tiles, splits, 1), tuple(arguments.items()),
        (
            ("TILE_K", config.tile_k), ("GROUPS", config.k_groups), ("STAGES", config.stages),
            ("THREAD_M", config.thread_m), ("THREAD_N", config.thread_n), ("ACROSS", config.across),
            ("PINNED", config.pinned), ("LACKING", steps * config.tile_k - k),
            ("READ_C", problem.reads_c and splits == 1), ("SPLIT", splits > 1),
            ("A_VECTOR", ways[0].vector), ("B_VECTOR", ways[1].vector), ("PARTS", config.parts),
            ("MAIN", constants(main, rows, cols)),
            ("BELOW", constants(below, m, n) if below else None),
            ("RIGHT", constants(right, rows, n) if right else None),
            *epilogue_constants(finishing),
        ),
        config.num_warps, config.max_registers or None,
    )  # fmt: skip
    if splits == 1:
        return LaunchPlan("champion_fp32", (launch,)).overlapping()
    launches = launch, reduction_launch(problem, splits, pitch)
    return LaunchPlan("champion_fp32", launches, (partial_sums(problem, splits, pitch),)).overlapping()


