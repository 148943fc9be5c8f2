"""Kafka and a state host as docker/compose.yaml has them, on loopback; brokers are killed."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pyarrow as pa
import pytest
from prometheus_client.parser import text_string_to_metric_families

from state_lib.changelog.admin import ensure_topics, topic_configs
from state_lib.changelog.topics import commits_topic, plan_topics
from state_lib.client.flight import FlightHostClient
from state_lib.config import PREFIX, Settings
from state_lib.errors import HoldfastError
from state_lib.kafka import Kafka, describe
from state_lib.protocol.addresses import HostAddress
from state_lib.protocol.marker import Marker
from state_lib.protocol.placement import owner_of
from state_lib.snapshots.listing import list_snapshots
from tests.support.apps import KV, App, app_of, batch
from tests.support.compose import BROKERS
from tests.support.composed import Composed
from tests.support.composed_kafka import ComposedKafka
from tests.support.fold import committed, fold
from tests.support.hosts import claim, publish
from tests.support.promql import OF_THE_TARGET, reads, rules
from tests.support.s3 import s3_server
from tests.support.waiting import until

pytestmark = pytest.mark.full
NAME = "counted"
BEFORE, AFTER = 5, 5
"""Commits, around each kill."""
POINT = "commit.after_kafka"
"""The brokers' answer is there, and markers of the transaction are hardly written."""


@dataclass
class Committer:
    """Commits one batch after the other, each again until it is acknowledged, as a driver does."""

    app: App
    at: HostAddress
    token: str
    epoch: int
    acknowledged: int = 0
    refusals: list[str] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self.ended.set()
            thread.join()

    def _run(self) -> None:
        with closing(FlightHostClient(self.at, self.token)) as client:
            while not self.ended.is_set():
                try:
                    self._commit(client, self.acknowledged + 1)
                except HoldfastError as error:
                    self.refusals.append(f"{type(error).__name__}: {error.message}")
                    time.sleep(0.05)
                else:
                    self.acknowledged += 1

    def _commit(self, client: FlightHostClient, n: int) -> None:
        with client.exchange(self.app.name, 0, self.epoch, n) as exchange:
            if not exchange.already_done:
                rows = written(n)
                keys, values = (
                    pa.array(list(rows), pa.binary()),
                    pa.array(rows.values(), pa.binary()),
                )
                exchange.put("kv", keys, values, pa.array([1] * len(rows), pa.int64()))
                exchange.commit(batch(exchange.marker, n=n).header)


def written(n: int) -> dict[bytes, bytes]:
    """By batch ``n``: one key that each overwrites, and one of its own."""
    return {b"same": b"%d" % n, b"key %d" % n: b"%d" % n}


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Composed]:
    (tmp_path / "composed").mkdir()
    with s3_server() as storage:
        made = Composed(tmp_path / "composed", f"http://127.0.0.1:{storage.port}")
        try:
            yield made
        finally:
            made.stop()


