"""cuBLASLt at its best: every algorithm that its heuristics propose is timed, and the fastest is the contender.

torch takes the first proposal, where it calls cuBLASLt at all, and keeps the choice to itself. So the library is called
here by its C interface, and asked twice: for its favourites, and for the best that it knows of each algorithm (the
enumerations are those of NVIDIA's cuBLAS documentation, sections "cuBLASLt datatypes" and "cuBLASLt API"). cuBLASLt
counts matrices by columns: a row-major product D = A @ B is asked for as D^T = B^T @ A^T.
"""

from __future__ import annotations

import ctypes
import importlib.util
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..inputs import InputError
from ..problem import Matrix, Problem
from .choosing import Choose, Way, seconds_of
from .contenders import Call, Contender, Operands

__all__ = ["Algorithm", "BestOfLt", "CublasLt", "LtError", "Multiply"]

LIBRARIES = ("libcublasLt.so.13", "libcublasLt.so.12")
"""Sonames; torch has loaded one of them, and the loader hands out that one."""

_TYPES = {"fp32": 0, "fp16": 2, "int8": 3, "int32": 10, "bf16": 14, "fp8e4m3": 28, "fp8e5m2": 29}  # cudaDataType_t
_COMPUTE_FP32, _COMPUTE_TF32, _COMPUTE_INT32 = 68, 77, 72  # cublasComputeType_t
_DESC_TRANSA, _DESC_TRANSB = 3, 4  # cublasLtMatmulDescAttributes_t
_LAYOUT_BATCH, _LAYOUT_BATCH_STRIDE = 5, 6  # cublasLtMatrixLayoutAttribute_t
_PREF_SEARCH, _PREF_WORKSPACE = 0, 1  # cublasLtMatmulPreferenceAttributes_t
_PREF_ALIGNMENTS = (5, 6, 7, 8)  # of A, B, C, D
_SEARCH_BEST, _SEARCH_ONE = 0, 1  # cublasLtMatmulSearch_t: whatever fits best, or one algorithm that is named

WORKSPACE_BYTES = 32 << 20
"""What torch gives cuBLASLt on Hopper."""

PROPOSALS = 32
"""Favourites asked for; on an H200 it has 8 at most for small products."""

ALGORITHMS = 64
"""Algorithms asked for one by one, at most."""


class LtError(RuntimeError):
    """cuBLASLt refused a call; the message names it and its status."""


