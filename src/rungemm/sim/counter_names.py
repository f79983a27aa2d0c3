"""What each counter means, and which of Nsight Compute's metrics it equals."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["COUNTERS", "Counter", "ncu_metrics"]


@dataclass(frozen=True)
class Counter:
    """One counter.

    Attributes:
        name: the key in totals.
        unit: what one is.
        meaning: in words.
        ncu: the metric of Nsight Compute that it equals on the same launch, or several, joined by " + " and " - ",
            whose sum it equals; "" where there is none.
        ncu_each: what the metric counts for one of ours.
    """

    name: str
    unit: str
    meaning: str
    ncu: str = ""
    ncu_each: int = 1

    @property
    def terms(self) -> tuple[tuple[str, int], ...]:
        """The metrics named in ``ncu``, each with its sign."""
        words = f"+ {self.ncu}".split() if self.ncu else []
        return tuple((metric, 1 if sign == "+" else -1) for sign, metric in zip(words[::2], words[1::2], strict=True))

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics named in ``ncu``."""
        return tuple(metric for metric, _ in self.terms)


def _table(*rows: tuple[str, str, str, str] | tuple[str, str, str, str, int]) -> dict[str, Counter]:
    return {row[0]: Counter(*row) for row in rows}


_L1 = "l1tex__"
_BY_INSTRUCTION = "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_"
_ALL_WAVEFRONTS = "memory_l1_wavefronts_shared"
_CONFLICTS = _L1 + "data_bank_conflicts_pipe_lsu_mem_shared_op_"
_LOAD_WAVEFRONTS = (_BY_INSTRUCTION + "ld.sum", _BY_INSTRUCTION + "ldsm.sum")
_COPY_WAVEFRONTS = _BY_INSTRUCTION + "ldgsts.sum"

COUNTERS: dict[str, Counter] = _table(
    ("global_load_requests", "warp instructions", "LDG and LDGSTS with at least one lane on",
     _L1 + "t_requests_pipe_lsu_mem_global_op_ld.sum"),
    ("global_load_sectors", "32-byte sectors", "distinct sectors of each of them",
     _L1 + "t_sectors_pipe_lsu_mem_global_op_ld.sum"),
    ("global_store_requests", "warp instructions", "STG with at least one lane on",
     _L1 + "t_requests_pipe_lsu_mem_global_op_st.sum"),
    ("global_store_sectors", "32-byte sectors", "distinct sectors of each of them",
     _L1 + "t_sectors_pipe_lsu_mem_global_op_st.sum"),
    ("atomic_requests", "warp instructions", "atomics on global memory with at least one lane on",
     _L1 + "t_requests_pipe_lsu_mem_global_op_atom.sum + " + _L1 + "t_requests_pipe_lsu_mem_global_op_red.sum"),
    ("global_load_elements", "elements", "loaded from global memory by single threads, replicas included", ""),
    ("global_store_elements", "elements", "stored to global memory by single threads", ""),
    ("global_load_bytes", "bytes", "the same in bytes: what threads asked for", ""),
    ("global_store_bytes", "bytes", "the same of stores", ""),
    ("async_copy_bytes", "bytes", "moved by cp.async (LDGSTS) from global to shared memory", ""),
    ("tma_load_bytes", "bytes", "moved by TMA into shared memory, the zeros outside the tensor included",
     _L1 + "m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum"),
    ("tma_store_bytes", "bytes", "moved by TMA out of shared memory, parts outside the tensor left out",
     _L1 + "m_l1tex2xbar_write_bytes_mem_global_op_tma_st.sum"),
    ("l2_read_bytes", "bytes", "asked of L2 if L1 kept nothing: 32 a load sector, and TMA loads inside the tensor", ""),
    ("l2_write_bytes", "bytes", "sent to L2: 32 a store sector, and TMA stores inside the tensor", ""),
    ("shared_load_requests", "warp instructions", "LDS and LDSM (ldmatrix)",
     "smsp__inst_executed_op_shared_ld.sum + smsp__inst_executed_op_ldsm.sum"),
    ("shared_store_requests", "warp instructions", "STS and STSM (stmatrix)", "smsp__inst_executed_op_shared_st.sum"),
    ("shared_load_wavefronts", "wavefronts", "passes over the 32 banks for LDS and LDSM",
     " + ".join(_LOAD_WAVEFRONTS)),
    ("shared_store_wavefronts", "wavefronts", "passes over the 32 banks for STS and STSM",
     " - ".join((_ALL_WAVEFRONTS, *_LOAD_WAVEFRONTS, _COPY_WAVEFRONTS))),
    ("shared_copy_wavefronts", "wavefronts", "passes for the shared-memory side of cp.async (LDGSTS), at most",
     _COPY_WAVEFRONTS),
    ("shared_wavefronts", "wavefronts", "the sum of the three", _ALL_WAVEFRONTS),
    ("shared_load_conflicts", "wavefronts", "of loads, beyond one a phase", _CONFLICTS + "ld.sum"),
    ("shared_store_conflicts", "wavefronts", "of stores, beyond one a phase", _CONFLICTS + "st.sum"),
    ("bank_conflicts", "wavefronts", "of both", _CONFLICTS + "ld.sum + " + _CONFLICTS + "st.sum"),
    ("shared_load_elements", "elements", "loaded from shared memory by single threads", ""),
    ("shared_store_elements", "elements", "stored to shared memory by single threads", ""),
    ("shared_load_bytes", "bytes", "the same in bytes", ""),
    ("shared_store_bytes", "bytes", "the same of stores", ""),
    ("fmas", "thread instructions", "fp32 multiply-adds on the CUDA cores (FFMA)",
     "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"),
    ("other_fmas", "thread operations", "multiply-adds of other types on the CUDA cores", ""),
    ("mma_instructions", "warp instructions", "mma.sync, of its full shape (HMMA, IMMA)",
     "sm__inst_executed_pipe_tensor_op_hmma.sum"),
    ("wgmma_instructions", "warpgroup instructions", "wgmma of 64 rows (HGMMA, IGMMA, QGMMA)",
     "sm__inst_executed_pipe_tensor_op_gmma.sum", 4),
    ("wgmma_shared_bytes", "bytes", "of operands that wgmma reads from shared memory", ""),
    ("tensor_macs", "multiply-adds", "of mma.sync and wgmma together", ""),
    ("shuffles", "warp instructions", "exchanges between lanes for a change of layout inside a warp", ""),
    ("barriers", "CTA barriers", "bar.sync, the kernel's own or Triton's between shared accesses; not around mbarriers",
     ""),
    ("waits", "waits", "for cp.async groups, wgmma, TMA stores and mbarrier phases, once a partition", ""),
    ("mbarrier_arrivals", "arrivals", "on mbarriers by threads, expect included", ""),
    ("fences", "fences", "fence.proxy.async, once a partition", ""),
)  # fmt: skip


def ncu_metrics() -> tuple[str, ...]:
    """Every metric that a counter equals or is part of what it equals, in order."""
    return tuple(dict.fromkeys(metric for counter in COUNTERS.values() for metric in counter.metrics))
