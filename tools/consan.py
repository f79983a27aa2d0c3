"""The gallery of faults under Triton's own concurrency sanitizer (ConSan) on a card, beside the simulator's verdicts.

    python tools/consan.py [OUT.json]

Every exhibit that ConSan covers runs twice, broken and repaired, each in a process of its own (a report traps the
kernel, and a hang is ended after a minute). The table says whether ConSan and the simulator agree.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "sim")]

SECONDS = 90


def on_card(name: str, fixed: bool) -> None:
    """Launch one exhibit with the sanitizer on."""
    import torch
    import triton
    from gallery import GALLERY
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    from rungemm.sim import TensorMap

    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    exhibit = next(e for e in GALLERY if e.name == name)

    def argument(value: Any) -> Any:
        if isinstance(value, TensorMap):
            return TensorDescriptor.from_tensor(argument(value.array), list(value.block), value.layout)
        return torch.from_numpy(value.copy()).cuda() if hasattr(value, "shape") else value

    exhibit.kernel[(exhibit.grid,)](*[argument(v) for v in exhibit.arguments()], FIXED=fixed, num_warps=4)
    torch.cuda.synchronize()


def under_consan(name: str, fixed: bool) -> dict[str, Any]:
    """Whether ConSan reported, and its words."""
    # Triton's cache does not tell instrumented code from plain code.
    sanitize = {"TRITON_INSTRUMENTATION_MODE": "consan", "TRITON_ALWAYS_COMPILE": "1", "CUDA_LAUNCH_BLOCKING": "1"}
    environment = {**os.environ, **sanitize}
    command = [sys.executable, __file__, "--one", name, str(int(fixed))]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return {"reported": True, "words": f"hangs ({SECONDS} s)"}
    text = (done.stdout + done.stderr).strip().splitlines()
    words = next((line for line in text if "ssert" in line or "onsan" in line), text[-1] if text else "")
    return {"reported": done.returncode != 0, "words": words[-300:]}


def simulated(name: str, fixed: bool) -> dict[str, Any]:
    from gallery import GALLERY

    from rungemm.sim import SimulationFault, run

    exhibit = next(e for e in GALLERY if e.name == name)
    try:
        run(exhibit.kernel, exhibit.grid, *exhibit.arguments(), FIXED=fixed)
    except SimulationFault as fault:
        return {"reported": True, "words": str(fault)}
    return {"reported": False, "words": ""}


def main() -> int:
    from gallery import GALLERY

    rows = []
    for exhibit in GALLERY:
        if not exhibit.consan:
            continue
        for fixed in (False, True):
            consan, ours = under_consan(exhibit.name, fixed), simulated(exhibit.name, fixed)
            agree = consan["reported"] == ours["reported"]
            rows.append({"exhibit": exhibit.name, "fixed": fixed, "agree": agree, "consan": consan, "simulator": ours})
            which, verdict = "repaired" if fixed else "broken", "agree" if agree else "DIFFER"
            print(f"{exhibit.name:26} {which:9} {verdict:7} {consan['words'][:90]}", flush=True)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if all(row["agree"] for row in rows) else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        on_card(sys.argv[2], sys.argv[3] == "1")
    else:
        raise SystemExit(main())
