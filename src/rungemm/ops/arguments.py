"""What the public functions ask of their arguments, and the errors that say so."""

from __future__ import annotations

import math
import numbers
from typing import Any

import torch
from torch import Tensor

from ..problem import ACTIVATIONS, Epilogue, ProblemError
from .shapes import overlaps_itself, view_as, words

__all__ = [
    "NARROW", "OURS", "autocast", "bias_of_any", "check_gate", "check_tensors", "check_types", "checked_bias",
    "epilogue_named", "expand_c", "number", "overridden", "refuse_gradient", "target_of", "with_bias",
]  # fmt: skip

OURS = frozenset(
    (torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.float8_e4m3fn, torch.float8_e5m2)
)
NARROW = frozenset((torch.int8, torch.float8_e4m3fn, torch.float8_e5m2))
_OUT_TYPES = {
    torch.int8: (torch.int32, torch.float32),
    **dict.fromkeys(OURS - {torch.int8}, (torch.float32, torch.float16, torch.bfloat16)),
}
_GATED = {"swiglu": "silu", "geglu": "gelu", "geglu_tanh": "gelu_tanh", "reglu": "relu"}
_NEEDED = frozenset(("A", "B", "x", "weight"))
_NOT_OVERRIDDEN = torch._C._disabled_torch_function_impl


def epilogue_named(name: str) -> Epilogue:
    if isinstance(name, str) and name in _GATED:
        return Epilogue(activation=_GATED[name], gated=True)
    if name not in ACTIVATIONS:
        raise ProblemError(f"activation {name!r} is unknown: use one of {', '.join((*ACTIVATIONS, *_GATED))}")
    return Epilogue(activation=name)


def with_bias(epilogue: Epilogue | None, bias: Tensor | None) -> Epilogue | None:
    """The epilogue that adds the bias, along the rows unless it says otherwise."""
    if bias is None:
        if epilogue is not None and epilogue.bias is not None:
            raise ProblemError(f"the epilogue adds a {epilogue.bias} bias but none was given: pass bias=")
        return epilogue
    epilogue = epilogue or Epilogue()
    if epilogue.bias is None:
        epilogue = Epilogue("row", epilogue.activation, epilogue.gated, epilogue.scale)
    return epilogue


def check_tensors(**tensors: Tensor | None) -> None:
    """Every operand that is given is a tensor, of one device; A, B, x and weight must be given."""
    first: tuple[str, Tensor] | None = None
    for name, tensor in tensors.items():
        if tensor is None and name not in _NEEDED:
            continue
        if not isinstance(tensor, Tensor):
            raise ProblemError(f"{name} is a {type(tensor).__name__}: pass a torch.Tensor")
        if first is None:
            first = name, tensor
        elif tensor.device != first[1].device:
            raise ProblemError(
                f"{first[0]} is on {first[1].device} and {name} on {tensor.device}: move them to one device"
            )


def overridden(*tensors: Tensor) -> bool:
    """Whether a tensor's class has torch functions of its own, or holds other tensors (DTensor, quantised weights).

    torch's has_torch_function would also say yes wherever a mode is on, such as a default device, which is no reason to
    compute elsewhere.
    """
    kinds = [type(x) for x in tensors if type(x) is not Tensor]
    return any(k.__torch_function__ is not _NOT_OVERRIDDEN or hasattr(k, "__tensor_flatten__") for k in kinds)


def number(name: str, value: Any) -> float:
    if isinstance(value, numbers.Real):
        try:
            plain = float(value)
        except OverflowError:
            raise ProblemError(f"{name} is beyond float64's range: pass a smaller one, or float('inf')") from None
        # A NaN equals itself as the same object only: one for all keeps what is remembered of it to one entry.
        return plain if plain == plain else math.nan
    if isinstance(value, torch.SymFloat | torch.SymInt):
        return value  # type: ignore[return-value]
    raise ProblemError(f"{name} is a {type(value).__name__}: pass a Python number, e.g. float({name})")


def autocast(*tensors: Tensor | None) -> tuple[Any, ...]:
    """Operands as torch.autocast would hand them to torch.matmul."""
    device = next(x.device.type for x in tensors if x is not None)
    if device not in ("cuda", "cpu") or not torch.is_autocast_enabled(device):
        return tensors
    dtype = torch.get_autocast_dtype(device)
    kinds = (torch.float32, torch.float16, torch.bfloat16)
    return tuple(x.to(dtype) if x is not None and x.dtype in kinds else x for x in tensors)


