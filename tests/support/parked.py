"""An application of which tasks are parked: hosts, and a driver in parts, without a query."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import orjson
from confluent_kafka.admin import NewTopic
from pyspark.sql import SparkSession

from state_lib.changelog.progress import ProgressLog
from state_lib.config import Settings
from state_lib.driver.claims import Claimant, write_claim
from state_lib.driver.epochs import Epoch, topology_id
from state_lib.driver.left_out import LeftOut
from state_lib.driver.standing import Standing
from state_lib.drivers.watched import Watched
from state_lib.host.tasks import TaskManager
from state_lib.kafka import Kafka, ends, require
from state_lib.protocol.placement import owner_of
from state_lib.protocol.positions import Positions
from state_lib.spark.align import Read, align, initial_positions
from state_lib.spark.batches import Batches
from state_lib.spark.frames import Combiner
from state_lib.spark.parking import Parking
from state_lib.spark.session import kafka_options, read_range
from tests.support.apps import App
from tests.support.declared import counting
from tests.support.hosts import address, served
from tests.support.waiting import until

PARTITIONS, PARK_S, AWAY = 4, 1.0, "host-2"
WORDS = [f"w{i % 17}" for i in range(60)]


class World:
    """Four tasks on two hosts, a source, and a driver's parts without Spark's query."""

    def __init__(self, spark: SparkSession, kafka: Kafka, name: str, root: Path) -> None:
        self.spark, self.kafka, self.name, self.topic = spark, kafka, name, f"{name}-in"
        self.other = f"{name}-other"
        """Another source, whose number is one more than the number of partitions of the first."""
        self.job = counting(name, {self.topic: "counts", self.other: "others"}, PARTITIONS)
        for topic in self.job.topology.sources:
            kafka.admin().create_topics([NewTopic(topic, 1, 1)])[topic].result()
        self.app = App(kafka, self.job.topology, root)
        self.app.create()
        self.addresses = [address("host-1"), address(AWAY)]
        self.settings = Settings.load(
            bootstrap_servers=str(kafka.properties["bootstrap.servers"]),
            hosts=",".join(map(str, self.addresses)),
            exchange_timeout_s=5,
            park_after_s=PARK_S,
        )
        self.running = {a.id: ExitStack() for a in self.addresses}
        self.managers: dict[str, TaskManager] = {}
        for host in self.running:
            self.start(host)
        self.theirs = [p for p in range(PARTITIONS) if self.owner(p) == AWAY]
        assert 0 < len(self.theirs) < PARTITIONS, "each host has tasks, or this shows nothing"
        self.sent = 0

    def owner(self, task: int) -> str:
        return owner_of(self.name, task, self.addresses).id

    def start(self, host: str) -> None:
        at = next(a for a in self.addresses if a.id == host)
        manager = served(self.app, at, hosts=self.addresses)
        self.managers[host] = self.running[host].enter_context(manager)

    def stop(self, host: str) -> None:
        self.running[host].close()

    def close(self) -> None:
        for host in self.running:
            self.stop(host)

    def produce(self, at: int = 0) -> int:
        """Twenty words more, now or at a time (ms); returns the end of the topic."""
        producer = self.kafka.producer(self.topic)
        for word in WORDS[self.sent : self.sent + 20]:
            producer.produce(self.topic, word.encode(), partition=0, timestamp=at)
        producer.flush(30)
        self.sent += 20
        return ends(self.kafka.admin(), [(self.topic, 0)])[self.topic, 0]

    def driver(self, watched: Watched | None = None) -> Driven:
        return Driven(self, watched)

    def counts(self) -> dict[bytes, int]:
        """Of all tasks."""
        out: dict[bytes, int] = {}
        for task in range(PARTITIONS):
            _, entries = self.managers[self.owner(task)].task(self.name, task).scan("counts")
            out |= {key: int.from_bytes(value[8:], "big") for key, value in entries}
        return out

    def expected(self) -> dict[bytes, int]:
        return {word.encode(): n for word, n in Counter(WORDS[: self.sent]).items()}


class Driven:
    """What a driver holds after its claim."""

    def __init__(self, world: World, watched: Watched | None = None) -> None:
        self.world, kafka, job = world, world.kafka, world.job
        sources = require(kafka.admin(), job.topology.sources)
        who = None if watched is None else watched.presence.who
        number = write_claim(kafka, job.topology, who, job.fingerprint, world.addresses)
        self.epoch = Epoch(number, topology_id(kafka, world.name))
        hosts = tuple(world.addresses)
        self.claimant = Claimant(job.topology, self.epoch, hosts, None, lambda: False)
        left_out = LeftOut(kafka, job.topology, sources, PARK_S)
        markers = self.claimant.all(5.0, left_out.of(self.epoch))
        ids = {t: f.id for t, f in sources.items()}
        self.standing = Standing(self.epoch.number, markers, ids, parked=left_out.parked)
        combiner = Combiner(world.spark, job.aggregations, PARTITIONS)
        self.batches = Batches(job, world.settings, kafka, combiner, self.standing, None)
        at = initial_positions(kafka.admin(), markers, sources)
        if any(x != m.positions for x, m in zip(at, markers, strict=True)):
            self.batches.initial(at)
        options = kafka_options(world.settings, list(job.topology.sources))
        self.read: Read = lambda from_, to: read_range(world.spark, options, from_, to)
        self.records = ProgressLog(kafka, world.name).read
        assert align(self.batches, self.read, self.records, lambda: False)

    def stream(self) -> None:
        """A batch of all that there is."""
        end = ends(self.world.kafka.admin(), self.standing.positions)
        at, to = (
            orjson.dumps(Positions(p).to_json()).decode() for p in (self.standing.positions, end)
        )
        self.batches.stream(self.read(at, to), end)

    def parking(self) -> Parking:
        claim = self.claimant.one
        return Parking(self.batches, claim, self.read, self.records, lambda: False)

    def come_back(self, parking: Parking) -> None:
        def all_there() -> bool:
            parking.bring_back(30.0)
            return not self.standing.parked

        until(all_there, 60, "no task is parked")

    def close(self) -> None:
        self.batches.close()
