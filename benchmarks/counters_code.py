"""What Nsight Compute counts besides, read from the machine code: instructions that serve another purpose.

Two of its metrics count more than their names say. ``sm__inst_executed_pipe_tensor_op_hmma`` counts HFMA2.MMA, an fp16
multiply-add with which ptxas moves constants, and ``smsp__inst_executed_op_shared_ld`` counts ``@!PT LDS``, loads that
never run, three of which ptxas puts before a run of LDGSTS. Neither is in the kernel's source, so the simulator cannot
know of them; the compiled kernel has them. Nor can it know whether ptxas makes of a branch around copies guards of the
copies (``@!P0 LDGSTS``), which are then executed with every lane off.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from rungemm.compiling import compile_plan
from rungemm.compiling.sass import disassemble
from rungemm.kernels.plan import LaunchPlan

__all__ = ["Code", "code_of", "guarded_copies", "idle_loads_each", "in_loops", "moves"]

_LABEL = re.compile(r"^\s*(\.L_x_\d+):")
_BRANCH = re.compile(r"\bBRA\b.*`\((\.L_x_\d+)\)")
_INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)", re.MULTILINE)


@dataclass(frozen=True)
class Code:
    """A plan's machine code.

    Attributes:
        moves: (HFMA2.MMA in the text, warps of the launch), for every launch.
        idle_loads: ``@!PT LDS`` for each LDGSTS, or ``None`` where that is not the same everywhere.
        guarded: opcodes of the LDGSTS under a guard.
        apart: ``@!PT LDS`` and LDGSTS before and after the loops, once in each warp of the launch, and how many of the
            former stand in loops for each of the latter; ``None`` where that is not the same everywhere.
    """

    moves: tuple[tuple[int, int], ...]
    idle_loads: Fraction | None
    guarded: frozenset[str] = frozenset()
    apart: tuple[int, int, Fraction] | None = None


def code_of(plan: LaunchPlan, arch: int) -> Code:
    """Read it from the plan's compiled launches.

    Raises:
        CompileError: a launch does not compile, or nvdisasm cannot read it.
    """
    texts = [disassemble(compiled.cubin) for compiled in compile_plan(plan, arch)]
    warps = [math.prod(launch.grid) * launch.num_warps for launch in plan.launches]
    each = {ratio for text in texts for ratio in idle_loads_each(text)}
    return Code(
        tuple((moves(text), count) for text, count in zip(texts, warps, strict=True)),
        each.pop() if len(each) == 1 else None,
        frozenset(opcode for text in texts for opcode in guarded_copies(text)),
        _apart(texts, warps),
    )


def _apart(texts: Sequence[str], warps: Sequence[int]) -> tuple[int, int, Fraction] | None:
    copying = [(text, count) for text, count in zip(texts, warps, strict=True) if "LDGSTS" in text]
    if len(copying) != 1:
        return None
    text, count = copying[0]
    inside, outside = in_loops(text)
    each = set(idle_loads_each(inside))
    if len(each) != 1:
        return None
    found = _INSTRUCTION.findall(outside)
    idle = sum(opcode == "LDS" and predicate.startswith("@!PT") for predicate, opcode in found)
    copies = sum(opcode.split(".")[0] == "LDGSTS" for _, opcode in found)
    return count * idle, count * copies, each.pop()


def in_loops(text: str) -> tuple[str, str]:
    """The lines of a kernel's text that stand between a branch backwards and where it leads, and the others."""
    lines = text.splitlines()
    labels = {found[1]: number for number, line in enumerate(lines) if (found := _LABEL.match(line))}
    inside: set[int] = set()
    for number, line in enumerate(lines):
        branch = _BRANCH.search(line)
        if branch and branch[1] in labels:
            inside.update(range(labels[branch[1]], number + 1))
    return (
        "\n".join(line for number, line in enumerate(lines) if number in inside),
        "\n".join(line for number, line in enumerate(lines) if number not in inside),
    )


def moves(text: str) -> int:
    """HFMA2.MMA in a kernel's text."""
    return sum(opcode == "HFMA2.MMA" for _, opcode in _INSTRUCTION.findall(text))


def idle_loads_each(text: str) -> list[Fraction]:
    """``@!PT LDS`` for each LDGSTS, in every run of the former with the LDGSTS that follow it."""
    runs: list[list[int]] = []
    for predicate, opcode in _INSTRUCTION.findall(text):
        if opcode == "LDS" and predicate.startswith("@!PT"):
            if not runs or runs[-1][1]:
                runs.append([0, 0])
            runs[-1][0] += 1
        elif opcode.startswith("LDGSTS"):
            if not runs:
                runs.append([0, 0])
            runs[-1][1] += 1
    return [Fraction(idle, copies) for idle, copies in runs if copies]


def guarded_copies(text: str) -> set[str]:
    """Opcodes of the LDGSTS that a predicate in front of them can switch off."""
    return {opcode for guard, opcode in _INSTRUCTION.findall(text) if guard and opcode.split(".")[0] == "LDGSTS"}
