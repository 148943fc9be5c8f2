"""Retention and collection: what nobody needs goes, after a day, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from state_lib.errors import InvalidRequest
from state_lib.protocol.marker import Marker
from state_lib.snapshots.listing import file_name, list_snapshots, task_storage, verify
from state_lib.snapshots.manifest import Manifest
from state_lib.snapshots.prune import Retention, prune
from state_lib.snapshots.write import write_snapshot
from tests.support.apps import days
from tests.support.snapshots import Source

NEWEST = Retention(1)


def root(url: str) -> Path:
    return Path(url.removeprefix("file://"), "app", "0")


def age(url: str, hours: float, *names: str) -> None:
    """Let everything in storage, or some of it, be that much older."""
    for path in root(url).rglob("*"):
        if path.is_file() and (not names or path.name in names):
            at = path.stat().st_mtime - hours * 3600
            os.utime(path, (at, at))


def names(url: str, folder: str) -> set[str]:
    return {p.name for p in (root(url) / folder).glob("*")}


def files_of(manifest: Manifest) -> set[str]:
    return {f.sha256 for f in manifest.files}


def taken(source: Source, url: str, key: bytes = b"k") -> Manifest:
    source.write({key: os.urandom(2000)})
    source.stores.rocks._dicts["kv"].compact_range(None, None)  # into a new file
    return write_snapshot(source.request(url)).manifest


def fake(day: float, n: int = 0) -> Manifest:
    return Manifest(
        f"{n}", "app", 0, Marker(), {}, {}, (), (), {}, created_at=days(100) + days(day)
    )


def test_retention_keeps_the_newest_and_one_a_day() -> None:
    some = [fake(9.9, 9), fake(9.5, 8), fake(9.1, 7), fake(8.9, 6), fake(8.1, 5), fake(3.2, 4)]
    assert [m.id for m in Retention(2).kept(some)] == ["9", "8"]
    assert [m.id for m in Retention(1, 2).kept(some)] == ["9", "6"]
    assert [m.id for m in Retention(3, 9).kept(some)] == ["9", "8", "7", "6", "4"]
    assert Retention(1).kept([]) == []
    for keep, daily in ((0, 1), (-1, 0), (1, -1)):
        with pytest.raises(InvalidRequest):
            Retention(keep, daily)


def test_what_was_just_taken_for_a_savepoint_stays() -> None:
    now = time.time_ns() // 1_000_000
    young = replace(fake(0, 1), savepoint="s", created_at=now)
    old = replace(young, id="2", created_at=now - days(2))
    assert [m.id for m in NEWEST.kept([fake(0, 9), young, old])] == ["9", "1"]


def test_files_of_a_pruned_snapshot_stay_for_a_day(source: Source, url: str) -> None:
    old = taken(source, url)
    new = taken(source, url)
    age(url, 24 * 7)
    tried = prune(url, "app", 0, NEWEST, dry=True)
    assert (tried.pruned, tried.deleted_files) == ([old.id], 0)
    assert len(list_snapshots(url, "app", 0)) == 2

    done = prune(url, "app", 0, NEWEST)
    assert (done.kept, done.pruned, done.deleted_files) == ([new.id], [old.id], 0)
    assert list_snapshots(url, "app", 0) == [new]
    assert names(url, "files") == files_of(old) | files_of(new)

    age(url, 23)
    assert prune(url, "app", 0, NEWEST).deleted_files == 0
    age(url, 2)
    last = prune(url, "app", 0, NEWEST)
    assert last.deleted_files == len(files_of(old) - files_of(new)) > 0
    assert last.freed_bytes > 2000
    assert names(url, "files") == files_of(new)
    assert names(url, "pruned") == set()
    assert verify(new, deep=True) == []


def test_killed_between_two_deletions(source: Source, url: str) -> None:
    old, new = taken(source, url), taken(source, url)
    prune(url, "app", 0, NEWEST)
    age(url, 25)
    prunes = "from state_lib.snapshots.prune import *; prune(sys.argv[1], 'app', 0, Retention(1))"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {prunes}", url],
        env=os.environ | {"HOLDFAST_FAILPOINTS": "snapshot.collect=kill@2"},
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    left = names(url, "files") - files_of(new)
    assert len(left) == len(files_of(old) - files_of(new)) - 1 > 0
    assert verify(new, deep=True) == []
    assert prune(url, "app", 0, NEWEST).deleted_files == len(left)
    assert names(url, "files") == files_of(new)
    assert names(url, "pruned") == set()


def test_what_an_interrupted_snapshot_left_goes_after_a_day(source: Source, url: str) -> None:
    kept = taken(source, url)
    storage = task_storage(url, "app", 0)
    storage.write(f"files/{'0' * 64}", b"uploaded, and then the host died")
    partial = root(url) / "files" / f"{'1' * 64}.partial-12345678"
    partial.write_bytes(b"half")
    (root(url) / "manifests" / "x.json.partial-12345678").write_bytes(b"{")
    assert prune(url, "app", 0, NEWEST).deleted_files == 0
    age(url, 25)
    assert prune(url, "app", 0, NEWEST).deleted_files == 2
    assert names(url, "files") == files_of(kept)
    assert names(url, "manifests") == {f"{kept.id}.json"}


def test_an_old_file_that_no_manifest_names_is_not_trusted(source: Source, url: str) -> None:
    """A collector may be about to delete it: it is uploaded again, and thereby new."""
    gone = taken(source, url)
    (root(url) / "manifests" / f"{gone.id}.json").unlink()
    age(url, 25)
    again = write_snapshot(source.request(url))
    assert again.uploaded_bytes == again.manifest.size_bytes
    prune(url, "app", 0, NEWEST)
    assert verify(again.manifest, deep=True) == []
    assert write_snapshot(source.request(url)).uploaded_bytes < again.uploaded_bytes


def test_savepoints_are_spared(source: Source, url: str) -> None:
    saved, new = taken(source, url), taken(source, url)
    assert prune(url, "app", 0, NEWEST, spare={saved.id}).pruned == []
    assert list_snapshots(url, "app", 0) == [new, saved]


def test_a_broken_snapshot_goes_when_it_is_old(source: Source, url: str) -> None:
    broken, new = taken(source, url), taken(source, url)
    for name in files_of(broken) - files_of(new):
        (root(url) / "files" / name).unlink()
    (root(url) / "manifests" / "20260101T000000000Z-12345678.json").write_bytes(b"{ torn")
    assert prune(url, "app", 0, NEWEST).pruned == []
    age(url, 25)
    went = prune(url, "app", 0, NEWEST).pruned
    assert went == [broken.id, "20260101T000000000Z-12345678"]
    age(url, 25)
    prune(url, "app", 0, NEWEST)
    assert names(url, "files") == files_of(new)


def test_a_newer_versions_snapshots_are_left_alone(source: Source, url: str) -> None:
    taken(source, url)
    theirs = root(url) / "manifests" / "20990101T000000000Z-12345678.json"
    theirs.write_bytes(b'{"format": 99}')
    task_storage(url, "app", 0).write(f"files/{'0' * 64}", b"theirs, perhaps")
    age(url, 24 * 30)
    done = prune(url, "app", 0, NEWEST)
    assert done.pruned == []
    assert done.not_collected is not None
    assert "format 99" in done.not_collected
    assert theirs.exists()
    assert "0" * 64 in names(url, "files")


def at_once(*works: Callable[[], object]) -> None:
    errors: list[BaseException] = []

    def run(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - told to the test
            errors.append(error)

    threads = [threading.Thread(target=run, args=(w,)) for w in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert errors == []


def test_prunings_at_the_same_time(source: Source, url: str) -> None:
    every = [taken(source, url) for _ in range(3)]
    age(url, 25)
    at_once(*[lambda: prune(url, "app", 0, NEWEST)] * 4)
    assert list_snapshots(url, "app", 0) == [every[-1]]
    age(url, 25)
    at_once(*[lambda: prune(url, "app", 0, NEWEST)] * 4)
    assert names(url, "files") == files_of(every[-1])


def test_snapshots_and_prunings_at_the_same_time(source: Source, url: str) -> None:
    """Two snapshots of one checkpoint, while all that they could re-use is pruned."""
    first = taken(source, url)
    taken(source, url, b"other")
    age(url, 25)
    request = source.request(url)
    written: list[Manifest] = []
    at_once(
        lambda: written.append(write_snapshot(request).manifest),
        lambda: written.append(write_snapshot(request).manifest),
        *[lambda: prune(url, "app", 0, NEWEST)] * 3,
    )
    assert len({m.id for m in written}) == 2
    age(url, 23)  # pruned things are spared for longer than any snapshot may take
    prune(url, "app", 0, Retention(2))
    assert [verify(m, deep=True) for m in written] == [[], []]
    assert first.id not in {m.id for m in list_snapshots(url, "app", 0)}


def test_a_pruning_that_dies_between_its_steps_is_finished(
    source: Source, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = taken(source, url), taken(source, url)
    monkeypatch.setenv("HOLDFAST_FAILPOINTS", "snapshot.prune=raise")
    with pytest.raises(RuntimeError):
        prune(url, "app", 0, NEWEST)
    assert list_snapshots(url, "app", 0) == [new, old], "not yet"
    monkeypatch.delenv("HOLDFAST_FAILPOINTS")
    assert prune(url, "app", 0, NEWEST).pruned == [old.id]
    assert list_snapshots(url, "app", 0) == [new]


def test_file_names_are_hashes(source: Source, url: str) -> None:
    manifest = taken(source, url)
    assert all(file_name(f) == f"files/{f.sha256}" for f in manifest.files)
