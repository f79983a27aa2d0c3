"""The public functions, in torch's habits. What each computes is the same on every device and in every mode:

``D = cast(scale * act(alpha * A @ B + beta * C + bias))``, or with a gated epilogue
``cast(scale * act(left half of the columns) * right half)``.
"""

from __future__ import annotations

import numbers
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ..problem import ACTIVATIONS, PRECISIONS, Epilogue, ProblemError
from . import launch
from .composed import composed, finished
from .core import product
from .execute import entry_of
from .fallback import default_out_dtype
from .front import Front, at_precision, key_of, long_ways, quick_matmul, remember, take, torch_call
from .rows import training_call
from .shapes import overlaps_itself, pose, view_as, words

__all__ = ["addmm", "bmm", "gemm", "linear", "matmul"]

_OURS = frozenset(
    (torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.float8_e4m3fn, torch.float8_e5m2)
)
_NARROW = frozenset((torch.int8, torch.float8_e4m3fn, torch.float8_e5m2))
_OUT_TYPES = {
    torch.int8: (torch.int32, torch.float32),
    **dict.fromkeys(_OURS - {torch.int8}, (torch.float32, torch.float16, torch.bfloat16)),
}
_GATED = {"swiglu": "silu", "geglu": "gelu", "geglu_tanh": "gelu_tanh", "reglu": "relu"}

_FLOAT32 = torch.float32
_NOT_OVERRIDDEN = torch._C._disabled_torch_function_impl
_TORCHS = frozenset((torch.float32, torch.float16, torch.bfloat16))
"""The types that torch's own functions take as ours do."""


def matmul(a: Tensor, b: Tensor, *, out: Tensor | None = None, precision: str | None = None) -> Tensor:
    """``a @ b`` with torch.matmul's rules: vectors, matrices, batches of any number of dimensions that broadcast.

    Args:
        a: (..., M, K) or (K,). fp32, fp16, bf16; int8 (gives int32) and fp8 (gives bf16); any strides. Other types of
            torch go to torch.
        b: (..., K, N) or (K,), of the same type.
        out: where to write, of the result's shape, or empty (then it is resized). Its type may be fp32, fp16 or bf16
            whatever the operands' are. It may share memory with them.
        precision: for fp32: "ieee", "tf32" (operands rounded to tf32), "tf32x3" (three tf32 products: nearly fp32's
            error); ``None`` follows torch's own setting (``torch.set_float32_matmul_precision``).

    Returns:
        ``out``, or a new tensor.

    Raises:
        ValueError: shapes, types or devices that do not go together; the message names the operand and the remedy.
        RuntimeError: ``out`` with operands that require a gradient, as torch does.
    """
    done = quick_matmul(a, b, out, precision)
    if done is None or type(done) is tuple:
        return _general(a, b, out=out, precision=precision, name="matmul", key=done)
    return done  # type: ignore[return-value]


def bmm(a: Tensor, b: Tensor, *, out: Tensor | None = None, precision: str | None = None) -> Tensor:
    """A batch of products: (B, M, K) @ (B, K, N) -> (B, M, N). As :func:`matmul`, without broadcasting.

    Raises:
        ValueError: an operand is not 3-D, or the batches differ; else as :func:`matmul`.
    """
    _check_tensors(A=a, B=b, out=out)
    key = key_of("bmm", a, b, None, None, out, precision)
    if key is not None and (done := take(key, a, b, None, None, out)) is not None:
        return done
    if a.dim() != 3 or b.dim() != 3 or a.shape[0] != b.shape[0]:
        raise ProblemError(
            f"A is {words(a)} and B is {words(b)}: bmm wants two 3-D batches of equal length; matmul broadcasts"
        )
    return _general(a, b, out=out, precision=precision, name="bmm", fold=False, key=key)


