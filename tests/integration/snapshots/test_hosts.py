"""Snapshots by hosts: beside commits, one at a time."""

from __future__ import annotations

import itertools
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from state_lib.client.flight import FlightHostClient
from state_lib.errors import (
    InvalidRequest,
    NotFound,
    NotOwner,
    Realign,
    Unauthorized,
    Unavailable,
    from_wire,
)
from state_lib.host.snapshots import _APART_S
from state_lib.kafka import Kafka
from state_lib.protocol.placement import owner_of
from state_lib.snapshots.fetch import fetch
from state_lib.snapshots.inspect import inspect
from state_lib.snapshots.listing import list_snapshots, taken_for
from state_lib.snapshots.manifest import Manifest, new_id
from state_lib.snapshots.parallel import Progress
from state_lib.snapshots.write import SnapshotRequest, Written, write_snapshot
from state_lib.specs import StoreSpec
from state_lib.task.checkpoint import checkpoint
from tests.integration.conftest import MakeApp
from tests.support.apps import (
    HOUR,
    KV,
    NOON,
    TS,
    WIN,
    App,
    app_of,
    batch,
    claimed,
    digests,
    kv,
    win,
)
from tests.support.host_process import TOKEN, Hosts
from tests.support.hosts import address, claim, publish, served
from tests.support.s3 import s3_server
from tests.support.snapshots import SMALL, ended, entries_of
from tests.support.waiting import until

MEMORY = StoreSpec("small", backend="memory", max_bytes=16 << 20)


def wide(kafka: Kafka, name: str, root: Path, partitions: int) -> App:
    """An application of so many tasks, created."""
    app = app_of(kafka, name, root, [KV])
    app.topology = replace(app.topology, partitions=partitions)
    app.create()
    return app


def test_a_snapshot_is_the_task_as_it_stands(make_app: MakeApp, tmp_path: Path) -> None:
    app = make_app([KV, TS, WIN, MEMORY])
    at, epoch = address(), publish(app)
    url = (app.root / "snapshots").as_uri()
    with served(app, at, TOKEN) as manager, closing(FlightHostClient(at, TOKEN)) as client:
        marker = claim(client, app, epoch)
        task = manager.task(app.name, 0)
        for n in range(3):
            puts = {
                "kv": kv(("same", f"{n}"), (f"k{n}", f"{n}"), (f"k{n - 1}", None)),
                "ts": kv(("t", f"{n}")),
                "win": win(("w", NOON + n * HOUR, f"{n}"), ("w", NOON - 9 * HOUR, "expired")),
                "small": kv((f"m{n}", f"{n}")),
            }
            marker = task.commit(batch(marker, puts, clock=NOON + n * HOUR))
        with pytest.raises(NotFound, match="no snapshot"):
            client.snapshot_status(app.name, 0)
        first = client.snapshot(app.name, 0)
        assert first["state"] == "running"
        job = ended(client, app.name)
        assert (job["state"], job["error"], job["task"]) == ("done", None, f"{app.name}/0")
        (manifest,) = list_snapshots(url, app.name, 0)
        assert manifest.id == job["snapshot"]
        assert manifest.marker == marker
        assert manifest.digests == {s: str(d) for s, d in digests(task).items()}
        assert manifest.topic_ids.keys() == {app.topic(s.name) for s in app.topology.stores}
        assert not list(task.path.parent.glob("*.snapshot"))

        marker = task.commit(batch(marker, {"kv": kv(("more", "1"))}, clock=NOON + 3 * HOUR))
        client.snapshot(app.name, 0)
        assert ended(client, app.name)["uploaded_bytes"] < job["size_bytes"]
        newest = list_snapshots(url, app.name, 0)[0]
        assert newest.marker == marker
        fetch(newest, tmp_path / "back", [task.path], memory=True)
        found = inspect(tmp_path / "back", app.topology, SMALL)
        assert found.digests == {s: str(d) for s, d in digests(task).items()}
        assert found.checkpoint.marker == marker


