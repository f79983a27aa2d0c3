"""Users' shapes, names and files: read exactly, or refused in one line with a remedy."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pytest

from rungemm.inputs import InputError, parse_batched_shape, parse_shape, read_matrix, select_names

NAMES = ["naive", "coalesced", "shared_tile", "thread_tile_1d"]


def refusal(call, *arguments, **keywords) -> str:
    """The message of the InputError that the call raises; it must be a single line."""
    with pytest.raises(InputError) as caught:
        call(*arguments, **keywords)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("4096", (4096, 4096, 4096)),
        ("1x2x3", (1, 2, 3)),
        ("7 X 5 x 0", (7, 5, 0)),
        ("7,5,3", (7, 5, 3)),
        ("7*5*3", (7, 5, 3)),
    ],
)
def test_shapes(text, shape):
    assert parse_shape(text) == shape


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("-1x5x5", "M is -1"),
        ("5x-2x5", "N is -2"),
        ("5x5x99999999999", "K is 99999999999"),
        ("5x5", "not MxNxK"),
        ("", "not MxNxK"),
        ("axbxc", "not MxNxK"),
        ("1.5x2x3", "not MxNxK"),
        ("1x2x3x4", "not MxNxK"),
        ("1e3x2x3", "not MxNxK"),
    ],
)
def test_shapes_refused(text, says):
    message = refusal(parse_shape, text)
    assert says in message and repr(text) in message


@pytest.mark.parametrize(
    ("text", "shape"),
    [("8x2x3x4", (8, 2, 3, 4)), ("8 × 2*3,4", (8, 2, 3, 4)), ("2x3x4", (1, 2, 3, 4)), ("7", (1, 7, 7, 7)),
     ("0x2x3x4", (0, 2, 3, 4))],
)  # fmt: skip
def test_shapes_with_a_batch(text, shape):
    assert parse_batched_shape(text) == shape


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("-8x2x3x4", "the batch is -8; it must be 0 or more"),
        ("8x2x3x-4", "K is -4"),
        ("8x2x3x4294967296", "K is 4294967296"),
        ("8x2x3x4x5", "BATCHxMxNxK: write three whole numbers"),
        ("8x2x3xd", "BATCHxMxNxK"),
        ("2x3", "not MxNxK"),
    ],
)
def test_shapes_with_a_batch_refused(text, says):
    message = refusal(parse_batched_shape, text)
    assert says in message and repr(text) in message


@pytest.mark.parametrize(
    ("text", "picked"),
    [
        (None, NAMES),
        ("all", NAMES),
        ("naive,Shared-Tile", ["naive", "shared_tile"]),
        ("shared_tile,naive", ["naive", "shared_tile"]),
        ("2-3", ["coalesced", "shared_tile"]),
        ("shared-tile-thread-tile-1d", ["shared_tile", "thread_tile_1d"]),
        ("coalesced..4", ["coalesced", "shared_tile", "thread_tile_1d"]),
        ("1, 4", ["naive", "thread_tile_1d"]),
    ],
)
def test_rungs(text, picked):
    assert select_names(text, NAMES) == picked


@pytest.mark.parametrize(
    ("text", "says"), [("nope", "'nope'"), ("3-1", "backwards"), (",", "no rung"), ("0", "'0'"), ("5", "'5'")]
)
def test_rungs_refused(text, says):
    assert says in refusal(select_names, text, NAMES)


@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_is_read_exactly(tmp_path, rng, order):
    x = np.array(rng.standard_normal((5, 7)), np.float32, order=order)
    x[1, 2], x[3, 4] = np.nan, -np.inf
    np.save(tmp_path / "x.npy", x)
    read = read_matrix("A", tmp_path / "x.npy")
    np.testing.assert_array_equal(read, x)
    assert read.strides == x.strides and read.dtype == np.float32


def test_other_byte_order_is_the_same_numbers(tmp_path, rng):
    x = rng.standard_normal((5, 7), dtype=np.float32)
    np.save(tmp_path / "x.npy", x.astype(">f4"))
    read = read_matrix("A", tmp_path / "x.npy")
    np.testing.assert_array_equal(read, x)
    assert read.dtype.isnative


def test_an_empty_extent_is_a_matrix(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((0, 7), np.float32))
    assert read_matrix("A", tmp_path / "x.npy").shape == (0, 7)


@pytest.mark.parametrize("dtype", ["float64", "float16", "int64", "int8"])
def test_other_types_are_refused_or_rounded_on_request(tmp_path, rng, dtype):
    x = (rng.standard_normal((3, 4)) * 50).astype(dtype)
    np.save(tmp_path / "x.npy", x)
    message = refusal(read_matrix, "B", tmp_path / "x.npy")
    assert message.startswith("B:") and dtype in message and "--cast" in message
    np.testing.assert_array_equal(read_matrix("B", tmp_path / "x.npy", cast=True), x.astype(np.float32))


@pytest.mark.parametrize(
    "value", [np.zeros((2, 2), complex), np.array([["a"]]), np.zeros((2, 2), bool), np.zeros((2, 2), [("a", "f4")])]
)
def test_what_is_no_real_number_is_refused_even_with_cast(tmp_path, value):
    np.save(tmp_path / "x.npy", value)
    assert "must be float32" in refusal(read_matrix, "A", tmp_path / "x.npy", cast=True)


@pytest.mark.parametrize("shape", [(), (3,), (1, 2, 3)])
def test_what_is_not_2d_is_refused(tmp_path, shape):
    np.save(tmp_path / "x.npy", np.zeros(shape, np.float32))
    assert f"{len(shape)}-D" in refusal(read_matrix, "A", tmp_path / "x.npy")


class Bomb:
    """Unpickling it creates a file: proof that something was executed."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (self.path, "w"))