def addmm(
    c: Tensor,
    a: Tensor,
    b: Tensor,
    *,
    alpha: float = 1,
    beta: float = 1,
    out: Tensor | None = None,
    precision: str | None = None,
) -> Tensor:
    """``beta * c + alpha * a @ b``: (M, K) @ (K, N), ``c`` broadcast to (M, N), which may be ``out`` itself.

    ``beta=0`` ignores ``c``, NaN and all; ``alpha=0`` ignores ``a`` and ``b`` likewise.

    Raises:
        ValueError: an operand is not 2-D, or ``c`` does not broadcast; else as :func:`matmul`.
    """
    _check_tensors(C=c, A=a, B=b, out=out)
    alpha, beta = _number("alpha", alpha), _number("beta", beta)
    key = key_of("addmm", a, b, c, None, out, precision, alpha, beta)
    if key is not None and (done := take(key, a, b, c, None, out)) is not None:
        return done
    if a.dim() != 2 or b.dim() != 2:
        raise ProblemError(f"A is {words(a)} and B is {words(b)}: addmm wants matrices; gemm takes batches")
    return _general(a, b, c, alpha=alpha, beta=beta, out=out, precision=precision, name="addmm", key=key)


def gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float | None = None,
    bias: Tensor | None = None,
    epilogue: Epilogue | str | None = None,
    scale_a: Tensor | float | None = None,
    scale_b: Tensor | float | None = None,
    out: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    precision: str | None = None,
    deterministic: bool = True,
) -> Tensor:
    """``epilogue(alpha * a @ b + beta * c)``: everything that the library can do in one call.

    In this order: the product, times ``alpha`` and the scales; plus ``beta * c``; plus ``bias``; the activation, or
    with a gated epilogue ``act(left half) * right half`` of the columns; times ``epilogue.scale``; rounding to the
    result's type.

    Args:
        a, b: as for :func:`matmul`.
        c: broadcast to the product's shape (before a gate halves it).
        alpha, beta: numbers; ``beta`` is 1 where ``c`` is given and 0 where not, unless said. 0 ignores its operand.
        bias: N elements, added to every row; M elements, one for each row, if ``epilogue.bias`` is "col".
        epilogue: a :class:`rungemm.Epilogue`, or the name of an activation: "relu", "gelu" (by erf), "gelu_tanh",
            "silu", or of a gate: "swiglu", "geglu", "geglu_tanh", "reglu".
        scale_a, scale_b: for int8 and fp8 operands: what their elements stand for, a number or a tensor of one element,
            or of M x 1 for ``a`` and 1 x N for ``b``.
        out: as for :func:`matmul`.
        out_dtype: the type of a new result: fp32, fp16 or bf16; int32 or fp32 for int8.
        precision: as for :func:`matmul`.
        deterministic: the same bits in every call. Every kernel here is, so ``False`` changes nothing yet.

    Raises:
        ValueError: as :func:`matmul`; also a bias, an epilogue or scales that do not fit.
        RuntimeError: as :func:`matmul`.
    """
    if isinstance(epilogue, str):
        epilogue = _epilogue_named(epilogue)
    elif epilogue is not None and not isinstance(epilogue, Epilogue):
        raise ProblemError(f"epilogue is a {type(epilogue).__name__}: pass a rungemm.Epilogue or an activation's name")
    if beta is None:
        beta = 0.0 if c is None else 1.0
    if scale_a is not None or scale_b is not None:
        return _scaled(a, b, c, alpha, beta, bias, epilogue, scale_a, scale_b, out, out_dtype)
    _check_tensors(A=a, B=b, C=c, bias=bias, out=out)
    alpha, beta = _number("alpha", alpha), _number("beta", beta)
    key = key_of("gemm", a, b, c, bias, out, precision, alpha, beta, epilogue, out_dtype)
    if key is not None and (done := take(key, a, b, c, bias, out)) is not None:
        return done
    return _general(
        a, b, c, alpha=alpha, beta=beta, bias=bias, epilogue=epilogue, out=out, out_dtype=out_dtype,
        precision=precision, name="gemm", key=key,
    )  # fmt: skip


