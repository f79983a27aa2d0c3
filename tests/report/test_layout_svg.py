"""The drawings say what the maps say, and stand on their own."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pytest

from rungemm.compat import gl, padded_shared_layout
from rungemm.layouts import register_map, shared_map
from rungemm.report.layout_svg import distributed_svg, shared_svg

SVG = "{http://www.w3.org/2000/svg}"


def texts(drawing: str, kind: str) -> list[str]:
    root = ElementTree.fromstring(drawing)
    return [e.text or "" for e in root.iter(SVG + "text") if kind in (e.get("class") or "").split()]


def test_every_cell_of_a_register_layout_is_labelled_with_its_owner() -> None:
    layout, shape = gl.NVMMADistributedLayout([2, 0], [2, 2], [16, 8]), (32, 16)
    index = register_map(layout, shape, 4).index
    expected = []
    for element in range(16 * 16):  # the first 16 rows
        warp, lane, register = (int(x[0]) for x in np.nonzero(index == element))
        expected.append(f"{lane}·{register}" if warp == 0 else f"W{warp}")
    assert texts(distributed_svg(layout, shape, 4), "cell") == expected


def test_every_cell_of_a_shared_layout_is_labelled_with_its_bank() -> None:
    layout = padded_shared_layout(32, 4, [8, 32], [1, 0])
    drawing = shared_svg(layout, (8, 32), 4)
    banks = (shared_map(layout, (8, 32), 4).offset // 4 % 32).reshape(-1)
    labels = texts(drawing, "cell")
    assert labels[:256] == [str(bank) for bank in banks]
    words = [label for label in labels[256:] if label]
    assert words == [f"{row},{col}" for row in range(8) for col in range(32)]  # in the order of their addresses
    assert drawing.count("url(#padding)") == 7 * 4


@pytest.mark.parametrize("size", [1, 2, 4])
def test_words_of_small_elements_are_named_by_their_first(size: int) -> None:
    layout = gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    words = [label for label in texts(shared_svg(layout, (4, 32), size), "cell") if "," in label]
    assert words == [f"{row},{col}" for row in range(4) for col in range(0, 32, 4 // size)]


def test_a_drawing_needs_nothing_from_outside_and_has_a_dark_side() -> None:
    drawing = distributed_svg(gl.BlockedLayout([2, 2], [8, 4], [2, 2], [1, 0]), (64, 64), 4, "A <tile> & more")
    assert ElementTree.fromstring(drawing).find(SVG + "title").text == "A <tile> & more"  # type: ignore[union-attr]
    assert "prefers-color-scheme: dark" in drawing
    assert re.findall(r"https?://[^\"']+", drawing) == ["http://www.w3.org/2000/svg"]
    assert "@import" not in drawing and "<script" not in drawing


def test_vectors_and_replicas_are_drawn_and_cubes_refused() -> None:
    vector = distributed_svg(gl.SliceLayout(0, gl.BlockedLayout([1, 1], [1, 32], [4, 1], [1, 0])), (64,), 4)
    assert "every element in 4 places" in vector
    with pytest.raises(ValueError, match="one or two dimensions"):
        distributed_svg(gl.BlockedLayout([1, 1, 1], [1, 1, 32], [4, 1, 1], [2, 1, 0]), (4, 4, 32), 4)
