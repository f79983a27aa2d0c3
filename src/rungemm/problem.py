"""What is asked: ``D = epilogue(alpha * A @ B + beta * C)``, as frozen plain data (no triton, no torch).

Every layer speaks of a :class:`Problem`: kernels say whether they take it, plans are built from it, the tuner
and the dispatcher key on it. Strides are in elements, as torch counts them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from .dtypes import FP32, DType
from .errors import UserError

__all__ = ["ACTIVATIONS", "LAYOUTS", "Epilogue", "Matrix", "Precision", "Problem", "ProblemError"]

Precision = Literal["ieee", "tf32", "tf32x3"]
PRECISIONS: tuple[str, ...] = ("ieee", "tf32", "tf32x3")
LAYOUTS: tuple[str, ...] = ("NN", "NT", "TN", "TT")


class ProblemError(UserError):
    """The operands do not make a GEMM; the message names the operand, its value and the remedy."""


@dataclass(frozen=True)
class Matrix:
    """One operand: its extent, where its elements lie, and how its first byte is aligned.

    Attributes:
        rows, cols: the extent as the product sees it (A is M x K, B is K x N).
        dtype: element type.
        row_stride, col_stride, batch_stride: elements from one row, column or batch to the next; 0 and
            negative values are legal.
        alignment: the largest power of two, up to 16, that divides the address of the first element, in bytes.
    """

    rows: int
    cols: int
    dtype: DType = FP32
    row_stride: int = 0
    col_stride: int = 1
    batch_stride: int = 0
    alignment: int = 16

    @staticmethod
    def dense(rows: int, cols: int, dtype: DType = FP32, transposed: bool = False) -> Matrix:
        """A dense matrix, row-major, or column-major when ``transposed``; batches lie one after the other."""
        if transposed:
            return Matrix(rows, cols, dtype, 1, max(rows, 1), rows * cols)
        return Matrix(rows, cols, dtype, max(cols, 1), 1, rows * cols)

    @property
    def is_row_major(self) -> bool:
        """Consecutive columns are neighbours in memory."""
        return self.col_stride == 1

    @property
    def is_col_major(self) -> bool:
        """Consecutive rows are neighbours in memory (and columns are not)."""
        return self.row_stride == 1 and self.col_stride != 1

    def furthest_offset(self, batch: int = 1) -> int:
        """The largest absolute element offset that an access can have, from the first element."""
        return (
            max(self.rows - 1, 0) * abs(self.row_stride)
            + max(self.cols - 1, 0) * abs(self.col_stride)
            + max(batch - 1, 0) * abs(self.batch_stride)
        )


ACTIVATIONS: tuple[str, ...] = ("relu", "gelu", "gelu_tanh", "silu")
"""max(x, 0); x * Phi(x) by erf; the same by tanh (D. Hendrycks, K. Gimpel, 2016, both); x * sigmoid(x)."""


@dataclass(frozen=True)
class Epilogue:
    """What happens to ``V = alpha * A @ B + beta * C`` while it is still fp32, in this order.

    bias: ``V + bias``; activation: ``act(V)``; gated: ``act(left half) * right half`` instead; scale; cast to D's type.

    Attributes:
        bias: ``None``, ``"row"`` (a vector of N added to every row) or ``"col"`` (a vector of M added to every column).
            It is the operand "bias" of a plan, its elements neighbours in memory, the same for every batch; its type
            and alignment are the problem's ``bias_type`` and ``bias_alignment``.
        activation: ``None`` or one of :data:`ACTIVATIONS`.
        gated: N is even and D has N / 2 columns: ``act(V[:, :N/2]) * V[:, N/2:]``, so "silu" gives SwiGLU, "gelu" GeGLU
            and ``None`` the bilinear form.
        scale: the result is multiplied by it.
    """

    bias: Literal["row", "col"] | None = None
    activation: str | None = None
    gated: bool = False
    scale: float = 1.0

    def __post_init__(self) -> None:
        if self.bias not in (None, "row", "col"):
            raise ProblemError(f"bias {self.bias!r} is unknown: use 'row' (a vector of N) or 'col' (a vector of M)")
        if self.activation is not None and self.activation not in ACTIVATIONS:
            raise ProblemError(f"activation {self.activation!r} is unknown: use one of {', '.join(ACTIVATIONS)}")

    @property
    def is_identity(self) -> bool:
        """Nothing happens beyond the cast."""
        return self.bias is None and self.activation is None and not self.gated and self.scale == 1.0

    def __str__(self) -> str:
        parts = [f"{self.bias} bias"] if self.bias else []
        parts += [self.activation] if self.activation else []
        parts += ["gated"] if self.gated else []
        parts += [f"scale {self.scale:g}"] if self.scale != 1.0 else []
        return " + ".join(parts) or "none"


@dataclass(frozen=True)
class Problem:
    """One GEMM: ``D = alpha * A @ B + beta * C`` for ``batch`` independent products.

    Semantics are BLAS's: ``beta == 0`` never reads C, ``alpha == 0`` or ``k == 0`` never reads A and B, and an
    empty M, N or batch does nothing. An epilogue works on that result before it is stored.
    ``bias_dtype`` (``None``: D's) and ``bias_alignment`` (bytes, up to 16) are the bias', where the epilogue has one.
    """

    a: Matrix
    b: Matrix
    c: Matrix | None
    d: Matrix
    batch: int = 1
    alpha: float = 1.0
    beta: float = 0.0
    precision: Precision = "ieee"
    epilogue: Epilogue | None = field(default=None)
    bias_dtype: DType | None = None
    bias_alignment: int = 16

    def __post_init__(self) -> None:
        if self.a.cols != self.b.rows:
            raise ProblemError(
                f"A is {self.a.rows}x{self.a.cols} and B is {self.b.rows}x{self.b.cols}: K differs "
                f"({self.a.cols} columns of A, {self.b.rows} rows of B); pass B with {self.a.cols} rows"
            )
        m, n = self.a.rows, self.b.cols
        gated = self.epilogue is not None and self.epilogue.gated
        if gated and n % 2:
            raise ProblemError(f"N is {n}: a gated epilogue pairs columns j and N/2 + j, so N must be even")
        for name, operand, wanted in (("C", self.c, (m, n)), ("D", self.d, (m, n // 2 if gated else n))):
            if operand is not None and (operand.rows, operand.cols) != wanted:
                what = f"A @ B is {m}x{n}" + (", half as wide when gated" if gated and name == "D" else "")
                raise ProblemError(f"{name} is {operand.rows}x{operand.cols}; {what}: pass {wanted[0]}x{wanted[1]}")
        if self.beta != 0 and self.c is None:
            raise ProblemError(f"beta is {self.beta} but no C was given: pass C, or beta=0")
        if self.precision not in PRECISIONS:
            raise ProblemError(f"precision {self.precision!r} is unknown: use one of {', '.join(PRECISIONS)}")
        if self.batch < 0:
            raise ProblemError(f"batch is {self.batch}: it must be 0 or more")

    @staticmethod
    def dense(
        m: int,
        n: int,
        k: int,
        *,
        dtype: DType = FP32,
        out_dtype: DType | None = None,
        layout: str = "NN",
        batch: int = 1,
        alpha: float = 1.0,
        beta: float = 0.0,
        precision: Precision = "ieee",
        epilogue: Epilogue | None = None,
    ) -> Problem:
        """A problem of dense operands. ``layout`` is BLAS's pair of letters for A and B: "T" is column-major.

        Raises:
            ProblemError: a negative extent or an unknown layout.
        """
        for name, value in (("M", m), ("N", n), ("K", k)):
            if value < 0:
                raise ProblemError(f"{name} is {value}: it must be 0 or more")
        if layout not in LAYOUTS:
            raise ProblemError(f"layout {layout!r} is unknown: use one of {', '.join(LAYOUTS)}")
        out = out_dtype or dtype
        return Problem(
            a=Matrix.dense(m, k, dtype, layout[0] == "T"),
            b=Matrix.dense(k, n, dtype, layout[1] == "T"),
            c=Matrix.dense(m, n, out) if beta != 0 else None,
            d=Matrix.dense(m, n // 2 if epilogue is not None and epilogue.gated else n, out),
            batch=batch,
            alpha=alpha,
            beta=beta,
            precision=precision,
            epilogue=epilogue,
        )

    @property
    def m(self) -> int:
        return self.a.rows

    @property
    def n(self) -> int:
        return self.b.cols

    @property
    def k(self) -> int:
        return self.a.cols

    @property
    def effective_k(self) -> int:
        """K as the kernel must walk it: 0 when alpha is 0, so that A and B are never read."""
        return 0 if self.alpha == 0 else self.k

    @property
    def effective_alpha(self) -> float:
        """alpha, but 0 when there is nothing to multiply: ``inf * 0`` must not make a NaN of an empty sum."""
        return 0.0 if self.effective_k == 0 else self.alpha

    @property
    def reads_c(self) -> bool:
        return self.beta != 0

    @property
    def bias_type(self) -> DType:
        """The element type of the epilogue's bias."""
        return self.bias_dtype or self.d.dtype

    @property
    def is_empty(self) -> bool:
        """No element of D exists, so nothing is launched."""
        return self.m == 0 or self.n == 0 or self.batch == 0

    @property
    def layout(self) -> str:
        """BLAS's letters for A and B, "N" row-major and "T" column-major; "X" where neither stride is 1."""
        return "".join("N" if x.is_row_major else "T" if x.is_col_major else "X" for x in (self.a, self.b))

    @property
    def flops(self) -> int:
        """Floating-point operations of the product: ``2 * batch * M * N * K``."""
        return 2 * self.batch * self.m * self.n * self.effective_k

    @property
    def minimum_bytes(self) -> int:
        """Bytes if every input is read once and D is written once."""
        total = self.d.rows * self.d.cols * self.d.dtype.bytes
        if self.effective_k:
            total += self.m * self.k * self.a.dtype.bytes + self.k * self.n * self.b.dtype.bytes
        if self.c is not None and self.reads_c:
            total += self.m * self.n * self.c.dtype.bytes
        return total * self.batch

    def with_(self, **changes: object) -> Problem:
        """A copy with some fields replaced."""
        return replace(self, **changes)  # type: ignore[arg-type]

    def __str__(self) -> str:
        shape = f"{self.m}x{self.n}x{self.k}"
        if self.batch != 1:
            shape = f"{self.batch}x " + shape
        return f"{shape} {self.a.dtype} {self.layout}"