class _Result(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


@dataclass(frozen=True)
class Algorithm:
    """One proposal of the heuristics: its place among all, the workspace it needs, and its opaque words.

    ``asked``: "favourites", or "algorithm 24" if it was proposed when asked for that one alone.
    """

    place: int
    workspace: int
    asked: str
    words: Any = field(repr=False, compare=False)


class CublasLt:
    """The library.

    Raises:
        LtError: it cannot be loaded, or gives no handle.
    """

    def __init__(self, names: Sequence[str] = LIBRARIES) -> None:
        loaded, why = None, ""
        for name in [*names, *(_in_packages() if names is LIBRARIES else ())]:
            try:
                loaded = ctypes.CDLL(name)
                break
            except OSError as error:
                why = str(error)
        if loaded is None:
            raise LtError(f"cuBLASLt cannot be loaded ({why}): torch for CUDA brings it")
        self._library = loaded
        self.handle = ctypes.c_void_p()
        self.call("cublasLtCreate", ctypes.byref(self.handle))

    def call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status != 0:
            raise LtError(f"{name} gave status {status}")

    def create(self, name: str, *arguments: Any) -> ctypes.c_void_p:
        """The object that ``cublasLt<name>Create`` makes."""
        made = ctypes.c_void_p()
        self.call(f"cublasLt{name}Create", ctypes.byref(made), *arguments)
        return made

    def set(self, name: str, made: ctypes.c_void_p, attribute: int, value: Any) -> None:
        size = ctypes.c_size_t(ctypes.sizeof(value))
        self.call(f"cublasLt{name}SetAttribute", made, attribute, ctypes.byref(value), size)


def _in_packages() -> list[str]:
    """The library's files in NVIDIA's own Python packages, for a loader that does not know it by name."""
    spec = importlib.util.find_spec("nvidia")
    roots = (spec.submodule_search_locations if spec is not None else None) or ()
    return [str(path) for root in roots for path in sorted(Path(root).glob("*/lib/libcublasLt.so.*"), reverse=True)]


class Multiply:
    """A problem as cuBLASLt is asked for it: descriptors, and the algorithms that it proposes.

    Raises:
        InputError: a type, precision or stride that cuBLASLt's plain product does not take.
        LtError: cuBLASLt says no.
    """

    def __init__(self, library: CublasLt, problem: Problem, alignments: Sequence[int]) -> None:
        self.library, self.problem = library, problem
        for role, matrix in (("A", problem.a), ("B", problem.b), ("D", problem.d)):
            if matrix.dtype.name not in _TYPES:
                raise InputError(f"cublaslt does not take {matrix.dtype.name} ({role})")
        if problem.epilogue is not None or problem.precision == "tf32x3":
            raise InputError("cublaslt is asked for plain products, in ieee or tf32: leave epilogue and tf32x3 out")
        if problem.reads_c and (problem.c is None or _layout(problem.c) != _layout(problem.d)):
            raise InputError("cublaslt is asked with C laid out as D")
        whole = problem.a.dtype.name == "int8"
        compute = _COMPUTE_INT32 if whole else _COMPUTE_TF32 if problem.precision == "tf32" else _COMPUTE_FP32
        scale = _TYPES["int32" if whole else "fp32"]
        self.descriptor = library.create("MatmulDesc", ctypes.c_int(compute), ctypes.c_int(scale))
        of_d = _TYPES[problem.d.dtype.name]
        types = (compute, scale, _TYPES[problem.b.dtype.name], _TYPES[problem.a.dtype.name], of_d, of_d)
        self.types = tuple(ctypes.c_int(value) for value in types)
        # In cuBLASLt's order: its A is our B, its B our A; what is row-major here is transposed there already.
        self.layouts = [self._matrix(problem.b, _DESC_TRANSA), self._matrix(problem.a, _DESC_TRANSB)]
        self.layouts.append(self._matrix(problem.d, None))
        number = ctypes.c_int32 if whole else ctypes.c_float
        convert: Callable[[float], Any] = int if whole else float
        self.alpha, self.beta = number(convert(problem.alpha)), number(convert(problem.beta if problem.reads_c else 0))
        self.preference = library.create("MatmulPreference")
        library.set("MatmulPreference", self.preference, _PREF_WORKSPACE, ctypes.c_uint64(WORKSPACE_BYTES))
        for attribute, alignment in zip(_PREF_ALIGNMENTS, alignments, strict=True):
            library.set("MatmulPreference", self.preference, attribute, ctypes.c_uint32(alignment))

    def _matrix(self, matrix: Matrix, transpose: int | None) -> ctypes.c_void_p:
        by_rows, pitch = _layout(matrix)
        if transpose is None and not by_rows:
            raise InputError("cublaslt writes D by rows here: its columns must be 1 apart")
        if transpose is not None:
            self.library.set("MatmulDesc", self.descriptor, transpose, ctypes.c_int32(0 if by_rows else 1))
        rows, cols = (matrix.cols, matrix.rows) if by_rows else (matrix.rows, matrix.cols)
        made = self.library.create(
            "MatrixLayout", ctypes.c_int(_TYPES[matrix.dtype.name]), ctypes.c_uint64(rows), ctypes.c_uint64(cols),
            ctypes.c_int64(max(pitch, rows)),
        )  # fmt: skip
        if self.problem.batch != 1:
            self.library.set("MatrixLayout", made, _LAYOUT_BATCH, ctypes.c_int32(self.problem.batch))
            self.library.set("MatrixLayout", made, _LAYOUT_BATCH_STRIDE, ctypes.c_int64(matrix.batch_stride))
        return made

    def proposals(self, most: int = PROPOSALS) -> list[Algorithm]:
        """The heuristics' algorithms: their favourites first, then the best of each algorithm asked for alone."""
        found: dict[tuple[int, ...], Algorithm] = {}

        def add(results: Any, count: int, asked: str) -> None:
            for result in results[:count]:
                key = tuple(result.algorithm)
                if result.state == 0 and key not in found:
                    found[key] = Algorithm(len(found), int(result.workspace), asked, (ctypes.c_uint64 * 8)(*key))

        add(*self._ask((_Result * most)()), "favourites")
        for number in self.algorithms():
            results = (_Result * most)()
            try:
                self.library.call(
                    "cublasLtMatmulAlgoInit", self.library.handle, *self.types, ctypes.c_int(number),
                    ctypes.byref(results[0].algorithm),
                )  # fmt: skip
                self.library.set("MatmulPreference", self.preference, _PREF_SEARCH, ctypes.c_uint32(_SEARCH_ONE))
                add(*self._ask(results), f"algorithm {number}")
            except LtError:
                continue  # not for this problem
            finally:
                self.library.set("MatmulPreference", self.preference, _PREF_SEARCH, ctypes.c_uint32(_SEARCH_BEST))
        return list(found.values())

    def algorithms(self, most: int = ALGORITHMS) -> list[int]:
        """Numbers of the algorithms that take these types; none if the library does not say."""
        numbers, count = (ctypes.c_int * most)(), ctypes.c_int()
        try:
            self.library.call(
                "cublasLtMatmulAlgoGetIds", self.library.handle, *self.types, ctypes.c_int(most), numbers,
                ctypes.byref(count),
            )  # fmt: skip
        except LtError:
            return []
        return list(numbers[: count.value])

    def _ask(self, results: Any) -> tuple[Any, int]:
        """The heuristics' answer, and how many it has."""
        count = ctypes.c_int()
        a, b, d = self.layouts
        self.library.call(
            "cublasLtMatmulAlgoGetHeuristic", self.library.handle, self.descriptor, a, b, d, d, self.preference,
            ctypes.c_int(len(results)), results, ctypes.byref(count),
        )  # fmt: skip
        return results, count.value

    def run(self, algorithm: Algorithm, operands: Operands, workspace: int, stream: int) -> None:
        """Queue the product; ``workspace`` and ``stream`` are addresses."""
        a, b, d = self.layouts
        to = {role: ctypes.c_void_p(operands[role].data_ptr()) for role in ("A", "B", "D")}
        c = ctypes.c_void_p(operands["C"].data_ptr()) if self.problem.reads_c else to["D"]
        self.library.call(
            "cublasLtMatmul", self.library.handle, self.descriptor, ctypes.byref(self.alpha), to["B"], a, to["A"], b,
            ctypes.byref(self.beta), c, d, to["D"], d, algorithm.words, ctypes.c_void_p(workspace),
            ctypes.c_size_t(WORKSPACE_BYTES), ctypes.c_void_p(stream),
        )  # fmt: skip


def _layout(matrix: Matrix) -> tuple[bool, int]:
    """Whether elements of a row are adjacent, and the elements between rows (or columns)."""
    if matrix.col_stride == 1 or matrix.cols == 1:
        return True, matrix.row_stride
    if matrix.row_stride == 1 or matrix.rows == 1:
        return False, matrix.col_stride
    raise InputError(f"cublaslt takes rows or columns of adjacent elements, not strides {matrix.row_stride} and "
                     f"{matrix.col_stride}")  # fmt: skip


@dataclass
class BestOfLt(Contender):
    """cuBLASLt with the fastest of its proposals, found with a cold L2 when the first operand set is bound."""

    name: str = "cublaslt"
    library: CublasLt | None = None
    choose: Choose = seconds_of
    _chosen: dict[Problem, tuple[Multiply, Algorithm, int, Any]] = field(default_factory=dict, repr=False)

    def bind(self, problem: Problem, operands: Operands) -> Call:
        if problem not in self._chosen:
            self._chosen[problem] = self._choose(problem, operands)
        multiply, algorithm, _, space = self._chosen[problem]
        return _way(multiply, algorithm, space)(operands)

    def _choose(self, problem: Problem, operands: Operands) -> tuple[Multiply, Algorithm, int, Any]:
        import torch

        if self.library is None:
            try:
                self.library = CublasLt()
            except LtError as error:
                raise InputError(f"contender {self.name}: {error}") from None
        order = [operands["B"], operands["A"], operands.get("C", operands["D"]), operands["D"]]
        multiply = Multiply(self.library, problem, [_alignment(tensor.data_ptr()) for tensor in order])
        proposals = multiply.proposals()
        if not proposals:
            raise InputError(f"cuBLASLt proposes no algorithm for {problem}")
        space = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=operands["D"].device)
        took = self.choose([_way(multiply, algorithm, space) for algorithm in proposals], problem)
        if min(took) == math.inf:
            raise InputError(f"cuBLASLt runs none of its {len(proposals)} algorithms for {problem}")
        return multiply, proposals[took.index(min(took))], len(proposals), space

    def record(self) -> dict[str, Any]:
        chosen = next(reversed(self._chosen.values()), None)
        if chosen is None:
            return {}
        _, algorithm, count, _ = chosen
        said = {"proposal": algorithm.place + 1, "of": count, "asked": algorithm.asked}
        return {"config": said | {"workspace": algorithm.workspace}}


def _alignment(address: int) -> int:
    """The largest power of two up to 256 that divides the address."""
    return min(256, address & -address) if address else 256


def _way(multiply: Multiply, algorithm: Algorithm, space: Any) -> Way:
    """The product by one algorithm, with ``space`` for its workspace."""
    import torch

    def bind(operands: Operands) -> Call:
        on_card = operands["D"].is_cuda

        def call() -> None:
            stream = torch.cuda.current_stream().cuda_stream if on_card else 0
            multiply.run(algorithm, operands, space.data_ptr(), stream)

        return call

    return bind
