"""What the warm-up did, the first batch does not do again; and it may fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from confluent_kafka.admin import NewTopic
from pyspark.sql import DataFrame, SparkSession

from state_lib import Application
from state_lib.config import Settings
from state_lib.kafka import Kafka, TopicFacts, require
from state_lib.spark.declared import check_declared, first_plan
from state_lib.spark.session import kafka_options
from state_lib.spark.warm import warm_up

PARTITIONS = 2


def publish_records(kafka: Kafka, topic: str) -> None:
    for future in kafka.admin().create_topics([NewTopic(topic, PARTITIONS, 1)]).values():
        future.result()
    producer = kafka.producer(topic)
    for n in range(100):
        producer.produce(topic, b"", b"key %d" % (n % 7), partition=n % PARTITIONS)
    assert not producer.flush(60)


def compiled(spark: SparkSession) -> int:
    jvm: Any = spark._jvm
    return int(
        jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME().getCount()
    )


def test_a_batch_finds_its_code_compiled(
    spark: SparkSession, kafka: Kafka, name: str, tmp_path: Path
) -> None:
    publish_records(kafka, name)
    settings = Settings.load(bootstrap_servers=str(kafka.properties["bootstrap.servers"]))
    app = Application(name, PARTITIONS)
    app.stream(name).group_by("key", "bytes").count("counts")
    plan = first_plan(app, require(kafka.admin(), [name]), {})
    combiner = check_declared(spark, app, plan)
    before = compiled(spark)
    warm_up(spark, kafka, settings, combiner, plan).join(120)
    assert compiled(spark) > before
    new: list[int] = []
    seen: list[int] = []

    def on_batch(frame: DataFrame, _: int) -> None:
        before = compiled(spark)
        rows = combiner.combine(frame, plan).collect()
        new.append(compiled(spark) - before)
        seen.append(sum(row.n for row in rows))

    source = spark.readStream.format("kafka").options(**kafka_options(settings, [name]))
    stream = source.option("startingOffsets", "earliest").load().writeStream.foreachBatch(on_batch)
    query = stream.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert sum(seen) > 0
    assert new == [0] * len(new)


def test_a_warm_up_that_fails_is_nobodys_business(
    spark: SparkSession, kafka: Kafka, name: str
) -> None:
    app = Application(name, PARTITIONS)
    app.stream("nowhere").group_by("key", "bytes").count("counts")
    plan = first_plan(app, {"nowhere": TopicFacts("nowhere", "id", PARTITIONS, 1)}, {})
    combiner = check_declared(spark, app, plan)
    thread = warm_up(spark, kafka, Settings.load(), combiner, plan)
    thread.join(120)
    assert not thread.is_alive()
