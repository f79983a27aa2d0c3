"""Reading machine code with the tools that Triton's package carries: opcodes, registers, stack."""

from __future__ import annotations

import collections
import hashlib
import re
import subprocess
import tempfile
from dataclasses import dataclass

from ..compat import compiler_stamp, compiler_tool
from .errors import CompileError

__all__ = ["Resources", "disassemble", "histogram", "key_of", "resources"]

# "/*0040*/  @!P0 LDG.E.128 R4, [R2] ;": an address, perhaps a predicate, the opcode.
_INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)", re.MULTILINE)


@dataclass(frozen=True)
class Resources:
    """What cuobjdump reads off a cubin: registers a thread, stack bytes a thread."""

    registers: int
    stack_bytes: int


def disassemble(cubin: bytes, line_info: bool = False) -> str:
    """SASS as text; with ``line_info``, comments name the source file and line of what follows.

    Raises:
        CompileError: nvdisasm cannot read it.
    """
    return _run_tool("nvdisasm", ["-c", *(["-g"] if line_info else [])], cubin)


def histogram(text: str) -> collections.Counter[str]:
    """Opcodes with modifiers ("FFMA", "LDS.128") and how often each stands in the text, NOP padding left out."""
    counts = collections.Counter(_INSTRUCTION.findall(text))
    del counts["NOP"]
    return counts


def key_of(cubin: bytes) -> str:
    """The name of a cubin's disassembly in the cache."""
    return hashlib.sha256(compiler_stamp().encode() + b"\0" + cubin).hexdigest()


def resources(cubin: bytes, name: str) -> Resources:
    """Registers and stack of the kernel ``name``.

    Raises:
        CompileError: cuobjdump cannot read it, or the kernel is not in it.
    """
    text = _run_tool("cuobjdump", ["-res-usage"], cubin)
    found = re.search(rf"Function {re.escape(name)}:\s*\n.*?REG:(\d+).*?STACK:(\d+)", text)
    if found is None:
        raise CompileError(f"cuobjdump shows no resource use of {name}", text)
    return Resources(int(found[1]), int(found[2]))


def _run_tool(tool: str, options: list[str], cubin: bytes) -> str:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run(
            [str(compiler_tool(tool)), *options, file.name], capture_output=True, text=True, timeout=300, check=False
        )
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()
        raise CompileError(f"{tool} failed: {said.splitlines()[-1] if said else done.returncode}", said)
    return done.stdout
