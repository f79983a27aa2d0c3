"""Static instructions of a compiled kernel by source line, in the mnemonics of the counters."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import PurePath

from rungemm.compiling import compile_plan
from rungemm.compiling.sass import disassemble
from rungemm.kernels.plan import LaunchPlan

_LINE = re.compile(r'//## File "([^"]*)", line (\d+)')
_INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)")
_WIDTHS = {"U8": ".8", "S8": ".8", "U16": ".16", "S16": ".16", "64": ".64", "128": ".128"}

Line = tuple[str, int]


def shortened(opcode: str) -> str:
    """ "LDG.E.128" as "LDG.128", "LDSM.16.M88.4" as "LDSM.4"; "" for what is not counted."""
    name, *parts = opcode.split(".")
    if name in ("LDG", "STG", "LDS", "STS", "LDGSTS"):
        return name + "".join(_WIDTHS[part] for part in parts if part in _WIDTHS)
    if name in ("LDSM", "STSM"):
        return f"{name}.{parts[-1]}" if parts[-1] in ("2", "4") else name
    return name if name in ("FFMA", "BAR") else ""


def instructions_by_line(plan: LaunchPlan, arch: int = 90) -> dict[Line, Counter[str]]:
    """(file name, line) of the innermost source to opcodes, over every launch of the plan."""
    found: dict[Line, Counter[str]] = {}
    for compiled in compile_plan(plan, arch):
        at: Line = ("", 0)
        for text in disassemble(compiled.cubin, line_info=True).splitlines():
            if line := _LINE.search(text):
                at = (PurePath(line[1]).name, int(line[2]))
            elif "@!PT" in text:
                continue  # never runs: ptxas puts three such LDS before a cp.async
            elif (match := _INSTRUCTION.match(text)) and (name := shortened(match[1])):
                found.setdefault(at, Counter())[name] += 1
    return found
