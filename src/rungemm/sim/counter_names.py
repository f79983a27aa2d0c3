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
        ncu: the metric of Nsight Compute that it equals on the same launch; "" where there is none.
    """

    name: str
    unit: str
    meaning: str
    ncu: str = ""


def _table(*rows: tuple[str, str, str, str]) -> dict[str, Counter]:
    return {name: Counter(name, unit, meaning, ncu) for name, unit, meaning, ncu in rows}


_L1 = "l1tex__"

COUNTERS: dict[str, Counter] = _table(
    ("global_load_requests", "warp instructions", "LDG and LDGSTS with at least one lane on",
     _L1 + "t_requests_pipe_lsu_mem_global_op_ld.sum"),
    ("global_load_sectors", "32-byte sectors", "distinct sectors of each of them",
     _L1 + "t_sectors_pipe_lsu_mem_global_op_ld.sum"),
    ("global_store_requests", "warp instructions", "STG with at least one lane on",
     _L1 + "t_requests_pipe_lsu_mem_global_op_st.sum"),
    ("global_store_sectors", "32-byte sectors", "distinct sectors of each of them",
     _L1 + "t_sectors_pipe_lsu_mem_global_op_st.sum"),
    ("atomic_requests", "warp instructions", "atomics on global memory with at least one lane on", ""),
    ("global_load_elements", "elements", "loaded from global memory by single threads, replicas included", ""),
    ("global_store_elements", "elements", "stored to global memory by single threads", ""),
    ("global_load_bytes", "bytes", "the same in bytes: what threads asked for", ""),
    ("global_store_bytes", "bytes", "the same of stores", ""),
    ("async_copy_bytes", "bytes", "moved by cp.async (LDGSTS) from global to shared memory", ""),
    ("tma_load_bytes", "bytes", "moved by TMA into shared memory, the zeros outside the tensor included", ""),
    ("tma_store_bytes", "bytes", "moved by TMA out of shared memory, parts outside the tensor left out", ""),
    ("l2_read_bytes", "bytes", "asked of L2 if L1 kept nothing: 32 a load sector, and TMA loads inside the tensor", ""),
    ("l2_write_bytes", "bytes", "sent to L2: 32 a store sector, and TMA stores inside the tensor", ""),
    ("shared_load_requests", "warp instructions", "LDS and LDSM (ldmatrix)", ""),
    ("shared_store_requests", "warp instructions", "STS and STSM (stmatrix)", ""),
    ("shared_load_wavefronts", "wavefronts", "passes over the 32 banks for LDS and LDSM",
     _L1 + "data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"),
    ("shared_store_wavefronts", "wavefronts", "passes over the 32 banks for STS and STSM",
     _L1 + "data_pipe_lsu_wavefronts_mem_shared_op_st.sum"),
    ("shared_copy_wavefronts", "wavefronts", "passes for the shared-memory side of cp.async (LDGSTS)", ""),
    ("shared_wavefronts", "wavefronts", "the sum of the three",
     _L1 + "data_pipe_lsu_wavefronts_mem_shared.sum"),
    ("shared_load_conflicts", "wavefronts", "of loads, beyond one a phase",
     _L1 + "data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"),
    ("shared_store_conflicts", "wavefronts", "of stores, beyond one a phase",
     _L1 + "data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum"),
    ("bank_conflicts", "wavefronts", "of both",
     _L1 + "data_bank_conflicts_pipe_lsu_mem_shared.sum"),
    ("shared_load_elements", "elements", "loaded from shared memory by single threads", ""),
    ("shared_store_elements", "elements", "stored to shared memory by single threads", ""),
    ("shared_load_bytes", "bytes", "the same in bytes", ""),
    ("shared_store_bytes", "bytes", "the same of stores", ""),
    ("fmas", "thread instructions", "fp32 multiply-adds on the CUDA cores (FFMA)",
     "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"),
    ("other_fmas", "thread operations", "multiply-adds of other types on the CUDA cores", ""),
    ("mma_instructions", "warp instructions", "mma.sync, of its full shape (HMMA, IMMA)", ""),
    ("wgmma_instructions", "warpgroup instructions", "wgmma of 64 rows (HGMMA, IGMMA, QGMMA)", ""),
    ("tensor_macs", "multiply-adds", "of mma.sync and wgmma together", ""),
    ("shuffles", "warp instructions", "exchanges between lanes for a change of layout inside a warp", ""),
    ("barriers", "CTA barriers", "bar.sync, the kernel's own or Triton's between shared accesses; not around mbarriers",
     ""),
    ("waits", "waits", "for cp.async groups, wgmma, TMA stores and mbarrier phases, once a partition", ""),
    ("mbarrier_arrivals", "arrivals", "on mbarriers by threads, expect included", ""),
    ("fences", "fences", "fence.proxy.async, once a partition", ""),
)  # fmt: skip


def ncu_metrics() -> tuple[str, ...]:
    """Every metric that a counter equals, in order."""
    return tuple(counter.ncu for counter in COUNTERS.values() if counter.ncu)
