"""Kernel source, run as it stands: the kernel's own Python function with every name in it translated.

A ``@gluon.jit`` function is a Python function that the compiler reads and nobody calls. Here it is called: a new
function is made from its code object, with globals in which Gluon's builtins are our operations on NumPy, modules are
proxies that translate what is looked up in them, other jitted functions are translated likewise, and compile-time
constants are plain values. Source lines stay native, so every fault names the kernel's own line. Nothing of Triton is
patched, and builtins are recognised by identity, so aliases and renamed imports do not matter.
"""

from __future__ import annotations

import builtins
import dis
import functools
import types
from collections.abc import Callable, Iterable
from typing import Any

from ..compat import (
    aggregate_source,
    constexpr,
    gl,
    gluon_builtins,
    is_aggregate,
    is_builtin,
    is_constexpr_function,
    is_jit,
)
from .asynchronous import ASYNCHRONOUS
from .faults import SOURCES, NotSimulated, fault_at
from .operations import SYNCHRONOUS, builtin_max, builtin_min
from .scalars import Constant, IntScalar, divisor, is_constant, is_scalar, make_scalar
from .tile import Tile
from .types import I32, promote

__all__ = ["Translation", "translate_kernel"]


class _ConstexprMeta(type):
    """``gl.constexpr`` in a kernel: a call returns the plain value, an instance check asks for compile-time values."""

    def __call__(cls, value: Any) -> Any:
        return value

    def __instancecheck__(cls, value: Any) -> bool:
        return not (is_scalar(value) or isinstance(value, Tile))


class Constexpr(metaclass=_ConstexprMeta):
    """Stands for ``gl.constexpr``."""


def runtime_range(*bounds: Any, **_: Any) -> Iterable[Any]:
    """``range`` of a kernel's loop: its variable is a runtime int32 even when the bounds are constants."""
    start, stop, step = (0, bounds[0], 1) if len(bounds) == 1 else (*bounds, 1) if len(bounds) == 2 else bounds
    for bound in (start, stop, step):
        if not isinstance(bound, int):
            raise fault_at("type-error", f"range() takes integers, not {type(bound).__name__}")
    if step == 0:
        raise fault_at("kernel-error", "range() with a step of 0")
    kind = I32
    for bound in (start, stop, step):
        if is_scalar(bound):
            kind = promote(kind, bound.type_)
    known = min(divisor(start), divisor(step))
    for value in range(int(start), int(stop), int(step)):
        scalar = make_scalar(value, kind)
        scalar.divisor = known
        yield scalar


def static_range(*bounds: Any) -> Iterable[int]:
    """``gl.static_range``: unrolled, so its variable is a compile-time number."""
    for bound in bounds:
        if not is_constant(bound):
            raise fault_at("type-error", "static_range() takes compile-time numbers: use range()")
    return range(*bounds)


def _int(value: Any = 0) -> Any:
    return value if isinstance(value, IntScalar) else int(value)


def _print(*_: Any, **__: Any) -> None:
    return None


_BUILTINS: dict[str, Any] = {**vars(builtins), "min": builtin_min, "max": builtin_max, "range": runtime_range,
                             "print": _print, "int": _int}  # fmt: skip

SOURCES.builtins = _BUILTINS

_SPECIAL: dict[str, Any] = {"static_range": static_range, "range": runtime_range}


class ModuleProxy:
    """A module as a kernel sees it: attributes are translated when looked up."""

    def __init__(self, module: types.ModuleType, translation: Translation) -> None:
        self.__dict__["_module"] = module
        self.__dict__["_translation"] = translation

    def __getattr__(self, name: str) -> Any:
        module = self.__dict__["_module"]
        try:
            value = getattr(module, name)
        except AttributeError:
            raise fault_at("kernel-error", f"module {module.__name__} has no {name}") from None
        translated = self.__dict__["_translation"].value(value, f"{module.__name__}.{name}")
        self.__dict__[name] = translated
        return translated


