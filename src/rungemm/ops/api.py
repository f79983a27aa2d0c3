"""The public functions, in torch's habits. What each computes is the same on every device and in every mode:

``D = cast(scale * act(alpha * A @ B + beta * C + bias))``, or with a gated epilogue
``cast(scale * act(left half of the columns) * right half)``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..problem import Epilogue, ProblemError
from .arguments import check_tensors, epilogue_named, number, overridden
from .fallback import apply_epilogue
from .front import short
from .general import general
from .scaled import scaled
from .shapes import words

__all__ = ["addmm", "bmm", "gemm", "linear", "matmul"]


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
    done = short("matmul", a, b, None, None, out, precision)
    if done is not None and not isinstance(done, tuple):
        return done
    return general(a, b, out=out, precision=precision, name="matmul", key=done)


def bmm(a: Tensor, b: Tensor, *, out: Tensor | None = None, precision: str | None = None) -> Tensor:
    """A batch of products: (B, M, K) @ (B, K, N) -> (B, M, N). As :func:`matmul`, without broadcasting.

    Raises:
        ValueError: an operand is not 3-D, or the batches differ; else as :func:`matmul`.
    """
    done = short("bmm", a, b, None, None, out, precision)
    if done is not None and not isinstance(done, tuple):
        return done
    check_tensors(A=a, B=b, out=out)
    if a.dim() != 3 or b.dim() != 3 or a.shape[0] != b.shape[0]:
        raise ProblemError(
            f"A is {words(a)} and B is {words(b)}: bmm wants two 3-D batches of equal length; matmul broadcasts"
        )
    return general(a, b, out=out, precision=precision, name="bmm", fold=False, key=done)


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
    alpha, beta = number("alpha", alpha), number("beta", beta)
    done = short("addmm", a, b, c, None, out, precision, alpha, beta)
    if done is not None and not isinstance(done, tuple):
        return done
    check_tensors(C=c, A=a, B=b, out=out)
    if a.dim() != 2 or b.dim() != 2:
        raise ProblemError(f"A is {words(a)} and B is {words(b)}: addmm wants matrices; gemm takes batches")
    return general(a, b, c, alpha=alpha, beta=beta, out=out, precision=precision, name="addmm", key=done)


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
        epilogue = epilogue_named(epilogue)
    elif epilogue is not None and not isinstance(epilogue, Epilogue):
        raise ProblemError(f"epilogue is a {type(epilogue).__name__}: pass a rungemm.Epilogue or an activation's name")
    if beta is None:
        beta = 0.0 if c is None else 1.0
    if scale_a is not None or scale_b is not None:
        return scaled(a, b, c, alpha, beta, bias, epilogue, scale_a, scale_b, out, out_dtype)
    alpha, beta = number("alpha", alpha), number("beta", beta)
    done = short("gemm", a, b, c, bias, out, precision, alpha, beta, epilogue, out_dtype)
    if done is not None and not isinstance(done, tuple):
        return done
    return general(
        a, b, c, alpha=alpha, beta=beta, bias=bias, epilogue=epilogue, out=out, out_dtype=out_dtype,
        precision=precision, name="gemm", key=done,
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
    done = short("linear", x, weight, None, bias, None, precision, activation)
    if done is not None and not isinstance(done, tuple):
        return done
    check_tensors(x=x, weight=weight, bias=bias)
    if x.is_nested or weight.is_nested or overridden(x, weight):
        # Such tensors know torch's linear, and seldom what it is made of.
        value = torch.nn.functional.linear(x, weight, bias)
        return value if activation is None else apply_epilogue(value, None, epilogue_named(activation))
    if weight.dim() not in (1, 2):
        raise ProblemError(f"weight is {words(weight)}: linear wants (N, K), one row for each output feature")
    epilogue = epilogue_named(activation) if activation is not None else None
    columns = weight.mT if weight.dim() == 2 else weight
    return general(x, columns, bias=bias, epilogue=epilogue, precision=precision, name="linear", key=done)
