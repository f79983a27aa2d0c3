"""The fused epilogue: what becomes of ``V = alpha * A @ B + beta * C`` while a tile of it is fp32 and in registers.

In the order of :class:`rungemm.problem.Epilogue`: the bias, the activation, the scale; the store then rounds once.

Sigmoids and the normal distribution are computed from ``exp2`` and a reciprocal, one instruction each, in the form that
does not cancel: ``1 + tanh`` and ``1 + erf`` lose all digits where they are nearly 0, and so would x times them.
Relative errors in fp32: 5e-7 for x > 0, 4e-6 down to x = -6, 1e-5 at -9. Below -87 (silu), -10 (gelu_tanh) and -13
(gelu), where results are smaller than 1e-35, they become zero.

Into D of 16 bits gelu takes ten instructions instead of seventeen, one of them on the special function unit instead of
two, to a part of what rounding to D loses (:func:`gelu_of_half`).
"""

# An aggregate's annotations are types, not words: no ``from __future__ import annotations`` here.

from collections.abc import Iterable
from typing import Any

from ..compat import aggregate, constexpr, gl, gluon, jit, reciprocal
from ..dtypes import BF16, FP16, FP32
from ..problem import Problem
from .plan import Argument, Pointer, Scalar

__all__ = [
    "Finish", "activation_of", "bias_of", "epilogue_arguments", "epilogue_constants", "finished", "rejects_epilogue",
]  # fmt: skip

LOG2_E = constexpr(1.4426950408889634)
TANH_SLOPE = constexpr(2.302208198144325)
"""2 sqrt(2/pi) log2(e): gelu by tanh is x * sigmoid(2 u) for u = sqrt(2/pi) (x + 0.044715 x^3)."""
TANH_CUBIC = constexpr(0.044715)
TAIL_POLE = constexpr(0.305)
HALF_LIMIT = constexpr(64.0)
"""Beyond this |x / 2| gelu into 16 bits is relu: its tail is 0 long before, but infinity times 0 would not be."""


@aggregate
class Finish:
    """A kernel's epilogue: the bias' first element, the scale, and what is to be done with them.

    BIAS is "row" (a vector of N, added to every row), "col" (a vector of M) or "none"; ACTIVATION a name of
    :data:`rungemm.problem.ACTIVATIONS`, one of :func:`activate`'s for a D of 16 bits, or "none". What is not used is
    not read.
    """

    bias: gl.tensor
    scale: gl.tensor
    BIAS: constexpr
    ACTIVATION: constexpr
    SCALED: constexpr

    @gluon.constexpr_function
    def __init__(self, bias, scale, BIAS, ACTIVATION, SCALED):
        self.bias = bias
        self.scale = scale
        self.BIAS = constexpr(BIAS)
        self.ACTIVATION = constexpr(ACTIVATION)
        self.SCALED = constexpr(SCALED)


@jit
def bias_of(finish, rows, cols, M, N):
    """The bias of these rows (a column of indices) and columns (a row of indices): a column, a row, or 0."""
    bias = 0.0
    if finish.BIAS == "row":
        bias = gl.load(finish.bias + cols, mask=cols < N, other=0.0)
    elif finish.BIAS == "col":
        bias = gl.load(finish.bias + rows, mask=rows < M, other=0.0)
    return bias


@jit
def finished(value, bias, finish):
    """``scale * act(value + bias)`` for a tile in fp32; ``bias`` is :func:`bias_of` its rows and columns."""
    if finish.BIAS != "none":
        value += bias.to(gl.float32)
    value = activate(value, finish.ACTIVATION)
    if finish.SCALED:
        value *= finish.scale
    return value


@jit
def activate(x, NAME: constexpr):
    """The activation of that name, of fp32 values. NaN stays NaN, as everywhere in torch."""
    if NAME == "relu":
        x = gl.where(x < 0.0, 0.0, x)
    elif NAME == "silu":
        x *= sigmoid_of_minus(x * -LOG2_E)
    elif NAME == "gelu_tanh":
        x *= sigmoid_of_minus(x * gl.fma(x * x, -TANH_SLOPE * TANH_CUBIC, -TANH_SLOPE))
    elif NAME == "gelu":
        x *= normal_distribution(x)
    elif NAME == "gelu_to_bf16":
        x = gelu_of_half(gl.fma(x, 0.5, 0.0), False)
    elif NAME == "gelu_to_fp16":
        x = gelu_of_half(gl.fma(x, 0.5, 0.0), True)
    return x


