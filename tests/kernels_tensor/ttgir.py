"""Triton's own intermediate code of a launch, and whether its mbarriers' slots really move from step to step."""

from __future__ import annotations

import re

from rungemm.compat import GluonASTSource, GPUTarget, triton
from rungemm.compiling.request import request_of, resolved
from rungemm.kernels.plan import Launch


def ttgir(launch: Launch, arch: int = 90) -> str:
    request = request_of(launch, arch)
    source = GluonASTSource(
        request.function.load(),
        dict(request.signature),
        {(index,): resolved(value) for index, value in request.constexprs},
        {(index,): [["tt.divisibility", 16]] for index in request.attrs},
    )
    return triton.compile(source, target=GPUTarget("cuda", arch, 32), options=dict(request.options)).asm["ttgir"]


def still_barriers(text: str) -> list[str]:
    """mbarrier operations in a loop whose slot does not change in the innermost loop around them."""
    defined: dict[str, tuple[int, str]] = {}
    loops: list[tuple[int, int]] = []  # indentation, number
    number, found = 0, []
    inside: dict[str, tuple[int, ...]] = {}
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        while loops and indent <= loops[-1][0] and line.strip():
            loops.pop()
        body = line.strip()
        here = tuple(n for _, n in loops)
        if re.search(r"\bscf\.(for|while)\b", body):
            number += 1
            loops.append((indent, number))
            here = tuple(n for _, n in loops)
            for name in re.findall(r"(%[\w#]+) =", body.split("iter_args", 1)[-1]):
                inside[name] = here
            step = re.search(r"scf\.for (%[\w#]+)", body)
            if step:
                inside[step[1]] = here
            for name in re.findall(r"^(%[\w]+)(?::\d+)? =", body):
                inside[name] = here[:-1]
            continue
        match = re.match(r"(%\w+)(?::\d+)? = (.*)", body)
        if match:
            defined[match[1]] = (len(here), match[2])
            inside[match[1]] = here
        operation = re.search(r"ttng\.(wait_barrier|arrive_barrier) (%[\w#]+)", body)
        if operation and here:
            _, source = defined.get(operation[2], (0, ""))
            index = re.search(r"memdesc_index %[\w#]+\[(%[\w#]+)\]", source)
            slot = index[1] if index else operation[2]
            if re.match(r"%c\d", slot) or inside.get(slot.split("#")[0], ()) != here:
                found.append(body)
    return found