def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    activation: str | None = None,
    *,
    precision: str | None = None,
) -> Tensor:
    """``act(x @ weight.T + bias)``, torch.nn.functional.linear with the activation in the same call.

    Args:
        x: (..., K).
        weight: (N, K), or (K,).
        bias: (N,), or ``None``.
        activation: ``None`` or a name as :func:`gemm` has them; a gate halves the result's last dimension.
        precision: as for :func:`matmul`.

    Raises:
        ValueError: as :func:`gemm`.
    """
    _check_tensors(x=x, weight=weight, bias=bias)
    key = key_of("linear", x, weight, None, bias, None, precision, activation)
    if key is not None and (done := take(key, x, weight, None, bias, None)) is not None:
        return done
    if weight.dim() not in (1, 2):
        raise ProblemError(f"weight is {words(weight)}: linear wants (N, K), one row for each output feature")
    epilogue = _epilogue_named(activation) if activation is not None else None
    columns = weight.mT if weight.dim() == 2 else weight
    return _general(x, columns, bias=bias, epilogue=epilogue, precision=precision, name="linear", key=key)


def _epilogue_named(name: str) -> Epilogue:
    if name in _GATED:
        return Epilogue(activation=_GATED[name], gated=True)
    if name not in ACTIVATIONS:
        raise ProblemError(f"activation {name!r} is unknown: use one of {', '.join((*ACTIVATIONS, *_GATED))}")
    return Epilogue(activation=name)


def _with_bias(epilogue: Epilogue | None, bias: Tensor | None) -> Epilogue | None:
    """The epilogue that adds the bias, along the rows unless it says otherwise."""
    if bias is None:
        if epilogue is not None and epilogue.bias is not None:
            raise ProblemError(f"the epilogue adds a {epilogue.bias} bias but none was given: pass bias=")
        return epilogue
    epilogue = epilogue or Epilogue()
    if epilogue.bias is None:
        epilogue = Epilogue("row", epilogue.activation, epilogue.gated, epilogue.scale)
    return epilogue


def _check_tensors(**tensors: Tensor | None) -> None:
    first: tuple[str, Tensor] | None = None
    for name, tensor in tensors.items():
        if tensor is None:
            continue
        if not isinstance(tensor, Tensor):
            raise ProblemError(f"{name} is a {type(tensor).__name__}: pass a torch.Tensor")
        if first is None:
            first = name, tensor
        elif tensor.device != first[1].device:
            raise ProblemError(
                f"{first[0]} is on {first[1].device} and {name} on {tensor.device}: move them to one device"
            )


