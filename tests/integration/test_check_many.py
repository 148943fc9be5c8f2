"""A thousand tasks are gathered and judged at once; topics and markers are seeded."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from state_lib.changelog.admin import ensure_topics
from state_lib.changelog.topics import commits_topic, plan_topics
from state_lib.checks import judge
from state_lib.config import Settings
from state_lib.gathering.application import gather
from state_lib.kafka import Kafka, TopicFacts, describe, ends
from state_lib.protocol.marker import Marker, now_ms
from state_lib.stack.ports import free_port
from tests.support.apps import KV, NOON, app_of
from tests.support.brokers import running_broker
from tests.support.hosts import publish
from tests.support.waiting import SLOWNESS, until

TASKS, COMMITS = 1000, 3
LIMIT_S = 5.0
"""For facts and verdicts of all; sampled reads of logs apart. Its only host is away."""


@pytest.mark.full
def test_a_thousand_tasks(tmp_path: Path, name: str) -> None:
    with running_broker(tmp_path / "broker", heap_max="1g") as broker:
        kafka = Kafka({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        app = app_of(kafka, name, tmp_path, [KV])
        app.topology = replace(app.topology, partitions=TASKS, sources=())
        ensure_topics(kafka.admin(), plan_topics(app.topology), 1, 1)
        publish(app)
        seed(app.kafka, name, app.topic("kv"), describe(kafka.admin(), [app.topic("kv")]))
        settings = Settings.load(
            home=tmp_path / "home",
            bootstrap_servers=broker.bootstrap,
            replication_factor=1,
            hosts=f"host-1=127.0.0.1:{free_port()}/{free_port()}",
        )
        began = time.monotonic()
        facts = gather(settings, kafka, name, read_logs=False)
        gathered = time.monotonic() - began
        report = judge(facts)
        judged = time.monotonic() - began - gathered
        print(f"\n{TASKS} tasks: gathered in {gathered:.2f} s, judged in {judged:.3f} s")  # noqa: T201
        assert gathered + judged < LIMIT_S * SLOWNESS, (gathered, judged)
        assert len(facts.markers) == TASKS
        assert {m.batch_number for m in facts.markers} == {COMMITS}
        found = {v.check: v for v in report.alarms}
        assert set(found) == {"hosts", "tasks", "snapshots"}, found
        assert "1000 tasks have no owner" in found["tasks"].seen
        began = time.monotonic()
        facts = gather(settings, kafka, name)
        print(f"with 16 logs sampled: {time.monotonic() - began:.2f} s")  # noqa: T201
        assert {v.check for v in judge(facts).alarms} == set(found)


def seed(kafka: Kafka, app: str, topic: str, facts: dict[str, TopicFacts]) -> None:
    """Markers and entries as hosts write them, without hosts."""
    producer = kafka.producer(None, **{"linger.ms": 100})
    marker = Marker(epoch=0, owner="host-1", stream_time_ms=NOON, written_at=now_ms(), settled=True)
    topic_id = facts[topic].id
    for n in range(1, COMMITS + 1):
        for p in range(TASKS):
            producer.produce(topic, b"v", b"k", p, timestamp=1)
            now = replace(
                marker, batch_number=n, logs={topic: topic_id}, ends={topic: n}, starts={topic: 0}
            )
            producer.produce(commits_topic(app), now.to_bytes(), f"{app}/{p}".encode(), p)
    until(lambda: producer.flush(1) == 0, 120)
    at = [(topic, p) for p in range(TASKS)]
    until(lambda: set(ends(kafka.admin(), at).values()) == {COMMITS}, 60)
