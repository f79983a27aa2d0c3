"""From a launch plan to machine code and what it uses, with no GPU: child processes compile, a disk cache remembers."""

from .compiled import Compiled
from .compiler import SUPPORTED_ARCHS, compile_launch, compile_many, compile_plan
from .errors import CompileError

__all__ = ["SUPPORTED_ARCHS", "CompileError", "Compiled", "compile_launch", "compile_many", "compile_plan"]
