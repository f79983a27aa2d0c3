"""Cold L2: operand sets are used in rotation, and the bytes between two uses of one set are counted, not assumed.

A GEMM called in a loop on one set of buffers finds part of them in L2, which real programs seldom do. So a
measurement owns several sets; every launch takes the next one, whichever contender it belongs to, and
:class:`Rotation` keeps, for every set, how many bytes of other sets were used since. If that ever falls below twice
the L2, the measurement is warm: :meth:`Rotation.verdict` refuses it, or labels it where the user asked for warm.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..errors import UserError

__all__ = ["Rotation", "WarmCacheError", "sets_needed"]

L2_MULTIPLE = 2
"""Bytes that must pass between two uses of a set, in L2 capacities. Once would do for true LRU; L2s are hashed and
not LRU, so twice."""


class WarmCacheError(UserError):
    """A cold measurement was asked for, but operands were still in L2; the message says how to get it cold."""


def sets_needed(set_bytes: int, l2_bytes: int) -> int:
    """How many operand sets make every use cold: the other sets together pass twice the L2. At least 2.

    Raises:
        ValueError: a set has no bytes.
    """
    if set_bytes < 1:
        raise ValueError("an operand set has no bytes: an empty product cannot be timed")
    return 1 + -(-L2_MULTIPLE * l2_bytes // set_bytes)


@dataclass
class Rotation:
    """Hands out set indices 0, 1, ... in turn, and proves how far apart two uses of one set were.

    Attributes:
        sets: number of operand sets.
        set_bytes: bytes that one launch reads and writes at least once.
        l2_bytes: the card's L2 capacity.
    """

    sets: int
    set_bytes: int
    l2_bytes: int
    closest: int | None = None
    """Fewest bytes of other sets between two uses of one set so far; ``None`` until a set was used twice."""
    uses: int = 0
    _next: int = 0
    _last: dict[int, int] = field(default_factory=dict)

    def take(self) -> int:
        """The next set; it counts as used."""
        chosen = self._next
        self.use(chosen)
        return chosen

    def turn(self) -> range:
        """All the sets from 0 on, counted as used: what one replay of a captured graph touches."""
        for index in range(self.sets):
            self.use(index)
        return range(self.sets)

    def use(self, index: int) -> None:
        """Count one launch on a set."""
        before = self._last.get(index)
        if before is not None:
            between = (self.uses - before - 1) * self.set_bytes
            self.closest = between if self.closest is None else min(self.closest, between)
        self._last[index] = self.uses
        self.uses += 1
        self._next = (index + 1) % self.sets

    @property
    def is_cold(self) -> bool:
        """Every reuse so far was at least twice the L2 away."""
        return self.closest is None or self.closest >= L2_MULTIPLE * self.l2_bytes

    def verdict(self, warm_allowed: bool = False) -> bool:
        """Whether the measurement was cold.

        Raises:
            WarmCacheError: it was not, and warm was not asked for.
        """
        if not self.is_cold and not warm_allowed:
            raise WarmCacheError(
                f"the L2 was warm: only {self.closest} bytes passed between two uses of one operand set, and a cold "
                f"measurement needs {L2_MULTIPLE * self.l2_bytes} (twice this card's L2): rotate at least "
                f"{sets_needed(self.set_bytes, self.l2_bytes)} sets (there were {self.sets}), or ask for --warm"
            )
        return self.is_cold

    def record(self) -> dict[str, int | bool | None]:
        """For the results file."""
        return {
            "cold": self.is_cold,
            "sets": self.sets,
            "set_bytes": self.set_bytes,
            "l2_bytes": self.l2_bytes,
            "closest_reuse_bytes": self.closest,
        }
