"""Topics that were deleted and made again are written anew, and count once they are verified."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest

from state_lib.changelog.admin import topic_configs
from state_lib.changelog.topics import commits_topic
from state_lib.errors import LogLost, NotRepairable
from state_lib.kafka import ends
from state_lib.restore.options import RestoreOptions
from state_lib.specs import OutputSpec
from state_lib.task.repairing import loss_of, repair_task
from tests.integration.conftest import MakeApp
from tests.support.apps import HOUR, KV, NOON, TS, WIN, batch, digests, kv
from tests.support.counting import Counting
from tests.support.filled import filled
from tests.support.lost import deleted, made_again
from tests.support.repairs import (
    entries,
    from_scratch,
    refused,
    refused_falsified,
    repairer,
    without_last,
)

POINTS = ["repair.after_chunk@2", "repair.after_chunk@5", "repair.before_marker"]


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
    assert (repaired.epoch, repaired.batch_number) == (marker.epoch, marker.batch_number)
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


def test_a_changelog_that_reads_back_differently_never_counts(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = make_app([KV])
    task = filled(app)
    before = entries(task)
    task.close()
    made_again(app, app.topic("kv"))
    refused_falsified(task, app.topic("kv"), monkeypatch, without_last)
    repair_task(task)
    task.open()
    assert entries(task) == before


@pytest.mark.parametrize("point", [*POINTS, "repair.after_marker"])
def test_a_repair_that_is_killed_is_repeated(make_app: MakeApp, point: str) -> None:
    app = make_app([KV, WIN])
    task = filled(app)
    before, marker = entries(task), task.marker
    task.close()
    made_again(app, app.topic("kv"), app.topic("win"))
    name, _, nth = point.partition("@")
    armed = f"{name}=kill" + (f"@{nth}" if nth else "")
    assert repairer(app, armed).returncode == -signal.SIGKILL
    if name != "repair.after_marker":
        refused(task, app.topic("kv"))
    done = repairer(app, "")
    assert done.stdout.split() == [str(marker.epoch), str(marker.batch_number)], done.stderr
    assert [p.name for p in task.path.parent.iterdir()] == ["0"]
    task.open()
    assert entries(task) == before
    from_scratch(task)
    assert entries(task) == before


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
    assert (digests(task), task.marker.batch_number) == (before, marker.batch_number)
