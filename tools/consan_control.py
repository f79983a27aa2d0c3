"""Controls for ConSan's deadlock report on the rungs `tma` and `tma_pipeline`: the least loop of TMA loads.

    python tools/consan_control.py [OUT.json]     on a card
    python tools/consan_control.py --ir           anywhere: the arrivals that ConSan counts between expect and wait

Each control loads tiles STEPS times through one mbarrier, waits for them, and adds them up; nothing overlaps, so
nothing can be too early and every wait is for loads already asked for. They differ in the number of warps and in how
many loads share the barrier's phase. ConSan (Triton 3.6) takes no notice of ``mbarrier.expect`` and counts each TMA
load as an arrival of one: with two loads on a barrier of count 1, as in the rungs, the phase that it keeps goes round
twice, back to where it was, and the wait looks as if nothing could end it. A kernel with partitions escapes, because
the report needs all of them to wait at once.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "src")]

from rungemm.compat import barrier, constexpr, fence_async_shared, gl, jit, mbarrier, tma_load

STEPS = 3
ROWS, COLS = 64, 32


@jit
def add_tiles(x, out, steps, LOADS: constexpr, WARPS: constexpr):
    LAYOUT: constexpr = gl.BlockedLayout([1, 4], [4, 8], [WARPS, 1], [1, 0])
    tiles = gl.allocate_shared_memory(x.dtype, [LOADS] + x.block_type.shape, x.layout)  # noqa: RUF005
    full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(full, count=1)
    fence_async_shared()
    total = gl.zeros([64, 32], gl.float32, LAYOUT)
    for step in range(steps):
        barrier()
        mbarrier.expect(full, LOADS * x.block_type.nbytes)
        for load in gl.static_range(LOADS):
            tma_load(x, [(step * LOADS + load) * 64, 0], full, tiles.index(load))
        mbarrier.wait(full, step & 1)
        for load in gl.static_range(LOADS):
            total += tiles.index(load).load(LAYOUT)
    rows = gl.arange(0, 64, gl.SliceLayout(1, LAYOUT))[:, None]
    cols = gl.arange(0, 32, gl.SliceLayout(0, LAYOUT))[None, :]
    gl.store(out + rows * 32 + cols, total)


def on_card(loads: int, warps: int, steps: int) -> None:
    import torch
    import triton
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    x = torch.randn(ROWS * steps * loads, COLS, device="cuda")
    out = torch.full((ROWS, COLS), float("nan"), device="cuda")
    layout = gl.NVMMASharedLayout(128, 32)
    add_tiles[(1,)](
        TensorDescriptor.from_tensor(x, [ROWS, COLS], layout), out, steps, LOADS=loads, WARPS=warps, num_warps=warps
    )
    torch.cuda.synchronize()
    assert torch.allclose(out, x.view(steps * loads, ROWS, COLS).sum(0), atol=1e-5), "wrong sum"


def compiled(loads: int) -> None:
    """Compile a control for sm_90; in a child that prints the passes' output."""
    from rungemm.compat import GluonASTSource, GPUTarget, triton

    layout = gl.NVMMASharedLayout(128, 32)
    names = ("x", "out", "steps", "LOADS", "WARPS")
    types = (f"tensordesc<fp32[{ROWS}, {COLS}],{layout!r}>", "*fp32", "i32", "constexpr", "constexpr")
    source = GluonASTSource(add_tiles, dict(zip(names, types, strict=True)), {(3,): loads, (4,): 4}, {})
    options = {"num_warps": 4, "instrumentation_mode": "consan"}
    triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)


def arrivals(loads: int) -> int:
    """Arrivals that the sanitizer's own code counts on the barrier in one turn of a control's loop."""
    mode = {"TRITON_INSTRUMENTATION_MODE": "consan", "TRITON_ALWAYS_COMPILE": "1", "MLIR_ENABLE_DUMP": "1"}
    command = [sys.executable, __file__, "--compile", str(loads)]
    done = subprocess.run(command, env={**os.environ, **mode}, capture_output=True, text=True, check=True)
    after = done.stderr.split("IR Dump Before TritonGPUGlobalScratchAllocationPass")[1].split("IR Dump Before")[0]
    kernel = after[after.index("tt.func public") :]
    turn = kernel[kernel.index("ttng.barrier_expect") : kernel.index("ttng.wait_barrier")]
    return len(re.findall(r"tt\.call @__triton_consan_update_barrier_state", turn))


def main() -> None:
    rows = []
    for loads in (1, 2):
        for warps in (4, 8):
            for consan in (False, True):
                mode = {"TRITON_INSTRUMENTATION_MODE": "consan"} if consan else {}
                environment = {**os.environ, "TRITON_ALWAYS_COMPILE": "1", **mode}
                command = [sys.executable, __file__, "--one", str(loads), str(warps), str(STEPS)]
                done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=90)
                said = (done.stdout + done.stderr).strip().splitlines()
                words = next((line for line in said if "ssert" in line), said[-1] if said else "right")
                row = {"loads": loads, "warps": warps, "steps": STEPS, "consan": consan,
                       "ok": done.returncode == 0, "words": words[-160:]}  # fmt: skip
                rows.append(row)
                print(row, flush=True)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        on_card(int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
    elif sys.argv[1:2] == ["--compile"]:
        compiled(int(sys.argv[2]))
    elif sys.argv[1:2] == ["--ir"]:
        for number in (1, 2):
            print(f"{number} load(s) on a barrier of count 1: ConSan counts {arrivals(number)} arrival(s) a turn")
    else:
        main()
