"""What a card is: a frozen :class:`Gpu`, a zoo of real cards, and detection of the card at hand.

Peaks are DENSE figures, always. Vendors print the structured-sparsity figure, twice as high, next to or
instead of the dense one; :func:`_peaks` derives every tensor-core peak from the operations an SM does in a
clock, so a sparse figure cannot slip in, and the tests compare the result with the datasheets' dense columns.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass, field
from types import MappingProxyType

__all__ = ["DEFAULT_GPU", "HOPPER_TENSOR_MHZ", "ZOO", "Gpu", "detect_gpu", "find_gpu", "match_gpu"]

KIB = 1024
MIB = 1024 * 1024


@dataclass(frozen=True)
class Gpu:
    """One card.

    Attributes:
        name: as in the zoo ("h200").
        title: as its maker writes it.
        arch: compute capability times ten (90 is sm_90).
        sms: streaming multiprocessors.
        boost_mhz: the boost clock the peaks are quoted at, MHz.
        peaks: dense TFLOPS (TOPS for int8) by kind: "fp32" (FMA pipes), "tf32", "fp16", "bf16", "fp8", "int8".
        dram_gbs: DRAM bandwidth, 10^9 bytes a second, datasheet.
        l2_bytes, dram_bytes: capacities.
        shared_per_sm, shared_per_block: shared memory of an SM and the most one block may take, bytes.
        shared_reserved: bytes the system takes from each block's share.
        max_threads_per_sm, max_blocks_per_sm, registers_per_sm: occupancy limits.
        register_unit: registers are handed out to a warp in multiples of this many.
        max_registers_per_thread, max_threads_per_block, warp_size, banks: the same on every card here.
        source: where the figures are from.
    """

    name: str
    title: str
    arch: int
    sms: int
    boost_mhz: int
    peaks: MappingProxyType[str, float] = field(hash=False)
    dram_gbs: float
    l2_bytes: int
    dram_bytes: int
    shared_per_sm: int
    shared_per_block: int
    max_threads_per_sm: int
    max_blocks_per_sm: int
    source: str
    shared_reserved: int = KIB
    registers_per_sm: int = 65536
    register_unit: int = 256
    max_registers_per_thread: int = 255
    max_threads_per_block: int = 1024
    warp_size: int = 32
    banks: int = 32

    @property
    def max_warps_per_sm(self) -> int:
        return self.max_threads_per_sm // self.warp_size

    def peak(self, kind: str) -> float | None:
        """Dense peak in TFLOPS for a kind of arithmetic, or ``None`` where the card has no such unit."""
        return self.peaks.get(kind)


def _peaks(sms: int, mhz: int, fp32: int, tensor: dict[str, int]) -> MappingProxyType[str, float]:
    """Dense TFLOPS from operations (two per multiply-add) that one SM does in one clock."""
    rate = {"fp32": fp32, **tensor}
    return MappingProxyType({kind: sms * mhz * 1e6 * ops / 1e12 for kind, ops in rate.items()})


# Dense tensor-core operations per SM and clock, from NVIDIA's architecture whitepapers (A100, GA102, H100, AD102):
# FMA per SM per clock times two.
_A100 = {"tf32": 1024, "fp16": 2048, "bf16": 2048, "int8": 4096}
_GA10X = {"tf32": 256, "fp16": 512, "bf16": 512, "int8": 2048}  # GeForce: fp32 accumulation at half rate
_GA10X_PRO = {"tf32": 512, "fp16": 1024, "bf16": 1024, "int8": 2048}
_AD10X = {"tf32": 256, "fp16": 512, "bf16": 512, "fp8": 1024, "int8": 2048}  # GeForce, likewise
_AD10X_PRO = {"tf32": 512, "fp16": 1024, "bf16": 1024, "fp8": 2048, "int8": 2048}
_H100 = {"tf32": 2048, "fp16": 4096, "bf16": 4096, "fp8": 8192, "int8": 8192}


HOPPER_TENSOR_MHZ = 1830
"""The clock at which NVIDIA quotes Hopper's tensor cores, lower than the boost clock of everything else."""


def _hopper(name: str, title: str, dram_gbs: float, dram_gib: int, l2: int, source: str) -> Gpu:
    # The datasheet's dense tensor figures (bf16 989.4) are at 1830 MHz, its fp32 (66.9) at 1980 MHz. Both are kept as
    # published.
    peaks = MappingProxyType(dict(_peaks(132, HOPPER_TENSOR_MHZ, 256, _H100)) | {"fp32": 132 * 1980e6 * 256 / 1e12})
    return Gpu(
        name, title, 90, 132, 1980, peaks, dram_gbs, l2, dram_gib * 1024 * MIB,
        shared_per_sm=228 * KIB, shared_per_block=227 * KIB, max_threads_per_sm=2048, max_blocks_per_sm=32,
        source=source,
    )  # fmt: skip


def _ampere_100(name: str, title: str, dram_gbs: float, dram_gib: int) -> Gpu:
    return Gpu(
        name, title, 80, 108, 1410, _peaks(108, 1410, 128, _A100), dram_gbs, 40 * MIB, dram_gib * 1024 * MIB,
        shared_per_sm=164 * KIB, shared_per_block=163 * KIB, max_threads_per_sm=2048, max_blocks_per_sm=32,
        source="NVIDIA A100 Tensor Core GPU architecture whitepaper and A100 datasheet; limits: CUDA C++ Programming "
        "Guide, compute capability 8.0",
    )  # fmt: skip


