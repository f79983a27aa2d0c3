"""What Nsight Compute counts besides, read from the machine code: instructions that serve another purpose.

Two of its metrics count more than their names say. ``sm__inst_executed_pipe_tensor_op_hmma`` counts HFMA2.MMA, an fp16
multiply-add with which ptxas moves constants, and ``smsp__inst_executed_op_shared_ld`` counts ``@!PT LDS``, loads that
never run, three of which ptxas puts before a run of LDGSTS. Neither is in the kernel's source, so the simulator cannot
know of them; the compiled kernel has them.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction

from rungemm.compiling import compile_plan
from rungemm.compiling.sass import disassemble
from rungemm.kernels.plan import LaunchPlan

__all__ = ["Code", "code_of", "idle_loads_each", "moves"]

_INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)", re.MULTILINE)


@dataclass(frozen=True)
class Code:
    """A plan's machine code.

    Attributes:
        moves: (HFMA2.MMA in the text, warps of the launch), for every launch.
        idle_loads: ``@!PT LDS`` for each LDGSTS, or ``None`` where that is not the same everywhere.
    """

    moves: tuple[tuple[int, int], ...]
    idle_loads: Fraction | None


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
