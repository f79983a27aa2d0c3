"""What a compiled kernel is handed at launch: the bytes of its parameters, laid out once, pointers filled in later.

A kernel made by Triton takes, in order: each argument that was not compiled in (a TMA descriptor is its 128-byte map,
then its shape as 32-bit and its strides as 64-bit integers), then two scratch pointers. Tests compare this with the
parameter table in the cubin itself.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..compiling import Compiled
from ..kernels.plan import Descriptor, Launch, Pointer, Scalar
from ..problem import ProblemError
from .driver import TENSOR_MAP_ALIGNMENT, TENSOR_MAP_BYTES

__all__ = ["Field", "ParameterBlock", "TensorMap", "fields_of"]

_FORMATS = {"i32": "<i", "i64": "<q", "fp32": "<f"}

# cuda.h's CUtensorMapDataType. TMA moves one-byte types as plain bytes.
_ELEMENT_TYPES = {"fp8e4m3": 0, "fp8e5m2": 0, "int8": 0, "int32": 3, "fp16": 6, "fp32": 7, "fp64": 8, "bf16": 9}
_TFLOAT32 = 11


@dataclass(frozen=True)
class Field:
    """One kernel parameter: its size in bytes, and its value if that is known before the launch."""

    size: int
    value: bytes | None = None


@dataclass(frozen=True)
class TensorMap:
    """What the driver is asked to encode for a descriptor, all but the address."""

    element_type: int
    element_bytes: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int


def fields_of(launch: Launch) -> list[tuple[str, Field]]:
    """A launch's kernel parameters in order, by name; the scratch pointers come last."""
    fields: list[tuple[str, Field]] = []
    for name, argument in launch.arguments:
        if isinstance(argument, Pointer):
            fields.append((name, Field(8)))
        elif isinstance(argument, Scalar):
            if not argument.is_one:
                # c_float: beyond fp32 is infinity, which struct refuses.
                number = ctypes.c_float(argument.value).value if argument.kind == "fp32" else argument.value
                value = struct.pack(_FORMATS[argument.kind], number)
                fields.append((name, Field(len(value), value)))
        else:
            fields.append((name, Field(TENSOR_MAP_BYTES)))
            for axis, extent in enumerate(argument.shape):
                # TMA's extents go up to 2^32 and are unsigned.
                fields.append((f"{name}.shape[{axis}]", Field(4, struct.pack("<I", extent))))
            for axis, stride in enumerate(argument.strides):
                fields.append((f"{name}.strides[{axis}]", Field(8, struct.pack("<q", stride))))
    fields.append(("global_scratch", Field(8)))
    fields.append(("profile_scratch", Field(8, bytes(8))))
    return fields


def tensor_maps_of(launch: Launch, compiled: Compiled) -> dict[str, TensorMap]:
    """What to encode for each descriptor argument; the box and the swizzle are the compiler's."""
    descriptors = [(name, argument) for name, argument in launch.arguments if isinstance(argument, Descriptor)]
    recorded = compiled.metadata.get("tensordesc_meta") or []
    if len(recorded) != len(descriptors):
        raise RuntimeError(
            f"{compiled.name} has {len(descriptors)} descriptors and Triton recorded {len(recorded)}: "
            "this Triton release passes descriptors in a way rungemm does not know"
        )
    maps = {}
    for (name, argument), record in zip(descriptors, recorded, strict=True):
        rounded = argument.round_to_tf32 and argument.dtype.name == "fp32"
        maps[name] = TensorMap(
            element_type=_TFLOAT32 if rounded else _ELEMENT_TYPES[argument.dtype.name],
            element_bytes=argument.dtype.bytes,
            shape=argument.shape,
            strides=argument.strides,
            box=tuple(record["block_size"]),
            swizzle=record["swizzle"],
        )
    return maps


