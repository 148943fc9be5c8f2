"""Snapshots on S3: a real server, on this machine."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from state_lib.errors import NotFound, SnapshotInvalid, StorageUnavailable
from state_lib.snapshots import parallel
from state_lib.snapshots.fetch import fetch
from state_lib.snapshots.listing import find, list_snapshots, stored_tasks, task_storage, verify
from state_lib.snapshots.prune import Retention, prune
from state_lib.snapshots.write import write_snapshot
from tests.support.s3 import Server, pull_the_plug_at, s3_server
from tests.support.snapshots import Source, entries_of

BULK = {b"%05d" % i: os.urandom(100) for i in range(30_000)}
_numbers = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with s3_server() as running:
        yield running


@pytest.fixture
def bucket(server: Server) -> str:
    return server.bucket(f"bucket-{next(_numbers)}")


def test_written_listed_fetched_and_pruned(source: Source, bucket: str, tmp_path: Path) -> None:
    assert list_snapshots(bucket, "app", 0) == []
    source.write(BULK)
    first = write_snapshot(source.request(bucket))
    source.write({b"new": b"1"})
    second = write_snapshot(source.request(bucket))
    assert second.uploaded_bytes < first.uploaded_bytes / 20
    assert list_snapshots(bucket, "app", 0) == [second.manifest, first.manifest]
    assert stored_tasks(bucket, "app") == [0]
    assert verify(second.manifest, deep=True) == []
    with pytest.raises(NotFound, match=first.manifest.id):
        find(bucket, "app", 0, "20260101T000000000Z-12345678")

    fetch(second.manifest, tmp_path / "back")
    assert entries_of(tmp_path / "back", source.topology) == {**BULK, b"new": b"1"}

    done = prune(bucket, "app", 0, Retention(1))
    assert (done.pruned, done.deleted_files) == ([first.manifest.id], 0)
    assert list_snapshots(bucket, "app", 0) == [second.manifest]
    assert verify(second.manifest) == []


def test_gone_half_way_lists_nothing_and_the_next_try_works(
    source: Source,
    bucket: str,
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parallel, "THREADS", 1)
    source.write(BULK)
    pull_the_plug_at(3, "upload", server, monkeypatch)
    with pytest.raises(StorageUnavailable, match="ask again") as caught:
        write_snapshot(source.request(bucket))
    assert bucket in caught.value.message
    with pytest.raises(StorageUnavailable):
        list_snapshots(bucket, "app", 0)
    server.again()
    assert list_snapshots(bucket, "app", 0) == []
    manifest = write_snapshot(source.request(bucket)).manifest
    assert list_snapshots(bucket, "app", 0) == [manifest]

    pull_the_plug_at(3, "download", server, monkeypatch)
    with pytest.raises(StorageUnavailable, match="ask again"):
        fetch(manifest, tmp_path / "back")
    server.again()
    fetch(manifest, tmp_path / "back")
    assert entries_of(tmp_path / "back", source.topology) == BULK


def test_changed_in_the_bucket(source: Source, bucket: str, tmp_path: Path) -> None:
    source.write(BULK)
    manifest = write_snapshot(source.request(bucket)).manifest
    largest = max(manifest.files, key=lambda f: f.size)
    storage = task_storage(bucket, "app", 0)
    storage.write(f"files/{largest.sha256}", b"x" * largest.size)
    assert verify(manifest) == []
    assert len(verify(manifest, deep=True)) == 1
    assert list_snapshots(bucket, "app", 0) == [], "it is set aside"
    assert storage.sha256(f"files/{largest.sha256}.bad") is not None
    with pytest.raises(SnapshotInvalid, match="is missing"):
        fetch(manifest, tmp_path / "back")
    again = write_snapshot(source.request(bucket)).manifest
    assert verify(again, deep=True) == []


def test_a_bucket_that_does_not_exist_is_named(source: Source, server: Server) -> None:
    assert server.port
    source.write({b"a": b"1"})
    with pytest.raises(StorageUnavailable, match="s3://no-such-bucket/app/0"):
        write_snapshot(source.request("s3://no-such-bucket"))
