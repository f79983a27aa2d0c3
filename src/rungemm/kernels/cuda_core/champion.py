"""The fp32 champion: a thread's tile in named registers, walked like a serpent; see :mod:`.register_tile` for why.

The plan and the layouts; the device code is :mod:`.champion_kernel`, the search space :mod:`.champion_search`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from ...compat import gl, padded_shared_layout
from ...dtypes import FP32
from ...hardware import Gpu
from ...problem import Matrix, Problem
from ..common import cdiv, gemm_arguments
from ..copies import copy_launches
from ..epilogue import epilogue_arguments, epilogue_constants, rejects_epilogue
from ..plan import Argument, Launch, LaunchPlan, Pointer, Scalar, Workspace, strides_of
from .champion_config import ChampionConfig, realigned, unaligned, vector_of
from .champion_few import few_plan, rejects_few, shared_bytes_of_few
from .champion_kernel import champion_fp32_kernel
from .champion_search import model_us, search_space
from .simt import SimtConfig, SimtKernel
from .split import partial_arguments, partial_sums, reduction_launch, split_stride

__all__ = ["ChampionConfig", "ChampionFp32", "unaligned"]

PAD = 4
"""Elements after each row of a tile that is turned on its way: rows start in other banks and stay 16-byte aligned."""


@dataclass(frozen=True)
class Way:
    """How a tile of TILE_K x ``width`` of an operand gets to shared memory.

    Attributes:
        asynchronous: by cp.async; otherwise through registers.
        vector: neighbours in memory that a thread copies at once.
        layout: which thread copies what.
        shared: the tile's layout in shared memory.
    """

    asynchronous: bool
    vector: int
    layout: Any
    shared: Any


def way_of(matrix: Matrix, k_stride: int, other_stride: int, width: int, config: ChampionConfig) -> Way:
    """The way for an operand: neighbours along the tile's rows by cp.async, neighbours along K through registers."""
    tile_k, warps = config.tile_k, config.num_warps
    vector = vector_of(matrix, k_stride, other_stride)
    plain = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    if k_stride == 1 and other_stride != 1:
        # Four neighbours a lane, by one load where every row starts at a multiple of 16 bytes, else by four from one
        # address: registers are scarce.
        lanes_k = tile_k // 4
        layout = gl.BlockedLayout([4, 1], [lanes_k, 32 // lanes_k], [1, warps], [0, 1])
        return Way(False, vector, layout, padded_shared_layout(width, PAD, [tile_k, width], [1, 0]))
    lanes = min(32, width // vector)
    warps_k = min(warps, max(1, tile_k // (32 // lanes)))
    layout = gl.BlockedLayout([1, vector], [32 // lanes, lanes], [warps_k, warps // warps_k], [1, 0])
    return Way(True, vector, layout, plain)


def edge(extent: int, tile: int) -> int:
    """How a last tile that is not full is read: 0 there is none, 1 it starts earlier, 2 there is only this one."""
    return (1 if extent > tile else 2) if extent % tile else 0


Basis = tuple[str, int]
"""Where the next bit of a register's, a lane's or a warp's number leads: so many rows ("m") or columns ("n") on."""


def thread_bases(
    config: ChampionConfig, vector_m: int, vector_n: int, rows: int, cols: int
) -> tuple[list[Basis], list[Basis], list[Basis]]:
    """Register, lane and warp bases of a ``rows`` x ``cols`` tile: vectors in a thread, side by side over the lanes,
    then over the warps, and all that repeated until the tile is full."""
    at = {"m": vector_m, "n": vector_n}

    def take(direction: str, count: int) -> list[Basis]:
        first, at[direction] = at[direction], at[direction] * count
        return [(direction, first << i) for i in range(count.bit_length() - 1)]

    down, across = take("m", config.lanes_m), take("n", 32 // config.lanes_m)
    if config.interleaved:
        paired = min(len(down), len(across))
        lanes = [basis for pair in zip(across, down, strict=False) for basis in pair] + across[paired:] + down[paired:]
    else:
        lanes = across + down
    warps = take("n", config.warps_n) + take("m", config.warps_m)
    registers = [("n", 1 << i) for i in range(vector_n.bit_length() - 1)]
    registers += [("m", 1 << i) for i in range(vector_m.bit_length() - 1)]
    registers += take("n", cols // at["n"]) + take("m", rows // at["m"])
    return registers, lanes, warps


def tile_layout(config: ChampionConfig, vector_n: int) -> Any:
    """One accumulator (or ``vector_n`` neighbouring ones) for each thread, as a tile of all the threads."""
    rows, cols = config.tile_m // config.thread_m, vector_n * config.tile_n // config.thread_n
    bases = thread_bases(config, 1, vector_n, rows, cols)
    registers, lanes, warps = ([[x, 0] if way == "m" else [0, x] for way, x in part] for part in bases)
    return gl.DistributedLinearLayout(registers, lanes, warps, [], [rows, cols])


def fragment_layout(config: ChampionConfig, way: str) -> Any:
    """A row of an operand's tile in shared memory as the threads read it: A's is along "m", B's along "n".

    Threads that differ in the other direction read the same elements.
    """
    registers, lanes, warps = thread_bases(config, 4, 4, config.tile_m, config.tile_n)
    return gl.DistributedLinearLayout(
        [[0, x] for w, x in registers if w == way],
        [[0, x if w == way else 0] for w, x in lanes],
        [[0, x if w == way else 0] for w, x in warps],
        [],
        [1, config.tile_m if way == "m" else config.tile_n],
    )


class ChampionFp32(SimtKernel):
    name = "champion_fp32"
    idea = "a thread's tile in named registers, multiplied in the order that the register file likes"
    expects = "the multiply-adds wait for no register port: dispatch stalls fall, the FMA pipe fills"
    below = "split_k"
    function = champion_fp32_kernel
    config_type = ChampionConfig
    default = ChampionConfig(max_registers=128)

    def rejects_epilogue(self, problem: Problem) -> str | None:
        return rejects_epilogue(self.name, problem)

    def rejects_layout(self, config: SimtConfig) -> str | None:
        assert isinstance(config, ChampionConfig)
        for name in ("thread_m", "thread_n"):
            if getattr(config, name) not in (4, 8, 16):
                return f"{name} is {getattr(config, name)}: a thread's tile is 4, 8 or 16 a side"
        if config.lanes_m not in (1, 2, 4, 8, 16, 32):
            return f"lanes_m is {config.lanes_m}: a power of two up to 32"
        if config.splits < 1:
            return f"splits is {config.splits}: 1 or more"
        if config.k_groups > 1:
            return None
        if config.warps_m < 1 or config.num_warps % config.warps_m:
            return (
                f"tile_m is {config.tile_m}: {config.lanes_m} lanes of {config.thread_m} rows make a warp "
                f"{config.lanes_m * config.thread_m} rows high, which must fit the tile and {config.num_warps} warps"
            )
        if config.tile_k not in (4, 8, 16, 32):
            return f"tile_k is {config.tile_k}: 4, 8, 16 or 32"
        if config.flush_k < 0 or config.flush_k % (2 * config.tile_k):
            return f"flush_k is {config.flush_k}: 0, or a multiple of {2 * config.tile_k}, two tiles along K"
        return None

    def rejects(self, problem: Problem, config: SimtConfig, gpu: Gpu) -> str | None:
        assert isinstance(config, ChampionConfig)
        reason = super().rejects(problem, config, gpu)
        return rejects_few(problem, config) if reason is None and config.k_groups > 1 else reason

    def covered(self, config: SimtConfig) -> int:
        assert isinstance(config, ChampionConfig)
        return super().covered(config) // config.k_groups

    def shared_bytes(self, config: SimtConfig) -> int:
        assert isinstance(config, ChampionConfig)
        if config.k_groups > 1:
            return shared_bytes_of_few(config)
        return 2 * 4 * config.tile_k * (config.tile_m + config.tile_n + 2 * PAD)

    def estimate(self, problem: Problem, config: SimtConfig, gpu: Gpu) -> float:
        """Seconds that a supported config should take; see :mod:`.champion_choice`."""
        assert isinstance(config, ChampionConfig)
        return 1e-6 * model_us(problem, config, gpu)

    def configs(self, problem: Problem, gpu: Gpu) -> Iterator[SimtConfig]:
        """Best guess first: the large tile where it fills the card, otherwise smaller ones and K in parts."""
        seen: set[SimtConfig] = set()
        for config in search_space(problem, gpu):
            if config not in seen:
                seen.add(config)
                yield config

    def build(self, problem: Problem, config: SimtConfig, gpu: Gpu) -> LaunchPlan:
        assert isinstance(config, ChampionConfig)
        if config.k_groups > 1:
            return few_plan(problem, config)
        copies = realigned(problem, config)
        a, b = (copies[role].padded_copy if role in copies else m for role, m in (("A", problem.a), ("B", problem.b)))
        m, n = a.rows, b.cols
        steps = cdiv(problem.effective_k, config.tile_k)
        # An even number of tiles for each part of K but the last.
        split_tiles = 2 * cdiv(cdiv(steps, 2), config.splits)
        splits = max(1, cdiv(steps, split_tiles)) if split_tiles else 1
        way_a = way_of(a, a.col_stride, a.row_stride, config.tile_m, config)
        way_b = way_of(b, b.row_stride, b.col_stride, config.tile_n, config)
        arguments: dict[str, Argument] = dict(gemm_arguments(problem))
        for role, copy in copies.items():
            name = role.lower()
            arguments[name] = Pointer(copy.name, FP32)
            arguments.update(strides_of(name, copy.padded_copy))
        arguments |= {"M": Scalar.index(m), "N": Scalar.index(n)}
        arguments["split_tiles"] = Scalar.index(split_tiles)
        # Rows of partial sums start at multiples of 64 bytes, whatever N is: both launches move 16 bytes a lane.
        pitch = cdiv(problem.n, 16) * 16
        arguments["split_stride"] = split_stride(problem, pitch)
        arguments["store_m"] = Scalar.index(problem.m)
        arguments["store_n"] = Scalar.index(pitch if splits > 1 else problem.n)
        if splits > 1:
            arguments.update(partial_arguments(pitch))
        tiles = cdiv(m, config.tile_m) * cdiv(n, config.tile_n)
        workspaces = [copy.workspace for copy in copies.values()]
        flush = config.flush_k if split_tiles * config.tile_k > config.flush_k else 0
        # Without totals the pointer is D's: the kernel never touches it.
        arguments["totals"] = arguments["d"]
        if flush:
            workspaces.append(Workspace("totals", FP32, tiles * splits * config.tile_m * config.tile_n))
            arguments["totals"] = Pointer("totals", FP32)
        # With splits the second launch has the epilogue.
        finishing = replace(problem, epilogue=None) if splits > 1 else problem
        arguments.update(epilogue_arguments(finishing))
        # Partial sums are written to the end of a row, padding and all; an operand laid out anew has such an end too.
        edge_n = edge(n, config.tile_n)
        if splits > 1 and problem.n != pitch and "B" not in copies:
            edge_n = 2
        constants = (
            ("TILE_M", config.tile_m), ("TILE_N", config.tile_n), ("TILE_K", config.tile_k),
            ("READ_C", problem.reads_c and splits == 1),
            ("EDGE_M", edge(m, config.tile_m)), ("EDGE_N", edge_n),
            ("MASK_STORE", problem.m % config.tile_m != 0 or problem.n % config.tile_n != 0 or edge_n != 0),
            ("LACKING", steps * config.tile_k - problem.effective_k), ("ODD", steps % 2 == 1),
            ("SPLIT", splits > 1),
            ("THREAD_M", config.thread_m), ("THREAD_N", config.thread_n), ("GROUP_M", config.group_m),
            ("ACROSS", config.across), ("PINNED", config.pinned),
            ("FLUSH_PAIRS", flush // (2 * config.tile_k)),
            ("A_VECTOR", way_a.vector), ("B_VECTOR", way_b.vector),
            ("A_ASYNC", way_a.asynchronous), ("B_ASYNC", way_b.asynchronous),
            ("A_COPY", way_a.layout), ("B_COPY", way_b.layout),
            ("A_SHARED", way_a.shared), ("B_SHARED", way_b.shared),
            ("A_FRAGMENT", fragment_layout(config, "m")), ("B_FRAGMENT", fragment_layout(config, "n")),
            ("SINGLE", tile_layout(config, 1)), ("STORE", tile_layout(config, 4)),
            *epilogue_constants(finishing),
        )  # fmt: skip
        launch = Launch(
            champion_fp32_kernel, (tiles, splits, 1), tuple(arguments.items()), constants, config.num_warps,
            config.max_registers or None,
        )  # fmt: skip
        launches = [*copy_launches(list(copies.values())), launch]
        if splits > 1:
            launches.append(reduction_launch(problem, splits, pitch))
            workspaces.append(partial_sums(problem, splits, pitch))
        return LaunchPlan(self.name, tuple(launches), tuple(workspaces)).overlapping()