@pytest.mark.parametrize("as_array", [True, False])
def test_pickles_are_never_run(tmp_path, as_array):
    proof = tmp_path / "executed"
    if as_array:
        np.save(tmp_path / "x.npy", np.array([[Bomb(str(proof))]], dtype=object), allow_pickle=True)
    else:
        (tmp_path / "x.npy").write_bytes(pickle.dumps(Bomb(str(proof))))
    assert "pickle" in refusal(read_matrix, "A", tmp_path / "x.npy")
    assert not proof.exists()


def test_damaged_files(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.ones((30, 40), np.float32))
    whole = path.read_bytes()
    for broken in (
        whole[:-5],
        whole[:20],
        whole[:7],
        whole.replace(b"(30, 40)", b"(30, 41)"),
        whole[:12] + b"\xff" * 40,
    ):
        path.write_bytes(broken)
        assert "damaged or cut short" in refusal(read_matrix, "A", path)
    # A header that promises 4 TB is found out before memory is taken for it.
    path.write_bytes(whole.replace(b"(30, 40), }            ", b"(999999, 999999), }    "))
    assert "damaged or cut short" in refusal(read_matrix, "A", path)


def test_files_that_are_none(tmp_path):
    (tmp_path / "empty.npy").touch()
    (tmp_path / "x.txt").write_text("1 2\n")
    np.savez(tmp_path / "x.npz", np.ones((2, 2)))
    os.mkfifo(tmp_path / "pipe.npy")
    for name, says in (
        ("none.npy", "no file"), ("empty.npy", "empty"), ("x.txt", "neither .npy nor .pt"), ("", "directory"),
        ("x.npz", "neither"), ("pipe.npy", "pipe"), ("x" * 300 + ".npy", ""), ("a\0b.npy", ""),
    ):  # fmt: skip
        assert says in refusal(read_matrix, "A", tmp_path / name)


def test_no_permission(tmp_path, monkeypatch):
    """Root may read anything, so the refusal of the system is played."""
    path = tmp_path / "x.npy"
    np.save(path, np.ones((2, 2), np.float32))

    def denied(*_args, **_kwargs):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("pathlib.Path.open", denied)
    message = refusal(read_matrix, "A", path)
    assert "permission denied" in message and str(path) in message


def test_pt_without_torch_says_so(tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "torch", None)
    (tmp_path / "x.pt").write_bytes(b"whatever")
    assert "needs torch" in refusal(read_matrix, "A", tmp_path / "x.pt")


def test_pt_with_torch(tmp_path, rng):
    torch = pytest.importorskip("torch")
    path = tmp_path / "x.pt"
    x = torch.from_numpy(rng.standard_normal((5, 7), dtype=np.float32))
    for value in (x, x.t(), x[::2, 1:], x.requires_grad_()):
        torch.save(value, path)
        np.testing.assert_array_equal(read_matrix("A", path), value.detach().numpy())
    x = x.detach()
    for value, says in (
        ({"a": x}, "dict"), (x.to_sparse(), "sparse"), (x.double(), "float64"), (x.bfloat16(), "bfloat16"),
        (x[0], "1-D"),
    ):  # fmt: skip
        torch.save(value, path)
        assert says in refusal(read_matrix, "A", path)
    torch.save(x.bfloat16(), path)
    np.testing.assert_array_equal(read_matrix("A", path, cast=True), x.bfloat16().float().numpy())
    proof = tmp_path / "executed"
    torch.save(Bomb(str(proof)), path)
    assert "pickle" in refusal(read_matrix, "A", path) and not proof.exists()
    path.write_bytes(b"no torch file")
    assert "no torch file" in refusal(read_matrix, "A", path)
