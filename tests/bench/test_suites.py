from __future__ import annotations

from pathlib import Path

import pytest

from rungemm.bench.suites import SUITES, Shape, parse_shape, read_shapes, suite_named
from rungemm.dtypes import BF16, FP32
from rungemm.errors import UserError


def test_the_suites_of_the_issue_are_there() -> None:
    assert len(suite_named("cross27")) == 27 and len(set(suite_named("cross27"))) == 27
    assert len(suite_named("llm")) == 40
    assert {shape.m for shape in suite_named("squares")} >= {128, 256, 512, 1024, 2048, 4096, 8192, 16384}
    assert Shape(4097, 4095, 4093) in suite_named("ragged") and Shape(64, 64, 65536) in suite_named("deep")
    for name in SUITES:
        shapes = suite_named(name)
        assert shapes and all(shape.problem().flops > 0 for shape in shapes)
        assert len(shapes) == len(set(shapes))


def test_training_has_three_products_a_layer() -> None:
    """Y = X W' (NT), dX = dY W (NN) and dW = dY' X (TN) of one layer multiply the same three extents."""
    shapes = suite_named("training")
    layers = [shapes[index : index + 3] for index in range(0, len(shapes), 3)]
    assert len(layers) == 13
    for forward, of_input, of_weight in layers:
        tokens, n, k = forward.m, forward.n, forward.k
        assert tokens == 4096 and [each.layout for each in (forward, of_input, of_weight)] == ["NT", "NN", "TN"]
        assert (of_input.m, of_input.n, of_input.k) == (tokens, k, n)
        assert (of_weight.m, of_weight.n, of_weight.k) == (n, k, tokens)


def test_what_a_shape_fixes_wins_but_for_the_layout() -> None:
    assert Shape(2, 3, 4, layout="NT").problem().layout == "NT"
    assert Shape(2, 3, 4, layout="NT").problem(layout="TN").layout == "TN"
    assert Shape(2, 3, 4, dtype=BF16).problem(FP32).a.dtype == BF16
    assert Shape(2, 3, 4).problem(BF16, precision="tf32").precision == "ieee", "tf32 is a precision of fp32 only"
    assert Shape(2, 3, 4).problem(FP32, precision="tf32").precision == "tf32"


def test_parse() -> None:
    assert parse_shape("4096") == Shape(4096, 4096, 4096)
    assert parse_shape("2x3x4") == parse_shape("2×3×4") == Shape(2, 3, 4)
    assert parse_shape("8x2x3x4") == Shape(2, 3, 4, 8)
    for bad in ("", "2x3", "axbxc", "1x2x3x4x5", "-1x2x3", "2.5x3x4", "1x2x3xb"):
        with pytest.raises(UserError, match=r"write|must be"):
            parse_shape(bad)


def test_csv(tmp_path: Path) -> None:
    path = tmp_path / "shapes.csv"
    path.write_text("M, N, K, batch, layout, dtype, precision, label\n16,32,64,,nt,bf16,,a\n1,2,3,4,,,tf32,\n")
    first, second = read_shapes(path)
    assert first == Shape(16, 32, 64, 1, "NT", BF16, None, "a")
    assert second == Shape(1, 2, 3, 4, None, None, "tf32", "")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no shapes"),
        ("m,n\n1,2\n", "no column k"),
        ("m,n,k\n1,2,zero\n", "line 2: k is 'zero'"),
        ("m,n,k\n1,2,3\n1,0,3\n", "line 3: n is '0'"),
        ("m,n,k,layout\n1,2,3,NX\n", "layout is 'NX'"),
        ("m,n,k,dtype\n1,2,3,fp7\n", "fp7"),
        ("m,n,k,precision\n1,2,3,exact\n", "precision is 'exact'"),
    ],
)
def test_bad_csv_names_the_line(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "shapes.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=words):
        read_shapes(path)
    with pytest.raises(ValueError, match=r"gone\.csv"):
        read_shapes(tmp_path / "gone.csv")
