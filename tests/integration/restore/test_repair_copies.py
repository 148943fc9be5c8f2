"""What lost topics may be written anew from: the copy on the host, or a snapshot of that commit."""

from __future__ import annotations

import json
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from state_lib.changelog.topics import commits_topic
from state_lib.changelog.writer import TransactionalWriter
from state_lib.errors import NotRepairable
from state_lib.kafka import ends
from state_lib.restore.options import RestoreOptions
from state_lib.snapshots.write import SnapshotRequest, write_snapshot
from state_lib.task import StateTask
from state_lib.task.loss import Loss
from state_lib.task.opening import Opening
from state_lib.task.repair import Repair
from state_lib.task.repairing import loss_of, repair_task
from tests.integration.conftest import MakeApp
from tests.support.apps import KV, WIN, App, batch, digests, kv
from tests.support.filled import filled
from tests.support.lost import made_again
from tests.support.repairs import (
    entries,
    from_scratch,
    refused,
)
from tests.support.waiting import SLOWNESS


def test_markers_are_not_taken_from_a_copy_that_lags(make_app: MakeApp, tmp_path: Path) -> None:
    """What was committed after it would be counted twice."""
    app = make_app([KV])
    task = filled(app)
    task.close()
    _fall_behind(task, tmp_path / "old")
    made_again(app, commits_topic(app.name))
    with pytest.raises(NotRepairable, match="holds records that were committed later"):
        repair_task(task)
    refused(task, commits_topic(app.name))


def test_a_copy_that_lags_cannot_replace_a_changelog(make_app: MakeApp, tmp_path: Path) -> None:
    app = make_app([KV])
    task = filled(app)
    task.close()
    _fall_behind(task, tmp_path / "old")
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
    task.commit(batch(task.marker, {"kv": kv(("later", "1"))}, clock=task.marker.stream_time_ms))
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
    n = task.marker.batch_number
    assert loss_of(task).topics == {}
    assert task.marker.batch_number == n + 1


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

    older = replace(marker, batch_number=marker.batch_number - 1)
    monkeypatch.setattr("state_lib.changelog.log.ends", lagging)
    monkeypatch.setattr(TransactionalWriter, "open", fencing)
    monkeypatch.setattr(Opening, "newest_marker", lambda o: newest(o) if fenced else older)
    task = app.task(restore=RestoreOptions("orchestrated"))
    assert task.open().batch_number == marker.batch_number
    assert digests(task) == before


def _fall_behind(task: StateTask, aside: Path) -> None:
    """Leave the copy of one commit before the last."""
    shutil.copytree(task.path, aside)
    task.open()
    task.commit(batch(task.marker, {"kv": kv(("later", "1"))}))
    task.close()
    shutil.rmtree(task.path)
    shutil.copytree(aside, task.path)
