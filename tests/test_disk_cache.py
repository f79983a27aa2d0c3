"""The store on disk: whole entries or none, and nothing that is damaged or someone else's."""

from __future__ import annotations

import json
import logging
import os
import stat
import threading
from pathlib import Path

import pytest

from rungemm.cache import DiskStore, cache_root

KEY = "ab" * 32


@pytest.fixture
def store(tmp_path: Path) -> DiskStore:
    made = DiskStore("things", tmp_path / "root")
    made.save(KEY, {"answer": 42}, b"binary")
    return made


def notices(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_what_was_saved_is_loaded_and_private(store: DiskStore) -> None:
    entry = store.load(KEY)
    assert entry is not None and entry.data == {"answer": 42} and entry.blob == b"binary"
    assert store.load("cd" * 32) is None
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o700
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in store.path.iterdir())


def test_an_open_folder_is_closed(tmp_path: Path) -> None:
    folder = tmp_path / "root" / "things"
    folder.mkdir(parents=True, mode=0o777)
    folder.chmod(0o777)
    assert DiskStore("things", tmp_path / "root").usable
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_the_environment_names_the_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RUNGEMM_CACHE_DIR", str(tmp_path / "here"))
    assert cache_root() == tmp_path / "here"
    monkeypatch.delenv("RUNGEMM_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_root() == tmp_path / "xdg" / "rungemm"


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


def _change_data(path: Path) -> None:
    record = json.loads(path.read_text())
    record["body"]["data"]["answer"] = 43
    path.write_text(json.dumps(record))


@pytest.mark.parametrize(
    ("suffix", "damage"),
    [
        ("json", _cut),
        ("json", _change_data),
        ("json", lambda path: path.write_text("[]")),
        ("json", lambda path: path.write_bytes(b"\xff\xfe")),
        ("bin", _cut),
        ("bin", lambda path: path.unlink()),
        ("bin", lambda path: path.write_bytes(b"BINARY")),
    ],
)
def test_a_damaged_entry_is_ignored_with_one_notice_and_can_be_rewritten(store, caplog, suffix, damage) -> None:
    damage(store.path / f"{KEY}.{suffix}")
    assert store.load(KEY) is None
    (said,) = notices(caplog)
    assert "ignored and made anew" in said and "\n" not in said
    store.save(KEY, {"answer": 42}, b"binary")
    assert store.load(KEY) is not None


def test_an_entry_copied_under_another_key_is_ignored(store: DiskStore, caplog) -> None:
    other = "ef" * 32
    for suffix in ("json", "bin"):
        (store.path / f"{other}.{suffix}").write_bytes((store.path / f"{KEY}.{suffix}").read_bytes())
    assert store.load(other) is None and "another key" in notices(caplog)[0]


def test_a_link_is_not_followed(store: DiskStore, tmp_path: Path, caplog) -> None:
    real = store.path / f"{KEY}.json"
    moved = tmp_path / "moved.json"
    moved.write_bytes(real.read_bytes())
    real.unlink()
    real.symlink_to(moved)
    assert store.load(KEY) is None and notices(caplog)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_what_another_user_owns_is_refused(store: DiskStore, tmp_path: Path, caplog) -> None:
    os.chown(store.path / f"{KEY}.bin", 12345, -1)
    assert store.load(KEY) is None and "12345" in notices(caplog)[-1]
    os.chown(store.path, 12345, -1)
    refused = DiskStore("things", tmp_path / "root")
    assert not refused.usable and "belongs to user 12345" in notices(caplog)[-1]
    refused.save(KEY, {}, b"")
    assert refused.load(KEY) is None
    with refused.lock(KEY):
        pass
    os.chown(tmp_path / "root", 12345, -1)
    assert not DiskStore("others", tmp_path / "root").usable
    assert not (tmp_path / "root" / "others").exists()


def test_a_root_that_is_a_file_costs_a_notice(tmp_path: Path, caplog) -> None:
    (tmp_path / "file").write_text("x")
    refused = DiskStore("things", tmp_path / "file")
    assert not refused.usable and len(notices(caplog)) == 1


def test_writers_at_once_leave_one_whole_entry(store: DiskStore) -> None:
    def write(number: int) -> None:
        for _ in range(20):
            with store.lock(KEY):
                store.save(KEY, {"answer": number}, str(number).encode() * 1000)
                entry = store.load(KEY)
                good.append(entry is not None and entry.blob == str(number).encode() * 1000)

    good: list[bool] = []
    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(good) == 80 and all(good)
    assert not list(store.path.glob("*.tmp"))


def test_a_store_that_grew_loses_what_was_longest_unused(tmp_path: Path, caplog) -> None:
    grown = DiskStore("things", tmp_path / "root")
    keys = [f"{number:02d}" * 32 for number in range(10)]
    for age, key in enumerate(keys):
        grown.save(key, {"n": age}, bytes(10_000))
        for suffix in ("json", "bin"):
            os.utime(grown.path / f"{key}.{suffix}", (1000 + age, 1000 + age))
    assert grown.load(keys[0]) is not None, "used again, so no longer the oldest"
    grown.shrink(limit=200_000)
    assert all(grown.load(key) for key in keys), "under the limit nothing goes"
    for age, key in enumerate(keys[1:]):
        os.utime(grown.path / f"{key}.json", (1000 + age, 1000 + age))
    grown.shrink(limit=60_000)
    left = [key for key in keys if grown.load(key) is not None]
    assert left == [keys[0], *keys[7:]], "three quarters of the limit: four entries of some 10 kB"
    assert len(list(grown.path.glob("*.bin"))) == 4 and not notices(caplog)
    grown.save(KEY, {}, b"")
    assert grown.load(KEY) is not None