def _general(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    bias: Tensor | None = None,
    epilogue: Epilogue | None = None,
    out: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    precision: str | None = None,
    name: str,
    fold: bool = True,
    key: tuple[object, ...] | None = None,
) -> Tensor:
    """Every call that is not short: check, cast, pose, multiply, and give the result its shape."""
    _check_tensors(A=a, B=b, C=c, bias=bias, out=out)
    alpha, beta = _number("alpha", alpha), _number("beta", beta)
    if beta == 0:
        # A C that wants a gradient has one, of zeros, as in torch; it is not read.
        c = c if c is not None and c.requires_grad and torch.is_grad_enabled() else None
    elif c is None:
        raise ProblemError(f"beta is {beta} but no C was given: pass C, or beta=0")
    if precision is not None and precision not in PRECISIONS:
        raise ProblemError(f"precision {precision!r} is unknown: use one of {', '.join(PRECISIONS)}")
    if out is None:
        a, b, c, bias = _autocast(a, b, c, bias)
    elif torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (a, b, c, bias, out)):
        raise RuntimeError(
            f"{name}(): functions with out=... arguments don't support automatic differentiation, but one of the "
            "arguments requires grad: call it without out, or under torch.no_grad()"
        )
    if a.dtype != b.dtype:
        raise ProblemError(f"A is {a.dtype} and B is {b.dtype}: convert one, e.g. B.to({a.dtype})")
    epilogue = _with_bias(epilogue, bias)
    wanted = out.dtype if out is not None else out_dtype or default_out_dtype(a.dtype)
    if out is not None and out_dtype is not None and out_dtype != out.dtype:
        raise ProblemError(f"out is {out.dtype} and out_dtype {out_dtype}: pass one of the two")
    if a.dtype not in _OURS or a.layout != torch.strided or _overridden(a, b):
        return composed(a, b, c, _bias_of_any(a, b, bias, epilogue), alpha, beta, epilogue, out, out_dtype)
    _check_types(a, c, bias, wanted, alpha, beta, epilogue)
    posed = pose(a, b, fold=fold and not (epilogue is not None and epilogue.bias == "col"))
    m, n = posed.core[-2:]
    _check_gate(epilogue, n, b)
    core_c = _expand_c(c, posed.core, posed.result)
    dense_bias = _checked_bias(bias, epilogue, m if b.dim() == 1 or a.dim() == 1 else posed.result[-2], n)
    gated = epilogue is not None and epilogue.gated
    result = (*posed.result[:-1], n // 2) if gated else posed.result
    core = (*posed.core[:-1], n // 2) if gated else posed.core
    # The key holds out's shape as it was: an empty one has no address yet.
    resized = out is not None and tuple(out.shape) != result
    target = None if out is None else _target(out, result, core)
    kind = precision or "default"
    if forward_ad._current_level >= 0 and a.dtype in _TORCHS:
        # Forward derivatives: torch's own functions carry them, a launch of ours would drop them.
        return composed(a, b, c, bias, alpha, beta, epilogue, out, wanted)
    given, core_operands = (a, b, c, bias), (posed.a, posed.b, core_c, dense_bias)
    may_be_short = launch.on_gpu(a) and (out is None or (target is not None and not resized))
    if not may_be_short or key in long_ways:
        key = None
    if key is not None and torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in given):
        # The first call as all that follow: what autograd keeps is compared when a checkpoint computes again.
        front = _training_front(name, given, core_operands, wanted, result, kind, epilogue)
        remember(key, front)
        if front is not None:
            return front.call(a, b.mT if name == "linear" else b, None, bias, None)
        key = None
    value = product(*core_operands, target, alpha, beta, kind, epilogue, wanted)
    if key is not None:
        _remember(key, name, given, core_operands, value, result, alpha, beta, precision, epilogue)
    if out is None:
        return value if tuple(value.shape) == result else value.view(result)
    if target is None:
        out.copy_(value.view(result))
    return out


def _copied(given: tuple[Any, ...], posed: tuple[Any, ...]) -> bool:
    """Whether an operand was copied on the long way, so that there is no short one."""
    return any(x is not None and x.data_ptr() != y.data_ptr() for x, y in zip(given, posed, strict=True))


def _training_front(
    name: str, given: tuple[Any, ...], posed: tuple[Any, ...], dtype: torch.dtype, result: tuple[int, ...], kind: str,
    epilogue: Epilogue | None,
) -> Front | None:  # fmt: skip
    """The short way for rows times a matrix with a gradient, if there is one."""
    a, b, _, bias = posed
    if name not in ("linear", "matmul") or a.dim() != 2 or given[0].dim() < 2 or given[1].dim() != 2:
        return None
    if _copied(given, posed):
        return None
    # What autograd keeps is V: the product and its bias alone.
    part = None if epilogue is None or epilogue.bias is None else Epilogue(epilogue.bias)
    out = a.new_empty((a.shape[0], b.shape[1]), dtype=dtype)
    entry = entry_of(a.detach(), b.detach(), None, bias, out, 1.0, 0.0, kind, part)
    if not entry.by_torch and entry.at is None:
        return None
    front = Front((*result[:-1], b.shape[1]), dtype, dtype == a.dtype, entry, None)
    front.call = training_call(name, a.detach(), b.detach(), bias, front, kind, epilogue)
    return front


def _remember(
    key: tuple[object, ...], name: str, given: tuple[Any, ...], posed: tuple[Any, ...], value: Tensor,
    result: tuple[int, ...], alpha: float, beta: float, precision: str | None, epilogue: Epilogue | None,
) -> None:  # fmt: skip
    """Keep the short way to this result, or that there is none."""
    if _copied(given, posed):
        remember(key, None)
        return
    a, b, c, bias = posed
    kind = precision or "default"
    call = None
    entry = entry_of(a, b, c, bias, value, alpha, beta, kind, epilogue)
    # torch's own functions want one type for all, and torch.matmul (2.13) fails on some batches with a transposed out.
    one_type = a.dtype in _TORCHS and all(x is None or x.dtype == a.dtype for x in (value, c, bias))
    plain = value.is_contiguous() or given[0].dim() == given[1].dim() == 2 or name == "bmm"
    if entry.by_torch and one_type and plain:
        matrices = name == "matmul" and epilogue is None and given[0].dim() == given[1].dim() == 2
        call = torch_call("mm" if matrices else name, given, alpha, beta, epilogue)
        if call is not None and precision is not None and a.dtype == _FLOAT32:
            call = at_precision(call, precision)
    short = call is not None or entry.at is not None
    front = Front(result, value.dtype, value.dtype == a.dtype, entry, call) if short else None
    if front is not None and call is not None and entry.eager is not None:
        front.call, front.captured, front.entry = None, call, replace(entry, at=entry.eager)
    remember(key, front)


def _overridden(*tensors: Tensor) -> bool:
    """Whether a tensor's class has torch functions of its own, or holds other tensors (DTensor, quantised weights).

    torch's has_torch_function would also say yes wherever a mode is on, such as a default device, which is no reason to
    compute elsewhere.
    """
    kinds = [type(x) for x in tensors if type(x) is not Tensor]
    return any(k.__torch_function__ is not _NOT_OVERRIDDEN or hasattr(k, "__tensor_flatten__") for k in kinds)


def _number(name: str, value: Any) -> float:
    if isinstance(value, numbers.Real):
        return float(value)
    if isinstance(value, torch.SymFloat | torch.SymInt):
        return value  # type: ignore[return-value]
    raise ProblemError(f"{name} is a {type(value).__name__}: pass a Python number, e.g. float({name})")


def _autocast(*tensors: Tensor | None) -> tuple[Any, ...]:
    """Operands as torch.autocast would hand them to torch.matmul."""
    device = next(x.device.type for x in tensors if x is not None)
    if device not in ("cuda", "cpu") or not torch.is_autocast_enabled(device):
        return tensors
    dtype = torch.get_autocast_dtype(device)
    kinds = (torch.float32, torch.float16, torch.bfloat16)
    return tuple(x.to(dtype) if x is not None and x.dtype in kinds else x for x in tensors)


def _check_types(
    a: Tensor, c: Tensor | None, bias: Tensor | None, wanted: torch.dtype, alpha: float, beta: float,
    epilogue: Epilogue | None,
) -> None:  # fmt: skip
    allowed = _OUT_TYPES[a.dtype]
    if wanted not in allowed:
        raise ProblemError(
            f"the result would be {wanted} of {a.dtype} operands: ask for {', '.join(str(x) for x in allowed)}"
        )
    for name, operand in (("C", c), ("bias", bias)):
        if operand is not None and not operand.dtype.is_floating_point and wanted != torch.int32:
            raise ProblemError(f"{name} is {operand.dtype}: convert it, e.g. {name}.to({wanted})")
        if operand is not None and operand.dtype.is_complex:
            raise ProblemError(f"{name} is {operand.dtype} and A {a.dtype}: convert one")
    if wanted == torch.int32:
        if alpha not in (0, 1) or beta != int(beta) or (epilogue and (epilogue.activation or epilogue.scale != 1)):
            raise ProblemError(
                "an int32 result takes no alpha, a whole beta and no activation: ask for out_dtype=torch.float32"
            )
        for name, operand in (("C", c), ("bias", bias)):
            if operand is not None and operand.dtype != torch.int32:
                raise ProblemError(f"{name} is {operand.dtype} and the result int32: convert it to int32")
    if a.dtype in _NARROW and a.requires_grad and torch.is_grad_enabled():
        raise ProblemError(f"A is {a.dtype}, which has no gradient here: detach it, or use bfloat16")


def _expand_c(c: Tensor | None, core: tuple[int, ...], result: tuple[int, ...]) -> Tensor | None:
    if c is None:
        return None
    try:
        full = c.expand(result)
    except RuntimeError:
        raise ProblemError(f"C is {words(c)} and A @ B {'x'.join(map(str, result))}: pass C with that shape") from None
    return full if tuple(full.shape) == core else full.reshape(core)


def _checked_bias(bias: Tensor | None, epilogue: Epilogue | None, m: int, n: int) -> Tensor | None:
    if bias is None or epilogue is None:
        return None
    length, what = (n, "N") if epilogue.bias == "row" else (m, "M")
    if bias.dim() != 1 or bias.shape[0] != length:
        raise ProblemError(f"bias is {words(bias)}: a {epilogue.bias} bias has {what} = {length} elements")
    return bias if bias.stride(0) == 1 or length == 1 else bias.contiguous()


def _check_gate(epilogue: Epilogue | None, n: int, b: Tensor) -> None:
    if epilogue is not None and epilogue.gated and (n % 2 or b.dim() == 1):
        raise ProblemError(f"N is {n}: a gated epilogue pairs columns j and N/2 + j, so B must have an even number")


def _bias_of_any(a: Tensor, b: Tensor, bias: Tensor | None, epilogue: Epilogue | None) -> Tensor | None:
    """The bias, checked before any shapes are (torch checks those)."""
    m, n = (a.shape[-2] if a.dim() > 1 else 1), (b.shape[-1] if b.dim() > 1 else 1)
    _check_gate(epilogue, n, b)
    return _checked_bias(bias, epilogue, m, n)


def _target(out: Tensor, result: tuple[int, ...], core: tuple[int, ...]) -> Tensor | None:
    """``out`` in the product's shape, or ``None`` where no view of it has that (it is then copied to)."""
    if tuple(out.shape) != result:
        if out.numel() != 0:
            raise ProblemError(f"out is {words(out)} and the result {'x'.join(map(str, result))}: pass that shape")
        out.resize_(result)
    if overlaps_itself(out):
        raise ProblemError(f"out has strides {tuple(out.stride())}: its elements share memory; pass a dense one")
    if not torch.compiler.is_compiling() and out.is_neg():
        return None
    return view_as(out, core)


def _scaled(
    a: Tensor, b: Tensor, c: Tensor | None, alpha: float, beta: float, bias: Tensor | None, epilogue: Epilogue | None,
    scale_a: Tensor | float | None, scale_b: Tensor | float | None, out: Tensor | None, out_dtype: torch.dtype | None,
) -> Tensor:  # fmt: skip
    """int8 and fp8 operands whose elements stand for scaled numbers: an fp32 product, then all the rest on it."""
    _check_tensors(A=a, B=b, C=c, bias=bias, out=out)
    if a.dtype not in _NARROW:
        raise ProblemError(f"A is {a.dtype}: scales are for int8 and fp8 operands; use alpha")
    wanted = out.dtype if out is not None else out_dtype or torch.bfloat16
    factor, beta = _number("alpha", alpha), _number("beta", beta)
    if c is None and beta != 0:
        raise ProblemError(f"beta is {beta} but no C was given: pass C, or beta=0")
    epilogue = _with_bias(epilogue, bias)
    factors = []
    for name, scale, operand, axis in (("scale_a", scale_a, a, -2), ("scale_b", scale_b, b, -1)):
        if isinstance(scale, Tensor):
            _check_tensors(A=a, **{name: scale})
            line = (operand.shape[-2], 1) if axis == -2 else (1, operand.shape[-1])
            if scale.numel() != 1 and (operand.dim() < 2 or tuple(scale.shape[-2:]) != line):
                wants = f", or {line[0]}x{line[1]}" if operand.dim() > 1 else ""
                raise ProblemError(f"{name} is {words(scale)}: pass one element{wants}")
            factors.append((name, scale.reshape(()) if scale.numel() == 1 else scale))
        elif scale is not None:
            factor *= _number(name, scale)
    value = _general(a, b, alpha=factor, out_dtype=torch.float32, name="gemm")
    shape = tuple(value.shape)
    for name, scale in factors:
        value = value * scale
        if tuple(value.shape) != shape:
            product_words = "x".join(map(str, shape))
            raise ProblemError(f"{name} is {words(scale)} and A @ B {product_words}: their batches must be equal")
    bias = _bias_of_any(a, b, bias, epilogue)
    if c is not None and beta != 0:
        full = _expand_c(c, shape, shape)
        assert full is not None
        value = value + beta * full
    if epilogue is not None:
        value = finished(value, a, b, bias, epilogue)
    if out is None:
        return value.to(wanted)
    _target(out, tuple(value.shape), tuple(value.shape))
    return out.copy_(value)
