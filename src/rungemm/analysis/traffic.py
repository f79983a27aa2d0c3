"""How often a tiled GEMM touches each level of memory for one element of C: counted on paper.

An element of A that is loaded once and used ``t`` times costs 1/t of a load for each use. A block that computes a
``tile_m x tile_n`` tile of C loads ``tile_m`` elements of A and ``tile_n`` of B for each k, and uses them in
``tile_m * tile_n`` multiply-adds; a thread does the same with its own ``thread_m x thread_n`` square and shared
memory. The counting is that of S. Boehm, "How to Optimize a CUDA Matmul Kernel" (2022), and before it of V. Volkov
and J. Demmel, "Benchmarking GPUs to tune dense linear algebra" (SC 2008); the simulator counts the same by running.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Accesses", "accesses_per_element"]


@dataclass(frozen=True)
class Accesses:
    """Loads of single elements, by the threads that ask for them, for one element of C over the whole of K.

    Attributes:
        global_loads: from global memory, before any cache.
        shared_loads: from shared memory.
    """

    global_loads: float
    shared_loads: float


def accesses_per_element(k: int, *, tile: tuple[int, int] | None, thread: tuple[int, int] = (1, 1)) -> Accesses:
    """The loads that one element of C costs, in elements.

    Args:
        k: the inner extent K.
        tile: rows and columns of C that a block computes from tiles of A and B in shared memory, or ``None`` when
            threads load from global memory and nothing is shared.
        thread: rows and columns of C that one thread computes.

    With ``tile=None`` and one element a thread this is 2K; for a 32x32 tile K/16 and 2K; for a 64x64 tile with a
    column of 8 a thread K/32 and 9K/8; for 128x128 with 8x8 a thread K/64 and K/4.

    Raises:
        ValueError: a negative K, or a tile or thread square that is empty.
    """
    if k < 0:
        raise ValueError(f"K is {k}: it must be 0 or more")
    for name, extent in (("tile", tile), ("thread", thread)):
        if extent is not None and min(extent) < 1:
            raise ValueError(f"{name} is {extent[0]}x{extent[1]}: both must be 1 or more")
    of_thread = k / thread[0] + k / thread[1]
    if tile is None:
        return Accesses(of_thread, 0.0)
    return Accesses(k / tile[0] + k / tile[1], of_thread)
