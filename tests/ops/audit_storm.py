"""Random calls of the library, each asked again and again with the memory moved, against the same formula in float64.

One problem class after the other goes through every state that a cache could forget to look at: alignment, strides,
types, the way of the scalars, ``out`` and what it shares, gradient and inference mode, torch's precision.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from ops_checks import EPSILON, FLOATS

import rungemm
from rungemm import Epilogue
from rungemm.ops.shapes import overlaps_itself

EXTENTS = (0, 1, 1, 2, 3, 4, 8, 9, 16, 17)
ACTIVATIONS = {
    None: lambda x: x,
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
}
GATES = {"swiglu": F.silu, "geglu": F.gelu, "reglu": F.relu}


class Dice:
    """Choices and tensors from one generator."""

    def __init__(self, rng: np.random.Generator, device: str) -> None:
        self.rng, self.device = rng, device

    def one(self, options: Any) -> Any:
        return options[int(self.rng.integers(len(options)))]

    def chance(self, probability: float) -> bool:
        return float(self.rng.random()) < probability

    def normal(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        return torch.from_numpy(self.rng.standard_normal(shape)).to(dtype).to(self.device)

    def strided(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """A tensor of the shape, with strides and an offset of any kind."""
        kind = self.one(("dense", "dense", "transposed", "stepped", "expanded", "overlapping", "offset", "negated",
                         "permuted", "odd ones"))  # fmt: skip
        x, axes = self.normal(shape, dtype), len(shape)
        if kind == "transposed" and axes > 1:
            return x.mT.contiguous().mT
        if kind == "stepped":
            return self.normal(tuple(2 * e for e in shape), dtype)[(slice(None, None, 2),) * axes]
        if kind == "expanded" and axes:
            axis = int(self.rng.integers(axes))
            return x.narrow(axis, 0, 1).expand(shape) if shape[axis] else x
        if kind == "overlapping":
            strides = [self.one((0, 1, 2, 3, 5)) for _ in shape]
            reach = sum(max(e - 1, 0) * s for e, s in zip(shape, strides, strict=True))
            return torch.as_strided(self.normal((reach + 5,), dtype), shape, strides, self.one((0, 1, 3)))
        if kind == "offset":
            return torch.cat((x.new_full((1,), float("nan")), x.reshape(-1)))[1:].view(shape)
        if kind == "negated":
            return torch._neg_view(x)
        if kind == "permuted" and axes:
            order = [int(axis) for axis in self.rng.permutation(axes)]
            return x.permute(order).contiguous().permute([order.index(axis) for axis in range(axes)])
        if kind == "odd ones" and axes:
            strides = [self.one((0, 1, 7, 1_000_003)) if e == 1 else s for e, s in zip(shape, x.stride(), strict=True)]
            return torch.as_strided(x, shape, strides)
        return x

    def moved(self, x: torch.Tensor) -> torch.Tensor:
        """The same elements at the same strides, elsewhere: NaN around them, the address aligned as it comes."""
        reach = sum(max(e - 1, 0) * s for e, s in zip(x.shape, x.stride(), strict=True)) + 1
        if x.is_neg() or reach > 100_000 or self.chance(0.5):
            return x
        at = self.one((0, 1, 2, 4, 8))
        sea = torch.full((reach + 16,), float("nan"), dtype=x.dtype, device=x.device)
        if x.numel():
            sea[at : at + reach] = torch.as_strided(x, (reach,), (1,), x.storage_offset())
        return torch.as_strided(sea, x.shape, x.stride(), at)


@dataclass
class Question:
    """A call: its operands by name, ours, and the same in float64 from the same operands."""

    words: str
    operands: dict[str, torch.Tensor]
    ours: Any
    formula: Any
    dtype: torch.dtype
    takes_out: bool = True


def product_question(dice: Dice) -> Question:
    """matmul or bmm, of any shapes that go together."""
    dtype, m, n, k = dice.one(FLOATS), *(dice.one(EXTENTS) for _ in range(3))
    if dice.chance(0.3):
        count = dice.one(EXTENTS)
        shapes, call = ((count, m, k), (count, k, n)), rungemm.bmm
    else:
        batch = [dice.one((1, 2, 3)) for _ in range(2)]
        shapes = tuple(
            (k,) if axes == 1 else (*(e if dice.chance(0.6) else 1 for e in batch[4 - axes :]), *matrix)
            for axes, matrix in ((dice.one((1, 2, 2, 3, 4)), (m, k)), (dice.one((1, 2, 2, 3, 4)), (k, n)))
        )
        call = rungemm.matmul
    operands = dict(zip("ab", (dice.strided(shape, dtype) for shape in shapes), strict=True))
    return Question(call.__name__, operands, call, lambda a, b: a @ b, dtype)


def gemm_question(dice: Dice) -> Question:
    """Everything at once."""
    dtype, m, n, k = dice.one(FLOATS), dice.one(EXTENTS), 2 * dice.one(EXTENTS), dice.one(EXTENTS)
    alpha, beta, scale = dice.one((1, 1, 2.5, 0)), dice.one((1, 1, 0, -0.5)), dice.one((1.0, 1.0, 3.0))
    kind, name, gated = dice.one((None, None, "row", "col")), dice.one(tuple(ACTIVATIONS)), dice.chance(0.2)
    batch = dice.one(((), (), (3,)))
    operands = {"a": dice.strided((*batch, m, k), dtype), "b": dice.strided((*batch, k, n), dtype)}
    if dice.chance(0.6):
        operands["c"] = dice.strided(dice.one(((m, n), (m, n), (1, n), (n,), (m, 1), ())), dice.one((dtype, *FLOATS)))
    if kind is not None:
        operands["bias"] = dice.strided((n if kind == "row" else m,), dice.one((dtype, *FLOATS)))
    epilogue = Epilogue(kind, name, gated, scale)
    out_dtype = dice.one((None, None, *FLOATS))

    def ours(a, b, c=None, bias=None, **out):
        weight = None if c is None else beta
        return rungemm.gemm(a, b, c, alpha=alpha, beta=weight, bias=bias, epilogue=epilogue, **out,
                            **({} if out else {"out_dtype": out_dtype}))  # fmt: skip

    def formula(a, b, c=None, bias=None):
        value = alpha * (a @ b) + (beta * c if c is not None else 0)
        if bias is not None:
            value = value + (bias if kind == "row" else bias[:, None])
        act = ACTIVATIONS[name]
        return scale * (act(value[..., : n // 2]) * value[..., n // 2 :] if gated else act(value))

    words = f"gemm alpha={alpha} beta={beta} {epilogue} -> {out_dtype}"
    return Question(words, operands, ours, formula, out_dtype or dtype)


def linear_question(dice: Dice) -> Question:
    """linear, as models call it."""
    dtype, n, k = dice.one(FLOATS), 2 * dice.one(EXTENTS), dice.one(EXTENTS)
    name = dice.one((*ACTIVATIONS, *GATES))
    shape = (*(dice.one((0, 1, 2, 3)) for _ in range(dice.one((0, 1, 1, 2, 3)))), k)
    operands = {"a": dice.strided(shape, dtype), "b": dice.strided((n, k), dtype)}
    if dice.chance(0.6):
        operands["bias"] = dice.strided((n,), dtype)

    def ours(a, b, bias=None):
        return rungemm.linear(a, b, bias, name)

    def formula(a, b, bias=None):
        value = F.linear(a, b, bias)
        if name in GATES:
            left, right = value.chunk(2, -1) if n else (value, value)
            return GATES[name](left) * right
        return ACTIVATIONS[name](value)

    return Question(f"linear {name}", operands, ours, formula, dtype, takes_out=False)


def allowed(question: Question, steps: int = 12) -> float:
    """What an element may be off by, as a share of the largest: so many units in the last place of the coarsest type.

    Thirty storms of twenty questions needed 3.3, and 5.8 for gradients.
    """
    return steps * max(EPSILON[x] for x in {question.dtype, *(x.dtype for x in question.operands.values())})


def assert_near(got: torch.Tensor, want: torch.Tensor, share: float, words: str) -> None:
    assert got.shape == want.shape, f"{words}: {tuple(got.shape)} is not {tuple(want.shape)}"
    x, y = got.detach().double().cpu(), want.detach().cpu()
    assert torch.equal(x.isnan(), y.isnan()), f"{words}: NaN at other places"
    size = max(1.0, float(y.abs().max())) if y.numel() else 1.0
    worst = float((x - y).abs().max()) if y.numel() else 0.0
    assert worst <= share * size, f"{words}: off by {worst:.3g}, allowed {share * size:.3g}"


def place_for_out(dice: Dice, question: Question, operands: dict[str, torch.Tensor], shape: torch.Size) -> torch.Tensor:
    """Memory for the result: new, empty, transposed, offset, negated, or an operand's own."""
    kind = dice.one(("new", "new", "empty", "transposed", "offset", "negated", "operand"))
    dtype = question.dtype
    if kind == "empty":
        return torch.empty(0, dtype=dtype, device=dice.device)
    if kind == "operand":
        for name, x in operands.items():
            if x.shape == shape and x.dtype in FLOATS and not overlaps_itself(x) and not x.is_neg():
                own = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device).copy_(x)
                operands[name] = own
                return own
    out = torch.full(shape, float("nan"), dtype=dtype, device=dice.device)
    if kind == "transposed":
        order = tuple(reversed(range(out.dim())))
        return out.permute(order).contiguous().permute(order)
    if kind == "offset":
        return torch.full((shape.numel() + 1,), float("nan"), dtype=dtype, device=dice.device)[1:].view(shape)
    return torch._neg_view(out) if kind == "negated" else out


