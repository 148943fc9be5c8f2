"""Every source of a restore gives the same state; what cannot be trusted is rebuilt."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from state_lib.changelog.log import KafkaLog, LogRange
from state_lib.changelog.topics import commits_topic
from state_lib.errors import LogLost, StateCorrupt, Unavailable
from state_lib.kafka import describe, ends, starts
from state_lib.protocol.marker import Marker
from state_lib.restore import run
from state_lib.restore.listener import Silent
from state_lib.restore.options import RestoreOptions
from state_lib.restore.replay import Replay
from state_lib.restore.source import check_logs
from state_lib.stores.digest import store_digest
from state_lib.stores.rocksdb.options import RocksDBOptions
from state_lib.stores.task_stores import TaskStores
from state_lib.task import StateTask
from tests.integration.conftest import MakeApp
from tests.support.apps import HOUR, KV, NOON, TS, WIN, App, batch, digests, kv, win
from tests.support.counting import Counting
from tests.support.directories import bad_blocks
from tests.support.filled import filled
from tests.support.fold import fold
from tests.support.waiting import until

# ---------------------------------------------------------------- restarts


def reopened(app: App, host: str = "host-1") -> tuple[StateTask, Counting]:
    app.close()
    listener = Counting()
    return app.opened(host=host, listener=listener), listener


def test_a_clean_restart_replays_nothing(make_app: MakeApp) -> None:
    app = make_app([KV, TS, WIN])
    task = filled(app)
    before, marker = digests(task), task.marker
    task, replayed = reopened(app)
    assert replayed.records == {}
    assert digests(task) == before
    assert task.marker == replace(marker, written_at=task.marker.written_at)
    assert task.commit(batch(task.marker)).batch_number == marker.batch_number + 1


def test_a_directory_that_was_left_behind_replays_its_tail_only(
    make_app: MakeApp, tmp_path: Path
) -> None:
    app = make_app([KV])
    task = filled(app)
    task.close()
    shutil.copytree(task.path, tmp_path / "old")
    task.open()
    second = task.commit(batch(task.marker, {"kv": kv(("new", "1"), ("k1", None))}))
    before = digests(task)
    task.close()
    shutil.rmtree(task.path)
    shutil.copytree(tmp_path / "old", task.path)
    task, replayed = reopened(app)
    assert replayed.records == {"kv": 2}
    assert (task.marker.batch_number, digests(task)) == (second.batch_number, before)


def test_a_missing_directory_is_rebuilt(make_app: MakeApp) -> None:
    app = make_app([KV, TS, WIN])
    task = filled(app)
    before = digests(task)
    assert before["win"].entries > 0
    task.close()
    shutil.rmtree(task.path)
    task, replayed = reopened(app)
    assert digests(task) == before
    assert set(replayed.ended) == {"kv", "ts", "win"}
    assert replayed.ranges["kv"][0] == 0
    assert task.commit(batch(task.marker)).batch_number == 7


def test_another_host_gets_the_same_state(make_app: MakeApp) -> None:
    app = make_app([KV, TS, WIN])
    before = digests(filled(app))
    assert digests(reopened(app, "host-2")[0]) == before


def flip_current(path: Path) -> None:
    (path / "CURRENT").write_text("MANIFEST-999999\n")


def remove_current(path: Path) -> None:
    (path / "CURRENT").unlink()


def empty_manifest(path: Path) -> None:
    for manifest in path.glob("MANIFEST-*"):
        manifest.write_bytes(b"")


def remove_ssts(path: Path) -> None:
    for sst in path.glob("*.sst"):
        sst.unlink()


def forget_checkpoint(path: Path) -> None:
    shutil.rmtree(path)
    path.mkdir()


@pytest.mark.parametrize(
    "harm", [flip_current, remove_current, empty_manifest, remove_ssts, forget_checkpoint]
)
def test_a_corrupt_directory_is_set_aside_and_rebuilt(
    make_app: MakeApp, harm: Callable[[Path], None]
) -> None:
    app = make_app([KV])
    task = filled(app)
    before = digests(task)
    task.flush()
    task.close()
    harm(task.path)
    task, replayed = reopened(app)
    assert digests(task) == before
    assert replayed.records["kv"] > 0
    assert [p.name for p in task.path.parent.iterdir()] == ["0"], "nothing is left lying about"


def test_a_bad_block_found_while_reading_sets_the_directory_aside(make_app: MakeApp) -> None:
    app = make_app([KV])
    task = filled(app)
    before = digests(task)
    task.flush()
    task.close()
    bad_blocks(task.path)
    task, _ = reopened(app)
    with pytest.raises(Unavailable, match="checksum"):
        list(task.scan("kv")[1])
    assert not task.is_open
    assert list(task.path.parent.glob("0.aside-*"))
    task.open()
    assert digests(task) == before
    assert [p.name for p in task.path.parent.iterdir()] == ["0"]


def test_an_interrupted_rebuild_starts_over(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = make_app([KV, replace(TS, backend="memory")])
    task = filled(app)
    before = digests(task)
    task.close()
    (task.path / "CURRENT").unlink()
    full, tail = Replay.full, Replay.tail

    def interrupted(*_: object) -> int:
        raise Unavailable("Kafka is away")

    monkeypatch.setattr(Replay, "full", interrupted)
    with pytest.raises(Unavailable):
        task.open()
    left = sorted(p.name for p in task.path.parent.iterdir())
    assert left == ["0", "0.restoring"], "the bad one stays until the new one stands"
    monkeypatch.setattr(Replay, "full", full)
    monkeypatch.setattr(Replay, "tail", interrupted)
    with pytest.raises(Unavailable):
        task.open()
    monkeypatch.setattr(Replay, "tail", tail)
    task.open()
    assert digests(task) == before
    assert [p.name for p in task.path.parent.iterdir()] == ["0"]


def test_the_old_copy_stays_until_what_replaces_it_is_verified(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a disk that forgets what was written."""
    app = make_app([KV])
    task = filled(app)
    before = digests(task)
    task.flush()
    task.close()
    remove_current(task.path)
    kept = {p.name for p in task.path.iterdir()}
    with monkeypatch.context() as patched:
        patched.setattr(run, "_checkpoint_at_end", lambda *_: None)
        with pytest.raises(StateCorrupt, match="does not hold the checkpoint that was written"):
            task.open()
    (aside,) = task.path.parent.glob("0.aside-*")
    assert kept <= {p.name for p in aside.iterdir()}
    task.open()
    assert digests(task) == before
    assert [p.name for p in task.path.parent.iterdir()] == ["0"]


