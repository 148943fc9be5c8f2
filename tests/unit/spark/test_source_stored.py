"""Which snapshots are read, and what is read from them; no Spark, no Kafka, no host."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from state_lib.errors import InvalidRequest, NotFound, SnapshotInvalid
from state_lib.keys import window_key
from state_lib.protocol.marker import now_ms
from state_lib.snapshots.listing import manifest_name, task_storage
from state_lib.snapshots.manifest import Manifest, new_id
from state_lib.snapshots.savepoints import write_savepoint
from state_lib.snapshots.write import write_snapshot
from state_lib.spark.source.stored import StoredPartition, choose, spec_of
from state_lib.specs import StoreSpec
from tests.support.apps import HOUR, KV, NOON, TS, WIN
from tests.support.snapshots import Source

SMALL = StoreSpec("small", backend="memory", max_bytes=100_000)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return (tmp_path / "storage").as_uri()


@pytest.fixture
def source(tmp_path: Path) -> Iterator[Source]:
    made = Source(tmp_path, stores=(KV, TS, WIN, SMALL))
    yield made
    made.stores.close()


def taken(source: Source, url: str, partition: int = 0) -> Manifest:
    return write_snapshot(source.request(url, partition)).manifest


def read(
    manifest: Manifest, store: str = "kv", keys: tuple[bytes, ...] | None = None
) -> dict[bytes, bytes]:
    partition = StoredPartition(
        manifest.app, manifest.partition, store, keys, manifest.url, manifest.id
    )
    found: dict[bytes, bytes] = {}
    with partition.opened() as cut:
        assert (cut.marker, cut.snapshot) == (manifest.marker, manifest.id)
        for part in cut.parts:
            found |= dict(zip(part.keys.to_pylist(), part.values.to_pylist(), strict=True))
    return found


def test_the_latest_is_the_newest_of_each_task(source: Source, url: str) -> None:
    source.write({b"a": b"1"})
    old = [taken(source, url, partition) for partition in (0, 1)]
    source.write({b"a": b"2"})
    new = taken(source, url, 0)
    assert [m.id for m in choose(url, "app", "latest")] == [new.id, old[1].id]
    assert read(new) == {b"a": b"2"}
    assert read(old[0]) == {b"a": b"1"}


def test_snapshots_of_a_reset_application_are_not_mixed_with_those_of_the_next(
    source: Source, url: str
) -> None:
    """Storage keeps them, and those of tasks that there are no more."""
    before = source.topology
    source.topology = replace(before, partitions=4)
    source.write({b"a": b"old"})
    for partition in range(4):
        taken(source, url, partition)
    source.topology, source.made = before, 1
    source.write({b"a": b"new"})
    first = taken(source, url, 0)
    with pytest.raises(SnapshotInvalid, match=r"tasks \[1\] of 'app' .* other changelogs"):
        choose(url, "app", "latest")
    second = taken(source, url, 1)
    assert [m.id for m in choose(url, "app", "latest")] == [first.id, second.id]
    source.made = 2
    source.write({b"a": b"newer"})
    taken(source, url, 1)
    with pytest.raises(SnapshotInvalid, match=r"tasks \[0\] of 'app'"):
        choose(url, "app", "latest")


def test_a_task_without_a_snapshot_is_missed(source: Source, url: str) -> None:
    with pytest.raises(NotFound, match=r"no snapshot of 'app' in .*holdfast snapshot create app"):
        choose(url, "app", "latest")
    source.write({b"a": b"1"})
    taken(source, url, 1)
    with pytest.raises(NotFound, match=r"no snapshot of tasks \[0\] of 'app'"):
        choose(url, "app", "latest")


def test_a_savepoint_names_a_snapshot_of_each_task(source: Source, url: str) -> None:
    source.write({b"a": b"1"})
    manifests = [taken(source, url, partition) for partition in (0, 1)]
    savepoint = new_id(now_ms())
    write_savepoint(url, savepoint, manifests)
    source.write({b"a": b"2"})
    taken(source, url, 0)
    assert [m.id for m in choose(url, "app", savepoint)] == [m.id for m in manifests]


def test_the_snapshot_of_one_task_is_not_all_of_an_application(source: Source, url: str) -> None:
    source.write({b"a": b"1"})
    of_one = taken(source, url, 1)
    with pytest.raises(InvalidRequest, match="of task app/1 alone, and 'app' has 2 tasks"):
        choose(url, "app", of_one.id)
    source.topology = replace(source.topology, partitions=1)
    alone = taken(source, url, 0)
    assert [m.id for m in choose(url, "app", alone.id)] == [alone.id]


def test_ids_that_are_none_or_of_nothing(source: Source, url: str) -> None:
    source.write({b"a": b"1"})
    taken(source, url)
    with pytest.raises(InvalidRequest, match="is no snapshot's id"):
        choose(url, "app", "../../etc")
    with pytest.raises(NotFound, match="holdfast snapshot list app"):
        choose(url, "app", new_id(now_ms()))


def test_a_version_that_did_not_say_how_many_tasks_there_are(source: Source, url: str) -> None:
    source.write({b"a": b"1"})
    manifest = replace(taken(source, url), partitions=0)
    storage = task_storage(url, "app", 0)
    storage.write(manifest_name(manifest.id), manifest.to_bytes())
    with pytest.raises(SnapshotInvalid, match="of an older version"):
        choose(url, "app", "latest")


def test_a_store_that_is_not_there_or_is_two_things(source: Source, url: str) -> None:
    source.write({b"a": b"1"})
    first = taken(source, url)
    assert spec_of([first, first], "kv") == KV
    with pytest.raises(NotFound, match=r"has no store 'nope'; its stores: \['kv', "):
        spec_of([first], "nope")
    other = replace(first, partition=1, stores=(replace(KV, key_serde="utf8"),))
    with pytest.raises(SnapshotInvalid, match="take new snapshots"):
        spec_of([first, other], "kv")


def test_stores_of_every_kind_and_some_keys(source: Source, url: str) -> None:
    windows = [(b"a", NOON), (b"ab", NOON), (b"a", NOON - 3 * HOUR), (b"a", NOON - 9 * HOUR)]
    source.write({b"a": b"1", b"b": b"2"})
    source.write({b"a": b"timed"}, "ts")
    source.write({b"m": b"3"}, "small")
    source.write({window_key(k, s): k for k, s in windows}, "win")
    manifest = taken(source, url)
    assert read(manifest) == {b"a": b"1", b"b": b"2"}
    assert read(manifest, keys=(b"b", b"c")) == {b"b": b"2"}
    assert read(manifest, "ts") == {b"a": b"timed"}
    assert read(manifest, "small") == {b"m": b"3"}, "memory stores are in snapshots as well"
    alive = {window_key(k, s): k for k, s in windows if s > NOON - WIN.retention_ms}
    assert len(alive) == 3
    assert read(manifest, "win") == alive
    assert read(manifest, "win", (b"a",)) == {k: v for k, v in alive.items() if v == b"a"}


def test_nothing_is_left_behind(
    source: Source, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path / 'gone'},{scratch}")
    source.write({b"a": b"1"})
    manifest = taken(source, url)
    partition = StoredPartition("app", 0, "kv", None, url, manifest.id)
    with partition.opened() as cut:
        assert [p.name[:14] for p in scratch.iterdir()] == ["holdfast-read-"]
        next(cut.parts)
    assert list(scratch.iterdir()) == []
