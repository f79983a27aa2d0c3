"""Controls for ConSan's deadlock report on the rungs `tma` and `tma_pipeline`: the least loop of TMA loads.

    python tools/consan_control.py [OUT.json]

Each control loads a tile STEPS times through one mbarrier, waits for it, and adds it up; nothing overlaps, so nothing
can be too early and every wait is for a load already asked for. They differ in the number of warps, and in whether the
barrier's phase is carried round the loop or computed from its counter. A control that gives the right sum without
ConSan and is called a deadlock with it shows what the sanitizer cannot follow.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "src")]

from rungemm.compat import barrier, constexpr, fence_async_shared, gl, jit, mbarrier, tma_load

STEPS = 3


@jit
def add_tiles(x, out, steps, CARRIED: constexpr, WARPS: constexpr):
    LAYOUT: constexpr = gl.BlockedLayout([1, 4], [2, 16], [WARPS, 1], [1, 0])
    tile = gl.allocate_shared_memory(x.dtype, x.block_type.shape, x.layout)
    full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(full, count=1)
    fence_async_shared()
    total = gl.zeros([64, 64], gl.float32, LAYOUT)
    phase = 0
    for step in range(steps):
        barrier()
        mbarrier.expect(full, x.block_type.nbytes)
        tma_load(x, [step * 64, 0], full, tile)
        if CARRIED:
            mbarrier.wait(full, phase)
            phase ^= 1
        else:
            mbarrier.wait(full, step & 1)
        total += tile.load(LAYOUT)
    rows = gl.arange(0, 64, gl.SliceLayout(1, LAYOUT))[:, None]
    cols = gl.arange(0, 64, gl.SliceLayout(0, LAYOUT))[None, :]
    gl.store(out + rows * 64 + cols, total)


def on_card(carried: bool, warps: int, steps: int) -> None:
    import torch
    import triton
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    x = torch.randn(64 * steps, 64, device="cuda")
    out = torch.full((64, 64), float("nan"), device="cuda")
    layout = gl.NVMMASharedLayout(128, 32)
    add_tiles[(1,)](
        TensorDescriptor.from_tensor(x, [64, 64], layout), out, steps, CARRIED=carried, WARPS=warps, num_warps=warps
    )
    torch.cuda.synchronize()
    assert torch.allclose(out, x.view(steps, 64, 64).sum(0), atol=1e-5), "wrong sum"


def main() -> None:
    rows = []
    for carried in (True, False):
        for warps in (4, 8):
            for steps in (1, STEPS):
                for consan in (False, True):
                    mode = {"TRITON_INSTRUMENTATION_MODE": "consan"} if consan else {}
                    environment = {**os.environ, "TRITON_ALWAYS_COMPILE": "1", **mode}
                    command = [sys.executable, __file__, "--one", str(int(carried)), str(warps), str(steps)]
                    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=90)
                    said = (done.stdout + done.stderr).strip().splitlines()
                    words = next((line for line in said if "ssert" in line), said[-1] if said else "right")
                    row = {"carried": carried, "warps": warps, "steps": steps, "consan": consan,
                           "ok": done.returncode == 0, "words": words[-160:]}  # fmt: skip
                    rows.append(row)
                    print(row, flush=True)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        on_card(sys.argv[2] == "1", int(sys.argv[3]), int(sys.argv[4]))
    else:
        main()
