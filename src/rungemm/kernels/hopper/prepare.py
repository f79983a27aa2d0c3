"""Copies that make an operand fit for TMA and wgmma: :mod:`..copies`, and what TMA is to know of such a copy."""

from __future__ import annotations

from dataclasses import dataclass

from .. import copies
from ..copies import copy_launches, copy_seconds
from .operands import Operand

__all__ = ["Copy", "copy_launches", "copy_seconds"]


@dataclass(frozen=True)
class Copy(copies.Copy):
    """A copy that a descriptor can name."""

    @property
    def operand(self) -> Operand:
        """The copy as TMA moves it, in the place of the original."""
        return Operand(self.name, self.copied, self.columns)
