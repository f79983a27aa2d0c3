"""The shapes that people multiply, by suite, and the user's own from a CSV file."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from .. import inputs
from ..dtypes import FP32, DType, dtype_named
from ..inputs import InputError
from ..problem import LAYOUTS, PRECISIONS, Precision, Problem

__all__ = ["SUITES", "Shape", "parse_shape", "read_shapes", "suite_named"]


@dataclass(frozen=True)
class Shape:
    """M, N, K, batch, and what a suite or a file fixes besides (``None``: the command's own choice)."""

    m: int
    n: int
    k: int
    batch: int = 1
    layout: str | None = None
    dtype: DType | None = None
    precision: Precision | None = None
    label: str = ""

    def problem(self, dtype: DType = FP32, layout: str | None = None, precision: Precision = "ieee") -> Problem:
        """The shape as a problem. A layout given here wins over the shape's; its dtype and precision win over these."""
        chosen = self.dtype or dtype
        return Problem.dense(
            self.m, self.n, self.k, dtype=chosen, batch=self.batch, layout=layout or self.layout or "NN",
            precision=self.precision or precision if chosen == FP32 else "ieee",
        )  # fmt: skip

    def __str__(self) -> str:
        return (f"{self.batch}x" if self.batch != 1 else "") + f"{self.m}x{self.n}x{self.k}"


def _cross27() -> Iterator[Shape]:
    for m, n, k in itertools.product((4096, 8192, 16384), (4096, 8192, 16384), (2048, 4096, 8192)):
        yield Shape(m, n, k)


def _squares() -> Iterator[Shape]:
    for size in (128, 256, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384):
        yield Shape(size, size, size)


LLM_TOKENS = (1, 16, 64, 128, 256, 1024, 4096, 8192)
LLM_WEIGHTS = ((4096, 4096), (6144, 4096), (28672, 4096), (4096, 14336), (128256, 4096))
"""(N, K) of Llama-3-8B: attention output, fused QKV, fused gate and up, down, vocabulary."""


def _llm() -> Iterator[Shape]:
    for tokens, (n, k) in itertools.product(LLM_TOKENS, LLM_WEIGHTS):
        yield Shape(tokens, n, k, layout="NT", label="Llama-3-8B")


MODELS: dict[str, tuple[tuple[int, int], ...]] = {
    # (N, K) of the projections, from the models' published configuration files (hidden size, intermediate size, heads,
    # key-value heads, vocabulary): qkv, attention output, gate and up, down.
    "Llama-3-70B": ((10240, 8192), (8192, 8192), (57344, 8192), (8192, 28672)),
    "Qwen2.5-7B": ((4608, 3584), (3584, 3584), (37888, 3584), (3584, 18944)),
    "Mixtral-8x7B": ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)),
}


def _models() -> Iterator[Shape]:
    for (name, weights), tokens in itertools.product(MODELS.items(), (16, 256, 4096)):
        for n, k in weights:
            yield Shape(tokens, n, k, layout="NT", label=name)


TRAINING: dict[str, tuple[tuple[int, int], ...]] = {
    # (N, K) of every linear layer of a block, and of the vocabulary where it is small; the first is
    # examples/library_llama.py's model.
    "Llama, width 1024": ((1024, 1024), (256, 1024), (3584, 1024), (1024, 3584), (8192, 1024)),
    "Llama-3.2-1B": ((2048, 2048), (512, 2048), (8192, 2048), (2048, 8192)),
    "Llama-3-8B": ((4096, 4096), (1024, 4096), (14336, 4096), (4096, 14336)),
}


def _training() -> Iterator[Shape]:
    tokens = 4096
    for name, weights in TRAINING.items():
        for n, k in weights:
            yield Shape(tokens, n, k, layout="NT", label=f"{name}, forward")
            yield Shape(tokens, k, n, layout="NN", label=f"{name}, gradient of the input")
            yield Shape(n, k, tokens, layout="TN", label=f"{name}, gradient of the weight")


def _decode() -> Iterator[Shape]:
    for tokens, (n, k) in itertools.product((1, 2, 4, 8, 16, 32, 64), ((4096, 4096), (28672, 4096), (4096, 14336))):
        yield Shape(tokens, n, k, layout="NT")


def _ragged() -> Iterator[Shape]:
    for m, n, k in (
        (4097, 4095, 4093), (333, 777, 555), (1000, 999, 1001), (511, 511, 511), (2049, 2047, 2050), (4092, 4092, 4092),
        (127, 129, 65), (1999, 3001, 5003), (8191, 8193, 4099), (100, 10000, 100),
    ):  # fmt: skip
        yield Shape(m, n, k)


