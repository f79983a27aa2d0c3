"""What a kernel's machine code depends on in Python source: itself, all it calls, every constant it names.

Triton's own ``cache_key`` leaves out constants reached through a module (``common.WIDTH``) and remembers its first
answer for good. This one is computed anew each time, from the source's names resolved as they are NOW, so a changed
global gives another fingerprint.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import types
from typing import Any

from ..compat import JITCallable, constexpr

__all__ = ["describe_value", "fingerprint"]

_MISSING = object()


def fingerprint(function: Any) -> str:
    """SHA-256 (hex) of a ``@gluon.jit`` function's source, of what it calls, and of the globals they name."""
    parts: list[str] = []
    _visit_function(function, parts, set())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def describe_value(value: Any) -> str:
    """A compile-time value as text that two values share only if they compile alike."""
    parts: list[str] = []
    _visit_value(value, parts, set())
    return "\0".join(parts)


def _visit_function(function: Any, parts: list[str], seen: set[int]) -> None:
    if id(function) in seen:
        return
    seen.add(id(function))
    # The line is in the debug information, which per-line reports read back from the cubin.
    parts.append(f"function {function.__qualname__} line {function.starting_line_number}")
    parts.append(function.src)
    parts.append(f"noinline={getattr(function, 'noinline', None)} debug={getattr(function, 'debug', None)}")
    scope = {**function.fn.__globals__, **_closure(function.fn)}
    for chain in _names_in(function.src):
        value, rest = scope.get(chain[0], _MISSING), chain[1:]
        while rest and isinstance(value, (types.ModuleType, type)):
            value, rest = getattr(value, rest[0], _MISSING), rest[1:]
        if value is not _MISSING:
            parts.append(".".join(chain))
            _visit_value(value, parts, seen)


@functools.lru_cache(maxsize=4096)
def _names_in(source: str) -> tuple[tuple[str, ...], ...]:
    """Dotted names that a function's source reads, in order, each once."""
    found: dict[tuple[str, ...], None] = {}
    inner: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if id(node) in inner:
            continue
        chain: list[str] = []
        walk: ast.AST = node
        while isinstance(walk, ast.Attribute):
            chain.append(walk.attr)
            walk = walk.value
            inner.add(id(walk))
        if isinstance(walk, ast.Name):
            found[tuple([walk.id, *reversed(chain)])] = None
    return tuple(found)


def _closure(function: Any) -> dict[str, Any]:
    cells = function.__closure__ or ()
    return {name: cell.cell_contents for name, cell in zip(function.__code__.co_freevars, cells, strict=True)}


def _visit_value(value: Any, parts: list[str], seen: set[int]) -> None:
    if isinstance(value, JITCallable):
        _visit_function(value, parts, seen)
    elif isinstance(value, (list, tuple)):
        parts.append(f"{type(value).__name__} of {len(value)}")
        for item in value:
            _visit_value(item, parts, seen)
    elif isinstance(value, dict):
        parts.append(f"dict of {len(value)}")
        for key, item in value.items():
            parts.append(repr(key))
            _visit_value(item, parts, seen)
    elif isinstance(value, types.ModuleType):
        parts.append(f"module {value.__name__}")
    elif isinstance(value, constexpr):
        parts.append("constexpr")
        _visit_value(value.value, parts, seen)
    elif isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType)):
        _visit_callable(value, parts, seen)
    else:
        text = repr(value)
        # A default repr holds an address, new in every process: the type is all that can be said.
        parts.append(f"{type(value).__module__}.{type(value).__qualname__}" + ("" if " at 0x" in text else f" {text}"))


def _visit_callable(value: Any, parts: list[str], seen: set[int]) -> None:
    """A class or a plain function: by name if it is Triton's or Python's own, by source if it is anyone else's."""
    module = getattr(value, "__module__", None) or "builtins"
    parts.append(f"{module}.{getattr(value, '__qualname__', type(value).__qualname__)}")
    if id(value) in seen or module.partition(".")[0] in ("triton", "builtins"):
        return
    seen.add(id(value))
    try:
        parts.append(inspect.getsource(value))
    except (OSError, TypeError):
        parts.append("no source")
    # An aggregate's methods are jitted functions with dependencies of their own.
    members = [member for _, member in sorted(getattr(value, "__dict__", {}).items())]
    for member in (*members, *getattr(value, "hash_attrs", ())):
        if isinstance(member, JITCallable):
            _visit_function(member, parts, seen)


