"""Which of our kernels are asked for a problem: the ladder's, and for several products at once those made for batches.

Nothing else of the dispatcher tells batches apart: they have measurements, estimates and a wanted gain like the rest.
Where nothing was measured near, that gain is a quarter of cuBLAS's time, and more for a kernel of which little was
timed (:data:`.model.UNTIMED`).
"""

from __future__ import annotations

from typing import Any

from ..kernels import BATCHED, LADDER, Kernel
from ..problem import Problem

__all__ = ["kernels_for"]


def kernels_for(problem: Problem) -> tuple[Kernel[Any], ...]:
    """In the order in which they are asked.

    Batches of a matrix times a vector stay torch's: a tile is at least 16 wide, and on an H200 ours took 2.5 times as
    long at 65536x225x1x4.
    """
    return (*LADDER, *BATCHED) if problem.batch > 1 and min(problem.m, problem.n) > 1 else LADDER