@jit
def gelu_of_half(h, FINER: constexpr):
    """gelu(x) of ``h = x / 2``, for a result that is rounded to 16 bits.

    ``relu(x) - |x| Phi(-|x|)``, whose tail is 2 to the power of a polynomial in |h|: log2 Phi(-t) is almost a parabola.
    It is fitted for the least relative error of the tail: of degree 5, for bf16, 5.4e-4 to x = -5, 3e-3 at -7; of
    degree 7, for fp16, 2e-5 to -6, 1.2e-4 at -8. (Half a unit in bf16's last place is at least 2e-3, in fp16's 2.4e-4.)
    Beyond, where gelu is below 1e-14, it falls faster than the function. For x > 0 the tail is a small part of x.
    A sum is relu and not a maximum because minus infinity has to become NaN. (Were h a product, the compiler would fuse
    it with that sum, which then could not take |h| for nothing any more: hence the multiply-add that makes h.)
    """
    t = gl.minimum(gl.abs(h), HALF_LIMIT)
    if FINER:
        power = gl.fma(t, -0.00017663971430026404, 0.0032799679725605824)
        power = gl.fma(t, power, -0.02681631039445731)
        power = gl.fma(t, power, 0.1295566186652195)
        power = gl.fma(t, power, -0.4241693739625336)
        power = gl.fma(t, power, -1.8379857319640776)
        power = gl.fma(t, power, -2.3016295986013695)
        power = gl.fma(t, power, -2.8322551354875714e-05)
    else:
        power = gl.fma(t, -0.0054682055892770216, 0.06476338686571786)
        power = gl.fma(t, power, -0.3268477243552756)
        power = gl.fma(t, power, -1.9060619376013692)
        power = gl.fma(t, power, -2.2839958846061066)
        power = gl.fma(t, power, -0.0007710431401992679)
    return h + gl.abs(h) - t * gl.exp2(power)


@jit
def sigmoid_of_minus(x):
    """1 / (1 + 2^x). Where 2^x overflows, that is 0."""
    return reciprocal(1.0 + gl.exp2(x))


@jit
def normal_distribution(x):
    """Phi(x), the standard normal distribution's, to 4e-7 of itself in its tail as well.

    The tail beyond t = |x| is exp(-t^2 / 2) times a function that falls from 1/2 like 1/t (Mills' ratio): in powers of
    u = 1 / (1 + 0.305 t) a polynomial, fitted for the least relative error (1e-7) on 0 <= t <= 14. The change of
    variable is that of C. Hastings, "Approximations for Digital Computers", 1955.
    """
    t = gl.abs(x)
    u = reciprocal(gl.fma(t, TAIL_POLE, 1.0))
    tail = gl.fma(u, 0.0366992540010302, -0.15298857986406528)
    tail = gl.fma(u, tail, 0.18571736740583228)
    tail = gl.fma(u, tail, -0.037977257936618984)
    tail = gl.fma(u, tail, 0.12102190558129763)
    tail = gl.fma(u, tail, 0.103420798191912)
    tail = gl.fma(u, tail, 0.12246682762306427)
    tail = gl.fma(u, tail, 0.12163973199126318)
    tail *= u * gl.exp2(x * x * (-0.5 * LOG2_E))
    return gl.where(x < 0.0, tail, 1.0 - tail)


def rejects_epilogue(name: str, problem: Problem) -> str | None:
    """What of an epilogue no kernel fuses, or ``None``."""
    epilogue = problem.epilogue
    if epilogue is None:
        return None
    if epilogue.gated:
        return f"{name} fuses no gate, whose halves lie in different tiles: multiply first, then apply the gate"
    if epilogue.bias is not None and problem.bias_type not in (FP16, BF16, FP32):
        return f"the bias is {problem.bias_type}; {name} takes fp16, bf16 or fp32 there"
    return None


def epilogue_arguments(problem: Problem) -> Iterable[tuple[str, Argument]]:
    """``bias`` and ``scale``. Without a bias its pointer is D's: the kernel never touches it."""
    epilogue = problem.epilogue
    if epilogue is not None and epilogue.bias is not None:
        yield "bias", Pointer("bias", problem.bias_type, problem.bias_alignment)
    else:
        yield "bias", Pointer("D", problem.d.dtype, problem.d.alignment)
    yield "scale", Scalar.real(1.0 if epilogue is None else epilogue.scale)


def activation_of(problem: Problem) -> str:
    """The name by which :func:`activate` knows the problem's activation: gelu has a form for each type of D."""
    activation = (problem.epilogue.activation if problem.epilogue is not None else None) or "none"
    narrow = activation == "gelu" and problem.d.dtype in (FP16, BF16)
    return f"gelu_to_{problem.d.dtype.name}" if narrow else activation


def epilogue_constants(problem: Problem) -> Iterable[tuple[str, Any]]:
    """``BIAS``, ``ACTIVATION`` and ``SCALED``, as :class:`Finish` has them."""
    epilogue = problem.epilogue
    yield "BIAS", (epilogue.bias if epilogue is not None else None) or "none"
    yield "ACTIVATION", activation_of(problem)
    yield "SCALED", epilogue is not None and epilogue.scale != 1.0
