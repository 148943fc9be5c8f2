"""Writing, listing and fetching snapshots on local disk."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from state_lib.config import Settings
from state_lib.errors import (
    ConfigurationError,
    InvalidName,
    InvalidRequest,
    NotFound,
    SnapshotInvalid,
    StateCorrupt,
    StorageUnavailable,
    Unavailable,
)
from state_lib.snapshots.fetch import fetch
from state_lib.snapshots.inspect import inspect
from state_lib.snapshots.listing import find, list_snapshots, survey, task_storage, verify
from state_lib.snapshots.manifest import Manifest, _checksum
from state_lib.snapshots.storage import Storage
from state_lib.snapshots.write import write_snapshot
from state_lib.specs import StoreSpec
from tests.support.apps import HOUR, KV, NOON, WIN, win
from tests.support.snapshots import SMALL, Source, entries_of

MEMORY = StoreSpec("small", backend="memory", max_bytes=1 << 20)
SOME = {b"%05d" % i: os.urandom(100) for i in range(3_000)}
"""That make one SST."""
BULK = {b"%05d" % i: os.urandom(100) for i in range(30_000)}


def stored(url: str, *parts: str) -> list[Path]:
    return sorted(Path(url.removeprefix("file://"), "app", "0", *parts).iterdir())


def test_what_is_fetched_is_what_was_written(source: Source, url: str, tmp_path: Path) -> None:
    marker = source.write({b"a": b"1", b"b": b"2"})
    phases: list[tuple[str, int, int]] = []
    written = write_snapshot(source.request(url), lambda *p: phases.append(p))
    source.write({b"a": None, b"c": b"3"})

    (manifest,) = list_snapshots(url, "app", 0)
    assert manifest == written.manifest
    assert (manifest.marker, manifest.task, manifest.host) == (marker, "app/0", "host-1")
    assert manifest.offsets == {"app-kv-changelog": ["id-of-kv", 10]}
    assert manifest.topic_ids == {"app-kv-changelog": "id-of-kv"}
    assert manifest.written_at == marker.written_at
    assert manifest.stores == (KV,)
    assert manifest.versions["rocksdict"]
    assert written.uploaded_bytes == manifest.size_bytes == sum(f.size for f in manifest.files)
    assert [p[0] for p in phases][-1] == "upload"
    assert phases[-1][1:] == (written.uploaded_bytes, written.uploaded_bytes)
    assert verify(manifest, deep=True) == []

    fetch(manifest, tmp_path / "back")
    assert entries_of(tmp_path / "back", source.topology) == {b"a": b"1", b"b": b"2"}
    found = inspect(tmp_path / "back", source.topology, SMALL)
    assert found.checkpoint == manifest.checkpoint
    assert found.digests == manifest.digests
    assert list_snapshots(url, "app", 1) == []
    assert list_snapshots(url, "other", 0) == []


def test_only_what_storage_lacks_is_uploaded(source: Source, url: str, tmp_path: Path) -> None:
    source.write(BULK)
    first = write_snapshot(source.request(url))
    source.write({b"new": b"1"})
    second = write_snapshot(source.request(url))
    assert second.uploaded_bytes < first.uploaded_bytes / 20
    assert [m.id for m in list_snapshots(url, "app", 0)] == [second.manifest.id, first.manifest.id]

    read: list[str] = []
    storage = type(task_storage(url, "app", 0))
    download = storage.download

    def downloaded(self: Any, name: str, local: Path) -> bool:
        read.append(name)
        return download(self, name, local)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage, "download", downloaded)
        fetch(second.manifest, tmp_path / "back", have=[source.stores.rocks.path])
    sst = {f"files/{f.sha256}" for f in second.manifest.files if f.name.endswith(".sst")}
    assert not sst & set(read), "they were linked"
    assert entries_of(tmp_path / "back", source.topology) == {**BULK, b"new": b"1"}


def test_a_changed_local_file_is_not_linked(source: Source, url: str, tmp_path: Path) -> None:
    source.write(BULK)
    request = source.request(url)
    manifest = write_snapshot(request).manifest
    for path in request.directory.glob("*.sst"):
        content = bytearray(path.read_bytes())
        content[5] ^= 1
        path.unlink()
        path.write_bytes(content)
    fetch(manifest, tmp_path / "back", have=[request.directory, tmp_path / "nowhere"])
    assert entries_of(tmp_path / "back", source.topology) == BULK


def test_an_interrupted_fetch_is_completed(source: Source, url: str, tmp_path: Path) -> None:
    source.write(BULK)
    manifest = write_snapshot(source.request(url)).manifest
    back = tmp_path / "back"
    fetch(manifest, back)
    kept = max(back.iterdir(), key=lambda p: p.stat().st_size)
    inode = kept.stat().st_ino
    (back / "CURRENT").unlink()
    (back / "CURRENT.partial").write_bytes(b"MANI")
    (back / "OPTIONS-stale").write_bytes(b"of another one")
    next(back.glob("MANIFEST-*")).write_bytes(b"torn")
    fetch(manifest, back)
    assert kept.stat().st_ino == inode
    assert sorted(p.name for p in back.iterdir()) == sorted(f.name for f in manifest.files)
    assert entries_of(back, source.topology) == BULK


def test_memory_stores_are_kept_and_fetched_only_when_asked(tmp_path: Path, url: str) -> None:
    source = Source(tmp_path, stores=(KV, MEMORY))
    source.write({b"a": b"1"})
    source.write({b"m": b"2"}, "small")
    manifest = write_snapshot(source.request(url)).manifest
    source.stores.close()
    fetch(manifest, tmp_path / "plain")
    assert not (tmp_path / "plain" / "memory").exists()
    assert set(inspect(tmp_path / "plain", source.topology, SMALL).digests) == {"kv"}
    fetch(manifest, tmp_path / "past", memory=True)
    assert entries_of(tmp_path / "past", source.topology, "small") == {b"m": b"2"}
    assert inspect(tmp_path / "past", source.topology, SMALL).digests == manifest.digests


def test_digests_leave_out_what_is_expired(tmp_path: Path, url: str) -> None:
    source = Source(tmp_path, stores=(WIN,))
    rows = win(("a", NOON, "1"), ("a", NOON - 100 * HOUR, "old"))
    source.write(
        {k: b"\0" * 8 + (v or b"") for k, v in zip(rows.keys, rows.values, strict=True)}, "win"
    )
    manifest = write_snapshot(source.request(url)).manifest
    source.stores.close()
    assert manifest.digests["win"].endswith("/1")


# ---------------------------------------------------------------- what must not be listed or used


def newer(_raw: bytes, _manifest: Manifest) -> bytes:
    return b'{"format": 99, "something": "else"}'


def escaping(raw: bytes, _manifest: Manifest) -> bytes:
    data = orjson.loads(raw)
    del data["checksum"]
    data["files"][0]["name"] = "../../escaped"
    return orjson.dumps({**data, "checksum": _checksum(data)})


DAMAGES: dict[str, Callable[[bytes, Manifest], bytes]] = {
    "no readable manifest": lambda _raw, _: b"{",
    "no readable manifest ": lambda raw, _: raw[:-20],
    "checksum differs": lambda raw, _: raw.replace(b'"n": 2', b'"n": 1'),
    "has format 99, this software reads up to 1": newer,
    "outside of itself": escaping,
}


def test_a_damaged_manifest_is_not_listed(source: Source, url: str) -> None:
    source.write({b"a": b"1"})
    good = write_snapshot(source.request(url)).manifest
    source.write({b"a": b"2"})
    bad = write_snapshot(source.request(url)).manifest
    path = next(p for p in stored(url, "manifests") if bad.id in p.name)
    raw = path.read_bytes()
    for says, damage in DAMAGES.items():
        path.write_bytes(damage(raw, bad))
        assert [m.id for m in list_snapshots(url, "app", 0)] == [good.id]
        with pytest.raises(SnapshotInvalid, match=says.strip()) as caught:
            find(url, "app", 0, bad.id)
        assert bad.id in caught.value.message
        assert url in caught.value.message
    assert find(url, "app", 0, good.id) == good


def test_an_incomplete_snapshot_is_not_listed(source: Source, url: str) -> None:
    source.write({b"a": b"1"})
    manifest = write_snapshot(source.request(url)).manifest
    for damage, says in (
        (lambda p: p.write_bytes(b""), "0 bytes instead of"),
        (Path.unlink, "is missing"),
    ):
        damage(next(p for p in stored(url, "files") if p.name == manifest.files[-1].sha256))
        assert list_snapshots(url, "app", 0) == []
        (problem,) = verify(manifest)
        assert says in problem
        with pytest.raises(SnapshotInvalid, match=says):
            find(url, "app", 0, manifest.id)


def test_wrong_content_of_the_same_size_is_found(source: Source, url: str, tmp_path: Path) -> None:
    source.write(BULK)
    manifest = write_snapshot(source.request(url)).manifest
    file = max(manifest.files, key=lambda f: f.size)
    path = next(p for p in stored(url, "files") if p.name == file.sha256)
    path.write_bytes(b"x" * file.size)
    assert verify(manifest) == []
    (problem,) = verify(manifest, deep=True)
    assert file.name in problem
    assert "was changed" in problem
    with pytest.raises(SnapshotInvalid, match="is missing"):
        fetch(manifest, tmp_path / "back")
    assert not (tmp_path / "back" / file.name).exists()


@pytest.mark.parametrize("finds", ["fetch", "verify"])
def test_what_is_found_damaged_is_in_no_later_snapshot(
    source: Source, url: str, tmp_path: Path, finds: str
) -> None:
    """Its directory still has that file, and storage one of its name and size."""
    source.write(SOME)
    first = write_snapshot(source.request(url)).manifest
    file = max(first.files, key=lambda f: f.size)
    path = next(p for p in stored(url, "files") if p.name == file.sha256)
    path.write_bytes(b"x" * file.size)
    source.write({b"more": b"1"})
    again = write_snapshot(source.request(url)).manifest
    assert file in again.files, "as if it were whole"
    if finds == "fetch":
        with pytest.raises(SnapshotInvalid, match=r"was changed.* the next snapshot uploads it"):
            fetch(again, tmp_path / "damaged")
    else:
        assert len(verify(again, deep=True)) == 1
    assert list_snapshots(url, "app", 0) == [], "neither is whole"
    assert path.with_name(f"{path.name}.bad").read_bytes() == b"x" * file.size
    written = write_snapshot(source.request(url))
    assert written.uploaded_bytes >= file.size
    assert verify(written.manifest, deep=True) == []
    fetch(written.manifest, tmp_path / "back")
    assert entries_of(tmp_path / "back", source.topology) == {**SOME, b"more": b"1"}
    assert len(list_snapshots(url, "app", 0)) == 3, "all are whole again"


def test_what_was_read_badly_just_once_stays(
    source: Source, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.write(BULK)
    manifest = write_snapshot(source.request(url)).manifest
    real = Storage.download

    def torn(storage: Storage, name: str, local: Path) -> bool:
        found = real(storage, name, local)
        if name.endswith(manifest.files[0].sha256):
            local.write_bytes(b"torn on its way")
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Storage, "download", torn)
        with pytest.raises(SnapshotInvalid, match="read again it is not"):
            fetch(manifest, tmp_path / "back")
    assert list_snapshots(url, "app", 0) == [manifest]
    fetch(manifest, tmp_path / "back")


def test_a_file_that_vanishes_is_named(source: Source, url: str, tmp_path: Path) -> None:
    source.write({b"a": b"1"})
    manifest = write_snapshot(source.request(url)).manifest
    for path in stored(url, "files"):
        path.unlink()
    assert len(verify(manifest, deep=True)) == len(manifest.files)
    with pytest.raises(SnapshotInvalid, match="is missing"):
        fetch(manifest, tmp_path / "back")


def test_another_applications_manifest_is_refused(source: Source, url: str) -> None:
    source.write({b"a": b"1"})
    manifest = write_snapshot(source.request(url)).manifest
    (path,) = stored(url, "manifests")
    elsewhere = Path(url.removeprefix("file://"), "thief", "0", "manifests", path.name)
    elsewhere.parent.mkdir(parents=True)
    elsewhere.write_bytes(path.read_bytes())
    assert list_snapshots(url, "thief", 0) == []
    with pytest.raises(SnapshotInvalid, match="is that of app/0"):
        find(url, "thief", 0, manifest.id)


def test_names_from_outside_never_become_paths(url: str) -> None:
    with pytest.raises(InvalidName):
        list_snapshots(url, "../app", 0)
    for text in ("../x", "", "20260101T000000000Z-1234567/", "x" * 300):
        with pytest.raises(InvalidRequest):
            find(url, "app", 0, text)
    with pytest.raises(NotFound, match="there are: \\[\\]"):
        find(url, "app", 0, "20260101T000000000Z-12345678")


def test_a_protocol_that_nobody_knows(source: Source) -> None:
    with pytest.raises(ConfigurationError, match="nosuch://bucket"):
        write_snapshot(source.request("nosuch://bucket"))


def test_a_file_where_storage_should_be(source: Source, tmp_path: Path) -> None:
    (tmp_path / "storage").write_text("not a directory")
    source.write({b"a": b"1"})
    with pytest.raises(StorageUnavailable, match="storage/app/0") as caught:
        write_snapshot(source.request((tmp_path / "storage").as_uri()))
    assert "ask again" in caught.value.message


def test_a_corrupt_checkpoint_is_never_uploaded(source: Source, url: str) -> None:
    source.write(BULK)
    request = source.request(url)
    for path in request.directory.glob("*.sst"):
        content = bytearray(path.read_bytes())
        content[10:50] = b"x" * 40
        path.unlink()
        path.write_bytes(content)
    with pytest.raises(StateCorrupt):
        write_snapshot(request)
    assert list_snapshots(url, "app", 0) == []


def test_a_task_on_its_way_to_the_past_has_no_snapshot(source: Source, url: str) -> None:
    source.write({b"a": b"1"}, state="restoring")
    with pytest.raises(Unavailable, match="restored to the past"):
        write_snapshot(source.request(url))
    assert list_snapshots(url, "app", 0) == []


def test_odd_directories_work(source: Source, tmp_path: Path) -> None:
    settings = Settings.load(home=tmp_path / "with space%20and#more")
    source.write({b"a": b"1"})
    write_snapshot(source.request(settings.snapshots_url))
    assert (settings.home / "snapshots" / "app" / "0" / "manifests").is_dir()


def test_no_room_is_said_before_anything_is_fetched(
    source: Source, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.write({b"a": b"1"})
    manifest = write_snapshot(source.request(url)).manifest
    monkeypatch.setattr("state_lib.snapshots.fetch.MIN_FREE_BYTES", 1 << 60)
    with pytest.raises(Unavailable, match="free space") as caught:
        fetch(manifest, tmp_path / "back")
    assert str(tmp_path / "back") in caught.value.message
    assert list((tmp_path / "back").iterdir()) == []


def test_an_error_half_way_lists_nothing_and_the_next_try_works(source: Source, url: str) -> None:
    source.write(BULK)

    def stop(phase: str, done: int, _total: int) -> None:
        if phase == "upload" and done:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        write_snapshot(source.request(url), stop)
    assert list_snapshots(url, "app", 0) == []
    assert survey(task_storage(url, "app", 0), "app", 0) == []
    again = write_snapshot(source.request(url))
    assert again.uploaded_bytes < again.manifest.size_bytes, "what had arrived is used"
    assert list_snapshots(url, "app", 0) == [again.manifest]
