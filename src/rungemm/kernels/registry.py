"""The rungs in the order they are climbed. Adding a rung is adding its file and one line here."""

from __future__ import annotations

from typing import Any

from .base import Kernel
from .cuda_core.autotuned import Autotuned
from .cuda_core.bank_conflict_free import BankConflictFree
from .cuda_core.champion import ChampionFp32
from .cuda_core.coalesced import Coalesced
from .cuda_core.cp_async import CpAsync
from .cuda_core.double_buffer import DoubleBuffer
from .cuda_core.double_buffer_k16 import DoubleBufferK16
from .cuda_core.naive import Naive
from .cuda_core.shared_tile import SharedTile
from .cuda_core.split_k import SplitK
from .cuda_core.thread_tile_1d import ThreadTile1D
from .cuda_core.thread_tile_2d import ThreadTile2D
from .cuda_core.vectorised import Vectorised
from .cuda_core.warp_tile import WarpTile
from .hopper.champion import ChampionHopper
from .hopper.champion_batched import ChampionBatched
from .hopper.persistent import Persistent
from .hopper.ping_pong import PingPong
from .hopper.stream_k import StreamK
from .hopper.subtiled_epilogue import SubtiledEpilogue
from .hopper.tma import Tma
from .hopper.tma_pipeline import TmaPipeline
from .hopper.warp_specialised import WarpSpecialised
from .hopper.wgmma_shared import WgmmaShared
from .tensor_core.batched import BatchedMma
from .tensor_core.champion import ChampionMma
from .tensor_core.mma_multistage import MmaMultistage
from .tensor_core.mma_warp_specialised import MmaWarpSpecialised
from .tensor_core.tf32_mma import Tf32Mma

__all__ = ["BATCHED", "LADDER", "find_kernel"]

LADDER: tuple[Kernel[Any], ...] = (
    Naive(),
    Coalesced(),
    SharedTile(),
    ThreadTile1D(),
    ThreadTile2D(),
    Vectorised(),
    BankConflictFree(),
    DoubleBuffer(),
    DoubleBufferK16(),
    CpAsync(),
    Autotuned(),
    WarpTile(),
    SplitK(),
    ChampionFp32(),
    Tf32Mma(),
    MmaMultistage(),
    MmaWarpSpecialised(),
    ChampionMma(),
    WgmmaShared(),
    Tma(),
    TmaPipeline(),
    WarpSpecialised(),
    Persistent(),
    SubtiledEpilogue(),
    PingPong(),
    StreamK(),
    ChampionHopper(),
)

BATCHED: tuple[Kernel[Any], ...] = (BatchedMma(), ChampionBatched())
"""What takes several products at once: no rungs, since the ideas are those of the champions that they are made of."""


def find_kernel(name: str) -> Kernel[Any]:
    """The rung, or kernel of batches, of that name; variations in case and dashes are forgiven ("shared-tile").

    Raises:
        ValueError: unknown rung; the message lists the known ones.
    """
    key = name.strip().lower().replace("-", "_")
    for kernel in (*LADDER, *BATCHED):
        if kernel.name == key:
            return kernel
    raise ValueError(f"rung {name!r} is unknown: use one of {', '.join(k.name for k in LADDER)}")
