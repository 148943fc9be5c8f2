"""Lost topics are written anew from the copy on a host, and count only once they are verified."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from state_lib.changelog.admin import set_topic_config, topic_configs
from state_lib.changelog.topics import commits_topic
from state_lib.changelog.writer import TransactionalWriter
from state_lib.errors import LogLost, NotRepairable
from state_lib.kafka import ends
from state_lib.restore.options import RestoreOptions
from state_lib.snapshots.write import SnapshotRequest, write_snapshot
from state_lib.specs import OutputSpec
from state_lib.task import StateTask
from state_lib.task.loss import Loss
from state_lib.task.opening import Opening
from state_lib.task.repair import Chunk, Repair
from state_lib.task.repairing import loss_of, repair_task
from tests.integration.conftest import MakeApp
from tests.support.apps import HOUR, KV, NOON, TS, WIN, App, batch, digests, kv
from tests.support.counting import Counting
from tests.support.filled import filled
from tests.support.lost import cut, deleted, ends_early, made_again
from tests.support.waiting import SLOWNESS, until

REPOSITORY = Path(__file__).parents[2]


def entries(task: StateTask) -> dict[str, list[tuple[bytes, bytes]]]:
    return {s.name: sorted(task.scan(s.name)[1]) for s in task.topology.stores}


def refused(task: StateTask, topic: str) -> None:
    with pytest.raises(LogLost) as error:
        task.open()
    assert error.value.details["topic"] == topic
    assert "holdfast repair changelog" in error.value.message


def from_scratch(task: StateTask) -> Counting:
    """Without the local copy: all that the changelogs give; leaves the task open."""
    task.close()
    shutil.rmtree(task.path)
    listener = Counting()
    task._context = replace(task._context, listener=listener)
    task.open()
    return listener


def test_a_changelog_that_was_made_again_is_written_anew(make_app: MakeApp) -> None:
    """Live windows of 2023 too: brokers would remove them at once by their age."""
    app = make_app([KV, TS, WIN])
    task = filled(app)
    before, marker = entries(task), task.marker
    assert all(before.values())
    task.close()
    lost = [app.topic("kv"), app.topic("win")]
    made_again(app, *lost)
    settings = topic_configs(app.kafka.admin(), lost)
    assert settings[app.topic("win")]["retention.ms"] != "-1"
    refused(task, lost[0])
    loss = loss_of(task)
    assert (sorted(loss.topics), loss.why_not, loss.copy) == (lost, None, loss.commit)

    repaired = repair_task(task)
    assert (repaired.epoch, repaired.n) == (marker.epoch, marker.n)
    assert repaired.positions == marker.positions
    assert topic_configs(app.kafka.admin(), lost)[app.topic("win")]["retention.ms"] == "-1"
    assert loss_of(task) == replace(loss, topics={})
    assert [p.name for p in task.path.parent.iterdir()] == ["0"]
    task.open()
    assert entries(task) == before
    assert set(from_scratch(task).ended) == {"kv", "ts", "win"}
    assert entries(task) == before
    task.commit(batch(task.marker, {"kv": kv(("new", "1"))}))
    assert from_scratch(task).ended
    assert task.get_many("kv", [b"new"])[1] == [b"1"]


def test_a_new_directory_is_not_needed_after_a_repair(make_app: MakeApp) -> None:
    app = make_app([KV, WIN])
    task = filled(app)
    task.close()
    made_again(app, app.topic("kv"), app.topic("win"))
    repair_task(task)
    listener = Counting()
    app.close()
    app.opened(listener=listener)
    assert listener.records == {}, "the copy stands at the marker: nothing is replayed"


def test_one_store_at_a_time(make_app: MakeApp) -> None:
    app = make_app([KV, TS])
    task = filled(app)
    before = entries(task)
    task.close()
    made_again(app, app.topic("kv"), app.topic("ts"))
    repair_task(task, ["ts"])
    assert list(loss_of(task).topics) == [app.topic("kv")]
    refused(task, app.topic("kv"))
    repair_task(task, ["kv"])
    task.open()
    assert entries(task) == before
    from_scratch(task)
    assert entries(task) == before


def test_lost_markers_are_those_of_the_copy(make_app: MakeApp) -> None:
    app = make_app([KV, WIN])
    task = filled(app)
    before, marker = entries(task), task.marker
    task.close()
    made_again(app, commits_topic(app.name))
    refused(task, commits_topic(app.name))
    assert list(loss_of(task).topics) == [commits_topic(app.name)]
    repaired = repair_task(task)
    assert replace(repaired, written_at=0) == replace(marker, written_at=0)
    task.open()
    assert entries(task) == before
    from_scratch(task)
    assert (entries(task), task.marker.positions) == (before, marker.positions)


def test_markers_are_not_taken_from_a_copy_that_lags(make_app: MakeApp, tmp_path: Path) -> None:
    """What was committed after it would be counted twice."""
    app = make_app([KV])
    task = filled(app)
    task.close()
    shutil.copytree(task.path, tmp_path / "old")
    task.open()
    task.commit(batch(task.marker, {"kv": kv(("later", "1"))}))
    task.close()
    shutil.rmtree(task.path)
    shutil.copytree(tmp_path / "old", task.path)
    made_again(app, commits_topic(app.name))
    with pytest.raises(NotRepairable, match="holds records that were committed later"):
        repair_task(task)
    refused(task, commits_topic(app.name))


def test_markers_and_changelog_lost_at_once(make_app: MakeApp) -> None:
    """Without outputs a task may go on from any of its commits; otherwise they would repeat."""
    app = make_app([KV, TS])
    task = filled(app)
    before = entries(task)
    task.close()
    made_again(app, commits_topic(app.name), app.topic("kv"))
    with_output = replace(app.topology, outputs=(OutputSpec("out", "kv"),))
    task._declared.topology = with_output
    with pytest.raises(NotRepairable, match="written twice"):
        repair_task(task)
    task._declared.topology = app.topology
    repair_task(task)
    task.open()
    from_scratch(task)
    assert entries(task) == before


def test_a_lost_changelog_is_no_lost_store(make_app: MakeApp) -> None:
    """Where lost stores wait for a restore: none would help."""
    app = make_app([KV])
    filled(app)
    app.close()
    made_again(app, app.topic("kv"))
    refused(app.task(restore=RestoreOptions("orchestrated")), app.topic("kv"))


def test_a_copy_that_lags_cannot_replace_a_changelog(make_app: MakeApp, tmp_path: Path) -> None:
    app = make_app([KV])
    task = filled(app)
    task.close()
    shutil.copytree(task.path, tmp_path / "old")
    task.open()
    task.commit(batch(task.marker, {"kv": kv(("later", "1"))}))
    task.close()
    shutil.rmtree(task.path)
    shutil.copytree(tmp_path / "old", task.path)
    made_again(app, app.topic("kv"))
    with pytest.raises(NotRepairable, match=r"stands at commit \(0, 6\).*at \(0, 7\)"):
        repair_task(task)
    assert [p.name for p in task.path.parent.iterdir()] == ["0"], "and it is kept"


def test_without_a_copy_it_names_the_ways_out(make_app: MakeApp) -> None:
    app = make_app([KV])
    task = filled(app)
    task.close()
    shutil.rmtree(task.path)
    made_again(app, app.topic("kv"))
    with pytest.raises(NotRepairable, match="host 'host-1' has no copy") as error:
        repair_task(task)
    assert "holdfast app reset" in error.value.message
    assert "holdfast snapshot list" in error.value.message
    assert Loss.from_json(json.loads(json.dumps(loss_of(task).to_json()))) == loss_of(task)


def test_a_snapshot_of_that_very_commit_is_as_good_as_the_copy(make_app: MakeApp) -> None:
    app = make_app([KV, WIN])
    task = filled(app)
    before, old = entries(task), _snapshot(app, task)
    task.commit(batch(task.marker, {"kv": kv(("later", "1"))}, clock=task.marker.clock))
    app.close()
    shutil.rmtree(task.path)
    made_again(app, app.topic("kv"), app.topic("win"))
    again = app.task(restore=RestoreOptions("auto", (app.root / "snapshots").as_uri()))
    with pytest.raises(NotRepairable, match="no copy"):
        repair_task(again)
    app.close()

    app = make_app([KV, WIN])
    task = filled(app)
    before, taken = entries(task), _snapshot(app, task)
    app.close()
    shutil.rmtree(task.path)
    made_again(app, app.topic("kv"), app.topic("win"))
    again = app.task(restore=RestoreOptions("auto", (app.root / "snapshots").as_uri()))
    assert (loss_of(again).snapshot, loss_of(again).why_not) == (taken, None)
    assert taken != old
    repair_task(again)
    again.open()
    assert entries(again) == before
    from_scratch(again)
    assert entries(again) == before


def _snapshot(app: App, task: StateTask) -> str:
    checkpoint = app.root / "checkpoint"
    with task.view() as (_, stores):
        stores.rocks.checkpoint(checkpoint)
    url = (app.root / "snapshots").as_uri()
    made = write_snapshot(SnapshotRequest(url, app.topology, 0, checkpoint, "host-1"))
    shutil.rmtree(checkpoint)
    return made.manifest.id


def test_a_topic_that_does_not_exist_is_told(make_app: MakeApp) -> None:
    app = make_app([KV])
    task = filled(app)
    before = entries(task)
    task.close()
    deleted(app, app.topic("kv"))
    loss = loss_of(task)
    assert (loss.missing, loss.why_not) == ((app.topic("kv"),), None)
    with pytest.raises(NotRepairable, match="does not exist"):
        repair_task(task)
    app.create()
    repair_task(task)
    from_scratch(task)
    assert entries(task) == before


def test_nothing_to_repair_changes_nothing(make_app: MakeApp) -> None:
    app = make_app([KV])
    task = filled(app)
    stores, marker = task._held.stores, task.marker
    assert repair_task(task) == marker
    assert task._held.stores is stores, "it was not even closed"
    task.close()
    where = (app.topic("kv"), 0)
    end = ends(app.kafka.admin(), [where])
    assert repair_task(task) == marker
    assert ends(app.kafka.admin(), [where]) == end


def test_an_open_task_is_repaired_too(make_app: MakeApp) -> None:
    app = make_app([KV])
    task = filled(app)
    before = entries(task)
    made_again(app, app.topic("kv"))
    assert list(loss_of(task).topics) == [app.topic("kv")]
    repair_task(task)
    task.open()
    from_scratch(task)
    assert entries(task) == before


def test_what_is_in_memory_only_cannot_be_written_and_is_not_closed(make_app: MakeApp) -> None:
    app = make_app([replace(KV, backend="memory"), TS])
    task = filled(app)
    before = entries(task)
    made_again(app, app.topic("kv"))
    with pytest.raises(NotRepairable, match="'kv' is in memory"):
        repair_task(task)
    assert entries(task) == before


def test_a_log_that_lost_its_end_gives_no_deleted_key_back(make_app: MakeApp) -> None:
    """As after an unclean election: what stands there is older than the copy."""
    app = make_app([KV])
    task = filled(app)
    task.commit(batch(task.marker, {"kv": kv(("gone", "1"))}))
    task.commit(batch(task.marker, {"kv": kv(("gone", None), ("k1", "last"))}))
    before = entries(task)
    task.close()
    made_again(app, app.topic("kv"))
    writer = TransactionalWriter(app.kafka, "somebody", 0)
    writer.open()
    writer.write_part(batch(task.marker, {"kv": kv(("gone", "1"))}).records(app.name)[0])
    writer.close()
    _await_end(app, "kv", 2)
    repair_task(task)
    task.open()
    from_scratch(task)
    assert entries(task) == before


def _await_end(app: App, store: str, offset: int) -> None:
    """Brokers write the end of a transaction a moment after they said that it is committed."""
    where = (app.topic(store), 0)
    until(lambda: ends(app.kafka.admin(), [where])[where] == offset)


def test_a_changelog_that_reads_back_differently_never_counts(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = make_app([KV])
    task = filled(app)
    before = entries(task)
    task.close()
    made_again(app, app.topic("kv"))
    with monkeypatch.context() as patched:
        chunks = Repair._chunks
        patched.setattr(Repair, "_chunks", lambda *a: (_without_last(c) for c in chunks(*a)))
        with pytest.raises(LogLost, match="reads back as"):
            repair_task(task)
    refused(task, app.topic("kv"))
    repair_task(task)
    task.open()
    assert entries(task) == before


def test_a_log_that_ends_early_stays_lost_until_a_repair_has_ended(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a repair writes makes it longer than what was committed."""
    app = make_app([KV])
    task = filled(app)
    before = entries(task)
    task.close()
    ends_early(app, app.topic("kv"))
    refused(task, app.topic("kv"))
    assert _repairer(app, "repair.after_chunk=kill@2").returncode == -signal.SIGKILL
    refused(task, app.topic("kv"))
    with monkeypatch.context() as patched:
        chunks = Repair._chunks
        patched.setattr(Repair, "_chunks", lambda *a: (_with_another(c) for c in chunks(*a)))
        with pytest.raises(LogLost, match="reads back as"):
            repair_task(task)
    refused(task, app.topic("kv"))
    shutil.move(task.path, app.root / "elsewhere")
    refused(task, app.topic("kv"))
    shutil.move(app.root / "elsewhere", task.path)
    assert list(loss_of(task).topics) == [app.topic("kv")]
    repair_task(task)
    from_scratch(task)
    assert entries(task) == before


