"""`holdfast digest`: what live stores are, and whether their changelogs would give the same."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from state_lib.client.flight import FlightHostClient
from state_lib.digests import compare, room
from state_lib.digests.live import live_digests
from state_lib.errors import HoldfastError, NotFound
from state_lib.keys import window_key
from state_lib.specs import StoreSpec
from state_lib.stores.digest import StoreDigest, added, digest
from tests.support.apps import HOUR, KV, NOON, TS, WIN, App, batch
from tests.support.cluster import PARTITIONS, TOKEN, Cli, Cluster
from tests.support.fold import fold
from tests.support.hosts import address
from tests.support.waiting import until

MEMORY = StoreSpec("mem", backend="memory")


class Busy:
    """An application with a store of each kind, and commits to all of them."""

    def __init__(self, app: App, cluster: Cluster) -> None:
        self.app, self.cluster = app, cluster
        app.topology = replace(app.topology, stores=(KV, TS, WIN, MEMORY))
        self.epoch = cluster.start(app)

    def commit(self, partition: int, clock: int = NOON) -> int:
        """New keys, one that is overwritten, one that is deleted; returns the batch's number."""
        client = FlightHostClient(self.cluster.client(self.app, partition).address, TOKEN)
        try:
            n = client.marker(self.app.name, partition).batch_number + 1
            with client.exchange(self.app.name, partition, self.epoch, n) as exchange:
                keys = [b"same", b"k%d" % n, b"k%d" % (n - 1)]
                values = pa.array([b"%d" % n, b"new", None], pa.binary())
                stamps = pa.array([NOON + n] * 3, pa.int64())
                for store in ("kv", "ts", "mem"):
                    exchange.put(store, pa.array(keys, pa.binary()), values, stamps)
                windows = [window_key(key, NOON + n * HOUR) for key in keys]
                exchange.put("win", pa.array(windows, pa.binary()), values, stamps)
                return exchange.commit(batch(exchange.marker, n=n, clock=clock).header).batch_number
        finally:
            client.close()

    def folded(self, store: str) -> StoreDigest:
        """By a plain consumer of the changelog; windows do not expire here."""
        servers = str(self.app.kafka.properties["bootstrap.servers"])
        timestamped = store in ("ts", "win")
        return added(
            digest(fold(servers, self.app.topic(store), p, timestamped=timestamped).items())
            for p in range(PARTITIONS)
        )

    def corrupt(self, partition: int, store: str, value: bytes, key: bytes = b"same") -> None:
        """Change one value behind the task's back."""
        for manager in self.cluster.managers:
            task = manager.tasks.get((self.app.name, partition))
            if task is not None:
                with task.view() as (_, stores):
                    stores.write({store: ([key], [value])}, None)


@pytest.fixture
def busy(cluster: Cluster, applications: tuple[App, App]) -> Busy:
    return Busy(applications[1], cluster)