def test_one_at_a_time_for_each_task(make_app: MakeApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_FAILPOINTS", "snapshot.checkpoint=sleep:1@1")
    app = make_app()
    at, epoch = address(), publish(app)
    with served(app, at), closing(FlightHostClient(at, None)) as client:
        claim(client, app, epoch)
        started = {client.snapshot(app.name, 0)["started_at"] for _ in range(5)}
        assert len(started) == 1
        wanted = {"id": new_id(0), "epoch": epoch, "n": 0, "wait_s": 1}
        with pytest.raises(Unavailable, match="under way"):
            client.snapshot(app.name, 0, wanted)
        assert ended(client, app.name)["state"] == "done"
        assert len(list_snapshots((app.root / "snapshots").as_uri(), app.name, 0)) == 1


def test_storage_is_looked_into_by_as_many_as_write_at_once(
    kafka: Kafka, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look reads all manifests of a task, and a host may have hundreds of tasks."""
    app = wide(kafka, name, tmp_path, 5)
    at, epoch = address(), publish(app)
    lock, now, most = threading.Lock(), 0, 0

    def slow(*asked: Any) -> Manifest | None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.3)
        with lock:
            now -= 1
        return taken_for(*asked)

    monkeypatch.setattr("state_lib.host.snapshots.taken_for", slow)
    with served(app, at), closing(FlightHostClient(at, None)) as client:
        for p in range(5):
            claim(client, app, epoch, p)
            client.snapshot(name, p, request="hourly")
        assert [ended(client, name, p)["error"] for p in range(5)] == [None] * 5
    assert most == 2


def test_stores_are_flushed_for_one_after_another(
    kafka: Kafka, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commits have the cores in between; asked for at once, they would all flush at once.

    The first is looked into, which starts a process, once the second is flushed.
    """
    app = wide(kafka, name, tmp_path, 3)
    at, epoch = address(), publish(app)
    spans: list[tuple[float, float]] = []
    flushed, looked = dict[Path, float](), dict[Path, float]()

    def looks(request: SnapshotRequest, report: Progress) -> Written:
        looked[request.directory] = time.monotonic()
        return write_snapshot(request, report)

    def slow(*asked: Any) -> None:
        began = time.monotonic()
        checkpoint(*asked)
        time.sleep(0.1)
        spans.append((began, time.monotonic()))
        flushed[asked[1]] = time.monotonic()

    monkeypatch.setattr("state_lib.host.snapshots.checkpoint", slow)
    monkeypatch.setattr("state_lib.host.snapshots.write_snapshot", looks)
    with served(app, at), closing(FlightHostClient(at, None)) as client:
        for p in range(3):
            claim(client, app, epoch, p)
        for p in range(3):
            client.snapshot(name, p)
        assert [ended(client, name, p)["error"] for p in range(3)] == [None] * 3
    spans.sort()
    assert len(spans) == 3
    assert all(after[0] - before[1] >= _APART_S for before, after in itertools.pairwise(spans))
    assert len(looked) == 3
    assert all(at - flushed[one] >= 2 * _APART_S for one, at in looked.items()), "nor with a look"


def test_who_joins_one_that_was_taken_before_gets_a_new_one(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = make_app()
    at, epoch = address(), publish(app)
    with served(app, at), closing(FlightHostClient(at, None)) as client:
        claim(client, app, epoch)

        def taken(request: str) -> dict[str, Any]:
            client.snapshot(app.name, 0, request=request)
            return ended(client, app.name)

        old, between = taken("old")["snapshot"], taken("between")["snapshot"]
        assert taken("old")["snapshot"] == old

        def joined(*asked: Any) -> Manifest | None:
            found = taken_for(*asked)
            with closing(FlightHostClient(at, None)) as other:
                other.snapshot(app.name, 0, request="new")
            return found

        taken("between")
        monkeypatch.setattr("state_lib.host.snapshots.taken_for", joined)
        job = taken("old")
        assert job["requests"] == ["old", "new"]
        assert job["snapshot"] not in (old, between)


def test_who_may_not_and_what_is_not_there(make_app: MakeApp) -> None:
    app = make_app()
    hosts, epoch = [address("host-1"), address("host-2")], publish(app)
    at = owner_of(app.name, 0, hosts)
    with (
        served(app, at, TOKEN, hosts),
        closing(FlightHostClient(at, TOKEN)) as client,
        closing(FlightHostClient(at, "wrong")) as stranger,
    ):
        claim(client, app, epoch)
        for call in (stranger.snapshot, stranger.snapshot_status):
            with pytest.raises(Unauthorized):
                call(app.name, 0)
        for name, partition in (("unknown", 0), (app.name, 7), ("../x", 0)):
            with pytest.raises(NotFound):
                client.snapshot(name, partition)
        for wrong in ({}, {"id": "../x", "epoch": 0, "n": 0, "wait_s": 1}, [1]):
            with pytest.raises(InvalidRequest):
                client.snapshot(app.name, 0, wrong)  # type: ignore[arg-type]
        for request in ("", "x" * 65, 7):
            with pytest.raises(InvalidRequest, match="1 to 64 characters"):
                client.snapshot(app.name, 0, request=request)  # type: ignore[arg-type]
        far = {"id": new_id(0), "epoch": epoch, "n": 0, "wait_s": 1e9}
        with pytest.raises(InvalidRequest, match="wait_s"):
            client.snapshot(app.name, 0, far)
    other = next(h for h in hosts if h != at)
    with served(app, other, TOKEN, hosts), closing(FlightHostClient(other, TOKEN)) as client:
        with pytest.raises(NotOwner):
            claim(client, app, epoch)
        with pytest.raises(NotOwner):
            client.snapshot(app.name, 0)
    assert list_snapshots((app.root / "snapshots").as_uri(), app.name, 0) == []


def test_errors_come_back_and_the_next_try_works(make_app: MakeApp) -> None:
    app = make_app()
    at, epoch = address(), publish(app)
    blocking = app.root / "snapshots"
    blocking.write_text("a file where storage should be")
    with served(app, at), closing(FlightHostClient(at, None)) as client:
        claim(client, app, epoch)
        client.snapshot(app.name, 0)
        job = ended(client, app.name)
        assert job["state"] == "failed"
        assert job["snapshot"] is None
        error = from_wire(job["error"])
        assert isinstance(error, Unavailable)
        assert blocking.as_uri() in error.message
        assert "ask again" in error.message
        blocking.unlink()
        client.snapshot(app.name, 0)
        assert ended(client, app.name)["state"] == "done"


def test_memory_and_disk_stand_at_one_commit(make_app: MakeApp, tmp_path: Path) -> None:
    """Checkpoints while commits go on, each of which writes to both."""
    app = make_app([KV, MEMORY])
    task = app.opened()
    marker = claimed(task)
    stop = threading.Event()

    def commit() -> None:
        at = marker
        for n in itertools.count(1):
            if stop.is_set():
                return
            bulk = [(f"{i}", f"{n}") for i in range(200)]
            at = task.commit(batch(at, {"kv": kv(*bulk), "small": kv(*bulk)}))

    committer = threading.Thread(target=commit)
    committer.start()
    until(lambda: task.marker.batch_number > 3)
    for n in range(4):
        checkpoint(task, tmp_path / str(n))
        reached = task.marker.batch_number
        while task.marker.batch_number == reached:
            committer.join(0.01)
    stop.set()
    committer.join(60)
    for n in range(4):
        standing = inspect(tmp_path / str(n), app.topology, SMALL).checkpoint.marker.batch_number
        for store in ("kv", "small"):
            values = set(entries_of(tmp_path / str(n), app.topology, store).values())
            assert values == {b"%d" % standing}


def test_a_checkpoint_at_a_named_commit(make_app: MakeApp) -> None:
    app = make_app()
    task = app.opened()
    marker = claimed(task)
    seen: list[int] = []

    def fails() -> None:
        raise OSError

    task.at_commit(marker.epoch, 0, lambda: seen.append(task.marker.batch_number))
    assert seen == [0], "it stands there: now"
    task.at_commit(marker.epoch, 2, lambda: seen.append(task.marker.batch_number))
    task.at_commit(marker.epoch, 2, fails)  # which is nobody else's concern
    task.at_commit(marker.epoch, 3, lambda: seen.append(-1))()  # given up
    for _ in range(4):
        marker = task.commit(batch(marker, {"kv": kv(("a", "1"))}))
    assert seen == [0, 2]
    with pytest.raises(Realign, match="beyond"):
        task.at_commit(marker.epoch, 3, lambda: seen.append(-1))


def test_waiting_for_a_commit_that_never_comes_ends(make_app: MakeApp) -> None:
    app = make_app()
    at, epoch = address(), publish(app)
    with served(app, at), closing(FlightHostClient(at, None)) as client:
        claim(client, app, epoch)
        client.snapshot(app.name, 0, {"id": new_id(0), "epoch": epoch, "n": 5, "wait_s": 0.5})
        error = from_wire(ended(client, app.name)["error"])
        assert "did not come to commit" in error.message
        client.snapshot(app.name, 0)
        assert ended(client, app.name)["state"] == "done"


def test_a_host_on_s3(make_app: MakeApp, tmp_path: Path) -> None:
    app = make_app()
    with s3_server() as server:
        hosts = Hosts(app, snapshots_url=server.bucket("of-hosts"))
        try:
            hosts.start(publish(app))
            hosts.commit(1, {b"a": b"1"})
            with hosts.client() as client:
                client.snapshot(app.name, 0)
                assert ended(client, app.name)["error"] is None
            (manifest,) = list_snapshots(hosts.url, app.name, 0)
            fetch(manifest, tmp_path / "back")
            assert entries_of(tmp_path / "back", app.topology) == {b"a": b"1"}
        finally:
            hosts.stop()


def test_every_task_of_a_savepoint_waits_for_its_commit_at_once(
    kafka: Kafka, name: str, tmp_path: Path
) -> None:
    """More tasks than snapshots are written at a time: a task that came later would miss it."""
    app = wide(kafka, name, tmp_path, 5)
    at, epoch = address(), publish(app)
    with served(app, at) as manager, closing(FlightHostClient(at, None)) as client:
        tasks = range(5)
        markers = [claim(client, app, epoch, p) for p in tasks]
        wanted = {"id": new_id(0), "epoch": epoch, "n": 1, "wait_s": 60}
        for p in tasks:
            client.snapshot(app.name, p, wanted)
        until(lambda: {client.snapshot_status(name, p)["phase"] for p in tasks} == {"waiting"})
        for p in tasks:
            manager.task(app.name, p).commit(batch(markers[p], {"kv": kv((f"{p}", "1"))}))
        jobs = [ended(client, app.name, p) for p in tasks]
        assert [(job["state"], job["error"]) for job in jobs] == [("done", None)] * 5
        url = (app.root / "snapshots").as_uri()
        assert {list_snapshots(url, app.name, p)[0].marker.batch_number for p in tasks} == {1}
