"""A per-user store of small results on disk: JSON beside an optional binary blob, checked when read.

Nothing here is ever unpickled or executed. An entry is written whole or not at all (a temporary file, then a
rename), carries a checksum, and counts only if this user wrote it; anything else is ignored with a one-line
notice and made anew by the caller.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["DiskStore", "Entry", "cache_root"]

FORMAT = 1
LOCK_TIMEOUT_S = 300.0
SIZE_LIMIT = 2 * 1024**3
"""Bytes that one store may take: when it has grown past this, the entries longest unused go, down to three quarters."""

_SAVES_BETWEEN_LOOKS = 50
log = logging.getLogger("rungemm")


def cache_root() -> Path:
    """Where this user's caches lie: ``RUNGEMM_CACHE_DIR`` if set, else the system's place for them."""
    named = os.environ.get("RUNGEMM_CACHE_DIR")
    if named:
        return Path(named).expanduser()
    import platformdirs  # here, so that a machine with the variable set needs no more than NumPy and Triton

    return Path(platformdirs.user_cache_dir("rungemm"))


@dataclass(frozen=True)
class Entry:
    """What was stored under a key: JSON data and bytes (empty if none were stored)."""

    data: dict[str, Any]
    blob: bytes


class _Rejected(Exception):
    """An entry that must not be used; the message says why."""


class DiskStore:
    """The entries of one kind, in a folder ``<cache root>/<name>`` that only this user can enter.

    If the folder cannot be used (another user owns it, or it cannot be written), one notice says so and the store
    holds nothing: every load misses and every save is dropped, so that the caller works on without a cache.
    """

    _saves = 0  # by all stores of this process: most live for one entry

    def __init__(self, name: str, root: Path | None = None) -> None:
        self.path = (root or cache_root()) / name
        self.usable = True
        try:
            _claim(self.path)
        except (OSError, _Rejected) as error:
            self._refuse(str(error))

    def _refuse(self, reason: str) -> None:
        if self.usable:
            log.warning("rungemm: cache %s not used: %s", self.path, reason)
        self.usable = False

    def load(self, key: str) -> Entry | None:
        """The entry, or ``None`` if there is none that can be trusted."""
        if not self.usable:
            return None
        try:
            return self._read(key)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, _Rejected) as error:
            log.warning("rungemm: cache entry %s ignored and made anew: %s", key[:16], error)
            return None

    def _read(self, key: str) -> Entry:
        record = json.loads(_read_own(self._file(key, "json")))
        body = record["body"]
        if record["checksum"] != _checksum(body):
            raise _Rejected("bad checksum")
        if body["format"] != FORMAT or body["key"] != key:
            raise _Rejected("written for another key or format")
        with contextlib.suppress(OSError):
            os.utime(self._file(key, "json"))  # used now: the last to be removed
        blob = b""
        if body["blob_sha256"] is not None:
            try:
                blob = _read_own(self._file(key, "bin"))
            except FileNotFoundError as error:
                raise _Rejected("its binary half is missing") from error
            if hashlib.sha256(blob).hexdigest() != body["blob_sha256"]:
                raise _Rejected("bad checksum of its binary half")
        return Entry(body["data"], blob)

    def save(self, key: str, data: dict[str, Any], blob: bytes = b"") -> None:
        """Write an entry; a store or a disk that cannot take it costs a notice, not an error."""
        if not self.usable:
            return
        digest = hashlib.sha256(blob).hexdigest() if blob else None
        body = {"format": FORMAT, "key": key, "blob_sha256": digest, "data": data}
        text = json.dumps({"checksum": _checksum(body), "body": body})
        try:
            # The blob first: a record on disk must never name a blob that is not there yet.
            if blob:
                _write_whole(self._file(key, "bin"), blob)
            _write_whole(self._file(key, "json"), text.encode())
        except OSError as error:
            self._refuse(str(error))
            return
        DiskStore._saves += 1
        if DiskStore._saves % _SAVES_BETWEEN_LOOKS == 0:
            self.shrink()

    def shrink(self, limit: int | None = None) -> None:
        """Remove the entries longest unused if the store takes more than ``limit`` bytes (SIZE_LIMIT if not said).

        A reader that loses one half of an entry meanwhile makes it anew.
        """
        limit = SIZE_LIMIT if limit is None else limit
        found: dict[str, list[os.DirEntry[str]]] = {}
        with contextlib.suppress(OSError), os.scandir(self.path) as folder:
            for file in folder:
                if not file.name.endswith(".lock"):
                    found.setdefault(file.name.partition(".")[0], []).append(file)
        entries = []
        for files in found.values():
            with contextlib.suppress(OSError):
                states = [file.stat(follow_symlinks=False) for file in files]
                entries.append((max(s.st_mtime for s in states), sum(s.st_size for s in states), files))
        total = sum(size for _, size, _ in entries)
        if total <= limit:
            return
        for _, size, files in sorted(entries, key=lambda entry: entry[0]):
            # The record first: it must never name a blob that is gone.
            for file in sorted(files, key=lambda file: not file.name.endswith(".json")):
                with contextlib.suppress(OSError):
                    os.unlink(file.path)
            total -= size
            if total <= limit * 3 // 4:
                return

    @contextlib.contextmanager
    def lock(self, key: str) -> Iterator[None]:
        """Held by one process at a time for this key (keys that share their first two characters share a lock).

        A holder that takes longer than LOCK_TIMEOUT_S is no longer waited for: the work is then done twice, which
        the whole-file writes make harmless.
        """
        if not self.usable:
            yield
            return
        # Only here: it hooks itself into every audited event of Python, which slows the simulator.
        import filelock

        held = filelock.FileLock(str(self.path / f"{key[:2]}.lock"), timeout=LOCK_TIMEOUT_S, mode=0o600)
        try:
            held.acquire()
        except (filelock.Timeout, OSError) as error:
            log.warning("rungemm: going on without the cache's lock: %s", str(error).splitlines()[0])
            yield
            return
        try:
            yield
        finally:
            held.release()

    def _file(self, key: str, suffix: str) -> Path:
        return self.path / f"{key}.{suffix}"


def _claim(folder: Path) -> None:
    """Make the folder, or check that it is ours, and close it to everyone else."""
    for parent in reversed(folder.parents):
        if not parent.exists():
            parent.mkdir(mode=0o700, exist_ok=True)
    owner = folder.parent.stat().st_uid
    if owner not in (0, os.geteuid()):
        raise _Rejected(f"{folder.parent} belongs to user {owner}: set RUNGEMM_CACHE_DIR to a folder of yours")
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise _Rejected("it is not a folder: set RUNGEMM_CACHE_DIR to a folder of yours")
    if status.st_uid != os.geteuid():
        raise _Rejected(f"it belongs to user {status.st_uid}: set RUNGEMM_CACHE_DIR to a folder of yours")
    if status.st_mode & 0o077:
        folder.chmod(0o700)


def _read_own(path: Path) -> bytes:
    """A file's bytes, if it is a plain file that this user owns."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise _Rejected("not a plain file")
        if status.st_uid != os.geteuid():
            raise _Rejected(f"written by user {status.st_uid}")
        return file.read()


def _write_whole(path: Path, content: bytes) -> None:
    handle, temporary = tempfile.mkstemp(prefix=path.name + ".", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _checksum(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
