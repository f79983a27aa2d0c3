"""The layouts that a rung really uses, caught while it runs in the simulator, and their drawings.

Nothing is listed by hand: one tile of the rung is simulated, and at each of its operations the kernel's own variables
are looked at. A constant that holds a register layout, with the tiles that have it, and a shared-memory allocation
each give a drawing by :mod:`rungemm.report.layout_svg`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from rungemm.kernels.plan import LaunchPlan
from rungemm.report.layout_svg import distributed_svg, shared_svg
from rungemm.sim import simulate
from rungemm.sim.events import Observer
from rungemm.sim.shared import View
from rungemm.sim.tile import Tile
from rungemm.sim.types import FLOAT

__all__ = ["Found", "layouts_of"]

REGISTERS = {
    "C_LAYOUT": "C's tile: who computes what",
    "LAYOUT": "C's tile: who computes what",
    "ACC": "C's tile: who computes what",
    "A_LAYOUT": "A's tile: who copies what",
    "A_COPY": "A's tile: who copies what",
    "B_LAYOUT": "B's tile: who copies what",
    "B_COPY": "B's tile: who copies what",
    "A_FRAGMENT": "A row of A's transposed tile in shared memory: who reads what",
    "B_FRAGMENT": "A row of B's tile in shared memory: who reads what",
    "STORE": "A part of D: who stores what",
}
"""Names that the kernels give their register layouts, and what a drawing says of each. Others are not drawn."""

SHARED = {"a": "A's tile in shared memory", "b": "B's tile in shared memory", "s": "D's slice in shared memory"}
"""By the first letter of the allocation's name: a_tile, b0, staging."""


@dataclass(frozen=True)
class Found:
    """One layout: ``key`` names the drawing's file, ``title`` heads it, ``svg`` is the drawing itself."""

    key: str
    title: str
    svg: str


class _Watch(Observer):
    """Looks at the variables of the kernel's functions whenever they do something."""

    def __init__(self) -> None:
        self.registers: dict[str, tuple[Any, tuple[int, ...], int]] = {}
        self.shared: dict[str, tuple[Any, tuple[int, ...], int]] = {}
        self.num_warps = 4

    def launch(self, name: str, grid: tuple[int, int, int], num_warps: int) -> None:
        self.num_warps = num_warps

    def event(self, event: Any) -> None:
        frame = sys._getframe(1)
        while frame is not None:
            if "/rungemm/kernels/" in frame.f_code.co_filename.replace("\\", "/"):
                self._look(frame.f_locals)
            frame = frame.f_back  # type: ignore[assignment]

    def _look(self, names: dict[str, Any]) -> None:
        tiles = [tile for value in names.values() for tile in _tiles(value)]
        for name, layout in names.items():
            if name not in REGISTERS:
                continue
            shapes = [tuple(t.shape) for t in tiles if _same(t.layout, layout)]
            if shapes and len({len(shape) for shape in shapes}) == 1:
                shape = tuple(int(max(sizes)) for sizes in zip(*shapes, strict=True))
                known = self.registers.get(name)
                if known is None or np.prod(known[1]) < np.prod(shape):
                    self.registers[name] = (layout, shape, _warps(layout) or self.num_warps)
        for name, value in names.items():
            if isinstance(value, View) and name[0] in SHARED and value.element.kind == FLOAT:
                shape = tuple(int(x) for x in value.allocation.shape)[-2:]
                self.shared.setdefault(SHARED[name[0]], (value.allocation.layout, shape, value.element.bytes))


def _warps(layout: Any) -> int:
    """The warps that a layout is made for, which in a partition are fewer than the program's; 0 if it does not say."""
    if hasattr(layout, "warp_bases"):
        return 1 << len(layout.warp_bases)
    count = 1
    for along in getattr(layout, "warps_per_cta", ()):
        count *= int(along)
    return count if hasattr(layout, "warps_per_cta") else 0


def _tiles(value: Any) -> list[Tile]:
    if isinstance(value, Tile):
        return [value]
    if isinstance(value, tuple):
        return [tile for item in value[:1] for tile in _tiles(item)]
    return []


def _same(a: Any, b: Any) -> bool:
    return bool(type(a) is type(b) and a == b)


def layouts_of(plan: LaunchPlan, operands: dict[str, np.ndarray]) -> list[Found]:
    """The layouts that the plan's kernels use on these operands (one tile is enough), registers first.

    Raises:
        SimulationFault: the rung does something wrong.
    """
    watch = _Watch()
    simulate(plan, operands, observer=watch)
    found: list[Found] = []
    for name, (layout, shape, warps) in watch.registers.items():
        title = REGISTERS[name]
        if all(item.title != title for item in found):
            key = name.lower().removesuffix("_layout").replace("layout", "c").replace("acc", "c")
            found.append(Found(key, title, distributed_svg(layout, shape, warps, title)))
    for title, (layout, shape, size) in watch.shared.items():
        found.append(Found(title[0].lower() + "_shared", title, shared_svg(layout, shape, size, title)))
    return sorted(found, key=lambda item: _ORDER.index(item.key))


_ORDER = ("c", "store", "a", "a_copy", "b", "b_copy", "a_fragment", "b_fragment", "a_shared", "b_shared", "d_shared")
