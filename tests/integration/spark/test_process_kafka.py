"""Processors over Kafka, hosts and Spark: as in the test driver, and a tick is for every task."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from confluent_kafka.admin import NewTopic
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from state_lib import Application, TopologyTestDriver
from state_lib.changelog.progress import ProgressLog
from state_lib.changelog.topics import progress_topic
from state_lib.config import Settings
from state_lib.errors import Realign
from state_lib.host.tasks import TaskManager
from state_lib.kafka import Kafka, describe, ends
from state_lib.marker import nested
from state_lib.spark import batches as of_batches
from state_lib.spark.align import align
from state_lib.spark.batches import Batches
from state_lib.spark.frames import Combiner
from state_lib.spark.process.initial import initial_rows, take_initial_states
from state_lib.spark.session import kafka_options, read_range
from state_lib.spark.standing import Standing
from tests.support import processors
from tests.support.apps import App
from tests.support.fold import committed
from tests.support.hosts import address, claim, publish, served
from tests.support.lost import made_again
from tests.support.processors import BEAT, HOUR, Silence

PARTITIONS = 2
T0 = 1_700_000_000_000 // HOUR * HOUR
STORES = ("silence-seen", "silence-timers")
BEATS = [(f"d{i % 5}", T0 + i * 60_000, i % PARTITIONS) for i in range(50)]
LAST = [("late", T0 + 3 * HOUR, p) for p in range(PARTITIONS)]
CUTS = (20, 21, 52)
Told = dict[str, Any]


@pytest.fixture(autouse=True, scope="module")
def _shipped() -> Iterator[None]:
    """Workers need not find the module: it is pickled whole, as a job's own file is."""
    cloudpickle.register_pickle_by_value(processors)
    yield
    cloudpickle.unregister_pickle_by_value(processors)


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
            "clock": [task.marker.clock for task in tasks],
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
        self.batches.stream(self.read(nested(standing.positions), nested(to)), to)

    def read(self, *bounds: Any) -> Any:
        texts = [b if isinstance(b, str) else orjson.dumps(b).decode() for b in bounds]
        return read_range(self.spark, kafka_options(self.settings, [self.source]), *texts)

    def told(self) -> Told:
        """What tasks and outputs hold."""
        topic, brokers = f"{self.source}-silent", self.settings.bootstrap_servers
        tasks = [self.host.task(self.app.name, p) for p in range(PARTITIONS)]
        return {
            "clock": [task.marker.clock for task in tasks],
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
    with served(app, at) as host:
        made = World(spark, app, declared, host, settings, source, nobody)
        made.batches = made.driver(epoch)
        with closing(made.batches):
            made.begin()
            yield made


def test_it_is_the_same_over_kafka(
    spark: SparkSession, kafka: Kafka, name: str, tmp_path: Path
) -> None:
    with world(spark, kafka, name, tmp_path) as one:
        begin = 0
        for end in CUTS:
            one.stream((BEATS + LAST)[begin:end])
            begin = end
        assert one.batches.tick(), "in Spark"
        assert not one.batches.tick(), "nothing is due"
        found = one.told()
        devices = {orjson.loads(v)["device"] for some in found["outputs"] for _, v, _ in some}
        assert devices == {f"d{i}" for i in range(5)}
        assert found == in_memory(spark, name, one.source)


def test_a_tick_that_one_task_took_is_repeated_for_the_other_before_rows(
    spark: SparkSession, kafka: Kafka, name: str, tmp_path: Path
) -> None:
    """The driver was killed in its middle; rows that came since would put silence off."""
    with world(spark, kafka, name, tmp_path) as one:
        one.stream(BEATS + LAST)
        batches, here = one.batches, one.batches.standing.positions
        tick = replace(batches._plan(here, here, T0 + 3 * HOUR), tick=True)
        tick = replace(tick, recorded=batches._progress.append(tick.record()), tasks=(0,))
        batches._run(lambda: batches._combined(None, tick), tick)
        half = one.told()
        assert min(half["clock"]) < T0 + 3 * HOUR == half["clock"][0]

        with closing(one.driver(publish(one.app))) as other:
            records = ProgressLog(kafka, name).read
            assert align(other, one.read, records, lambda: False)
            assert [m.recorded for m in other.standing.markers] == [tick.recorded] * PARTITIONS
            found = one.told()
            assert found["clock"] == [T0 + 3 * HOUR] * PARTITIONS
            times = {orjson.loads(v)["device"]: t for some in found["outputs"] for _, v, t in some}
            last = {device: at + HOUR for device, at, _ in BEATS}
            assert times == last
            one.batches = other
            one.stream([("d0", T0 + 3 * HOUR, 0)])
            assert one.told()["outputs"] == found["outputs"], "no timer runs twice"


def test_a_leap_of_the_wall_clock_stays_for_processing_time_alone(
    spark: SparkSession,
    kafka: Kafka,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows of the future are judged by the clock of the wall, which is right again."""
    with world(spark, kafka, name, tmp_path) as one:
        with monkeypatch.context() as leaping:
            leaping.setattr(of_batches, "now_ms", lambda: 2_200_000_000_000)
            one.stream(BEATS[:2])
        one.stream(BEATS[2:4])
        leapt, after = ProgressLog(kafka, name).read()[-2:]
        assert leapt.now == leapt.batch_time == after.batch_time == 2_200_000_000_000
        assert after.now < leapt.now
        assert {m.batch_time_ms for m in one.batches.standing.markers} == {leapt.now}


def test_ticks_run_and_are_heard_in_a_progress_topic_that_was_made_anew(
    spark: SparkSession, kafka: Kafka, name: str, tmp_path: Path
) -> None:
    """Markers know offsets of the old one, that are far beyond those of the new one."""
    with world(spark, kafka, name, tmp_path) as one:
        for _ in range(20):
            one.batches._progress.append({"kind": "what came before"})
        one.stream(BEATS + LAST)
        assert one.batches.standing.recorded > 20
        made_again(one.app, progress_topic(name))
        with closing(one.driver(publish(one.app))) as other:
            records = ProgressLog(kafka, name).read
            assert align(other, one.read, records, lambda: False)
            assert other.tick()
            assert not other.tick(), "nothing is due"
            found = one.told()
            assert found["clock"] == [T0 + 3 * HOUR] * PARTITIONS
            devices = {orjson.loads(v)["device"] for some in found["outputs"] for _, v, _ in some}
            assert devices == {f"d{i}" for i in range(5)}


def test_a_progress_topic_that_has_lost_its_end_is_noticed(
    spark: SparkSession, kafka: Kafka, name: str, tmp_path: Path
) -> None:
    """By the driver whose records lie before what tasks have taken, and by the next one."""
    with world(spark, kafka, name, tmp_path) as one:
        one.stream(BEATS + LAST)
        for batches in (one.batches, one.driver(publish(one.app))):
            standing = batches.standing
            beyond = [replace(m, recorded=m.recorded + 10_000) for m in standing.markers]
            standing.markers[:] = beyond
            if batches is one.batches:
                with pytest.raises(Realign, match="has lost its end"):
                    batches.tick()
                continue
            with closing(batches):
                assert align(batches, one.read, ProgressLog(kafka, name).read, lambda: False)
                assert standing.recorded < 10_000
                assert batches.tick()
                assert one.told()["clock"] == [T0 + 3 * HOUR] * PARTITIONS


def test_each_task_takes_its_initial_state_once(
    spark: SparkSession, kafka: Kafka, name: str, tmp_path: Path
) -> None:
    """A driver was killed when one task had it."""
    given = {f"d{i}": T0 + i for i in range(20)}
    known = spark.createDataFrame(list(given.items()), BEAT)

    def declare(app: Application, source: str) -> None:
        beats = app.stream(source, BEAT).groupBy("device")
        told = beats.transformWithState(
            processors.Known(), "device STRING, silent_at BIGINT", "Append", "EventTime",
            known.groupBy("device"), name="silence",
        )  # fmt: skip
        told.to(f"{source}-silent")

    with world(spark, kafka, name, tmp_path, declare) as one:
        (verb,) = one.declared.processes
        one.batches.begin_with(initial_rows(spark, verb, 0, PARTITIONS, [1]), [1], "silence")
        with closing(one.driver(publish(one.app))) as other:
            standing = other.standing
            assert [m.initial.keys() for m in standing.markers] == [set(), {"silence"}]
            take_initial_states(one.declared, other, spark)
            assert sum(m.initial["silence"] for m in standing.markers) == len(given)
            numbers = [m.n for m in standing.markers]
            take_initial_states(one.declared, other, spark)
            assert [m.n for m in standing.markers] == numbers, "all have it"
            standing.positions = dict(one.batches.standing.positions)
            assert {m.due["eventtime"] - HOUR for m in standing.markers} <= set(given.values())
            one.batches = other
            one.stream([("d0", T0 + 100, 0)])
            tasks = [one.host.task(name, p) for p in range(PARTITIONS)]
            seen = {k: v for task in tasks for k, v in task.scan("silence-seen")[1]}
            times = {k.decode(): int.from_bytes(v[1:], "big") for k, v in seen.items()}
            assert times == given | {"d0": T0 + 100}
