"""Bounded reads of sources."""

from __future__ import annotations

import json

from confluent_kafka.admin import NewPartitions, NewTopic
from pyspark.sql import SparkSession

from state_lib.config import Settings
from state_lib.kafka import Kafka
from state_lib.spark.session import kafka_options, read_range


def test_partitions_that_were_added_since_are_left_out(
    spark: SparkSession, kafka: Kafka, name: str
) -> None:
    """A driver that looked before them would else be refused by Spark, whatever it repeats."""
    admin, topics = kafka.admin(), [f"{name}-a", f"{name}-b"]
    for made in admin.create_topics([NewTopic(t, 1, 1) for t in topics]).values():
        made.result()
    for grown in admin.create_partitions([NewPartitions(topics[0], 3)]).values():
        grown.result()
    producer = kafka.producer(name)
    for topic, partition, value in (
        (topics[0], 0, b"x"),
        (topics[0], 2, b"y"),
        (topics[1], 0, b"z"),
    ):
        producer.produce(topic, value, partition=partition)
    producer.flush(30)
    settings = Settings.load(bootstrap_servers=str(kafka.properties["bootstrap.servers"]))
    bounds = [json.dumps({t: {"0": at} for t in topics}) for at in (0, 1)]

    rows = read_range(spark, kafka_options(settings, topics), bounds[0], bounds[1]).collect()

    assert sorted((r.topic, r.partition, bytes(r.value)) for r in rows) == [
        (topics[0], 0, b"x"),
        (topics[1], 0, b"z"),
    ]
