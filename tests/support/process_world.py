"""An application with a processor on a host, and the driver of it; the same in memory."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from confluent_kafka.admin import NewTopic
from pyspark.sql import SparkSession

from state_lib import Application, TopologyTestDriver
from state_lib.changelog.claims import RESTORE, tell
from state_lib.changelog.topics import topology_topic
from state_lib.config import Settings
from state_lib.driver.standing import Standing
from state_lib.host.tasks import TaskManager
from state_lib.kafka import Kafka, describe, ends
from state_lib.protocol.positions import Positions
from state_lib.restore.options import RestoreOptions
from state_lib.snapshots.write import SnapshotRequest, write_snapshot
from state_lib.spark.batches import Batches
from state_lib.spark.frames import Combiner
from state_lib.spark.session import kafka_options, read_range
from state_lib.task.checkpoint import checkpoint
from state_lib.task.past import Past
from tests.support.apps import App
from tests.support.fold import committed
from tests.support.hosts import address, claim, publish, served
from tests.support.processors import BEAT, HOUR, Silence

PARTITIONS = 2
T0 = 1_700_000_000_000 // HOUR * HOUR
STORES = ("silence-seen", "silence-timers")
BEATS = [(f"d{i % 5}", T0 + i * 60_000, i % PARTITIONS) for i in range(50)]
LAST = [("late", T0 + 3 * HOUR, p) for p in range(PARTITIONS)]
CUTS = (20, 21, 52)
Told = dict[str, Any]
Pipeline = Callable[[Application, str], None]


def pipeline(app: Application, source: str) -> None:
    beats = app.stream(source, BEAT).groupBy("device")
    told = beats.transformWithState(
        Silence(), "device STRING, silent_at BIGINT", "Append", "EventTime", name="silence"
    )
    told.to(f"{source}-silent")


def value(device: str, at: int) -> bytes:
    return orjson.dumps({"device": device, "at": at})


def in_memory(spark: SparkSession, name: str, source: str) -> Told:
    def build(app: Application) -> None:
        pipeline(app, source)

    with TopologyTestDriver(build, spark, partitions=PARTITIONS, app_id=name) as driver:
        begin = 0
        for end in CUTS:
            for device, at, partition in (BEATS + LAST)[begin:end]:
                driver._pipe(source, None, value(device, at), at, partition)
            driver._current()
            begin = end
        driver.advanceStreamTime()
        tasks = driver._current()
        topic = f"{source}-silent"
        return {
            "clock": [task.marker.stream_time_ms for task in tasks],
            "due": [task.marker.due for task in tasks],
            "stores": [dict(task.scan(s)[1]) for task in tasks for s in STORES],
            "outputs": [
                [written(m) for some in tasks.log.read(topic, p, 0, 1 << 62) for m in some]
                for p in range(PARTITIONS)
            ],
        }


def written(message: Any) -> tuple[Any, ...]:
    return message.key(), message.value(), message.timestamp()[1]


@dataclass
class World:
    """The application on a host, and a driver of it."""

    spark: SparkSession
    app: App
    declared: Application
    host: TaskManager
    settings: Settings
    source: str
    batches: Batches

    def driver(self, epoch: int) -> Batches:
        """Another one, that has claimed all tasks."""
        kafka = self.app.kafka
        ids = {self.source: describe(kafka.admin(), [self.source])[self.source].id}
        markers = [claim(self.host, self.app, epoch, p) for p in range(PARTITIONS)]
        combiner = Combiner(self.spark, [], PARTITIONS, self.declared.processes)
        standing = Standing(epoch, markers, ids)
        return Batches(self.declared, self.settings, kafka, combiner, standing, None)

    def begin(self) -> None:
        """From the first record on."""
        start = dict.fromkeys([(self.source, p) for p in range(PARTITIONS)], 0)
        self.batches.initial([start] * PARTITIONS)
        self.batches.standing.positions = start

    def stream(self, beats: list[tuple[str, int, int]]) -> None:
        """One batch of beats."""
        kafka, standing = self.app.kafka, self.batches.standing
        producer = kafka.producer()
        for device, at, partition in beats:
            producer.produce(self.source, value(device, at), None, partition, timestamp=at)
        assert producer.flush(10) == 0
        to = ends(kafka.admin(), list(standing.positions))
        self.batches.stream(self.read(standing.positions, to), to)

    def read(self, *bounds: Any) -> Any:
        texts = [
            b if isinstance(b, str) else orjson.dumps(Positions(b).to_json()).decode()
            for b in bounds
        ]
        return read_range(self.spark, kafka_options(self.settings, [self.source]), *texts)

    def snapshot(self, partition: int) -> str:
        """Of a task as it stands, as its host takes one; its id."""
        folder = self.app.root / f"snapshot-{partition}"
        checkpoint(self.host.task(self.app.name, partition), folder)
        request = SnapshotRequest(
            storage(self.app.root), self.app.topology, partition, folder, "host-1"
        )
        made = write_snapshot(request).manifest.id
        shutil.rmtree(folder)
        return made

    def go_back(self, snapshots: dict[int, str]) -> None:
        """Restore tasks to the past, under one epoch."""
        kafka, topic = self.app.kafka, topology_topic(self.app.name)
        epoch = tell(kafka, self.app.name, RESTORE, {})
        topic_id = describe(kafka.admin(), [topic])[topic].id
        for partition, snapshot in snapshots.items():
            task = self.host.task(self.app.name, partition)
            self.host.go_back(task, Past(snapshot, republish=False, epoch=epoch, topic_id=topic_id))

    def told(self) -> Told:
        """What tasks and outputs hold."""
        topic, brokers = f"{self.source}-silent", self.settings.bootstrap_servers
        tasks = [self.host.task(self.app.name, p) for p in range(PARTITIONS)]
        return {
            "clock": [task.marker.stream_time_ms for task in tasks],
            "due": [task.marker.due for task in tasks],
            "stores": [dict(task.scan(s)[1]) for task in tasks for s in STORES],
            "outputs": [
                [written(m) for m in committed(brokers, topic, p)] for p in range(PARTITIONS)
            ],
        }


@contextmanager
def world(
    spark: SparkSession, kafka: Kafka, name: str, root: Path, declare: Pipeline = pipeline
) -> Iterator[World]:
    source = f"{name}-in"
    declared = Application(name, spark, partitions=PARTITIONS)
    declare(declared, source)
    topic = NewTopic(source, PARTITIONS, 1, config={"retention.ms": "-1"})
    kafka.admin().create_topics([topic])[source].result()
    app, at = App(kafka, declared.topology, root), address()
    app.create()
    settings = Settings.load(
        bootstrap_servers=str(kafka.properties["bootstrap.servers"]), hosts=str(at)
    )
    nobody: Any = None
    epoch = publish(app)
    with served(app, at, restore=RestoreOptions("auto", storage(root))) as host:
        made = World(spark, app, declared, host, settings, source, nobody)
        made.batches = made.driver(epoch)
        with closing(made.batches):
            made.begin()
            yield made


def storage(root: Path) -> str:
    """Where snapshots are."""
    return (root / "snapshots").as_uri()
