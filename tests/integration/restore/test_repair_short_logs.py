"""Changelogs that lost their end or their beginning: no source, until a repair has ended."""

from __future__ import annotations

import os
import shutil
import signal
from dataclasses import replace

import pytest

from state_lib.changelog.admin import set_topic_config
from state_lib.changelog.writer import TransactionalWriter
from state_lib.errors import LogLost
from state_lib.task.repairing import loss_of, repair_task
from tests.integration.conftest import MakeApp
from tests.support.apps import KV, TS, batch, digests, kv
from tests.support.filled import filled
from tests.support.lost import cut, ends_early, made_again
from tests.support.repairs import (
    await_end,
    entries,
    from_scratch,
    refused,
    refused_falsified,
    repairer,
    with_another,
)


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
    await_end(app, "kv", 2)
    repair_task(task)
    task.open()
    from_scratch(task)
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
    assert repairer(app, "repair.after_chunk=kill@2").returncode == -signal.SIGKILL
    refused(task, app.topic("kv"))
    refused_falsified(task, app.topic("kv"), monkeypatch, with_another)
    shutil.move(task.path, app.root / "elsewhere")
    refused(task, app.topic("kv"))
    shutil.move(app.root / "elsewhere", task.path)
    assert list(loss_of(task).topics) == [app.topic("kv")]
    repair_task(task)
    from_scratch(task)
    assert entries(task) == before


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
    assert (digests(task), task.marker.batch_number) == (before, marker.batch_number)


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
    await_end(app, "ts", 4)
    cut(app, app.topic("ts"), 2)
    again = app.opened()
    assert loss_of(again).topics == {}
    assert [k for k, _ in again.scan("ts")[1]] == [b"b"]
    again.close()
    app.opened()
