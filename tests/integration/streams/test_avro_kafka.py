"""Batches of records in Avro over Kafka: what a registry said stands, however often it is asked."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka.admin import NewTopic
from pyspark.sql import SparkSession

from state_lib import Application
from state_lib.changelog.progress import ProgressLog
from state_lib.config import Settings
from state_lib.driver.claims import write_claim
from state_lib.driver.standing import Standing
from state_lib.errors import RegistryAway, UnknownSchemas
from state_lib.executor.avro.registry import RegistrySchemas
from state_lib.executor.avro.schema import columns_of
from state_lib.host.tasks import TaskManager
from state_lib.kafka import Kafka, describe, ends
from state_lib.protocol.positions import Positions
from state_lib.settings.registry import Registry
from state_lib.spark.align import align
from state_lib.spark.avro.declaring import reader_of
from state_lib.spark.batches import Batches
from state_lib.spark.frames import Combiner
from state_lib.spark.session import kafka_options, read_range
from tests.support.apps import App
from tests.support.hosts import address, claim, publish, served
from tests.support.registry import StandIn, framed, record
from tests.support.small_http import serving
from tests.support.waiting import until

PARTITIONS = 2
FLIGHT = record("Flight", origin="string")
NEWER = record("Flight", origin="string", seats=("long", 0))
ORIGINS = [f"A{i % 7}" for i in range(40)]


@pytest.fixture
def registry() -> Iterator[StandIn]:
    with serving(StandIn()) as server:
        yield server


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

    def driver(self, registry: StandIn) -> Batches:
        """One that has claimed all tasks, and asks a registry."""
        kafka, epoch = self.app.kafka, publish(self.app)
        ids = {self.source: describe(kafka.admin(), [self.source])[self.source].id}
        markers = [claim(self.host, self.app, epoch, p) for p in range(PARTITIONS)]
        schemas = RegistrySchemas(Registry(registry.url))
        combiner = Combiner(self.spark, self.declared.aggregations, PARTITIONS, (), schemas)
        return Batches(
            self.declared, self.settings, kafka, combiner, Standing(epoch, markers, ids), None
        )

    def produce(self, number: int, schema: Any, origins: Sequence[str]) -> Any:
        """More records; returns the source up to them, and where that is."""
        kafka, standing = self.app.kafka, self.batches.standing
        producer = kafka.producer()
        for at, origin in enumerate(origins):
            value = framed(number, schema, {"origin": origin})
            producer.produce(self.source, value, None, at % PARTITIONS, timestamp=at)
        assert producer.flush(10) == 0
        to = ends(kafka.admin(), list(standing.positions))
        return self.read(standing.positions, to), to

    def read(self, *bounds: Any) -> Any:
        texts = [
            b if isinstance(b, str) else orjson.dumps(Positions(b).to_json()).decode()
            for b in bounds
        ]
        return read_range(self.spark, kafka_options(self.settings, [self.source]), *texts)

    def half(self, rows: Any, to: Any, **more: Any) -> None:
        """A batch that one task commits before the driver is killed."""
        batches = self.batches
        plan = batches._plan(batches.standing.positions, to, batches.standing.stream_time_ms)
        plan = replace(plan, **more)
        plan = replace(plan, recorded=batches._progress.append(plan.record()), tasks=(0,))
        batches._run(lambda: batches._combined(rows, plan), plan)

    def counts(self) -> dict[bytes, int]:
        tasks = [self.host.task(self.app.name, p) for p in range(PARTITIONS)]
        found = [entry for task in tasks for entry in task.scan("counts")[1]]
        return {key: int.from_bytes(value[8:], "big") for key, value in found}

    def dropped(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for p in range(PARTITIONS):
            total.update(self.host.task(self.app.name, p).marker.dropped)
        return total


@pytest.fixture
def world(
    spark: SparkSession, kafka: Kafka, name: str, tmp_path: Path, registry: StandIn
) -> Iterator[World]:
    with made(spark, kafka, name, tmp_path, registry) as one:
        yield one


@contextmanager
def made(
    spark: SparkSession, kafka: Kafka, name: str, root: Path, registry: StandIn
) -> Iterator[World]:
    source = f"{name}-in"
    declared = Application(name, spark, partitions=PARTITIONS)
    rows = declared.stream(source, json.dumps(FLIGHT), format="avro")
    rows.groupBy("origin").count("counts")
    # event times are of 1970, and the broker deletes by them
    topic = NewTopic(source, PARTITIONS, 1, config={"retention.ms": "-1"})
    kafka.admin().create_topics([topic])[source].result()
    app, at = App(kafka, declared.topology, root), address()
    app.create()
    settings = Settings.load(
        bootstrap_servers=str(kafka.properties["bootstrap.servers"]),
        hosts=str(at),
        exchange_timeout_s=20,
        schema_registry_wait_s=3,
    )
    nobody: Any = None
    with served(app, at) as host:
        one = World(spark, app, declared, host, settings, source, nobody)
        one.batches = one.driver(registry)
        with closing(one.batches):
            start = dict.fromkeys([(source, p) for p in range(PARTITIONS)], 0)
            one.batches.initial([start] * PARTITIONS)
            one.batches.standing.positions = start
            yield one


@contextmanager
def healed(registry: StandIn, seconds: float, **well: Any) -> Iterator[None]:
    """It does as it should again, so long after it was asked: however late that is."""
    registry.asked.clear()

    def heal() -> None:
        until(lambda: registry.asked, 60, "asked")
        time.sleep(seconds)
        for name, value in well.items():
            setattr(registry, name, value)

    back = threading.Thread(target=heal, daemon=True)
    back.start()
    yield
    assert not any(getattr(registry, name) != value for name, value in well.items()), "it waited"
    back.join()


def expected(*origins: str) -> dict[bytes, int]:
    return {origin.encode(): n for origin, n in Counter(origins).items()}


def test_ids_that_nobody_knows_are_recorded_with_the_batch(world: World, registry: StandIn) -> None:
    number = registry.register("flights-value", FLIGHT)
    world.produce(number + 1, NEWER, ["X"] * 6)
    world.batches.stream(*world.produce(number, FLIGHT, ORIGINS))
    assert world.counts() == expected(*ORIGINS)
    assert world.dropped() == {"unknown-schema": 6}
    batches = [r for r in ProgressLog(world.app.kafka, world.app.name).read() if r.from_ != r.to]
    assert [r.unknown for r in batches] == [(), (number + 1,)]
    assert batches[0].batch_number == batches[1].batch_number
    newer = registry.register("flights-value", NEWER)
    world.batches.stream(*world.produce(newer, NEWER, ["X"] * 4))
    assert world.counts() == expected(*ORIGINS, *["X"] * 4), "from now on it is known"
    assert world.dropped() == {"unknown-schema": 6}


def test_a_schema_that_is_registered_late_costs_no_record(world: World, registry: StandIn) -> None:
    """A replica of the registry may lag behind the one that the producer has asked."""
    number = registry.register("flights-value", FLIGHT)
    late = threading.Timer(2.0, registry.register, ("flights-value", NEWER))
    late.start()
    world.batches.stream(*world.produce(number + 1, NEWER, ORIGINS))
    late.join()
    assert world.counts() == expected(*ORIGINS)
    assert world.dropped() == {}


def test_a_batch_after_it_does_without_them_at_once(world: World, registry: StandIn) -> None:
    registry.register("flights-value", FLIGHT)
    world.batches.stream(*world.produce(9, NEWER, ["X"] * 6))
    registry.asked.clear()
    world.batches.stream(*world.produce(9, NEWER, ["X"] * 4))
    assert registry.asked == ["schemas/ids/9"], "by the driver, and no executor"
    assert world.dropped() == {"unknown-schema": 10}


def test_a_login_that_is_refused_for_a_while_is_no_end(world: World, registry: StandIn) -> None:
    """Once it was let in: what knows the passwords may be away."""
    number = registry.register("flights-value", FLIGHT)
    world.batches.stream(*world.produce(number, FLIGHT, ORIGINS))
    newer = registry.register("flights-value", NEWER)
    registry.instead = (401, {"error_code": 401, "message": "who?"})
    with healed(registry, 3.0, instead=None):
        world.batches.stream(*world.produce(newer, NEWER, ORIGINS))
    assert world.counts() == expected(*ORIGINS, *ORIGINS)


def test_a_repeat_knows_no_more_than_the_batch_did(world: World, registry: StandIn) -> None:
    number = registry.register("flights-value", FLIGHT)
    world.produce(number + 1, NEWER, ORIGINS)
    rows, to = world.produce(number, FLIGHT, ORIGINS)
    world.half(rows, to, unknown=(number + 1,))
    assert registry.register("flights-value", NEWER) == number + 1
    with closing(world.driver(registry)) as other:
        records = ProgressLog(world.app.kafka, world.app.name).read
        assert align(other, world.read, records, lambda: False)
        assert world.counts() == expected(*ORIGINS)
        assert world.dropped() == {"unknown-schema": len(ORIGINS)}


def test_a_repeat_does_without_no_schema_that_the_batch_had(
    world: World, registry: StandIn
) -> None:
    number = registry.register("flights-value", FLIGHT)
    world.half(*world.produce(number, FLIGHT, ORIGINS))
    records = ProgressLog(world.app.kafka, world.app.name).read
    with serving(StandIn()) as forgetful:
        with (
            closing(world.driver(forgetful)) as other,
            pytest.raises(UnknownSchemas, match=r"tasks \[1\] have yet to repeat: bring them back"),
        ):
            align(other, world.read, records, lambda: False)
        assert forgetful.register("flights-value", FLIGHT) == number
        with closing(world.driver(forgetful)) as other:
            assert align(other, world.read, records, lambda: False)
        assert world.counts() == expected(*ORIGINS)
        assert world.dropped() == {}


def test_what_is_half_done_is_finished_by_its_schema(world: World, registry: StandIn) -> None:
    """Not by the newest, by which a job that is started again would be other code."""
    subject, here = f"{world.source}-value", world.app.kafka
    number = registry.register(subject, FLIGHT)
    where = {"bootstrap_servers": world.settings.bootstrap_servers}
    settings = Settings.load(schema_registry_url=registry.url, **where)

    def fields() -> list[str]:
        text = reader_of(world.source, None, lambda: settings, world.app.name)
        return columns_of(text).fieldNames()

    world.half(*world.produce(number, FLIGHT, ORIGINS))
    registry.register(subject, NEWER)
    write_claim(here, world.declared.topology, readers=world.declared.readers)
    assert fields() == ["origin"]
    with closing(world.driver(registry)) as other:
        assert align(other, world.read, ProgressLog(here, world.app.name).read, lambda: False)
    write_claim(here, world.declared.topology, readers=world.declared.readers)
    assert fields() == ["origin", "seats"], "all stand at one place"


def test_a_batch_waits_for_a_registry_that_is_away(world: World, registry: StandIn) -> None:
    number = registry.register("flights-value", FLIGHT)
    registry.away = True
    with healed(registry, 4.0, away=False):
        world.batches.stream(*world.produce(number, FLIGHT, ORIGINS))
    assert registry.asked.count(f"schemas/ids/{number}") > 1
    assert world.counts() == expected(*ORIGINS)
    assert world.dropped() == {}


def test_a_stop_does_not_wait_for_it(world: World, registry: StandIn) -> None:
    number = registry.register("flights-value", FLIGHT)
    registry.away = True
    rows, to = world.produce(number, FLIGHT, ORIGINS)
    with pytest.raises(RegistryAway, match=registry.url):
        world.batches.stream(rows, to, lambda: True)
    assert world.counts() == {}