@pytest.fixture
def holdfast(busy: Busy, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cli:
    return Cli("digest", busy.app, cluster, monkeypatch)


def test_a_digest_is_that_of_the_folded_changelog(
    busy: Busy, cluster: Cluster, holdfast: Cli
) -> None:
    app = busy.app
    for p in range(PARTITIONS):
        for _ in range(p + 1):
            busy.commit(p)
    expected = {store: str(busy.folded(store)) for store in ("kv", "ts", "win", "mem")}
    found = holdfast.json(app.name)
    assert found["totals"] == expected
    assert found["complete"]
    assert [t["marker"]["batch_number"] for t in found["tasks"]] == [1, 2, 3]
    one = holdfast.json(app.name, "--store", "ts")
    assert one["totals"] == {"ts": expected["ts"]}
    shown = holdfast.run(app.name, "--store", "kv").stdout
    assert expected["kv"].partition("/")[0] in shown

    busy.commit(0, clock=NOON + 11 * HOUR // 2)
    later = live_digests(app.topology, cluster.addresses, TOKEN, ["win"])
    assert later.tasks[0].stores["win"].entries == 2, "of commit 2; those of 1 have expired"


def test_a_part_is_no_total(busy: Busy, cluster: Cluster, holdfast: Cli) -> None:
    lost = sorted(p for app, p in cluster.managers[0].tasks if app == busy.app.name)
    assert lost
    holdfast.hosts([address("host-1"), cluster.addresses[1]])
    found = holdfast.json(busy.app.name, code=1)
    assert (found["complete"], found["totals"]) == (False, {})
    failed = {t["partition"]: t["error"] for t in found["tasks"] if t["error"]}
    assert sorted(failed) == lost
    assert all("host-1" in why for why in failed.values())
    shown = holdfast.run(busy.app.name, code=1)
    assert f"no totals: {busy.app.name}/{lost[0]} on host-1: " in shown.stderr
    compared = holdfast.json(busy.app.name, "--against", "changelog", code=1)
    assert (compared["complete"], compared["equal"]) == (False, True)


def test_a_replay_gives_the_same_while_commits_go_on(
    busy: Busy, holdfast: Cli, tmp_path: Path
) -> None:
    done = threading.Event()
    failures: list[HoldfastError] = []
    ns = dict.fromkeys(range(PARTITIONS), 0)

    def keep_committing(partition: int) -> None:
        while not done.is_set():
            try:
                ns[partition] = busy.commit(partition)
            except HoldfastError as error:
                failures.append(error)
                return

    threads = [threading.Thread(target=keep_committing, args=(p,)) for p in ns]
    for thread in threads:
        thread.start()
    try:
        until(lambda: all(n > 5 for n in ns.values()), 60)
        folder = tmp_path / "aside"
        folder.mkdir()
        found = holdfast.json(busy.app.name, "--against", "changelog", "--dir", str(folder))
        assert list(folder.iterdir()) == [], "nothing is left"
        before = dict(ns)
        until(lambda: all(n > before[p] for p, n in ns.items()), 60)
    finally:
        done.set()
        for thread in threads:
            thread.join(60)
    assert failures == []
    assert (found["complete"], found["equal"]) == (True, True)
    assert [sorted(t["replayed"]) for t in found["tasks"]] == [["kv", "mem", "ts", "win"]] * 3
    assert "equal" in holdfast.run(busy.app.name, "--against", "changelog", "--store", "kv").stdout


@pytest.mark.parametrize("store", ["kv", "mem"])
def test_one_changed_value_is_an_alarm(
    busy: Busy, holdfast: Cli, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    monkeypatch.setattr(compare, "NEWER_S", 0.5)
    for p in range(PARTITIONS):
        busy.commit(p)
    before = holdfast.json(busy.app.name)["totals"]
    busy.corrupt(1, store, b"2")
    after = holdfast.json(busy.app.name)["totals"]
    assert {s for s in before if before[s] != after[s]} == {store}
    words = (busy.app.name, "--against", "changelog")
    found = holdfast.json(*words, code=2)
    assert (found["equal"], found["complete"]) == (False, True)
    assert [t["different"] for t in found["tasks"]] == [[], [store], []]
    assert [t["looks"] for t in found["tasks"]] == [1, 2, 1]
    shown = holdfast.run(*words, code=2)
    assert f"ALARM: {store} of task {busy.app.name}/1" in shown.stderr
    at = found["tasks"][1]["live"]["marker"]
    assert f"its changelog at {at['epoch']}/1, seen twice: " in shown.stderr, "it is idle"
    assert "DIFFERENT" in shown.stdout


def test_a_difference_that_passes_is_none(
    busy: Busy, holdfast: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when compaction ran between two reads: the key is written again before the second look."""
    monkeypatch.setattr(compare, "NEWER_S", 60.0)
    for p in range(PARTITIONS):
        busy.commit(p)
    busy.corrupt(2, "kv", b"2")
    waiting = threading.Event()
    wait = compare._await_newer

    def announced(*arguments: object) -> None:
        waiting.set()
        wait(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(compare, "_await_newer", announced)
    again = threading.Thread(target=lambda: waiting.wait(60) and busy.commit(2))
    again.start()
    found = holdfast.json(busy.app.name, "--against", "changelog")
    again.join(60)
    assert [t["looks"] for t in found["tasks"]] == [1, 1, 2]
    assert found["equal"]


def test_a_difference_that_persists_at_a_newer_marker_is_an_alarm(
    busy: Busy, holdfast: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commits go on, and none of them writes that key."""
    monkeypatch.setattr(compare, "NEWER_S", 60.0)
    for p in range(PARTITIONS):
        busy.commit(p)
    busy.corrupt(2, "kv", b"no", key=b"lost")
    done = threading.Event()

    def keep_committing() -> None:
        while not done.is_set():
            busy.commit(2)

    committing = threading.Thread(target=keep_committing)
    committing.start()
    try:
        shown = holdfast.run(busy.app.name, "--against", "changelog", code=2)
    finally:
        done.set()
        committing.join(60)
    (alarm,) = (line for line in shown.stderr.splitlines() if line.startswith("ALARM: "))
    assert f"kv of task {busy.app.name}/2" in alarm
    assert "its changelog at two markers, the last one " in alarm


def test_a_snapshot_and_its_tail_give_the_same(
    busy: Busy, cluster: Cluster, holdfast: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "NEWER_S", 0.5)
    monkeypatch.setenv("HOLDFAST_SNAPSHOTS_URL", (cluster.root / "snapshots").as_uri())
    words = (busy.app.name, "--against", "snapshot")

    def snapshot_of(partition: int) -> dict[str, Any]:
        return cluster.client(busy.app, partition).snapshot_status(busy.app.name, partition)

    for p in range(PARTITIONS):
        busy.commit(p)
        busy.commit(p)
    none = holdfast.run(*words, code=1).stderr
    assert f"no snapshot of {busy.app.name}/0" in none
    assert f"'holdfast snapshot create {busy.app.name}'" in none
    for p in range(PARTITIONS):
        cluster.client(busy.app, p).snapshot(busy.app.name, p)
    until(lambda: all(snapshot_of(p)["state"] == "done" for p in range(PARTITIONS)), 90)
    for p in range(PARTITIONS):
        busy.commit(p, clock=NOON + HOUR)
    found = holdfast.json(*words)
    assert (found["against"], found["complete"], found["equal"]) == ("snapshot", True, True)
    assert [sorted(t["replayed"]) for t in found["tasks"]] == [["kv", "mem", "ts", "win"]] * 3
    busy.corrupt(1, "ts", b"12345678no")
    assert f"ALARM: ts of task {busy.app.name}/1" in holdfast.run(*words, code=2).stderr
    for file in (cluster.root / "snapshots").rglob("files/*"):
        content = file.read_bytes()
        file.write_bytes(bytes(len(content)))  # of the same size: only its hash tells
    broken = holdfast.json(*words, "--store", "kv", code=1)
    assert not broken["complete"]
    assert all("SHA-256" in t["error"] for t in broken["tasks"])


def test_refusals(
    busy: Busy,
    cluster: Cluster,
    holdfast: Cli,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    name = busy.app.name
    assert name in holdfast.run("no-such-app", code=1).stderr
    assert "['kv', 'ts', 'win', 'mem']" in holdfast.run(name, "--store", "no", code=1).stderr
    with pytest.raises(NotFound):
        list(cluster.client(busy.app, 0).digests(name, 0, ["no"]))
    words = (name, "--against", "changelog")
    assert "--dir" in holdfast.run(*words, "--dir", str(tmp_path / "no"), code=1).stderr
    with monkeypatch.context() as full:
        full.setattr(room, "MIN_FREE_BYTES", 1 << 60)
        busy.commit(0)
        assert "name a directory on a larger disk (--dir)" in holdfast.run(*words, code=1).stderr
    holdfast.token("wrong")
    for wrong in ((name,), words):
        assert "a bearer token is required" in holdfast.run(*wrong, code=1).stderr
    holdfast.token(TOKEN)
    holdfast(name)
