"""What a cubin's inner loop asks of the register file: the figure that the fp32 champion is tuned by without a GPU.

An SM sub-partition of an H200 can issue one warp-wide FFMA a clock, which reads three registers. The register file
has two banks (even and odd register numbers) that each deliver one register a clock, so an FFMA costs one clock
only if at least one source comes from the reuse cache (``.reuse``: the value that the previous instruction read in
the same operand slot) and the other two lie in different banks. ``port_cost`` is the mean number of clocks that the
busier bank needs per FFMA: 1.0 is perfect, and 66.9 TFLOPS / port_cost bounds the kernel. ``window_cost`` is kinder:
an instruction may collect its operands over three clocks, so a bank busy now and idle next costs nothing; it is the
clocks per instruction of the whole loop, LDS and integer work included. ``issue_share`` is the FFMAs' share of the
loop's instructions, so ``bound`` = issue_share / window_cost is the most of the FMA peak that the loop can reach.
(Two banks, one port each, three clocks to collect: after Huerta et al., "Analyzing Modern NVIDIA GPU cores", 2025.)

    python tools/sass_stats.py kernel.cubin ...
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

_INSTRUCTION = re.compile(r"\s+/\*([0-9a-f]+)\*/\s+(?:@!?U?P\w+ )?([A-Z0-9_.]+)\s*(.*?);")
_LABEL = re.compile(r"^(\.L_x_\d+):")
_TARGET = re.compile(r"\((\.L_x_\d+)\)")
_REGISTER = re.compile(r"[-|~]*R(\d+)(\.reuse)?")
WINDOW = 3


@dataclass(frozen=True)
class Instruction:
    address: int
    opcode: str
    operands: tuple[str, ...]


def disassemble(cubin: Path) -> tuple[list[Instruction], dict[str, int]]:
    """The instructions of a cubin in order, and the address of every label."""
    import triton

    tool = Path(triton.__file__).parent / "backends/nvidia/bin/nvdisasm"
    text = subprocess.run([tool, "-c", cubin], capture_output=True, text=True, check=True).stdout
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    for line in text.splitlines():
        if label := _LABEL.match(line):
            labels[label.group(1)] = instructions[-1].address + 16 if instructions else 0
        elif found := _INSTRUCTION.match(line):
            operands = tuple(x.strip() for x in found.group(3).split(","))
            instructions.append(Instruction(int(found.group(1), 16), found.group(2), operands))
    return instructions, labels


def main_loop(instructions: list[Instruction], labels: dict[str, int]) -> list[Instruction]:
    """The body of the backward branch that encloses the most FFMAs; everything, if nothing branches back."""
    best: list[Instruction] = []
    for instruction in instructions:
        target = _TARGET.search(instruction.operands[-1]) if instruction.opcode.startswith("BRA") else None
        start = labels.get(target.group(1), 1 << 60) if target else 1 << 60
        if start < instruction.address:
            body = [i for i in instructions if start <= i.address <= instruction.address]
            if _ffmas(body) > _ffmas(best):
                best = body
    return best or instructions


def _ffmas(body: list[Instruction]) -> int:
    return sum(i.opcode.startswith("FFMA") for i in body)


def _sources(instruction: Instruction) -> list[tuple[int, int, bool]]:
    """(operand slot, register, kept for reuse) of the registers that an instruction reads."""
    found = []
    operands = instruction.operands
    if not instruction.opcode.startswith(("STS", "STG", "LDGSTS", "BAR", "BRA")):
        operands = operands[1:]
    for slot, operand in enumerate(operands):
        for number, reuse in _REGISTER.findall(operand) if "[" in operand else _REGISTER.findall(operand)[:1]:
            found.append((slot, int(number), bool(reuse)))
    return found


def ffma_ports(body: list[Instruction]) -> dict[str, float]:
    """Reuse, register reads and bank cost per FFMA, and the window model's clocks (see the module's docstring)."""
    count = hits = cost = 0
    reads = [0, 0]
    kept: dict[int, int] = {}
    busy: list[set[int]] = [set(), set()]
    clock = 0
    for instruction in body:
        is_ffma = instruction.opcode.startswith("FFMA")
        bank = [0, 0]
        for slot, number, _ in _sources(instruction):
            if kept.get(slot) == number:
                hits += is_ffma
            else:
                bank[number % 2] += 1
        kept = {slot: number for slot, number, reuse in _sources(instruction) if reuse}
        while any(sum(t not in busy[b] for t in range(clock, clock + WINDOW)) < min(bank[b], WINDOW) for b in (0, 1)):
            clock += 1
        for b in (0, 1):
            busy[b].update([t for t in range(clock, clock + WINDOW) if t not in busy[b]][: bank[b]])
        clock += 1
        if is_ffma:
            count += 1
            reads[0] += bank[0]
            reads[1] += bank[1]
            cost += max(1, *bank)
    total = max(count, 1)
    window_cost = clock / max(len(body), 1)
    return {
        "instructions": len(body),
        "ffma": count,
        "reuse": round(hits / total, 3),
        "even": round(reads[0] / total, 3),
        "odd": round(reads[1] / total, 3),
        "port_cost": round(cost / total, 3),
        "window_cost": round(window_cost, 3),
        "issue_share": round(count / max(len(body), 1), 4),
        "bound": round(count / max(clock, 1), 4),
    }


def loop_stats(cubin: Path) -> dict[str, object]:
    """The figures of :func:`ffma_ports` for the main loop, its other opcodes, and spills anywhere."""
    instructions, labels = disassemble(cubin)
    body = main_loop(instructions, labels)
    opcodes = Counter(i.opcode.split(".")[0] for i in body)
    opcodes.pop("FFMA", None)
    spills = sum(i.opcode.startswith(("STL", "LDL")) for i in instructions)
    return {**ffma_ports(body), "spills": spills, "others": dict(opcodes.most_common())}


def main() -> None:
    for name in sys.argv[1:]:
        print(json.dumps({"cubin": name, **loop_stats(Path(name))}))


if __name__ == "__main__":
    main()