def _deep() -> Iterator[Shape]:
    for mn, k in ((64, 65536), (128, 32768), (256, 16384), (512, 8192), (64, 16384), (32, 131072)):
        yield Shape(mn, mn, k)


def _batch() -> Iterator[Shape]:
    for batch, m, n, k in (
        (8, 1024, 1024, 1024), (32, 512, 512, 512), (64, 256, 256, 256), (128, 128, 128, 64), (512, 64, 64, 64),
        (16, 2048, 128, 2048), (16, 2048, 2048, 128),
    ):  # fmt: skip
        yield Shape(m, n, k, batch)


def _ladder() -> Iterator[Shape]:
    yield Shape(4096, 4096, 4096)
    yield Shape(8192, 8192, 4096)


SUITES: dict[str, tuple[str, Callable[[], Iterator[Shape]]]] = {
    "ladder": ("the two shapes that every rung is measured at", _ladder),
    "cross27": ("M, N in 4096, 8192, 16384 by K in 2048, 4096, 8192", _cross27),
    "squares": ("M = N = K from 128 to 16384", _squares),
    "llm": ("projections of Llama-3-8B by token count", _llm),
    "models": ("projections of Llama-3-70B, Qwen2.5-7B, Mixtral-8x7B by token count", _models),
    "training": ("three products for every linear layer of Llama models, at 4096 tokens: forward and both gradients",
                 _training),
    "decode": ("a few tokens by large weights: bound by memory", _decode),
    "ragged": ("sizes that divide by nothing", _ragged),
    "deep": ("tiny M and N, long K: too few tiles to fill a card without splitting K", _deep),
    "batch": ("batches of small products", _batch),
}


def suite_named(name: str) -> list[Shape]:
    """The shapes of a suite.

    Raises:
        InputError: unknown suite; the message lists the known ones.
    """
    if name not in SUITES:
        raise InputError(f"suite {name!r} is unknown: use one of {', '.join(SUITES)}")
    return list(SUITES[name][1]())


def parse_shape(text: str) -> Shape:
    """``"4096x4096x4096"`` (M x N x K), ``"8x64x64x64"`` with a batch first, or ``"4096"`` for a cube.

    Raises:
        InputError: not of that form.
    """
    batch, m, n, k = inputs.parse_batched_shape(text)
    return Shape(m, n, k, batch)


def read_shapes(path: Path) -> list[Shape]:
    """Shapes from a CSV file with the columns m, n, k and, if wanted, batch, layout, dtype, precision, label.

    Raises:
        InputError: the file cannot be read, lacks a column, or a line has a bad value; the message names the line.
    """
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(file, skipinitialspace=True))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: {why}: give a CSV file with columns m,n,k") from error
    if not rows:
        raise InputError(f"{path} has no shapes: give a header m,n,k and a line for each shape")
    lowered = [{(key or "").strip().lower(): str(value or "").strip() for key, value in row.items()} for row in rows]
    missing = [column for column in ("m", "n", "k") if column not in lowered[0]]
    if missing:
        raise InputError(f"{path} has no column {', '.join(missing)}: its header must name m, n and k")
    shapes = []
    for number, row in enumerate(lowered, start=2):
        try:
            shapes.append(_row(row))
        except ValueError as error:
            raise InputError(f"{path}, line {number}: {error}") from error
    return shapes


def _row(row: dict[str, str]) -> Shape:
    def count(column: str, default: str = "") -> int:
        text = row.get(column) or default
        if not text.isdigit() or int(text) < 1:
            raise InputError(f"{column} is {text!r}: give a whole number of at least 1")
        return int(text)

    layout, precision = row.get("layout", "").upper() or None, row.get("precision", "").lower() or None
    if layout is not None and layout not in LAYOUTS:
        raise InputError(f"layout is {layout!r}: use one of {', '.join(LAYOUTS)}")
    if precision is not None and precision not in PRECISIONS:
        raise InputError(f"precision is {precision!r}: use one of {', '.join(PRECISIONS)}")
    return Shape(
        count("m"), count("n"), count("k"), count("batch", "1"), layout,
        dtype_named(row["dtype"]) if row.get("dtype") else None,
        precision,  # type: ignore[arg-type]
        row.get("label", ""),
    )  # fmt: skip
