"""A softmax over rows that fetches the next row while it works on this one, and what happens if it does not wait.

The next row comes by cp.async into the other of two buffers. With ``--break`` the wait is left out: the simulator stops
at the line that reads too early and says what to add. On a GPU the same mistake may go unseen for months.

    python examples/softmax.py [--break]
"""

from __future__ import annotations

import sys

import numpy as np

from rungemm.compat import async_copy_commit, async_copy_load, async_copy_wait, constexpr, gl, jit
from rungemm.sim import SimulationFault, run


@jit
def softmax_kernel(x, out, rows, cols, WIDTH: constexpr, WAIT: constexpr):
    """Every program takes every so many-th row of ``x[rows, cols]``; WIDTH is cols rounded up to a power of two."""
    ROW: constexpr = gl.BlockedLayout([1], [32], [4], [0])
    at = gl.arange(0, WIDTH, ROW)
    inside = at < cols
    buffers = gl.allocate_shared_memory(gl.float32, [2, WIDTH], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    row = gl.program_id(0)
    step = gl.num_programs(0)
    slot = 0
    async_copy_load(buffers.index(slot), x + row * cols + at, mask=inside)
    async_copy_commit()
    while row < rows:
        following = row + step
        # A group is committed even when there is no next row, so that the count of the wait is always right.
        async_copy_load(buffers.index(1 - slot), x + following * cols + at, mask=inside & (following < rows))
        async_copy_commit()
        if WAIT:
            async_copy_wait(1)
        value = gl.where(inside, buffers.index(slot).load(ROW), float("-inf"))
        value = gl.exp(value - gl.max(value, 0))
        gl.store(out + row * cols + at, value / gl.sum(value, 0), mask=inside)
        row = following
        slot = 1 - slot


def softmax(x: np.ndarray, *, wait: bool = True, programs: int = 4) -> np.ndarray:
    """The softmax of every row of an fp32 matrix.

    Raises:
        SimulationFault: with ``wait=False``.
    """
    rows, cols = x.shape
    out = np.full_like(x, np.nan)
    width = max(128, 1 << (cols - 1).bit_length())
    run(softmax_kernel, programs, x, out, rows, cols, WIDTH=width, WAIT=wait)
    return out


def main() -> None:
    x = np.random.default_rng().standard_normal((37, 300)).astype(np.float32)
    try:
        out = softmax(x, wait="--break" not in sys.argv)
    except SimulationFault as fault:
        raise SystemExit(str(fault)) from None
    exact = np.exp(x.astype(np.float64))
    exact /= exact.sum(1, keepdims=True)
    print(f"largest error {np.abs(out - exact).max():.1e}")


if __name__ == "__main__":
    main()
