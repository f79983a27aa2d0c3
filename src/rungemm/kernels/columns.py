"""Many configs of a kernel as one object whose fields are arrays, so that one formula serves a config and a search.

Every new shape that a program multiplies has its candidates ranked once, on the host, while the GPU waits: a formula of
:func:`choose`, :func:`least` and :func:`most` takes a config, whose fields are numbers, or :class:`Columns`. Plain host
code.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from ..hardware import Gpu
from ..problem import Problem
from .base import Config, Kernel

__all__ = ["Columns", "cheapest_first", "choose", "least", "most"]

ConfigT = TypeVar("ConfigT", bound=Config)


class Columns(Generic[ConfigT]):
    """Configs by column: every field and property of theirs is an array under its own name, made when first asked for.

    ``more`` columns go with them. ``where`` gives some of the rows, with fields that differ from those of the configs
    they were made from.
    """

    def __init__(self, configs: Sequence[ConfigT], **more: np.ndarray) -> None:
        self._configs = configs
        self._rows = np.arange(len(configs))
        self._changed: dict[str, np.ndarray] = {}
        self._made_from: tuple[Columns[ConfigT], np.ndarray] | None = None
        self.__dict__.update(more)

    def __len__(self) -> int:
        return len(self._rows)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if self._made_from is None:
            column = np.array([getattr(config, name) for config in self._configs])
        else:
            whole, rows = self._made_from
            column = getattr(whole, name)[rows]
        self.__dict__[name] = column
        return column

    def where(self, rows: np.ndarray, **changed: np.ndarray) -> Columns[ConfigT]:
        """The rows of these numbers, which may repeat; ``changed`` fields have an element for each row taken."""
        changed = {name: column[rows] for name, column in self._changed.items()} | changed
        part: Columns[ConfigT] = Columns(self._configs, **changed)
        part._rows, part._changed, part._made_from = self._rows[rows], changed, (self, rows)
        return part

    def config(self, row: int) -> ConfigT:
        """The config of a row."""
        changed = {name: column[row].item() for name, column in self._changed.items()}
        return self._configs[self._rows[row]].with_(**changed)


def cheapest_first(
    kernel: Kernel[ConfigT], problem: Problem, gpu: Gpu, candidates: Columns[ConfigT], cost: np.ndarray
) -> Iterator[tuple[ConfigT, float]]:
    """The supported ones by rising cost, each once and with its cost; of equal cost the earlier one first.

    What takes forever is not supported. The predicate is asked only of those that the caller gets to see.
    """
    seen: set[ConfigT] = set()
    for row in np.argsort(cost, kind="stable"):
        if cost[row] == np.inf:
            break
        config = candidates.config(row)
        if config not in seen and kernel.supports(problem, config, gpu) is None:
            seen.add(config)
            yield config, float(cost[row])


def choose(condition: Any, yes: Any, no: Any) -> Any:
    """``yes if condition else no``, element by element where the condition is an array."""
    if isinstance(condition, np.ndarray):
        return np.where(condition, yes, no)
    return yes if condition else no


def least(first: Any, second: Any) -> Any:
    """The smaller of two numbers, element by element where one is an array."""
    if isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
        return np.minimum(first, second)
    return min(first, second)


def most(first: Any, second: Any) -> Any:
    """The larger of two numbers, element by element where one is an array."""
    if isinstance(first, np.ndarray) or isinstance(second, np.ndarray):
        return np.maximum(first, second)
    return max(first, second)
