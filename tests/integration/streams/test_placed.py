"""A session that lacks what the commit protocol relies on: refused, and if not, harmless."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from state_lib.config import Settings
from state_lib.driver.standing import Standing
from state_lib.errors import ConfigurationError, Misplaced
from state_lib.kafka import Kafka
from state_lib.keys import partition_for
from state_lib.spark.batches import Batches
from state_lib.spark.frames import Combiner
from state_lib.spark.properties import REQUIRED
from state_lib.spark.session import open_session
from tests.support.apps import App
from tests.support.declared import counting
from tests.support.hosts import address, claim, publish, served
from tests.support.rows import Row, source

TASKS = range(4)
ROWS = 50
SETTING = "spark.sql.requireAllClusterKeysForDistribution"


@pytest.fixture
def defeated(spark: SparkSession) -> Iterator[None]:
    """As by a job that sets it after the session was opened."""
    spark.conf.set(SETTING, "true")
    yield
    spark.conf.set(SETTING, REQUIRED[SETTING])


@pytest.mark.usefixtures("defeated")
def test_rows_in_another_partition_than_their_task_s_reach_no_store(
    spark: SparkSession, kafka: Kafka, name: str, tmp_path: Path
) -> None:
    """Spark exchanges them once more, by all grouping columns: nobody would find their keys."""
    topic = f"{name}-in"
    job = counting(name, {topic: "counts"}, len(TASKS))
    kafka.admin().create_topics([NewTopic(topic, 1, 1)])[topic].result()
    app, at = App(kafka, job.topology, tmp_path), address()
    app.create()
    settings = Settings.load(
        bootstrap_servers=str(kafka.properties["bootstrap.servers"]),
        hosts=f"{at.id}={at.host}:{at.flight_port}/{at.http_port}",
        exchange_timeout_s=20,
    )
    epoch = publish(app)
    with served(app, at) as host:
        combiner = Combiner(spark, job.aggregations, len(TASKS))
        standing = Standing(epoch, [claim(host, app, epoch, p) for p in TASKS], {})
        with closing(Batches(job, settings, kafka, combiner, standing, None)) as batches:
            batches.initial([{(topic, 0): 0} for _ in TASKS])
            standing.positions = {(topic, 0): 0}
            with pytest.raises(Misplaced, match=SETTING):
                batches.stream(lines(spark, topic), {(topic, 0): ROWS})
        for task in TASKS:
            _, entries = host.task(name, task).scan("counts")
            assert {partition_for(key, len(TASKS)) for key, _ in entries} <= {task}


def lines(spark: SparkSession, topic: str) -> DataFrame:
    rows: list[Row] = [(None, f"k{i}".encode(), 0, i, 5) for i in range(ROWS)]
    return source(spark, rows).withColumn("topic", F.lit(topic))


def test_a_session_that_is_set_otherwise_is_refused_when_it_is_opened(spark: SparkSession) -> None:
    setting = "spark.sql.adaptive.enabled"
    try:
        with pytest.raises(ConfigurationError, match=f"{setting} is 'true' and must be 'false'"):
            open_session("tests", Settings.load(), spark_sql_adaptive_enabled="true")
    finally:
        spark.conf.set(setting, REQUIRED[setting])