def _with_another(chunk: Chunk) -> Chunk:
    keys, values, times = chunk
    return [*keys, b"another"], [*values, b"1"], times


@pytest.mark.parametrize(("limit", "size"), [(20_000, 900), (4 << 20, 2 << 20)])
def test_a_changelog_with_its_own_limit_of_records_is_repaired(
    make_app: MakeApp, limit: int, size: int
) -> None:
    app = make_app([KV])
    set_topic_config(app.kafka.admin(), app.topic("kv"), "max.message.bytes", str(limit))
    task = filled(app)
    values = [os.urandom(size // 2).hex() for _ in range(200 if size < limit // 10 else 2)]
    pairs = [(f"large-{i}", value) for i, value in enumerate(values)]
    for i in range(0, len(pairs), 10):
        task.commit(batch(task.marker, {"kv": kv(*pairs[i : i + 10])}))
    before = entries(task)
    task.close()
    ends_early(app, app.topic("kv"))
    repair_task(task)
    from_scratch(task)
    assert entries(task) == before


def _without_last(chunk: Chunk) -> Chunk:
    keys, values, times = chunk
    return keys[:-1], values[:-1], times


POINTS = ["repair.after_chunk@2", "repair.after_chunk@5", "repair.before_marker"]


@pytest.mark.parametrize("point", [*POINTS, "repair.after_marker"])
def test_a_repair_that_is_killed_is_repeated(make_app: MakeApp, point: str) -> None:
    app = make_app([KV, WIN])
    task = filled(app)
    before, marker = entries(task), task.marker
    task.close()
    made_again(app, app.topic("kv"), app.topic("win"))
    name, _, nth = point.partition("@")
    armed = f"{name}=kill" + (f"@{nth}" if nth else "")
    assert _repairer(app, armed).returncode == -signal.SIGKILL
    if name != "repair.after_marker":
        refused(task, app.topic("kv"))
    done = _repairer(app, "")
    assert done.stdout.split() == [str(marker.epoch), str(marker.n)], done.stderr
    assert [p.name for p in task.path.parent.iterdir()] == ["0"]
    task.open()
    assert entries(task) == before
    from_scratch(task)
    assert entries(task) == before


def _repairer(app: App, failpoints: str) -> subprocess.CompletedProcess[str]:
    servers = str(app.kafka.properties["bootstrap.servers"])
    state, topology = str(app.root / "host-1"), json.dumps(app.topology.to_json())
    return subprocess.run(
        [sys.executable, "-m", "tests.support.repairer", servers, state, topology],
        cwd=REPOSITORY,
        env={**os.environ, "HOLDFAST_FAILPOINTS": failpoints},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


# ---------------------------------------------------------------- logs that lost their beginning


def test_a_changelog_that_was_cut_is_no_source(make_app: MakeApp) -> None:
    """Compaction never moves a log's start: whoever deleted records took entries away."""
    app = make_app([KV, TS])
    task = filled(app)
    before = digests(task)
    task.close()
    cut(app, app.topic("kv"), 60)
    task.open()
    assert digests(task) == before, "the copy is enough"
    task.close()
    shutil.move(task.path, app.root / "elsewhere")
    for _ in range(2):
        with pytest.raises(LogLost, match="before offset 60 were deleted"):
            task.open()
    shutil.move(app.root / "elsewhere", task.path)
    assert list(loss_of(task).topics) == [app.topic("kv")]
    repair_task(task)
    from_scratch(task)
    assert digests(task) == before


def test_a_store_is_not_built_anew_from_a_changelog_that_was_cut(make_app: MakeApp) -> None:
    app = make_app([KV, replace(TS, backend="memory")])
    task = filled(app)
    task.close()
    cut(app, app.topic("ts"), 60)
    with pytest.raises(LogLost, match="before offset 60 were deleted"):
        task.open()


def test_a_new_store_may_have_any_log(make_app: MakeApp) -> None:
    """It is no loss: what it holds is met for the first time."""
    app = make_app([KV])
    task = filled(app)
    task.close()
    app.topology = replace(app.topology, stores=(KV, TS))
    app.create()
    writer = TransactionalWriter(app.kafka, "somebody", 0)
    writer.open()
    for name in ("a", "b"):
        puts = batch(task.marker, {"ts": kv((name, "1"))})
        writer.write_part(puts.records(app.name)[0])
    writer.close()
    _await_end(app, "ts", 4)
    cut(app, app.topic("ts"), 2)
    again = app.opened()
    assert loss_of(again).topics == {}
    assert [k for k, _ in again.scan("ts")[1]] == [b"b"]
    again.close()
    app.opened()


def test_commits_do_not_go_on_into_a_changelog_that_was_made_again(make_app: MakeApp) -> None:
    """Every commit would be acknowledged that no restore could give back."""
    app = make_app([KV, TS])
    task = filled(app)
    before, marker = digests(task), task.marker
    made_again(app, app.topic("kv"))
    with pytest.raises(LogLost) as error:
        task.commit(batch(marker, {"kv": kv(("a", "1"))}, clock=NOON + 6 * HOUR))
    assert error.value.details["topic"] == app.topic("kv")
    assert not task.is_open
    repair_task(task)
    task.open()
    assert (digests(task), task.marker.n) == (before, marker.n)


@pytest.mark.parametrize("rows", [1, 30], ids=["ends-before", "passes"])
def test_a_commit_that_begins_before_the_last_one_ended_is_refused_for_good(
    make_app: MakeApp, rows: int
) -> None:
    """Its log was cut: what is aborted makes it longer, and must not hide that."""
    app = make_app([KV, TS])
    task = filled(app)
    before, marker, topic = digests(task), task.marker, app.topic("kv")
    task._held.offsets[topic][1] += 5
    pairs = [(f"new-{i}", "1") for i in range(rows)]
    with pytest.raises(LogLost, match="this commit began at offset"):
        task.commit(batch(marker, {"kv": kv(*pairs)}))
    assert not task.is_open
    refused(task, topic)
    assert list(loss_of(task).topics) == [topic]
    repair_task(task)
    from_scratch(task)
    assert (digests(task), task.marker.n) == (before, marker.n)


def test_a_loss_that_is_looked_for_keeps_no_commit_waiting(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = make_app([KV])
    task = filled(app)
    look = Repair.look

    def slow(*arguments: Any) -> Loss:
        thread = threading.Thread(target=task.commit, args=[batch(task.marker)])
        thread.start()
        thread.join(30 * SLOWNESS)
        return look(*arguments)

    monkeypatch.setattr(Repair, "look", slow)
    n = task.marker.n
    assert loss_of(task).topics == {}
    assert task.marker.n == n + 1


def test_a_loss_is_judged_after_other_writers_were_fenced(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers that start again show the last commit a moment later: the copy seems to be ahead."""
    app = make_app([KV])
    task = filled(app)
    before, marker = digests(task), task.marker
    app.close()
    fenced: list[TransactionalWriter] = []
    newest, fence = Opening.newest_marker, TransactionalWriter.open

    def lagging(admin: AdminClient, where: list[tuple[str, int]]) -> dict[tuple[str, int], int]:
        return {at: end if fenced else end - 2 for at, end in ends(admin, where).items()}

    def fencing(writer: TransactionalWriter) -> None:
        fence(writer)
        fenced.append(writer)

    older = replace(marker, n=marker.n - 1)
    monkeypatch.setattr("state_lib.restore.facts.ends", lagging)
    monkeypatch.setattr(TransactionalWriter, "open", fencing)
    monkeypatch.setattr(Opening, "newest_marker", lambda o: newest(o) if fenced else older)
    task = app.task(restore=RestoreOptions("orchestrated"))
    assert task.open().n == marker.n
    assert digests(task) == before
