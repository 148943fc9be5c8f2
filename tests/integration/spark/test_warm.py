"""The warm-up reads a few records, hands them to Python, and may fail."""

from __future__ import annotations

import psutil
from confluent_kafka.admin import NewTopic
from pyspark.sql import SparkSession

from state_lib.config import Settings
from state_lib.kafka import Kafka
from state_lib.spark.warm import RECORDS, _some_records, warm_up
from state_lib.submit import DAEMON

PARTITIONS = 2


def publish_records(kafka: Kafka, topic: str, count: int) -> None:
    for future in kafka.admin().create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
        future.result()
    producer = kafka.producer(topic)
    for n in range(count):
        producer.produce(topic, b"", b"key %d" % n, partition=int(n < count // 4))
    assert not producer.flush(60)


def settings_of(kafka: Kafka) -> Settings:
    return Settings.load(bootstrap_servers=str(kafka.properties["bootstrap.servers"]))


def workers() -> int:
    found = [p.cmdline() for p in psutil.Process().children(recursive=True)]
    return sum(DAEMON in command for command in found)


def test_it_starts_workers(spark: SparkSession, kafka: Kafka, name: str) -> None:
    publish_records(kafka, name, 100)
    assert not workers()
    warm_up(spark, kafka, settings_of(kafka), [(name, p) for p in range(PARTITIONS)]).join(120)
    assert workers() > 1, "a daemon, and what it has forked"


def test_a_few_records_of_one_partition_are_read(
    spark: SparkSession, kafka: Kafka, name: str
) -> None:
    publish_records(kafka, name, 400)
    places = {(name, p) for p in range(PARTITIONS)}
    found = _some_records(spark, kafka, settings_of(kafka), places).collect()
    assert {row.partition for row in found} == {0}
    assert sorted(row.offset for row in found) == list(range(300 - RECORDS, 300))


def test_one_that_fails_is_nobodys_business(spark: SparkSession, kafka: Kafka) -> None:
    thread = warm_up(spark, kafka, settings_of(kafka), [("nowhere", 0)])
    thread.join(120)
    assert not thread.is_alive()