def _consumer(
    name: str, title: str, arch: int, sms: int, mhz: int, tensor: dict[str, int], dram_gbs: float,
    l2_mib: int, dram_gib: int, source: str,
) -> Gpu:  # fmt: skip
    return Gpu(
        name, title, arch, sms, mhz, _peaks(sms, mhz, 256, tensor), dram_gbs, l2_mib * MIB, dram_gib * 1024 * MIB,
        shared_per_sm=100 * KIB, shared_per_block=99 * KIB, max_threads_per_sm=1536,
        max_blocks_per_sm=16 if arch == 86 else 24,
        source=source + f"; limits: CUDA C++ Programming Guide, compute capability {arch // 10}.{arch % 10}",
    )  # fmt: skip


_GA102 = "NVIDIA Ampere GA102 GPU architecture whitepaper"
_AD102 = "NVIDIA Ada GPU architecture whitepaper"

ZOO: dict[str, Gpu] = {
    gpu.name: gpu
    for gpu in (
        _hopper(
            "h100", "NVIDIA H100 SXM", 3350, 80, 50 * MIB,
            "NVIDIA H100 datasheet (dense: half of its 'with sparsity' column) and H100 architecture whitepaper; "
            "limits: CUDA C++ Programming Guide, compute capability 9.0",
        ),
        _hopper(
            "h200", "NVIDIA H200", 4800, 141, 60 * MIB,
            "NVIDIA H200 datasheet (dense: half of its 'with sparsity' column); L2, SMs and clock read off the card "
            "(cudaGetDeviceProperties); limits: CUDA C++ Programming Guide, compute capability 9.0",
        ),
        _ampere_100("a100-40", "NVIDIA A100 40GB", 1555, 40),
        _ampere_100("a100-80", "NVIDIA A100 80GB", 2039, 80),
        _consumer("a6000", "NVIDIA RTX A6000", 86, 84, 1800, _GA10X_PRO, 768, 6, 48,
                  _GA102 + ", NVIDIA RTX A6000 datasheet"),
        _consumer("rtx3090", "NVIDIA GeForce RTX 3090", 86, 82, 1695, _GA10X, 936, 6, 24, _GA102),
        _consumer("rtx4090", "NVIDIA GeForce RTX 4090", 89, 128, 2520, _AD10X, 1008, 72, 24, _AD102),
        _consumer("l40s", "NVIDIA L40S", 89, 142, 2520, _AD10X_PRO, 864, 96, 48, "NVIDIA L40S datasheet, " + _AD102),
        _consumer("l4", "NVIDIA L4", 89, 58, 2040, _AD10X_PRO, 300, 48, 24, "NVIDIA L4 datasheet, " + _AD102),
    )
}  # fmt: skip

DEFAULT_GPU = ZOO["h200"]


def find_gpu(name: str) -> Gpu:
    """The card of that name in the zoo ("h200", "A100-80", "NVIDIA H200").

    Raises:
        ValueError: unknown card; the message lists the known ones.
    """
    key = re.sub(r"^(nvidia|geforce)\s+", "", name.strip().lower())
    key = re.sub(r"^geforce\s+", "", key).replace(" ", "").replace("_", "-")
    if key in ZOO:
        return ZOO[key]
    if key == "a100":
        return ZOO["a100-80"]
    for gpu in ZOO.values():
        if key == gpu.title.lower().replace(" ", ""):
            return gpu
    raise ValueError(f"card {name!r} is not in the zoo: use one of {', '.join(ZOO)}")


def detect_gpu() -> Gpu | None:
    """The card at hand, or ``None``. Asks ``nvidia-smi``, so it needs neither torch nor a CUDA context.

    A card that is not in the zoo is described by the zoo's card of the same architecture, with its own name.
    """
    smi = shutil.which("nvidia-smi")
    if smi is None:
        return None
    query = "--query-gpu=name,compute_cap,memory.total"
    try:
        done = subprocess.run(
            [smi, query, "--format=csv,noheader,nounits"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return None
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        return None
    parts = [part.strip() for part in lines[0].split(",")]
    if len(parts) != 3 or not re.fullmatch(r"\d+\.\d+", parts[1]) or not parts[2].isdigit():
        return None
    return match_gpu(parts[0], int(parts[1].replace(".", "")), int(parts[2]))


def match_gpu(title: str, arch: int, memory_mib: int) -> Gpu | None:
    """The zoo's entry for what the driver calls the card; one of the same architecture if it is not in the zoo."""
    text = title.lower()
    if "a100" in text:
        return ZOO["a100-80" if memory_mib > 60_000 else "a100-40"]
    by_length = sorted(ZOO.values(), key=lambda gpu: -len(gpu.name))
    for gpu in by_length:
        if re.search(rf"\b{re.escape(gpu.name.replace('rtx', 'rtx '))}\b", text) and gpu.arch == arch:
            return gpu
    same = [gpu for gpu in ZOO.values() if gpu.arch == arch]
    if not same:
        return None
    from dataclasses import replace

    return replace(same[0], name=text.replace(" ", "-"), title=f"{title} (limits and peaks as of {same[0].title})")