class ParameterBlock:
    """The bytes of one kernel's parameters and the array of pointers to them that the driver wants.

    Args:
        launch, compiled: the kernel.
        encode: makes a TMA descriptor for an address.

    Attributes:
        holder, held: who filled in the pointers last, and what they were, for launchers that need not do so twice.
    """

    _MAPS_KEPT = 1024
    """The weights of a model's layers that are alike, and their activations: a map takes 5 us to encode."""

    def __init__(self, launch: Launch, compiled: Compiled, encode: Callable[[int, TensorMap], bytes]) -> None:
        fields = fields_of(launch)
        offsets, end = [], 0
        for _, parameter in fields:
            alignment = min(parameter.size, TENSOR_MAP_ALIGNMENT)
            end = -(-end // alignment) * alignment
            offsets.append(end)
            end += parameter.size
        self._space = ctypes.create_string_buffer(end + TENSOR_MAP_ALIGNMENT)
        self._start = -ctypes.addressof(self._space) % TENSOR_MAP_ALIGNMENT
        base = ctypes.addressof(self._space) + self._start
        self._bytes = memoryview(self._space).cast("B")
        self._pointers = (ctypes.c_void_p * len(fields))(*(base + offset for offset in offsets))
        self.address = ctypes.addressof(self._pointers)
        at = {name: self._start + offset for (name, _), offset in zip(fields, offsets, strict=True)}
        for name, parameter in fields:
            if parameter.value is not None:
                self._bytes[at[name] : at[name] + parameter.size] = parameter.value
        self._scratch_at = at["global_scratch"]
        self._plain = [
            (argument.role, at[name], min(argument.alignment, 16))
            for name, argument in launch.arguments
            if isinstance(argument, Pointer)
        ]
        maps = tensor_maps_of(launch, compiled)
        self._described = [
            (argument.role, at[name], maps[name])
            for name, argument in launch.arguments
            if isinstance(argument, Descriptor)
        ]
        self._encode = encode
        self._encoded: dict[tuple[int, int], bytes] = {}
        self.holder: object = None
        self.held: tuple[int, ...] = ()

    def places(self, roles: Sequence[str]) -> tuple[list[tuple[int, int]], list[tuple[int, int, TensorMap]]]:
        """Where pointers (word) and descriptors (byte) go, each with its role's place in ``roles``: for a launcher that
        fills them in itself.

        Raises:
            ProblemError: a role that the kernel reads is not in ``roles``.
        """
        known = {role: place for place, role in enumerate(roles)}
        try:
            plain = [(known[role], (at - self._start) // 8) for role, at, _ in self._plain]
            return plain, [(known[role], at, tensor_map) for role, at, tensor_map in self._described]
        except KeyError as error:
            raise ProblemError(f"the plan reads {error.args[0]}, which was not given: pass an operand") from None

    @property
    def words(self) -> memoryview:
        """The parameters as 64-bit words: a pointer lies in one."""
        return self._bytes[self._start :][: (len(self._bytes) - self._start) // 8 * 8].cast("Q")

    def describe(self, at: int, address: int, tensor_map: TensorMap) -> None:
        """Put in a descriptor of the matrix that begins at ``address``, encoded once for each address."""
        encoded = self._encoded.get((at, address))
        if encoded is None:
            if len(self._encoded) >= self._MAPS_KEPT:
                self._encoded.clear()
            encoded = self._encoded[at, address] = self._encode(address, tensor_map)
        self._bytes[at : at + TENSOR_MAP_BYTES] = encoded

    def fill(self, addresses: Mapping[str, int], scratch: int = 0) -> None:
        """Put in the pointers: the address of the first element of each role.

        Raises:
            ProblemError: a role has no address, or one that is aligned worse than the plan was made for.
        """
        self.holder = None
        for role, at, alignment in self._plain:
            address = self._address(addresses, role)
            if address & (alignment - 1):
                raise _misaligned(role, address, alignment)
            struct.pack_into("<Q", self._bytes, at, address)
        for role, at, tensor_map in self._described:
            address = self._address(addresses, role)
            if address & 15:
                raise _misaligned(role, address, 16)
            self.describe(at, address, tensor_map)
        struct.pack_into("<Q", self._bytes, self._scratch_at, scratch)

    @staticmethod
    def _address(addresses: Mapping[str, int], role: str) -> int:
        try:
            return addresses[role]
        except KeyError:
            raise ProblemError(f"the plan reads {role}, which was not given: pass an operand {role!r}") from None


def _misaligned(role: str, address: int, alignment: int) -> ProblemError:
    return ProblemError(
        f"{role} begins at {address:#x}, and the plan was made for an address that is a multiple of {alignment}: "
        "make a plan for this operand"
    )