@pytest.fixture
def brokers(stack: Composed) -> Iterator[ComposedKafka]:
    made = ComposedKafka(stack)
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture
def settings(stack: Composed, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """What the variables of a host mean."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):  # the secret has to do
        monkeypatch.delenv(name)
    for key, value in stack.environment("host-1").items():
        if key.startswith((PREFIX, "AWS_")):
            monkeypatch.setenv(key, value)
    return Settings.load()


@pytest.mark.timeout(300)
def test_nothing_is_lost_when_brokers_are_killed_under_load(
    stack: Composed, brokers: ComposedKafka, settings: Settings, tmp_path: Path
) -> None:
    kafka = Kafka.of(settings)
    app = app_of(kafka, NAME, tmp_path, (KV,))
    replicas = settings.replication_factor, settings.min_insync_replicas
    assert replicas == (3, 2)
    ensure_topics(kafka.admin(), plan_topics(app.topology), *replicas)
    logs = [app.topic("kv"), commits_topic(NAME)]
    assert {one.replication for one in describe(kafka.admin(), logs).values()} == {3}
    configs = topic_configs(kafka.admin(), logs)
    assert {one["min.insync.replicas"] for one in configs.values()} == {"2"}

    at, token = owner_of(NAME, 0, settings.host_addresses), settings.read_token()
    assert token
    armed, fired = tmp_path / "armed", tmp_path / "fired"
    fired.mkdir()
    points = {"HOLDFAST_FAILPOINTS": f"@{armed}", "HOLDFAST_FAILPOINTS_DIR": str(fired)}
    stack.start(at.id, **points)
    stack.await_healthy(at.id)
    epoch = publish(app, settings.host_addresses)
    with closing(FlightHostClient(at, token)) as client:
        claim(client, app, epoch)
    committer = Committer(app, at, token, epoch)
    with committer.running():
        until(lambda: committer.acknowledged >= BEFORE, 60, "committed")
        leader = kafka.admin().list_topics(logs[1], timeout=10).topics[logs[1]].partitions[0].leader
        stack.kill(f"kafka-{leader}")
        goes_on(committer)
        see_it_come_back(brokers, f"kafka-{leader}", kafka, logs)
        for name in BROKERS:  # one of them coordinates the transaction, one leads the changelog
            for old in fired.iterdir():
                old.unlink()
            armed.write_text(f"{POINT}=kill-pid:{stack.processes[name].pid}")
            until((fired / POINT).exists, 60, f"{name} is killed while a commit is acknowledged")
            stack.processes[name].wait(60)
            goes_on(committer)
            see_it_come_back(brokers, name, kafka, logs)

    last = committer.acknowledged
    rows = {key: value for n in range(1, last + 1) for key, value in written(n).items()}
    assert fold(brokers.bootstrap, logs[0]) == rows
    assert len(committed(brokers.bootstrap, logs[0])) == 2 * last, "each batch once"
    markers = [Marker.from_bytes(m.value() or b"") for m in committed(brokers.bootstrap, logs[1])]
    numbers = [marker.batch_number for marker in markers if marker.epoch == epoch]
    assert sorted(set(numbers)) == list(range(last + 1)), "none is missing"
    assert numbers == sorted(numbers)
    with closing(FlightHostClient(at, token)) as client:
        marker, chunks = client.scan(NAME, 0, "kv")
        assert marker.batch_number == last
        pairs = [pair for chunk in chunks for pair in chunk.to_pylist()]
    assert {pair["key"]: pair["value"] for pair in pairs} == rows
    take_snapshot(stack, settings, at, token)
    see_metrics(at, token)


def goes_on(committer: Committer) -> None:
    so_far = committer.acknowledged
    until(lambda: committer.acknowledged >= so_far + AFTER, 60, "going on without it")


def see_metrics(at: HostAddress, token: str) -> None:
    """As Prometheus does; whatever an alarm reads has the labels that it names."""
    assert httpx.get(f"{at.http_url}/metrics").status_code == 401
    answer = httpx.get(f"{at.http_url}/metrics", headers={"Authorization": f"Bearer {token}"})
    labels = {
        sample.name: set(sample.labels)
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }
    seen = set()
    for rule in rules():
        names, named = reads(rule["expr"])
        if names <= set(labels):
            seen |= names
            assert named <= OF_THE_TARGET.union(*(labels[name] for name in names)), rule["alert"]
    counted = ("task_open", "commit_latency_seconds_bucket", "snapshot_timestamp_seconds")
    assert {f"holdfast_{one}" for one in counted} <= seen


def take_snapshot(stack: Composed, settings: Settings, at: HostAddress, token: str) -> None:
    """To the S3 server, by the secret's credentials, into a bucket of the stack's own program."""
    stack.run("objects-bucket")
    with closing(FlightHostClient(at, token)) as client:
        client.snapshot(NAME, 0)
        until(lambda: client.snapshot_status(NAME, 0)["state"] != "running", 60, "taken")
        status = client.snapshot_status(NAME, 0)
    assert len(list_snapshots(settings.snapshots_url, NAME, 0)) == 1, status


def see_it_come_back(brokers: ComposedKafka, name: str, kafka: Kafka, logs: list[str]) -> None:
    """The killed broker starts on its own data and catches up."""
    brokers.start_broker(name)
    brokers.await_broker(name)

    def in_sync() -> bool:
        topics = kafka.admin().list_topics(timeout=10).topics
        return all(len(topics[log].partitions[0].isrs) == 3 for log in logs)

    until(in_sync, 60, "in sync again")