def ask(dice: Dice, question: Question) -> None:
    """The question three times, in three states."""
    for turn in range(3):
        operands = {name: dice.moved(x) for name, x in question.operands.items()}
        facts = {name: (tuple(x.shape), x.stride(), str(x.dtype)[6:], x.is_neg()) for name, x in operands.items()}
        mode = dice.one(("plain", "plain", "no_grad", "inference", "grad", "some grad", "out", "out"))
        words = f"turn {turn}, {mode}: {question.words} {facts}"
        exact = {name: x.double() for name, x in operands.items()}
        if "grad" in mode and mode != "no_grad":
            wanted = [name for name in operands if mode == "grad" or dice.chance(0.5)]
            mine = {n: x.detach().requires_grad_() if n in wanted else x for n, x in operands.items()}
            exact = {n: x.detach().requires_grad_() if n in wanted else x for n, x in exact.items()}
            got, want = question.ours(**mine), question.formula(**exact)
            assert got.dtype == question.dtype and got.requires_grad == bool(wanted), words
            assert_near(got, want, allowed(question), words)
            if wanted:
                seed = dice.normal(tuple(want.shape), torch.float64).to(got.dtype)
                seed = torch._neg_view(seed) if dice.chance(0.2) else seed
                ours = torch.autograd.grad(got, [mine[n] for n in wanted], seed)
                theirs = torch.autograd.grad(want, [exact[n] for n in wanted], seed.double())
                for name, one, other in zip(wanted, ours, theirs, strict=True):
                    assert one.dtype == operands[name].dtype, words
                    assert_near(one, other, allowed(question, 30), f"{words}: gradient of {name}")
            continue
        want = question.formula(**exact)
        if mode == "out" and question.takes_out:
            out = place_for_out(dice, question, operands, want.shape)
            got = question.ours(**operands, out=out)
            assert got is out, words
        else:
            modes = {"no_grad": torch.no_grad, "inference": torch.inference_mode}
            with modes.get(mode, contextlib.nullcontext)():
                got = question.ours(**operands)
            assert got.dtype == question.dtype and got.is_contiguous() and not got.requires_grad, words
            assert got.is_inference() == (mode == "inference"), words
        assert_near(got, want, allowed(question), words)


def storm(rng: np.random.Generator, device: str, questions: int) -> None:
    dice = Dice(rng, device)
    for _ in range(questions):
        ask(dice, dice.one((product_question, gemm_question, linear_question))(dice))
