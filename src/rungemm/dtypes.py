"""Element types, named once, and what each layer calls them.

A :class:`DType` is plain data: no torch, no triton. NumPy has no bfloat16 or fp8 of its own, so those come
from ``ml_dtypes``.
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

__all__ = ["BF16", "DTYPES", "FP8_E4M3", "FP8_E5M2", "FP16", "FP32", "FP64", "INT8", "INT32", "DType", "dtype_named"]


@dataclass(frozen=True)
class DType:
    """One element type.

    ``epsilon`` is the distance from 1 to the next number (0 for integers); ``triton`` is the name in a compile
    signature and ``torch`` the attribute of the ``torch`` module.
    """

    name: str
    bits: int
    triton: str
    torch: str
    epsilon: float

    @property
    def bytes(self) -> int:
        """Bytes of one element."""
        return self.bits // 8

    @property
    def numpy(self) -> np.dtype:
        """The NumPy type that holds it."""
        return _NUMPY[self.name]

    @property
    def is_integer(self) -> bool:
        return self.epsilon == 0

    def __str__(self) -> str:
        return self.name


FP64 = DType("fp64", 64, "fp64", "float64", 2.0**-52)
FP32 = DType("fp32", 32, "fp32", "float32", 2.0**-23)
FP16 = DType("fp16", 16, "fp16", "float16", 2.0**-10)
BF16 = DType("bf16", 16, "bf16", "bfloat16", 2.0**-7)
FP8_E4M3 = DType("fp8e4m3", 8, "fp8e4nv", "float8_e4m3fn", 2.0**-3)
FP8_E5M2 = DType("fp8e5m2", 8, "fp8e5", "float8_e5m2", 2.0**-2)
INT8 = DType("int8", 8, "i8", "int8", 0.0)
INT32 = DType("int32", 32, "i32", "int32", 0.0)

DTYPES: dict[str, DType] = {d.name: d for d in (FP64, FP32, FP16, BF16, FP8_E4M3, FP8_E5M2, INT8, INT32)}

_NUMPY: dict[str, np.dtype] = {
    "fp64": np.dtype(np.float64),
    "fp32": np.dtype(np.float32),
    "fp16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "fp8e4m3": np.dtype(ml_dtypes.float8_e4m3fn),
    "fp8e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "int8": np.dtype(np.int8),
    "int32": np.dtype(np.int32),
}

_ALIASES = {d.torch: d.name for d in DTYPES.values()} | {str(n): k for k, n in _NUMPY.items()}


def dtype_named(name: object) -> DType:
    """The :class:`DType` of a name ("fp32"), a NumPy dtype or a torch dtype.

    Raises:
        ValueError: the type is none of ours; the message lists those that are.
    """
    if isinstance(name, DType):
        return name
    text = str(name).removeprefix("torch.")
    found = DTYPES.get(_ALIASES.get(text, text))
    if found is None:
        raise ValueError(f"dtype {text} is not supported: use one of {', '.join(DTYPES)}")
    return found