def test_kafka_away_sets_nothing_aside(make_app: MakeApp, monkeypatch: pytest.MonkeyPatch) -> None:
    app = make_app([KV])
    task = filled(app)
    before = digests(task)
    task.close()
    shutil.rmtree(task.path)
    task.open()
    task.commit(batch(task.marker, {"kv": kv(("x", "1"), ("x", None))}))
    task.close()

    def away(*_: object) -> None:
        raise Unavailable("Kafka is away")

    with monkeypatch.context() as patched:
        patched.setattr(run, "_replay", away)
        with pytest.raises(Unavailable):
            task.open()
    assert [p.name for p in task.path.parent.iterdir()] == ["0"]
    task.open()
    assert digests(task) == before


COMPACT = {"cleanup.policy": "compact"}


def made_again(app: App, topic: str) -> None:
    """Delete a topic and create it anew, as `app.create` would."""
    for future in app.kafka.admin().delete_topics([topic]).values():
        future.result()
    until(lambda: topic not in describe(app.kafka.admin(), [topic]))
    app.create()


@pytest.mark.parametrize("of_old", [False, True], ids=["", "old-marker"])
@pytest.mark.parametrize("copy", [True, False], ids=["local-copy", "no-copy"])
@pytest.mark.parametrize("topic", ["changelog", "commits"])
def test_a_topic_that_was_made_again_is_refused(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch, topic: str, *, copy: bool, of_old: bool
) -> None:
    """An empty changelog would give an empty store; no marker, and all would count twice."""
    if of_old:
        monkeypatch.setattr(Marker, "owned_by", lambda m, owner, _: replace(m, owner=owner))
    app = make_app([KV, TS])
    task = filled(app)
    before = digests(task)
    task.close()
    lost = app.topic("kv") if topic == "changelog" else commits_topic(app.name)
    if not copy:
        task.path.rename(app.root / "elsewhere")
    made_again(app, lost)
    again = app.task()
    for _ in range(2):
        with pytest.raises(LogLost) as refused:
            again.open()
        assert refused.value.details["topic"] == lost
        assert "holdfast app reset" in refused.value.message
    if not copy:
        (app.root / "elsewhere").rename(task.path)
    stores = TaskStores(app.topology, task.path, RocksDBOptions())
    found = {n: store_digest(s, NOON) for n, s in stores.stores.items()}
    stores.close()
    assert found["ts"] == before["ts"]
    assert found["kv"] == before["kv"], "what the host has is kept"


def test_a_log_that_ends_before_what_was_committed_is_refused(make_app: MakeApp) -> None:
    """As after an unclean election: the marker knows where the last commit ended."""
    logs = {"app-kv-changelog": LogRange("id", 0, 10)}
    topology = replace(make_app([KV]).topology, app="app")
    marker = Marker(epoch=1, batch_number=4, cut={"app-kv-changelog": [11, 2]})
    with pytest.raises(LogLost, match="ends at offset 10, and 11 was committed"):
        check_logs(topology, 0, marker, None, logs)
    check_logs(topology, 0, replace(marker, cut={"app-kv-changelog": [9, 2]}), None, logs)


