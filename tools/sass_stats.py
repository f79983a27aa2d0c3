"""What a cubin's FFMAs ask of the register file: the figure that the fp32 champion is tuned by without a GPU.

An SM sub-partition of an H200 can issue one warp-wide FFMA a clock, which reads three registers. The register file
has two banks (even and odd register numbers) that each deliver one register a clock, so an FFMA costs one clock
only if at least one source comes from the reuse cache (``.reuse``: the value that the previous instruction read in
the same operand slot) and the other two lie in different banks. ``port_cost`` is the mean number of clocks that the
busier bank needs per FFMA: 1.0 is perfect, and 66.9 TFLOPS / port_cost bounds the kernel.

    python tools/sass_stats.py kernel.cubin
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

_INSTRUCTION = re.compile(r"\s+/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+ )?([A-Z0-9_.]+)\s*(.*?);")
_REGISTER = re.compile(r"[-|]*R(\d+)(\.reuse)?")


def disassemble(cubin: Path) -> list[tuple[str, list[str]]]:
    """The instructions of a cubin: opcode and operands, in order."""
    import triton

    tool = Path(triton.__file__).parent / "backends/nvidia/bin/nvdisasm"
    text = subprocess.run([tool, "-c", cubin], capture_output=True, text=True, check=True).stdout
    found = (_INSTRUCTION.match(line) for line in text.splitlines())
    return [(m.group(1), [x.strip() for x in m.group(2).split(",")]) for m in found if m]


def ffma_ports(instructions: list[tuple[str, list[str]]]) -> dict[str, float]:
    """Reuse, register reads and bank cost per FFMA (see the module's docstring)."""
    count = hits = cost = 0
    reads = [0, 0]
    kept: dict[int, int] = {}
    for opcode, operands in instructions:
        if not opcode.startswith("FFMA"):
            continue
        count += 1
        bank = [0, 0]
        keep: dict[int, int] = {}
        for slot, operand in enumerate(operands[1:4]):
            register = _REGISTER.match(operand)
            if register is None:
                continue
            number = int(register.group(1))
            if kept.get(slot) == number:
                hits += 1
            else:
                bank[number % 2] += 1
            if register.group(2):
                keep[slot] = number
        kept = keep
        reads[0] += bank[0]
        reads[1] += bank[1]
        cost += max(1, *bank)
    total = max(count, 1)
    return {
        "ffma": count,
        "reuse_per_ffma": round(hits / total, 3),
        "even_reads_per_ffma": round(reads[0] / total, 3),
        "odd_reads_per_ffma": round(reads[1] / total, 3),
        "port_cost": round(cost / total, 3),
    }


def main() -> None:
    for name in sys.argv[1:]:
        print(json.dumps({"cubin": name, **ffma_ports(disassemble(Path(name)))}))


if __name__ == "__main__":
    main()
