"""A task keeps brokers from deleting windows that are live: in time, and nowhere else."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from state_lib.changelog.admin import set_topic_config, topic_configs
from state_lib.changelog.writer import Records
from state_lib.host.retention import RetentionWatch
from state_lib.protocol.marker import now_ms
from state_lib.task import retention
from tests.integration.conftest import MakeApp
from tests.support.apps import HOUR, KV, NOON, WIN, batch, claimed, days, kv, win
from tests.support.hosts import address, managed
from tests.support.waiting import until


def test_retention_is_lifted_before_old_events_and_only_there(make_app: MakeApp) -> None:
    app = make_app([WIN, replace(WIN, name="other"), KV], outputs=["out"])
    task = app.opened()
    topics = [app.topic("win"), app.topic("other"), app.topic("kv"), app.topology.outputs[0].topic]
    before = topic_configs(app.kafka.admin(), topics)
    now = time.time_ns() // 1_000_000 // HOUR * HOUR
    first = task.commit(
        batch(claimed(task), {"win": win(("a", now, "1")), "kv": kv(("a", "1"), time=1)}, clock=now)
    )
    assert topic_configs(app.kafka.admin(), topics) == before, "new events ask for nothing"
    out = [Records(topics[3], [b"a"], [b"1"], [1])]
    task.commit(batch(first, {"win": win(("a", NOON - days(3650), "1"))}, outputs=out))
    after = topic_configs(app.kafka.admin(), topics)
    assert after[topics[0]] == before[topics[0]] | {"retention.ms": "-1"}
    assert {t: after[t] for t in topics[1:]} == {t: before[t] for t in topics[1:]}


def test_retention_is_lifted_while_an_application_is_idle(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its clock stands, so its windows stay live; to the broker they are a day older tomorrow."""
    app = make_app([WIN, replace(WIN, name="empty")])
    task = app.opened()
    topics = [app.topic("win"), app.topic("empty")]
    before = topic_configs(app.kafka.admin(), topics)
    start = time.time_ns() // 1_000_000 // HOUR * HOUR - 10 * HOUR
    task.commit(batch(claimed(task), {"win": win(("a", start, "1"))}, clock=start))
    task.keep_retention()
    assert topic_configs(app.kafka.admin(), topics) == before, "12 hours are left"
    monkeypatch.setattr(retention, "now_ms", lambda: now_ms() + 20 * HOUR)
    with managed(app, address()) as manager:
        manager.tasks[app.name, 0] = task
        watch = RetentionWatch(manager)
        watch.start()
        changed = before[topics[0]] | {"retention.ms": "-1"}
        until(lambda: topic_configs(app.kafka.admin(), topics)[topics[0]] == changed)
        watch.stop()
    assert topic_configs(app.kafka.admin(), topics)[topics[1]] == before[topics[1]]


def test_what_a_guard_remembers_is_looked_up_again(make_app: MakeApp) -> None:
    """The scheduled check may have lowered it, once the old windows had expired."""
    app = make_app([WIN])
    task = app.opened()
    topic = app.topic("win")
    old = win(("a", NOON, "1"))
    first = task.commit(batch(claimed(task), {"win": old}))
    admin, lowered = app.kafka.admin(), str(30 * HOUR)
    set_topic_config(admin, topic, "retention.ms", lowered)
    until(lambda: topic_configs(admin, [topic])[topic]["retention.ms"] == lowered)
    task.keep_retention()
    until(lambda: topic_configs(admin, [topic])[topic]["retention.ms"] == "-1")
    assert task.commit(batch(first, {"win": old})).batch_number == first.batch_number + 1
