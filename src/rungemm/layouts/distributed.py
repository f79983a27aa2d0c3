"""Register layouts: which element of a tile each register of each lane of each warp holds.

Gluon's layout objects are read by their attributes, by class name, so that this module needs no Triton. The rules
are those of Triton 3.6's layouts, written anew from their definitions and compared with Triton itself in
``tests/layouts``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .linear import LinearLayout

__all__ = ["WARP_SIZE", "distributed_linear", "warps_of"]

WARP_SIZE = 32
_EMPTY: dict[str, Any] = {"register": (), "lane": (), "warp": ()}


def distributed_linear(layout: Any, shape: Sequence[int]) -> LinearLayout:
    """A distributed layout over a tile of ``shape``, as a linear layout of ``register``, ``lane`` and ``warp``.

    Raises:
        ValueError: a layout that is not resolved (auto, coalesced) or not known, a rank that does not fit, or an
            extent that is not a power of two.
    """
    kind = type(layout).__name__
    rule = _RULES.get(kind)
    if rule is None:
        known = ", ".join(_RULES)
        raise ValueError(f"layout {kind} has no register map: use one of {known}")
    if layout.rank != len(shape):
        raise ValueError(f"{kind} has {layout.rank} dimensions and the tile {tuple(shape)} has {len(shape)}")
    for extent in shape:
        if extent < 1 or extent & (extent - 1):
            raise ValueError(f"tile {tuple(shape)}: every extent must be a power of two")
    if getattr(layout, "cga_layout", None) or getattr(layout, "block_bases", None):
        raise ValueError(f"{kind} spreads over a cluster of blocks: only layouts of one block have a register map")
    return rule(layout, tuple(shape))


def warps_of(layout: Any) -> int:
    """How many warps a distributed layout is made for."""
    kind = type(layout).__name__
    if kind == "DistributedLinearLayout":
        return 1 << len(layout.warp_bases)
    if kind in ("SliceLayout", "DotOperandLayout"):
        return warps_of(layout.parent)
    total = 1
    for count in layout.warps_per_cta:
        total *= count
    return total


def _tiled(
    layout: LinearLayout, name: str, counts: Sequence[int], order: Sequence[int], broadcast_dim: int | None = None
) -> LinearLayout:
    """``counts[d]`` copies along each dimension, by bits of ``name``; along ``broadcast_dim`` on the spot."""
    for dim in order:
        layout = layout.then(name, dim, counts[dim], broadcast=dim == broadcast_dim)
    return layout


def _blocked(layout: Any, shape: tuple[int, ...]) -> LinearLayout:
    order = tuple(layout.order)
    result = LinearLayout(dict(_EMPTY), order)
    result = _tiled(result, "register", layout.size_per_thread, order)
    result = _tiled(result, "lane", layout.threads_per_warp, order)
    result = _tiled(result, "warp", layout.warps_per_cta, order)
    return result.fitted(shape, "register")


def _slice(layout: Any, shape: tuple[int, ...]) -> LinearLayout:
    """The parent over one more dimension, of extent 1, which is then dropped; registers that only replicate go."""
    dim = layout.dim
    parent = distributed_linear(layout.parent, (*shape[:dim], 1, *shape[dim:]))
    bases = {
        name: tuple(vector[:dim] + vector[dim + 1 :] for vector in vectors) for name, vectors in parent.bases.items()
    }
    bases["register"] = tuple(vector for vector in bases["register"] if any(vector))
    order = tuple(d - (d > dim) for d in parent.order if d != dim)
    return LinearLayout(bases, order)


def _explicit(layout: Any, shape: tuple[int, ...]) -> LinearLayout:
    """A layout given by its bases. Registers are repeated or dropped, and lanes and warps replicated, to fit."""
    rank = len(shape)
    bases = {
        "register": tuple(tuple(vector) for vector in layout.reg_bases),
        "lane": tuple(tuple(vector) for vector in layout.lane_bases),
        "warp": tuple(tuple(vector) for vector in layout.warp_bases),
    }
    order = _first_touched(bases["register"], rank)
    fitted = LinearLayout(bases, order).fitted(shape, "register")
    kept = tuple(
        vector
        for index, vector in enumerate(fitted.bases["register"])
        if index >= len(bases["register"]) or any(vector) or not any(bases["register"][index])
    )
    return LinearLayout({**fitted.bases, "register": kept}, fitted.order)


def _first_touched(vectors: Sequence[tuple[int, ...]], rank: int) -> tuple[int, ...]:
    """Dimensions in the order in which registers first move along them, then the rest, last dimension first."""
    order: list[int] = []
    for vector in vectors:
        for dim in range(rank):
            if vector[dim] and dim not in order:
                order.append(dim)
    order += [dim for dim in reversed(range(rank)) if dim not in order]
    return tuple(order)


def _mma_fragment(outer: int, inner: int, rows: int, cols: int, k_width: int, order: tuple[int, ...]) -> LinearLayout:
    """One warp's fragment of an mma operand or accumulator: ``rows`` along ``outer``, ``cols`` along ``inner``.

    Along ``inner``: k_width registers, then 4 lanes; along ``outer`` 8 lanes; then whole 8-row and 4*k_width-column
    repeats by registers (the fragment tables of mma.sync and wgmma in the PTX manual).
    """
    result = LinearLayout(dict(_EMPTY), order)
    result = result.then("register", inner, k_width).then("lane", inner, 4).then("lane", outer, 8)
    return result.then("register", outer, rows // 8).then("register", inner, cols // (4 * k_width))


def _mma_warp_order(layout: Any, rank: int) -> tuple[int, ...]:
    """mma.sync lays its warps along the last dimension first, wgmma along the first of the two."""
    order = list(reversed(range(rank)))
    if layout.version[0] == 3:
        order[0], order[1] = order[1], order[0]
    return tuple(order)


def _mma(layout: Any, shape: tuple[int, ...]) -> LinearLayout:
    """An accumulator of mma.sync (version 2: 16x8) or wgmma (version 3: 16 rows a warp, N columns)."""
    rank = len(shape)
    if layout.version[0] == 2:
        rows, cols = layout.instr_shape[-2:]
    elif layout.version[0] == 3:
        rows, cols = 16, layout.instr_shape[1]
    else:
        raise ValueError(f"mma version {layout.version[0]} has no register map: versions 2 and 3 have")
    result = _mma_fragment(rank - 2, rank - 1, rows, cols, 2, tuple(reversed(range(rank))))
    result = _tiled(result, "warp", layout.warps_per_cta, _mma_warp_order(layout, rank))
    return result.fitted(shape, "register")


def _dot_operand(layout: Any, shape: tuple[int, ...]) -> LinearLayout:
    """An operand of a dot product; the warps (and for FMA the lanes) along K hold the same elements."""
    rank = len(shape)
    is_a = layout.operand_index == 0
    k_dim = rank - 1 if is_a else rank - 2
    parent = layout.parent
    if type(parent).__name__ == "BlockedLayout":
        order = tuple(parent.order)
        sizes = list(parent.size_per_thread)
        sizes[k_dim] = shape[k_dim]
        result = LinearLayout(dict(_EMPTY), order)
        result = _tiled(result, "register", sizes, order)
        result = _tiled(result, "lane", parent.threads_per_warp, order, k_dim)
        result = _tiled(result, "warp", parent.warps_per_cta, order, k_dim)
        return result.fitted(shape, "register")
    if type(parent).__name__ != "NVMMADistributedLayout":
        raise ValueError(f"a dot operand of {type(parent).__name__} has no register map: its parent must be "
                         "BlockedLayout or NVMMADistributedLayout")  # fmt: skip
    if parent.version[0] == 3 and not is_a:
        raise ValueError("wgmma reads operand B from shared memory only: it has no register layout")
    other = rank - 2 if is_a else rank - 1
    order = (k_dim, other, *reversed(range(rank - 2)))
    result = _mma_fragment(other, k_dim, 16 if is_a else 8, 8 * layout.k_width, layout.k_width, order)
    result = _tiled(result, "warp", parent.warps_per_cta, _mma_warp_order(parent, rank), k_dim)
    return result.fitted(shape, "register")


_RULES: dict[str, Callable[[Any, tuple[int, ...]], LinearLayout]] = {
    "BlockedLayout": _blocked,
    "SliceLayout": _slice,
    "DistributedLinearLayout": _explicit,
    "DotOperandLayout": _dot_operand,
    "NVMMADistributedLayout": _mma,
}