def test_a_log_that_moved_past_the_directory(make_app: MakeApp, tmp_path: Path) -> None:
    app = make_app([WIN])
    task = filled(app, 2)
    task.close()
    shutil.copytree(task.path, tmp_path / "old")
    task.open()
    task.commit(batch(task.marker, {"win": win(("later", NOON + HOUR, "1"))}))
    task.commit(batch(task.marker, {"win": win(("last", NOON + HOUR, "1"))}))
    before = digests(task)
    where = (app.topic("win"), 0)
    end = task.marker.cut[app.topic("win")][0] + 1  # the transaction's control record
    until(lambda: ends(app.kafka.admin(), [where])[where] == end)  # brokers write it later
    cut = TopicPartition(*where, end - 2)
    for future in app.kafka.admin().delete_records([cut]).values():
        future.result()
    assert starts(app.kafka.admin(), [where])[where] == end - 2
    task, replayed = reopened(app)
    assert (digests(task), replayed.records) == (before, {}), "it stands at the newest marker"
    task.close()
    shutil.rmtree(task.path)
    shutil.copytree(tmp_path / "old", task.path)
    task, replayed = reopened(app)
    assert replayed.ranges["win"][0] == end - 2, "not valid: rebuilt from what the log still has"
    assert digests(task)["win"].entries == 1


# ---------------------------------------------------------------- layouts and backends


def test_memory_and_rocksdb_have_the_same_digest(make_app: MakeApp) -> None:
    rocks = make_app([KV, TS, WIN])
    memory = make_app([replace(s, backend="memory") for s in (KV, TS, WIN)])
    expected = digests(filled(rocks))
    assert digests(filled(memory)) == expected
    assert digests(reopened(memory)[0]) == expected
    assert digests(reopened(rocks)[0]) == expected


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        (replace(KV, backend="memory"), KV),
        (KV, replace(KV, backend="memory")),
        (WIN, replace(WIN, retention_ms=20 * HOUR)),
        (KV, replace(TS, name="kv")),
    ],
)
def test_a_store_with_another_layout_is_built_anew(
    make_app: MakeApp, was: object, becomes: object
) -> None:
    """Entries in the wrong engine, segment or form would be as good as lost."""
    app = make_app([was, TS])
    task = filled(app)
    before, name = digests(task), app.topology.stores[0].name
    state = fold(
        str(app.kafka.properties["bootstrap.servers"]),
        app.topic(name),
        timestamped=becomes.is_timestamped,  # type: ignore[attr-defined]
    )
    app.topology = replace(app.topology, stores=(becomes, TS))  # type: ignore[arg-type]
    task.claim(app.topology, 1)
    keys = sorted(state)
    with task.view() as (marker, stores):
        store = stores.stores[name]
        live = [k for k in keys if store.live(k, marker.stream_time_ms)]
        assert store.get_many(live) == [state[k] for k in live]
        assert live
    assert digests(task)["ts"] == before["ts"]


def test_spilled_runs_equal_writes(make_app: MakeApp, tmp_path: Path) -> None:
    """Tombstones in a later run must cover values in an earlier one."""
    app = make_app([KV, TS, WIN])
    task = filled(app, 12)
    before, clock = digests(task), task.marker.stream_time_ms
    app.close()
    for label, run_bytes in (("tail", None), ("one run", 1 << 30), ("many runs", 2000)):
        stores = TaskStores(app.topology, tmp_path / label, RocksDBOptions())
        options = RestoreOptions(run_bytes=run_bytes or 1)
        runs = tmp_path / label / "runs"
        replay = Replay(KafkaLog(app.kafka), app.name, 0, stores, Silent(), clock, runs, options)
        try:
            for spec in app.topology.stores:
                where = (app.topic(spec.name), 0)
                end = ends(app.kafka.admin(), [where])[where]
                (replay.tail if run_bytes is None else replay.full)(spec, 0, end)
            found = {n: store_digest(s, clock) for n, s in stores.stores.items()}
        finally:
            stores.close()
        assert found == before, label
        assert not list(runs.glob("*")), "runs are moved, not copied"


def test_a_log_that_shrank_is_no_state(make_app: MakeApp) -> None:
    app = make_app([KV])
    filled(app)
    app.close()
    stores = TaskStores(app.topology, app.root / "x", RocksDBOptions())
    replay = Replay(KafkaLog(app.kafka), app.name, 0, stores, Silent(), NOON, app.root / "runs")
    with pytest.raises(StateCorrupt):
        replay.tail(KV, 10_000, 10_001)
    stores.close()