class Translation:
    """Translates kernels, once each.

    ``uses`` gathers the names of the simulated builtins that the translated code mentions: what says whether a kernel
    has anything asynchronous, or an atomic, in it.
    """

    def __init__(self) -> None:
        self._done: dict[int, Any] = {}
        self._keep: list[Any] = []  # ids stay valid while their objects live
        self.builtins = {id(k): (name, k) for name, k in gluon_builtins()}
        self.operations = {**SYNCHRONOUS, **ASYNCHRONOUS, **_SPECIAL}
        self.globals_of: dict[int, dict[str, Any]] = {}

    def value(self, value: Any, name: str = "") -> Any:
        """What a name bound to ``value`` means in a simulated kernel."""
        if isinstance(value, (bool, int, float, str, type(None))):
            return value
        if isinstance(value, constexpr):
            return self.value(value.value, name)
        if isinstance(value, tuple) and type(value) is tuple:
            return tuple(self.value(v, name) for v in value)
        if isinstance(value, list):
            return [self.value(v, name) for v in value]
        key = id(value)
        found = self._done.get(key)
        if found is None:
            found = self._translate(value, name)
            self._done[key] = found
            self._keep.append(value)
        return found

    def _translate(self, value: Any, name: str) -> Any:
        known = self.builtins.get(id(value))
        if known is not None:
            operation = self.operations.get(known[0])
            if operation is not None:
                return operation
        if value is constexpr:
            return Constexpr
        if isinstance(value, types.ModuleType):
            return ModuleProxy(value, self)
        if is_jit(value):
            return self.function(value.fn)
        if is_constexpr_function(value):
            return _compile_time(value.fn)
        if is_aggregate(value):
            return self.aggregate(value)
        if is_builtin(value):
            return _refuse(name or getattr(value, "__name__", str(value)))
        if value is builtins.min or value is builtins.max or value is builtins.range:
            return _BUILTINS[value.__name__]
        return value

    def function(self, function: Any) -> Callable[..., Any]:
        """The twin of a raw Python function: same code, translated names."""
        key = id(function.__code__)
        twin = self._done.get(key)
        if twin is not None and isinstance(twin, types.FunctionType):
            return twin
        names: dict[str, Any] = {"__builtins__": _BUILTINS, "__name__": function.__module__}
        closure = None
        if function.__closure__ is not None:
            closure = tuple(types.CellType() for _ in function.__closure__)
        code = soften(function.__code__, names)
        twin = types.FunctionType(code, names, function.__name__, None, closure)
        # Registered before its names are translated: functions may call themselves or each other.
        self._done[key] = twin
        self._keep.append(function.__code__)
        twin.__defaults__ = self.value(function.__defaults__) if function.__defaults__ else None
        if function.__kwdefaults__:
            twin.__kwdefaults__ = {k: self.value(v, k) for k, v in function.__kwdefaults__.items()}
        for name in _names_in(function.__code__):
            if name in function.__globals__:
                names[name] = self.value(function.__globals__[name], name)
        if closure is not None:
            for cell, source in zip(closure, function.__closure__, strict=True):
                try:
                    cell.cell_contents = self.value(source.cell_contents)
                except ValueError:  # an empty cell
                    continue
        return twin

    def aggregate(self, wrapped: Any) -> type:
        """A plain class with the methods of a Gluon aggregate, translated."""
        source = aggregate_source(wrapped)
        members: dict[str, Any] = {}
        for klass in reversed(source.__mro__[:-1]):
            for name, member in vars(klass).items():
                if is_jit(member):
                    members[name] = self.function(member.fn)
                elif is_constexpr_function(member):
                    members[name] = _compile_time(member.fn)
                elif isinstance(member, types.FunctionType):
                    members[name] = self.function(member)
                elif isinstance(member, property) and member.fget is not None:
                    getter: Any = member.fget
                    members[name] = property(self.function(getter.fn if is_jit(getter) else getter))
                elif isinstance(member, staticmethod):
                    inner: Any = member.__func__
                    members[name] = staticmethod(self.function(inner.fn if is_jit(inner) else inner))
                elif not name.startswith("__"):
                    members[name] = self.value(member, name)
        fields = tuple(getattr(source, "__annotations__", {}))
        own_init = members.get("__init__")

        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            if own_init is not None:
                own_init(self, *args, **kwargs)
            for field in fields:
                if not hasattr(self, field):
                    raise fault_at("kernel-error", f"{source.__name__}.__init__ leaves the field {field} unset")

        def set_field(self: Any, name: str, value: Any) -> None:
            if name not in fields:
                raise fault_at("kernel-error", f"{source.__name__} has no field {name}: annotate it in the class")
            object.__setattr__(self, name, _plain(value))

        members["__init__"] = init
        members["__setattr__"] = set_field
        return type(source.__name__, (), members)


