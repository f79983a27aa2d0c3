"""One compilation, as data that a child process can be sent: which function, for what arguments, for which card."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import os
import sys
from dataclasses import dataclass
from typing import Any

from ..compat import JITCallable, compiler_environment, compiler_stamp
from ..kernels.plan import Descriptor, Launch, Scalar
from .errors import CompileError
from .fingerprint import describe_value, fingerprint

__all__ = ["SUPPORTED_ARCHS", "FunctionRef", "Request", "request_of"]

SUPPORTED_ARCHS: tuple[int, ...] = (80, 86, 89, 90)
FORMAT = "rungemm-compile-1"


@dataclass(frozen=True)
class FunctionRef:
    """Where a jitted function is defined: enough for another process to find it."""

    module: str
    qualname: str
    path: str

    @staticmethod
    def of(function: Any) -> FunctionRef:
        path = os.path.abspath(function.fn.__code__.co_filename)
        name = function.fn.__qualname__
        if "<locals>" in name:
            raise CompileError(f"kernel {name} is defined inside a function: move it to the top level of {path}")
        if not os.path.exists(path):
            raise CompileError(f"kernel {name} is not in a file ({path}): write it to a .py file and import it")
        return FunctionRef(function.fn.__module__, name, path)

    def load(self) -> Any:
        """The function, imported by module name if that leads to the same file, else from the file itself."""
        value: Any = self._module()
        for part in self.qualname.split("."):
            value = getattr(value, part)
        return value

    def _module(self) -> Any:
        # A script's "__main__" is this process's main module in the parent only.
        if self.module != "__main__":
            try:
                module = importlib.import_module(self.module)
                if os.path.samefile(getattr(module, "__file__", None) or "", self.path):
                    return module
            except (ImportError, OSError):
                pass
        alias = "rungemm_user_" + hashlib.sha256(self.path.encode()).hexdigest()[:12]
        if alias not in sys.modules:
            spec = importlib.util.spec_from_file_location(alias, self.path)
            if spec is None or spec.loader is None:
                raise ImportError(f"{self.path} is not a Python file")
            module = importlib.util.module_from_spec(spec)
            sys.modules[alias] = module
            try:
                spec.loader.exec_module(module)
            except BaseException:
                del sys.modules[alias]
                raise
        return sys.modules[alias]


@dataclass(frozen=True)
class Request:
    """What a child compiles. ``constexprs`` and ``attrs`` are by parameter index, as Triton takes them.

    ``key`` names the result: SHA-256 over everything the machine code depends on.
    """

    function: FunctionRef
    fingerprint: str
    arch: int
    signature: tuple[tuple[str, str], ...]
    constexprs: tuple[tuple[int, Any], ...]
    attrs: tuple[int, ...]
    options: tuple[tuple[str, Any], ...]
    environment: tuple[tuple[str, str], ...]
    key: str

    @property
    def title(self) -> str:
        return f"{self.function.qualname} for sm_{self.arch}"


def request_of(launch: Launch, arch: int) -> Request:
    """The compilation that a launch needs.

    Raises:
        CompileError: an architecture not supported, TMA before sm_90, arguments that do not match the function's
            parameters, or a function that another process could not find.
    """
    function = launch.function
    name = function.fn.__qualname__
    if arch not in SUPPORTED_ARCHS:
        raise CompileError(f"sm_{arch} is not supported: use one of {', '.join(map(str, SUPPORTED_ARCHS))}")
    if arch < 90 and any(isinstance(argument, Descriptor) for _, argument in launch.arguments):
        raise CompileError(f"{name} takes TMA descriptors: it needs sm_90, not sm_{arch}")
    given = [parameter for parameter, _ in (*launch.arguments, *launch.constants)]
    if given != list(function.arg_names):
        odd = [n for n in given if n not in function.arg_names] + [n for n in function.arg_names if n not in given]
        at = next((n for n, p in zip(given, function.arg_names, strict=False) if n != p), "the last")
        problem = f"{', '.join(odd)} on one side only" if odd else f"the order differs from {at} on"
        raise CompileError(f"{name}: the plan's arguments are not the function's parameters: {problem}")

    signature = []
    constexprs: list[tuple[int, Any]] = []
    attrs = []
    for index, (parameter, argument) in enumerate(launch.arguments):
        signature.append((parameter, argument.signature))
        if isinstance(argument, Scalar) and argument.is_one:
            constexprs.append((index, 1))
        elif getattr(argument, "divisible", False):
            attrs.append(index)
    for index, (parameter, value) in enumerate(launch.constants, len(launch.arguments)):
        signature.append((parameter, "constexpr"))
        constexprs.append((index, value))
    # Said outright, since Triton 3.9 warns that fusing multiply and add is no longer to be the default.
    options: dict[str, Any] = {"num_warps": launch.num_warps, "enable_fp_fusion": True}
    if launch.max_registers is not None:
        options["maxnreg"] = launch.max_registers

    source = fingerprint(function)
    environment = compiler_environment()
    depends_on = {
        "format": FORMAT,
        "compiler": compiler_stamp(),
        "function": [name, source],
        "arch": arch,
        "signature": signature,
        "constexprs": [(index, describe_value(value)) for index, value in constexprs],
        "attrs": attrs,
        "options": options,
        "environment": environment,
    }
    key = hashlib.sha256(json.dumps(depends_on, sort_keys=True).encode()).hexdigest()
    return Request(
        function=FunctionRef.of(function),
        fingerprint=source,
        arch=arch,
        signature=tuple(signature),
        constexprs=tuple((index, _portable(value)) for index, value in constexprs),
        attrs=tuple(attrs),
        options=tuple(options.items()),
        environment=tuple(environment.items()),
        key=key,
    )


def _portable(value: Any) -> Any:
    """A constant with jitted functions replaced by references, which a pipe can carry."""
    if isinstance(value, JITCallable):
        return FunctionRef.of(value)
    if type(value) in (list, tuple):
        return type(value)(_portable(item) for item in value)
    return value


def resolved(value: Any) -> Any:
    """The inverse of :func:`_portable`, in the child."""
    if isinstance(value, FunctionRef):
        return value.load()
    if type(value) in (list, tuple):
        return type(value)(resolved(item) for item in value)
    return value
