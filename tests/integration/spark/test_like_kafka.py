"""A pipeline in the test driver and over Kafka, hosts and executors: the same to the byte."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import orjson
from confluent_kafka.admin import NewTopic
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from state_lib import Application, Materialized, TimeWindows, TopologyTestDriver, agg
from state_lib.changelog.reader import read
from state_lib.changelog.topics import dead_letter_queue
from state_lib.config import Settings
from state_lib.driver.standing import Standing
from state_lib.kafka import Kafka, describe, ends
from state_lib.protocol.marker import Marker
from state_lib.protocol.positions import Positions
from state_lib.spark.batches import Batches
from state_lib.spark.frames import Combiner
from state_lib.spark.session import kafka_options, read_range
from tests.support.apps import App
from tests.support.hosts import address, claim, publish, served

PARTITIONS = 2
STORES, OUTPUTS = ("hourly", "places", "pairs"), ("hours", "at", "pairs")
HOUR = 3_600_000
T0 = 1_700_000_000_000 // HOUR * HOUR
Told = dict[str, Any]


def pipeline(app: Application, source: str) -> None:
    rows = app.stream(source, "k STRING, x DOUBLE, at STRING")
    hours = rows.groupBy("k").windowedBy(TimeWindows("1 hour", grace="10 minutes"))
    hourly = Materialized("hourly", retention="1 day")
    hours.agg(hourly, n=agg.count(), x=agg.sum("x")).toStream().to(f"{source}-hours")
    places = Materialized("places", backend="memory")
    table = rows.groupBy("at").agg(places, n=agg.count(), last=agg.last("at"))
    table.toStream().to(f"{source}-at")
    pairs = rows.groupBy("k", "at", F.to_date("timestamp").alias("day")).agg(
        "pairs",
        last=agg.last(F.struct("x", F.array("k", "at").alias("both"))),
        by=agg.last(F.create_map("at", "timestamp")),
        most=agg.max(F.struct(F.col("x").cast("decimal(10, 2)").alias("x"), "timestamp")),
        total=agg.sum(F.col("x").cast("decimal(10, 2)")),
    )
    pairs.toStream().to(f"{source}-pairs")


def record(i: int) -> tuple[bytes | None, bytes, int, int]:
    """Key, value, partition, time; some late, some without keys, some broken."""
    if i % 17 == 5:
        return b"broken", b"{", i % PARTITIONS, T0
    body = {"k": None if i % 11 == 7 else f"k{i % 5}", "x": i / 7, "at": f"p{i % 3}"}
    late = 3 * HOUR if i > 60 and i % 9 == 0 else 0
    return None, orjson.dumps(body), i % PARTITIONS, T0 + i * HOUR // 20 - late


RECORDS = [record(i) for i in range(100)]
CUTS = (40, 75, 100)


def of_markers(markers: list[Marker]) -> Told:
    return {
        "clock": [m.stream_time_ms for m in markers],
        "dropped": [m.dropped for m in markers],
        "maxima": [m.maxima for m in markers],
        "positions": [m.positions for m in markers],
        "cut": [dict(m.cut) for m in markers],
    }


def in_memory(spark: SparkSession, name: str, source: str) -> Told:
    declare = partial(pipeline, source=source)
    with TopologyTestDriver(declare, spark, partitions=PARTITIONS, app_id=name) as driver:
        begin = 0
        for end in CUTS:
            for key, value, partition, time in RECORDS[begin:end]:
                driver._pipe(source, key, value, time, partition)
            driver._current()
            begin = end
        driver.advanceStreamTime()
        tasks = driver._current()
        topics = [*(f"{source}-{out}" for out in OUTPUTS), dead_letter_queue(name)]
        return {
            **of_markers([task.marker for task in tasks]),
            "stores": [dict(task.scan(s)[1]) for task in tasks for s in STORES],
            "outputs": [
                [written(m, topic) for some in tasks.log.read(topic, p, 0, 1 << 62) for m in some]
                for topic in topics
                for p in range(PARTITIONS)
            ],
        }


def written(message: Any, topic: str) -> tuple[Any, ...]:
    time = None if topic.endswith("letters") else message.timestamp()[1]
    return message.key(), message.value(), message.headers(), message.offset(), time


def over_kafka(spark: SparkSession, kafka: Kafka, name: str, source: str, root: Path) -> Told:
    application = Application(name, spark, partitions=PARTITIONS)
    pipeline(application, source)
    kafka.admin().create_topics([NewTopic(source, PARTITIONS, 1, config={"retention.ms": "-1"})])[
        source
    ].result()
    app, at = App(kafka, application.topology, root), address()
    app.create()
    settings = Settings.load(
        bootstrap_servers=str(kafka.properties["bootstrap.servers"]), hosts=str(at)
    )
    epoch, producer = publish(app), kafka.producer()
    places = [(source, p) for p in range(PARTITIONS)]
    ids = {source: describe(kafka.admin(), [source])[source].id}
    with served(app, at) as host:
        markers = [claim(host, app, epoch, p) for p in range(PARTITIONS)]
        standing = Standing(epoch, markers, ids)
        combiner = Combiner(spark, application.aggregations, PARTITIONS)
        with closing(Batches(application, settings, kafka, combiner, standing, None)) as batches:
            standing.positions = dict.fromkeys(places, 0)
            batches.initial([standing.positions] * PARTITIONS)
            begin = 0
            for end in CUTS:
                for key, value, partition, time in RECORDS[begin:end]:
                    producer.produce(source, value, key, partition, timestamp=time)
                assert producer.flush(10) == 0
                to = ends(kafka.admin(), places)
                bounds = [
                    orjson.dumps(Positions(x).to_json()).decode() for x in (standing.positions, to)
                ]
                frame = read_range(spark, kafka_options(settings, [source]), *bounds)
                batches.stream(frame, to)
                begin = end
            assert batches.tick()
            tasks = [host.task(name, p) for p in range(PARTITIONS)]
            stores = [dict(task.scan(s)[1]) for task in tasks for s in STORES]
            seen = of_markers([task.marker for task in tasks])
    topics = [*(f"{source}-{out}" for out in OUTPUTS), dead_letter_queue(name)]
    end_of = ends(kafka.admin(), [(t, p) for t in topics for p in range(PARTITIONS)])
    return {
        **seen,
        "stores": stores,
        "outputs": [
            [written(m, topic) for some in read(kafka, topic, p, 0, end_of[topic, p]) for m in some]
            for topic in topics
            for p in range(PARTITIONS)
        ],
    }


def test_the_same_records_give_the_same(
    spark: SparkSession, kafka: Kafka, name: str, tmp_path: Path
) -> None:
    source = f"{name}-in"
    expected = over_kafka(spark, kafka, name, source, tmp_path)
    found = in_memory(spark, name, source)
    dropped = {reason for one in expected["dropped"] for reason in one}
    assert dropped == {"late:hourly", "null-key:hourly", "undecodable", "null-key:pairs.k"}
    for number in range(len(STORES)):
        assert any(expected["stores"][number :: len(STORES)])
    for what, wanted in expected.items():
        assert found[what] == wanted, what
