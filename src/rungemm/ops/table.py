"""What was measured: for each problem class of a card, the fastest of our kernels and its config. Shipped as JSON.

The file is generated from results/ by ``python -m rungemm.ops.generate`` and never edited. What the entries say of
problems that are not among them is :mod:`.neighbours`'s business.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..hardware import Gpu
from ..problem import Matrix, Problem

__all__ = [
    "FORMAT", "TABLES", "Class", "Entry", "Shape", "Table", "TableError", "class_of", "load_table", "read_records",
    "table_of",
]  # fmt: skip

FORMAT = 1
TABLES = Path(__file__).parent / "tables"

class TableError(UserError):
    """A table file is not what it should be; the message names the file and the remedy."""


Class = tuple[str, str, str, str, bool, bool]
Shape = tuple[int, int, int, int]


@dataclass(frozen=True)
class Entry:
    """One measured problem class.

    Attributes:
        kernel: a rung's name, or "cublas" where what was timed of ours is less exact.
        config: its config as :meth:`Config.to_dict` wrote it; empty for cuBLAS.
        ratio: cuBLAS's time over the best of ours (above 1: ours is faster).
        source: the results file it comes from.
        cublas_us: what cuBLAS took there, microseconds; 0 if not told.
        runs: of how many the ratio is the least; 0 if not told.
        sustained, rested: the ratio in a row of products without pause, and with a pause before each sample, where both
            were measured: ``ratio`` is their geometric mean. 0 if not told.
        guessed: ``rested`` was not measured with this config, but with others on this problem.
    """

    kernel: str
    config: dict[str, Any]
    ratio: float
    source: str = ""
    cublas_us: float = 0.0
    runs: int = 0
    sustained: float = 0.0
    rested: float = 0.0
    guessed: bool = False


def _starts_aligned(matrix: Matrix) -> bool:
    lines, pitch = (matrix.cols, matrix.col_stride) if matrix.is_col_major else (matrix.rows, matrix.row_stride)
    return matrix.alignment % 16 == 0 and (lines == 1 or pitch * matrix.dtype.bytes % 16 == 0)


def class_of(problem: Problem) -> Class:
    """All but the extents: types, precision, layout, whether every row begins at a multiple of 16 bytes, C read."""
    return (
        problem.a.dtype.name,
        problem.d.dtype.name,
        problem.precision if problem.a.dtype.name == "fp32" else "ieee",
        problem.layout,
        all(map(_starts_aligned, (problem.a, problem.b, problem.d))),
        problem.reads_c,
    )


class Table:
    """Entries by class and shape (batch, M, N, K)."""

    def __init__(
        self,
        entries: Iterable[tuple[Class, Shape, Entry]] = (),
        fused: dict[tuple[Class, Shape, str], Entry] | None = None,
    ) -> None:
        self._classes: dict[Class, dict[Shape, Entry]] = {}
        self._fused = fused or {}
        for kind, shape, entry in entries:
            self._classes.setdefault(kind, {})[shape] = entry

    def __len__(self) -> int:
        return sum(map(len, self._classes.values()))

    def entries(self) -> Iterator[tuple[Class, Shape, Entry]]:
        """All of them."""
        for kind, shapes in self._classes.items():
            for shape, entry in shapes.items():
                yield kind, shape, entry

    def find(self, problem: Problem) -> Entry | None:
        """The entry of this very problem class.

        A problem that reads C takes that of one that does not, for C's traffic is the same to every contender.
        """
        shape = (problem.batch, problem.m, problem.n, problem.k)
        kind = class_of(problem)
        for known in (kind, (*kind[:5], False)) if kind[5] else (kind,):
            entry = self._classes.get(known, {}).get(shape)
            if entry is not None:
                return entry
        return None


    def find_fused(self, problem: Problem) -> Entry | None:
        """The entry of this problem with its epilogue, whose ratio is to eager torch's kernels; C unread."""
        if problem.epilogue is None or problem.epilogue.gated:
            return None
        shape = problem.batch, problem.m, problem.n, problem.k
        return self._fused.get((class_of(problem), shape, str(problem.epilogue)))


def read_records(records: Iterable[dict[str, Any]]) -> Iterator[tuple[Class, Shape, Entry]]:
    """A file's records as :class:`Table` takes them."""
    for record in records:
        kind = (
            record["dtype"], record["out_dtype"], record["precision"], record["layout"],
            bool(record["aligned"]), bool(record["reads_c"]),
        )  # fmt: skip
        shape = record["batch"], record["m"], record["n"], record["k"]
        told = (record.get("cublas_us", 0.0), record.get("runs", 0), record.get("sustained", 0.0),
                record.get("rested", 0.0), bool(record.get("guessed", False)))  # fmt: skip
        yield kind, shape, Entry(record["kernel"], record["config"], record["ratio"], record["source"], *told)


def load_table(path: Path) -> Table:
    """The table in a file.

    Raises:
        TableError: the file is damaged, or of another format.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["format"] != FORMAT:
            raise TableError(f"{path} has format {document['format']}, this rungemm reads {FORMAT}: make it again")
        records = document.get("fused", [])
        fused = {(kind, shape, record["epilogue"]): entry for record, (kind, shape, entry)
                 in zip(records, read_records(records), strict=True)}  # fmt: skip
        return Table(read_records(document["entries"]), fused)
    except (OSError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, TableError):
            raise
        raise TableError(f"{path}: {error!r}: make it again with python -m rungemm.ops.generate") from error


@cache
def _shipped(name: str) -> Table:
    path = TABLES / f"{name}.json"
    return load_table(path) if path.exists() else Table()


def table_of(gpu: Gpu) -> Table:
    """The table shipped for a card; empty for a card that has none."""
    return _shipped(gpu.name)
