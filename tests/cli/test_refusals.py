"""Bad input: one line on stderr that names what is wrong and the remedy, exit code 2, no traceback."""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["ladder", "--rungs", "nope"], ["'nope'", "naive", "vectorised"]),
        (["ladder", "--rungs", "naiv"], ["'naiv' is unknown: did you mean 'naive'? use naive, coalesced"]),
        (["tune", "64", "--rung", "naiv"], ["did you mean 'naive'?"]),
        (["tune", "64", "--rung", "1-3"], ["'1-3' names 3 rungs"]),
        (["bench", "64"], ["none to use: no NVIDIA driver", "torch"]),
        (["tune", "64"], ["none to use: no NVIDIA driver", "torch", "--dry-run"]),
        (["tune", "64", "--gpu", "rtx4090"], ["none to use: no NVIDIA driver"]),
        (["ladder", "--rungs", "vectorised-naive"], ["backwards"]),
        (["check", "--rungs", "nope"], ["'nope'", "naive"]),
        (["explain", "nope"], ["'nope'", "naive"]),
        (["explain"], ["RUNG|MxNxK"]),
        (["ladder", "--shape", "64x64"], ["'64x64'", "MxNxK"]),
        (["ladder", "--shape", "-1x5x5"], ["M is -1", "0 or more"]),
        (["ladder", "--shape", "1x1x99999999999"], ["K is 99999999999", "2147483647"]),
        (["ladder", "--shape", "2000000x2000000x2000000"], ["2000000x2000000x2000000", "GB", "smaller"]),
        (["ladder", "--shape", "12000x12000x12000"], ["12000x12000x12000", "hours", "smaller"]),
        (["explain", "naive", "--shape", "1x"], ["'1x'", "MxNxK"]),
        (["ladder", "--gpu", "voodoo2"], ["'voodoo2'", "h200", "rtx4090"]),
        (["ladder", "--alpha", "two"], ["--alpha", "'two'", "number"]),
        (["ladder", "--alpha", "nan"], ["--alpha", "finite"]),
        (["ladder", "--beta", "1e39"], ["--beta", "1e39"]),
        (["ladder", "--seed", "-1"], ["--seed", "'-1'", "0 or more"]),
        (["ladder", "--seed", "abc"], ["--seed", "'abc'"]),
        (["ladder", "--schedule", "soon"], ["--schedule", "'soon'", "late", "random"]),
        (["check", "--schedule", "soon"], ["--schedule", "'soon'", "late", "random"]),
        (["explain", "naive", "--schedule", "soon"], ["--schedule", "'soon'", "late", "random"]),
        (["explain", "64x64x64", "--schedule", "random"], ["--schedule", "rung", "64x64x64"]),
        (["ladder", "--dtype", "fp12"], ["--dtype", "'fp12'", "bf16"]),
        (["ladder", "--a", "x.npy"], ["B is missing", "--b"]),
        (["ladder", "--b", "x.npy"], ["A is missing", "--a"]),
        (["ladder", "--a", "x.npy", "--b", "y.npy", "--shape", "64"], ["--shape", "exclude"]),
        (["ladder", "--nope"], ["--nope", "--help"]),
        (["ladder", "extra"], ["extra"]),
        (["nope"], ["nope", "--help"]),
        (["ladder", "--shape"], ["--shape"]),
    ],
)
def test_arguments(refused, arguments, says, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda _: None)
    line = refused(*arguments)
    for words in says:
        assert words in line


@pytest.fixture
def good(tmp_path):
    """A readable 6 x 4 matrix, to stand beside a bad one."""
    path = tmp_path / "good.npy"
    np.save(path, np.ones((6, 4), np.float32))
    return path


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("short.npy", np.ones((4, 5), np.float32)[:3], ["K differs", "4 columns of A, 3 rows of B"]),
        ("double.npy", np.ones((4, 5)), ["B:", "float64", "float32", "--cast"]),
        ("words.npy", np.array([["a"]]), ["B:", "must be float32"]),
        ("cube.npy", np.ones((1, 4, 5), np.float32), ["B:", "3-D", "1x4x5", "2-D"]),
        ("vector.npy", np.ones(4, np.float32), ["B:", "1-D"]),
        ("empty.npy", b"", ["B:", "empty"]),
        ("noise.npy", b"\x93NUMPY\x01\x00\xff\xff", ["B:", "damaged"]),
        ("pickled.npy", pickle.dumps([1, 2]), ["B:", "pickle"]),
        ("text.csv", b"1,2\n", ["B:", "neither .npy nor .pt"]),
        ("missing.npy", None, ["B:", "no file"]),
        ("", None, ["B:", "directory"]),
    ],
)
def test_files(refused, tmp_path, good, name, content, says):
    path = tmp_path / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        np.save(path, content)
    line = refused("ladder", "--a", good, "--b", path)
    for words in says:
        assert words in line
    if content is not None and "K differs" not in says:
        assert str(path) in line


def test_an_array_of_objects_is_not_unpickled(refused, tmp_path, good):
    np.save(tmp_path / "x.npy", np.array([[{}]], dtype=object), allow_pickle=True)
    assert "Python objects" in refused("ladder", "--a", good, "--b", tmp_path / "x.npy")


def test_the_shape_of_c(refused, tmp_path, good):
    np.save(tmp_path / "b.npy", np.ones((4, 5), np.float32))
    np.save(tmp_path / "c.npy", np.ones((5, 6), np.float32))
    line = refused("ladder", "--a", good, "--b", tmp_path / "b.npy", "--c", tmp_path / "c.npy", "--beta", "1")
    assert "C is 5x6" in line and "6x5" in line


def test_no_permission_for_another_user():
    """As a user who may not read the file: root drops to nobody for this one."""
    script = (
        "import os, sys; from rungemm.inputs import InputError, read_matrix\n"
        "if os.getuid() == 0: os.setgroups([]); os.setuid(65534)\n"
        "try: read_matrix('B', sys.argv[1])\n"
        "except InputError as error: print(error)"
    )
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        path = Path(folder, "secret.npy")
        np.save(path, np.ones((4, 5), np.float32))
        path.chmod(0)
        ran = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=False)
    assert ran.stdout.startswith("B:") and "permission denied" in ran.stdout, ran
