"""A thousand tasks are gathered and judged at once; what there is of them is seeded."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from state_lib.changelog.admin import ensure_topics
from state_lib.changelog.topics import commits_topic, plan_topics
from state_lib.checks import Report, judge
from state_lib.checks.facts import Facts
from state_lib.config import Settings
from state_lib.gathering.application import SNAPSHOT_AGE_MS, gather
from state_lib.kafka import Kafka, describe, ends
from state_lib.protocol.marker import Marker, now_ms
from state_lib.stack.ports import free_port
from tests.support.apps import HOUR, KV, NOON, App, app_of
from tests.support.brokers import running_broker
from tests.support.hosts import publish
from tests.support.many_tasks import GB, older, playing_hosts, said_of, store_snapshot
from tests.support.waiting import SLOWNESS, until

TASKS, COMMITS, HOSTS = 1000, 3, 4
LIMIT_S = 5.0
"""For facts and verdicts of all; sampled reads of logs apart."""
LOST, OLD = 7, 11
"""One task that its host has set aside, and one whose snapshot nobody renewed."""
pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    root = tmp_path_factory.mktemp("many")
    with running_broker(root / "broker", heap_max="1g") as broker:
        kafka = Kafka({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        app = app_of(kafka, "many", root, [KV])
        app.topology = replace(app.topology, partitions=TASKS, sources=())
        ensure_topics(kafka.admin(), plan_topics(app.topology), 1, 1)
        publish(app)
        seed(app)
        yield app


def settings_of(app: App, home: Path, hosts: str, **more: str) -> Settings:
    return Settings.load(
        home=home, bootstrap_servers=app.servers, replication_factor=1, hosts=hosts, **more
    )


def in_time(settings: Settings, app: App) -> tuple[Facts, Report]:
    """Facts and verdicts; fails if they took longer than is promised."""
    began = time.monotonic()
    facts = gather(settings, app.kafka, app.name, read_logs=False)
    gathered = time.monotonic() - began
    report = judge(facts)
    judged = time.monotonic() - began - gathered
    print(f"\n{TASKS} tasks: gathered in {gathered:.2f} s, judged in {judged:.3f} s")  # noqa: T201
    assert gathered + judged < LIMIT_S * SLOWNESS, (gathered, judged)
    return facts, report


def test_a_thousand_tasks(app: App, tmp_path: Path) -> None:
    """Their only host is away, and nobody took snapshots."""
    settings = settings_of(app, tmp_path, f"host-1=127.0.0.1:{free_port()}/{free_port()}")
    facts, report = in_time(settings, app)
    assert len(facts.markers) == TASKS
    assert {m.batch_number for m in facts.markers} == {COMMITS}
    found = {v.check: v for v in report.alarms}
    assert set(found) == {"hosts", "tasks", "snapshots"}, found
    assert "1000 tasks have no owner" in found["tasks"].seen
    began = time.monotonic()
    facts = gather(settings, app.kafka, app.name)
    print(f"with 16 logs sampled: {time.monotonic() - began:.2f} s")  # noqa: T201
    assert {v.check for v in judge(facts).alarms} == set(found)


def test_a_thousand_tasks_whose_hosts_answer_and_a_snapshot_of_each(
    app: App, tmp_path: Path
) -> None:
    topic, marker = app.topic("kv"), seeded(app)
    durable = {topic: COMMITS - 1}
    said = [said_of(p, durable, "kv", marker) for p in range(TASKS)]
    said[LOST] |= {"state": "quarantined", "waits": "its directory is gone", "marker": None}
    stored = tmp_path / "snapshots"
    for p in range(TASKS):
        age_ms = SNAPSHOT_AGE_MS + HOUR if p == OLD else HOUR
        store_snapshot(stored, app.topology, p, older(marker, COMMITS - 1, age_ms), durable)
    with playing_hosts(app.name, said, HOSTS) as hosts:
        text = ",".join(map(str, hosts))
        settings = settings_of(app, tmp_path, text, snapshots_url=stored.as_uri())
        facts, report = in_time(settings, app)
    tasks = [task for host in facts.hosts for task in host.tasks]
    assert sorted(t.partition for t in tasks) == list(range(TASKS))
    assert {(t.bytes, t.durable[topic], t.stores["kv"].entries) for t in tasks} == {
        (GB, COMMITS - 1, 1)
    }
    assert facts.snapshots is not None
    assert set(facts.snapshots.newest) == set(range(TASKS))
    assert {s.why_not for s in facts.snapshots.newest.values()} == {None}
    found = {v.check: v for v in report.alarms}
    assert set(found) == {"tasks", "snapshots"}, found
    assert (found["tasks"].level, found["tasks"].subject) == ("fail", f"{app.name}/{LOST}")
    assert f"1 tasks are quarantined; {LOST} on host-" in found["tasks"].seen
    assert found["snapshots"].seen.startswith("the oldest is 1.1 d old")
    seen = {v.seen for v in report.verdicts if v.level == "ok"}
    assert f"{TASKS - 1} tasks are open" in seen
    assert f"{TASKS // HOSTS} tasks could go on from their directories" in seen


def seeded(app: App) -> Marker:
    """The newest of each task; all are alike."""
    topic = app.topic("kv")
    return Marker(
        epoch=0,
        batch_number=COMMITS,
        owner="host-1",
        stream_time_ms=NOON,
        written_at=now_ms(),
        settled=True,
        logs={topic: describe(app.kafka.admin(), [topic])[topic].id},
        ends={topic: COMMITS},
        starts={topic: 0},
    )


def seed(app: App) -> None:
    """Markers and entries as hosts write them, without hosts."""
    topic, newest = app.topic("kv"), seeded(app)
    producer = app.kafka.producer(None, **{"linger.ms": 100})
    for n in range(1, COMMITS + 1):
        now = replace(newest, batch_number=n, ends={topic: n}).to_bytes()
        for p in range(TASKS):
            producer.produce(topic, b"v", b"k", p, timestamp=1)
            producer.produce(commits_topic(app.name), now, f"{app.name}/{p}".encode(), p)
    until(lambda: producer.flush(1) == 0, 120)
    at = [(topic, p) for p in range(TASKS)]
    until(lambda: set(ends(app.kafka.admin(), at).values()) == {COMMITS}, 60)
