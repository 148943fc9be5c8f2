"""An application on the state hosts of a stack, committed to as a driver's executors do."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pyarrow as pa

from state_lib.changelog.admin import ensure_topics
from state_lib.changelog.topics import TopicPlan, changelog_topic, plan_topics
from state_lib.client.flight import FlightHostClient
from state_lib.client.snapshots import SnapshotClient
from state_lib.config import Settings
from state_lib.kafka import Kafka
from state_lib.protocol.marker import Marker
from state_lib.protocol.placement import owner_of
from state_lib.specs import Topology
from tests.support.apps import KV, NOON, App, batch
from tests.support.hosts import claim, publish

PARTITIONS = 2


class Committed:
    """Claimed, with a key-value store ``kv``."""

    def __init__(self, settings: Settings, name: str, root: Path) -> None:
        self.settings, self.name = settings, name
        self.kafka = Kafka.of(settings)
        topology = Topology(name, PARTITIONS, (KV,), (), (f"{name}-source",))
        self.app = App(self.kafka, topology, root)
        source = TopicPlan(f"{name}-source", 1, {"retention.ms": "-1"}, owned=False)
        ensure_topics(self.kafka.admin(), [source, *plan_topics(topology)], 1, 1)
        self.epoch = publish(self.app)
        for partition in range(PARTITIONS):
            with closing(self.client(partition)) as client:
                claim(client, self.app, self.epoch, partition)

    def client(self, partition: int) -> FlightHostClient:
        """Of the task's owner."""
        address = owner_of(self.name, partition, self.settings.host_addresses)
        return FlightHostClient(address, self.settings.read_token())

    def commit(self, partition: int, **entries: str) -> Marker:
        """One batch."""
        with closing(self.client(partition)) as client:
            n = client.marker(self.name, partition).batch_number + 1
            with client.exchange(self.name, partition, self.epoch, n) as exchange:
                keys = pa.array([key.encode() for key in entries], pa.binary())
                values = pa.array([value.encode() for value in entries.values()], pa.binary())
                exchange.put("kv", keys, values, pa.array([NOON] * len(entries), pa.int64()))
                return exchange.commit(batch(exchange.marker, n=n).header)

    def snapshot(self) -> None:
        """Of every task."""
        jobs = SnapshotClient(self.settings, self.name).create()
        assert [job["state"] for job in jobs] == ["done"] * PARTITIONS, jobs

    def snapshots(self) -> list[Path]:
        """Files of them."""
        root = Path(self.settings.snapshots_url.removeprefix("file://")) / self.name
        return [path for path in root.rglob("files/*") if path.is_file()]

    def write_behind(self, partition: int, key: str, value: str) -> None:
        """A record in the changelog that is nobody's: its store does not know it."""
        producer = self.kafka.producer()
        topic = changelog_topic(self.name, "kv")
        producer.produce(topic, value.encode(), key.encode(), partition=partition)
        assert producer.flush(30) == 0
