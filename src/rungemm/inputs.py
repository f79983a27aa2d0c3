"""What a user hands over: shapes, names of rungs, and matrices in files. Every refusal is one line with its remedy.

A file is read without ever running code from it: ``.npy`` without pickles, ``.pt`` by torch's ``weights_only``.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .errors import INSTALL_TORCH, UserError

__all__ = [
    "InputError",
    "did_you_mean",
    "non_finite",
    "parse_batched_shape",
    "parse_shape",
    "random_matrix",
    "read_matrix",
    "select_names",
]


class InputError(UserError):
    """What the user gave cannot be used; the message names it, its value and the remedy."""


def parse_shape(text: str) -> tuple[int, int, int]:
    """M, N, K of ``"4096x4096x4096"``, or of ``"4096"`` for a cube; ``,`` and ``*`` separate too.

    Raises:
        InputError: not three whole numbers, or one that is negative or beyond what a kernel can index.
    """
    parts = _parts(text)
    if len(parts) == 1:
        parts *= 3
    if len(parts) != 3 or not _are_whole(parts):
        raise InputError(f"shape {text!r} is not MxNxK: write three whole numbers as in 512x256x128, or one for a cube")
    m, n, k = _extents(text, parts, ("M", "N", "K"))
    return m, n, k


def parse_batched_shape(text: str) -> tuple[int, int, int, int]:
    """Batch, M, N, K of ``"8x64x64x64"``; a text without a batch, as :func:`parse_shape` takes it, has a batch of 1.

    Raises:
        InputError: neither three nor four whole numbers, or one that is negative or beyond what a kernel can index.
    """
    parts = _parts(text)
    if len(parts) < 4:
        return (1, *parse_shape(text))
    if len(parts) > 4 or not _are_whole(parts):
        raise InputError(
            f"shape {text!r} is not MxNxK or BATCHxMxNxK: write three whole numbers as in 512x256x128, "
            f"or four as in 8x512x256x128"
        )
    batch, m, n, k = _extents(text, parts, ("the batch", "M", "N", "K"))
    return batch, m, n, k


def _parts(text: str) -> list[str]:
    return [part.strip() for part in re.split(r"[x×*,]", text.strip().lower())]


def _are_whole(parts: list[str]) -> bool:
    return all(re.fullmatch(r"[+-]?\d+", part) for part in parts)


def _extents(text: str, parts: list[str], names: tuple[str, ...]) -> list[int]:
    sizes = [int(part) for part in parts]
    for name, size in zip(names, sizes, strict=True):
        if size < 0:
            raise InputError(f"shape {text!r}: {name} is {size}; it must be 0 or more")
        if size > 2**31 - 1:
            raise InputError(f"shape {text!r}: {name} is {size}; kernels index up to 2147483647 rows or columns")
    return sizes


def select_names(text: str | None, known: list[str], what: str = "rung") -> list[str]:
    """The names that a list such as ``"naive,shared_tile-vectorised"`` picks, in the order of ``known``.

    ``a-b`` (or ``a..b``) is a range with both ends, by name or by number counted from 1; ``all`` or nothing is
    everything. Case, and dashes for underscores, are forgiven.

    Raises:
        InputError: an unknown name, a range that runs backwards, or nothing picked.
    """
    if text is None or text.strip().lower() == "all":
        return list(known)
    picked: set[str] = set()
    for part in (part.strip() for part in text.split(",")):
        if not part:
            continue
        if part.lower() == "all":
            picked.update(known)
            continue
        single = _named(part, known)
        if single is not None:
            picked.add(single)
            continue
        ends = _range(part, known)
        if ends is None:
            near = did_you_mean(part, known)
            raise InputError(f"{what} {part!r} is unknown: {near}use {', '.join(known)}, a range such as 1-3, or all")
        first, last = (known.index(end) for end in ends)
        if first > last:
            raise InputError(f"range {part!r} runs backwards: {ends[1]} comes before {ends[0]}; swap the ends")
        picked.update(known[first : last + 1])
    if not picked:
        raise InputError(f"no {what} in {text!r}: use {', '.join(known)}, a range such as 1-3, or all")
    return [name for name in known if name in picked]


def did_you_mean(text: str, known: Sequence[str]) -> str:
    """ "did you mean 'naive'? " for a name that is nearly one of the known ones, "" for one that is like none."""
    near = difflib.get_close_matches(text.strip().lower().replace("-", "_"), known, n=1)
    return f"did you mean {near[0]!r}? " if near else ""


def _named(text: str, known: list[str]) -> str | None:
    """The known name that the text means, by name or by number from 1."""
    key = text.strip().lower().replace("-", "_")
    if key in known:
        return key
    if key.isdigit() and 1 <= int(key) <= len(known):
        return known[int(key) - 1]
    return None


def _range(text: str, known: list[str]) -> tuple[str, str] | None:
    """The two ends of a range, wherever the dash that splits it is: names may hold dashes themselves."""
    for split in re.finditer(r"\.\.|-", text):
        first, last = _named(text[: split.start()], known), _named(text[split.end() :], known)
        if first is not None and last is not None:
            return first, last
    return None


def random_matrix(rng: np.random.Generator, rows: int, cols: int) -> np.ndarray:
    """A rows x cols fp32 matrix of standard normal numbers, row-major."""
    return rng.standard_normal((rows, cols), dtype=np.float32)


def non_finite(array: np.ndarray) -> str:
    """ "2 NaN, 1 Inf" of a matrix, "" where every number is finite."""
    counted = ((int(np.count_nonzero(np.isnan(array))), "NaN"), (int(np.count_nonzero(np.isinf(array))), "Inf"))
    return ", ".join(f"{count} {what}" for count, what in counted if count)


def read_matrix(
    operand: str, path: str | Path, *, cast: bool = False, on_note: Callable[[str], None] | None = None
) -> np.ndarray:
    """The matrix of fp32 in a ``.npy`` or ``.pt`` file, dense, row-major or column-major as it is there.

    NaN and Inf are data like any other. Numbers of another byte order are brought to this machine's, unchanged in
    value.

    Args:
        operand: what messages call it ("A").
        cast: round other real types to fp32 instead of refusing them.
        on_note: told in one line of numbers that were finite and are beyond fp32: they become Inf.

    Raises:
        InputError: no such file, not readable, not a matrix, or not fp32.
    """
    path = Path(path)
    try:
        if not path.exists():
            raise InputError(f"{operand}: no file {path}: give the path of a .npy or .pt file with a 2-D fp32 array")
        if path.is_dir():
            raise InputError(f"{operand}: {path} is a directory: give the path of a .npy or .pt file in it")
        if not path.is_file():
            raise InputError(f"{operand}: {path} is a device or a pipe: give the path of a .npy or .pt file")
        if path.stat().st_size == 0:
            raise InputError(f"{operand}: {path} is empty: write it again, for instance with numpy.save")
        array = _load(operand, path)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InputError(f"{operand}: {path} cannot be read ({reason}): check the path and its permissions") from None
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{operand}: {str(path)!r} is no path ({error}): give that of a .npy or .pt file") from None
    return _as_fp32_matrix(operand, path, array, cast, on_note)


def _load(operand: str, path: Path) -> np.ndarray:
    suffix = path.suffix.lower()
    if suffix == ".npy":
        return _load_npy(operand, path)
    if suffix in (".pt", ".pth"):
        return _load_pt(operand, path)
    raise InputError(f"{operand}: {path} is neither .npy nor .pt: save it with numpy.save or torch.save")


def _load_npy(operand: str, path: Path) -> np.ndarray:
    with path.open("rb") as file:
        if file.read(6) != b"\x93NUMPY":
            raise InputError(
                f"{operand}: {path} is not in the .npy format (a pickle or an archive is not read): "
                f"save one array with numpy.save(path, x, allow_pickle=False)"
            )
    try:
        # Mapped first: the header is then checked against the file's length before any memory is taken for the data.
        return np.array(np.load(path, mmap_mode="r", allow_pickle=False), order="K")
    except OSError:
        raise
    except MemoryError:
        raise InputError(f"{operand}: {path} does not fit in memory: take a smaller matrix") from None
    except Exception as error:  # a broken header leaves NumPy as ValueError, EOFError, SyntaxError, TokenError, ...
        if "Python objects" in str(error) or "allow_pickle" in str(error):
            raise InputError(
                f"{operand}: {path} holds Python objects, which are not loaded (a pickle can run code): "
                f"save numbers, numpy.save(path, x.astype(numpy.float32))"
            ) from None
        raise InputError(
            f"{operand}: {path} is damaged or cut short ({_one_line(error)}): write it again with numpy.save"
        ) from None


def _load_pt(operand: str, path: Path) -> np.ndarray:
    try:
        import torch
    except ImportError:
        raise InputError(
            f"{operand}: {path} needs torch to be read: {INSTALL_TORCH}, or save it with numpy.save"
        ) from None
    with path.open("rb") as file:
        start = file.read(4)
    # torch's own message for noise speaks of weights_only too: tell a file of another kind by its first bytes.
    if start != b"PK\x03\x04" and start[:1] != b"\x80":
        raise InputError(f"{operand}: {path} is no torch file: write it with torch.save(tensor, path)")
    try:
        value: Any = torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # torch raises a dozen kinds here, none of them documented
        if "weights_only" in str(error) or "WeightsUnpickler" in str(error):
            raise InputError(
                f"{operand}: {path} holds more than tensors, which is not loaded (a pickle can run code): "
                f"torch.save the one tensor"
            ) from None
        raise InputError(
            f"{operand}: {path} is damaged ({_one_line(error)}): write it with torch.save"
        ) from None
    if not isinstance(value, torch.Tensor):
        raise InputError(
            f"{operand}: {path} holds a {type(value).__name__}, not a tensor: torch.save one tensor by itself"
        )
    if value.layout != torch.strided:
        raise InputError(f"{operand}: {path} holds a {value.layout} tensor: save tensor.to_dense()")
    value = value.detach()
    if value.dtype == torch.bfloat16 or (value.dtype.itemsize == 1 and value.dtype.is_floating_point):
        # NumPy has no such type; the name is what the caller needs to refuse it, the values what it needs to cast it.
        import ml_dtypes

        name = str(value.dtype).removeprefix("torch.")
        return value.float().resolve_neg().numpy().astype(np.dtype(getattr(ml_dtypes, name)))
    return value.resolve_conj().resolve_neg().numpy()


def _as_fp32_matrix(
    operand: str, path: Path, array: np.ndarray, cast: bool, on_note: Callable[[str], None] | None
) -> np.ndarray:
    if array.ndim != 2:
        shape = "x".join(map(str, array.shape)) or "a single number"
        raise InputError(
            f"{operand}: {path} is {array.ndim}-D ({shape}); a matrix is 2-D: save one matrix, or reshape it to 2-D"
        )
    native = array.dtype.newbyteorder("=")
    if native == np.float32:
        return np.array(array, np.float32, order="K")
    real = np.issubdtype(native, np.floating) or np.issubdtype(native, np.integer) or native.kind == "V"
    if not real or (native.kind == "V" and not native.name.startswith(("bfloat", "float"))):
        raise InputError(f"{operand}: {path} is {array.dtype}; it must be float32: save real numbers as numpy.float32")
    if not cast:
        raise InputError(
            f"{operand}: {path} is {native.name}; it must be float32: pass --cast to round it to float32, "
            f"or save x.astype(numpy.float32)"
        )
    with np.errstate(over="ignore"):
        rounded = array.astype(np.float32)
    beyond = int(np.count_nonzero(np.isinf(rounded))) - int(np.count_nonzero(np.isinf(array)))
    if beyond and on_note is not None:
        numbers = "1 number is" if beyond == 1 else f"{beyond} numbers are"
        on_note(f"{operand}: {numbers} beyond fp32's 3.4e38 and cast to Inf")
    return rounded


def _one_line(error: BaseException) -> str:
    """The first line of an error's text, short enough to sit inside a sentence."""
    lines = str(error).strip().splitlines()
    text = lines[0] if lines else type(error).__name__
    return text if len(text) <= 90 else text[:87] + "..."
