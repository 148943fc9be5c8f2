"""No record stops an application: Kafka, Spark and a host, with records of every bad sort."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Message
from confluent_kafka.admin import NewTopic
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from state_lib import Application, agg
from state_lib.changelog.topics import dead_letter_queue
from state_lib.config import Settings
from state_lib.driver.standing import Standing
from state_lib.kafka import Kafka, ends, require
from state_lib.protocol.positions import Positions
from state_lib.serdes import serde_from
from state_lib.spark.batches import Batches
from state_lib.spark.frames import Combiner
from state_lib.spark.session import kafka_options, read_range
from tests.support.apps import NOON, App
from tests.support.fold import committed
from tests.support.hosts import address, claim, publish, served

MOST = 2**63 - 1
LARGE = 2_000_000
RECORDS = {
    "good": {"k": "a", "x": MOST, "s": "one"},
    "wraps": {"k": "a", "x": MOST, "s": "two"},
    "divides by zero": {"k": "a", "x": 0, "s": "s"},
    "no text": {"k": "bad", "x": 1, "s": "s"},
    "large value": {"k": "a", "x": 1, "s": "y" * LARGE},
    "large key": {"k": "k" * LARGE, "x": 1, "s": "s"},
    "good, too": {"k": "b", "x": 5, "s": None},
}


@pytest.fixture
def application(spark: SparkSession, name: str) -> Application:
    app = Application(name, spark, partitions=1)
    stream = app.stream(f"{name}-in", "k STRING, x BIGINT, s STRING")
    stream.withColumn("ratio", F.expr("10 / x")).groupBy(
        "if(k = 'bad', cast(x'ff' AS STRING), k)"
    ).agg("sums", total=agg.sum("x"), seen=agg.last("s")).toStream().to(f"{name}-out")
    return app


def publish_records(kafka: Kafka, topic: str) -> None:
    new = NewTopic(topic, 1, 1, config={"max.message.bytes": "6000000", "retention.ms": "-1"})
    kafka.admin().create_topics([new])[topic].result()
    producer = kafka.producer(topic, **{"message.max.bytes": 6_000_000})
    for value in [*(json.dumps(r).encode() for r in RECORDS.values()), b"no JSON " * 400_000]:
        producer.produce(topic, value, b"key", 0, timestamp=NOON)
        producer.flush(30)


def test_what_depends_on_a_row_alone_is_a_dead_letter(
    spark: SparkSession, kafka: Kafka, application: Application, name: str, tmp_path: Path
) -> None:
    source, at = f"{name}-in", address()
    publish_records(kafka, source)
    app = App(kafka, application.topology, tmp_path)
    app.create()
    servers = str(kafka.properties["bootstrap.servers"])
    hosts = f"{at.id}={at.host}:{at.flight_port}/{at.http_port}"
    settings = Settings.load(bootstrap_servers=servers, hosts=hosts, exchange_timeout_s=30)
    epoch = publish(app)
    with served(app, at) as manager:
        topic_ids = {source: require(kafka.admin(), [source])[source].id}
        standing = Standing(epoch, [claim(manager, app, epoch)], topic_ids)
        combiner = Combiner(spark, application.aggregations, application.partitions)
        batches = Batches(application, settings, kafka, combiner, standing, None)
        with closing(batches):
            start = {(source, 0): 0}
            batches.initial([start])
            standing.positions = start
            end = ends(kafka.admin(), start)
            bounds = [json.dumps(Positions(p).to_json()) for p in (start, end)]
            options = kafka_options(settings, [source])
            batches.stream(read_range(spark, options, bounds[0], bounds[1]), end)
        marker, entries = manager.task(name, 0).scan("sums")
        stored = dict(entries)
    serde = serde_from(application.aggregations[0].store.value_serde)
    found = {key: serde.deserialize(value[8:]) for key, value in stored.items()}
    assert {k: (v["total"], v["seen"]) for k, v in found.items()} == {
        b"a": (-2, "two"),
        b"b": (5, None),
    }
    assert Counter(marker.dropped) == {
        "wrapped:sums.total": 1,
        "failed:ratio": 1,
        "not-utf8:sums.key": 1,
        "too-large:sums": 2,
        "undecodable": 1,
    }
    letters: dict[int, tuple[Message, dict[str, bytes]]] = {}
    for message in committed(servers, dead_letter_queue(name)):
        headers = dict(message.headers() or [])
        said = {k.removeprefix("__streams.errors."): bytes(v or b"") for k, v in headers.items()}  # type: ignore[arg-type]
        letters[int(said["offset"])] = (message, said)
    assert {o: said["message"] for o, (_, said) in letters.items()} == {
        2: b"failed:ratio",
        3: b"not-utf8:sums.key",
        4: b"too-large:sums",
        5: b"too-large:sums",
        7: b"undecodable",
    }
    assert [o for o, (_, said) in sorted(letters.items()) if "truncated" in said] == [4, 5, 7]
    message, said = letters[7]
    assert said["truncated"] == b"key 3 bytes, value 3200000 bytes"
    assert (message.key(), (message.value() or b"")[:8]) == (b"key", b"no JSON ")
    assert 900_000 < len(message.value() or b"") < 1_048_588
    assert LARGE < int(letters[4][1]["size"]) < LARGE + 2000
    assert int(letters[4][1]["limit"]) < 1_048_588
    assert len(committed(servers, f"{name}-out")) == 2
