"""The one error of this layer."""

from __future__ import annotations

__all__ = ["CompileError"]


class CompileError(RuntimeError):
    """A kernel could not be compiled. ``str(error)`` is one line; ``detail`` is everything the compiler said."""

    def __init__(self, summary: str, detail: str = "") -> None:
        super().__init__(summary)
        self.detail = detail or summary
