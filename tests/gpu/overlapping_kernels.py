"""A kernel that takes its time between reading and writing, for launches that overlap: with and without the wait."""

from __future__ import annotations

from rungemm.compat import constexpr, gl, grid_launch_dependents, grid_wait, jit

ROW = gl.constexpr(gl.BlockedLayout([1], [32], [4], [0]))


@jit
def slow_step_kernel(x, y, steps, one, WAIT: constexpr):
    """``y = x + 1``, written long after ``x`` is read (``one`` is 1.0, which the compiler does not know)."""
    at = gl.program_id(0) * 128 + gl.arange(0, 128, ROW)
    if WAIT:
        grid_wait()
    grid_launch_dependents()
    value = gl.load(x + at)
    for _ in range(steps):
        value = value * one
    gl.store(y + at, value + 1.0)