def soften(code: types.CodeType, names: dict[str, Any]) -> types.CodeType:
    """The same code, its integer literals as :class:`Constant`: ``slot = 0`` may start a loop's runtime variable."""
    constants: list[Any] = []
    for constant in code.co_consts:
        if type(constant) is int:
            constants.append(Constant(constant))
        elif isinstance(constant, types.CodeType):
            constants.append(soften(constant, names))
        else:
            constants.append(constant)
    softened = _without_small_ints(code, constants).replace(co_consts=tuple(constants))
    SOURCES.add(softened, names)
    return softened


def _without_small_ints(code: types.CodeType, constants: list[Any]) -> types.CodeType:
    """Python 3.14 puts small integers into the instruction itself: point it at a constant instead."""
    small = dis.opmap.get("LOAD_SMALL_INT")
    if small is None:
        return code
    raw = bytearray(code.co_code)
    for instruction in dis.get_instructions(code):
        if instruction.opcode == small:
            if len(constants) > 255:
                return code
            raw[instruction.offset] = dis.opmap["LOAD_CONST"]
            raw[instruction.offset + 1] = len(constants)
            constants.append(Constant(instruction.arg or 0))
    return code.replace(co_code=bytes(raw))


def _names_in(code: types.CodeType) -> set[str]:
    """Global names that a code object and the functions inside it may look up."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names_in(constant)
    return names


def _plain(value: Any) -> Any:
    """A compile-time value without its wrapping."""
    return value.value if isinstance(value, constexpr) else value


def _compile_time(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of the compile-time world: plain Python, as it stands; its result is a plain value."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return _plain(function(*args, **kwargs))

    return call


def _refuse(name: str) -> Callable[..., Any]:
    def refused(*_: Any, **__: Any) -> Any:
        raise NotSimulated("not-simulated", f"{name} is not simulated", SOURCES.here())

    return refused


_translation: Translation | None = None


def translate_kernel(kernel: Any) -> Callable[..., Any]:
    """The callable twin of a ``@gluon.jit`` function.

    Raises:
        TypeError: it is not one.
    """
    global _translation
    if not is_jit(kernel):
        raise TypeError(f"{kernel!r} is not a @gluon.jit function")
    if _translation is None:
        _translation = Translation()
    return _translation.function(kernel.fn)


def operations_reached(kernel: Any) -> set[str]:
    """Gluon's names of all builtins that a kernel or anything it calls may use, found without running it."""
    table = {id(k): name for name, k in gluon_builtins()}
    seen: set[int] = set()
    found: set[str] = set()

    def visit(value: Any, depth: int) -> None:
        if id(value) in seen or depth > 30:
            return
        seen.add(id(value))
        if id(value) in table:
            found.add(table[id(value)])
        elif is_jit(value):
            visit_function(value.fn, depth)
        elif is_aggregate(value):
            for klass in aggregate_source(value).__mro__[:-1]:
                for member in vars(klass).values():
                    inner: Any = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
                    inner = inner.fn if is_jit(inner) else inner
                    if isinstance(inner, types.FunctionType):
                        visit_function(inner, depth)

    def visit_function(function: Any, depth: int) -> None:
        names = _names_in(function.__code__)
        for name in names:
            value = function.__globals__.get(name)
            if isinstance(value, types.ModuleType):
                _visit_module(value, names, depth)
            elif value is not None:
                visit(value, depth + 1)
        for cell in function.__closure__ or ():
            try:
                visit(cell.cell_contents, depth + 1)
            except ValueError:
                continue

    def _visit_module(module: types.ModuleType, names: set[str], depth: int) -> None:
        # Attributes are among the code's names too.
        for name in names:
            value = vars(module).get(name)
            if isinstance(value, types.ModuleType) and id(value) not in seen:
                _visit_module(value, names, depth)
            elif value is not None and not isinstance(value, types.ModuleType):
                visit(value, depth + 1)

    if not is_jit(kernel):
        raise TypeError(f"{kernel!r} is not a @gluon.jit function")
    visit(kernel, 0)
    return found


__all__ += ["gl", "operations_reached"]
