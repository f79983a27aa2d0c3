"""A matrix transpose through shared memory, run and counted without a GPU.

Written row by row and read column by column, a plain tile puts a whole warp's reads into one bank; a swizzled one
spreads them. The simulator shows both: right results, and what each costs.

    python examples/transpose.py
"""

from __future__ import annotations

import numpy as np

from rungemm.compat import constexpr, gl, jit
from rungemm.sim import SimReport, run
from rungemm.sim.counters import Counters


@jit
def transpose_kernel(x, out, rows, cols, SWIZZLED: constexpr):
    """``out[cols, rows] = x[rows, cols].T`` in tiles of 32 x 32, four warps."""
    ALONG: constexpr = gl.BlockedLayout([1, 1], [1, 32], [4, 1], [1, 0])
    SHARED: constexpr = gl.SwizzledSharedLayout(1, 1, 32 if SWIZZLED else 1, [1, 0])
    row = gl.program_id(0) * 32
    col = gl.program_id(1) * 32
    outer = gl.arange(0, 32, gl.SliceLayout(1, ALONG))[:, None]
    inner = gl.arange(0, 32, gl.SliceLayout(0, ALONG))[None, :]

    tile = gl.allocate_shared_memory(gl.float32, [32, 32], SHARED)
    inside = (row + outer < rows) & (col + inner < cols)
    tile.store(gl.load(x + (row + outer) * cols + col + inner, mask=inside, other=0.0))
    # The same lanes now run along a row of the transposed tile: down a column of the one in memory.
    turned = tile.permute([1, 0]).load(ALONG)
    inside = (col + outer < cols) & (row + inner < rows)
    gl.store(out + (col + outer) * rows + row + inner, turned, mask=inside)


def transpose(x: np.ndarray, swizzled: bool) -> tuple[np.ndarray, SimReport]:
    """The transpose of an fp32 matrix, and what computing it cost."""
    rows, cols = x.shape
    out = np.full((cols, rows), np.nan, np.float32)
    grid = (-(-rows // 32), -(-cols // 32))
    report = run(transpose_kernel, grid, x, out, rows, cols, SWIZZLED=swizzled, observer=Counters())
    return out, report


def main() -> None:
    x = np.random.default_rng().standard_normal((200, 130)).astype(np.float32)
    for swizzled in (False, True):
        out, report = transpose(x, swizzled)
        counts = report.counters
        print(
            f"{'swizzled' if swizzled else 'plain':9} right: {np.array_equal(out, x.T)}  "
            f"shared wavefronts: {counts['shared_wavefronts']}  bank conflicts: {counts['bank_conflicts']}"
        )


if __name__ == "__main__":
    main()