def check_types(
    a: Tensor, c: Tensor | None, bias: Tensor | None, wanted: torch.dtype, alpha: float, beta: float,
    epilogue: Epilogue | None,
) -> None:  # fmt: skip
    allowed = _OUT_TYPES[a.dtype]
    if wanted not in allowed:
        raise ProblemError(
            f"the result would be {wanted} of {a.dtype} operands: ask for {', '.join(str(x) for x in allowed)}"
        )
    for name, operand in (("C", c), ("bias", bias)):
        if operand is None:
            continue
        if operand.layout != torch.strided:
            raise ProblemError(f"{name} is {operand.layout}: pass a dense one, e.g. {name}.to_dense()")
        if (not operand.dtype.is_floating_point or operand.dtype.itemsize == 1) and wanted != torch.int32:
            raise ProblemError(f"{name} is {operand.dtype}: convert it, e.g. {name}.to({wanted})")
        if operand.dtype.is_complex:
            raise ProblemError(f"{name} is {operand.dtype} and A {a.dtype}: convert one")
    if wanted == torch.int32:
        if alpha not in (0, 1) or beta % 1 != 0 or (epilogue and (epilogue.activation or epilogue.scale != 1)):
            raise ProblemError(
                "an int32 result takes no alpha, a whole beta and no activation: ask for out_dtype=torch.float32"
            )
        for name, operand in (("C", c), ("bias", bias)):
            if operand is not None and operand.dtype != torch.int32:
                raise ProblemError(f"{name} is {operand.dtype} and the result int32: convert it to int32")
    if a.dtype in NARROW and a.requires_grad and torch.is_grad_enabled():
        raise ProblemError(f"A is {a.dtype}, which has no gradient here: detach it, or use bfloat16")


def refuse_gradient(name: str, out: Tensor, *operands: Tensor | None) -> None:
    """``out`` and a gradient do not go together, in torch's words."""
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (out, *operands)):
        raise RuntimeError(
            f"{name}(): functions with out=... arguments don't support automatic differentiation, but one of the "
            "arguments requires grad: call it without out, or under torch.no_grad()"
        )


def expand_c(c: Tensor | None, core: tuple[int, ...], result: tuple[int, ...]) -> Tensor | None:
    if c is None:
        return None
    try:
        full = c.expand(result)
    except RuntimeError:
        raise ProblemError(f"C is {words(c)} and A @ B {'x'.join(map(str, result))}: pass C with that shape") from None
    return full if tuple(full.shape) == core else full.reshape(core)


def checked_bias(bias: Tensor | None, epilogue: Epilogue | None, m: int, n: int) -> Tensor | None:
    if bias is None or epilogue is None:
        return None
    length, what = (n, "N") if epilogue.bias == "row" else (m, "M")
    if bias.dim() != 1 or bias.shape[0] != length:
        raise ProblemError(f"bias is {words(bias)}: a {epilogue.bias} bias has {what} = {length} elements")
    return bias if bias.stride(0) == 1 or length == 1 else bias.contiguous()


def check_gate(epilogue: Epilogue | None, n: int, b: Tensor) -> None:
    if epilogue is not None and epilogue.gated and (n % 2 or b.dim() == 1):
        raise ProblemError(f"N is {n}: a gated epilogue pairs columns j and N/2 + j, so B must have an even number")


def bias_of_any(a: Tensor, b: Tensor, bias: Tensor | None, epilogue: Epilogue | None) -> Tensor | None:
    """The bias, checked before any shapes are (torch checks those)."""
    m, n = (a.shape[-2] if a.dim() > 1 else 1), (b.shape[-1] if b.dim() > 1 else 1)
    check_gate(epilogue, n, b)
    return checked_bias(bias, epilogue, m, n)


def target_of(out: Tensor, result: tuple[int, ...], core: tuple[int, ...]) -> Tensor | None:
    """``out`` in the product's shape, or ``None`` where no view of it has that (it is then copied to)."""
    if out.layout != torch.strided:
        raise ProblemError(f"out is {out.layout}: pass a dense one")
    if tuple(out.shape) != result:
        if out.numel() != 0:
            raise ProblemError(f"out is {words(out)} and the result {'x'.join(map(str, result))}: pass that shape")
        out.resize_(result)
    if overlaps_itself(out):
        raise ProblemError(f"out has strides {tuple(out.stride())}: its elements share memory; pass a dense one")
    if not torch.compiler.is_compiling() and out.is_neg():
        return None
    return view_as(out, core)
