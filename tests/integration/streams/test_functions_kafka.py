"""Python functions over Kafka, a host and Spark's executors: as in the test driver."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from state_lib import Application, TimeWindows, TopologyTestDriver, agg
from state_lib.config import Settings
from state_lib.driver.standing import Standing
from state_lib.errors import ProcessorFailed, WorkerLost
from state_lib.host.tasks import TaskManager
from state_lib.kafka import Kafka, ends, require
from state_lib.protocol.positions import Positions
from state_lib.spark.batches import Batches
from state_lib.spark.frames import Combiner
from state_lib.spark.session import kafka_options, read_range
from tests.support.apps import NOON, App
from tests.support.fold import committed
from tests.support.hosts import address, claim, publish, served

SALE = "shop STRING, amount BIGINT"
SALES = [(f"s{i % 3}", i - 5, NOON + i * 1000) for i in range(40)]
Pipeline = Callable[[Application, str], None]


def pipeline(app: Application, source: str) -> None:
    def checked(amount: int) -> int:
        if amount < 0:
            raise ValueError(f"{amount} is below zero")
        if amount == 33:
            sys.exit(3)
        return amount * 10

    def dearest(old: Any, new: Any) -> Any:
        if new.cents == 70:
            raise ValueError("seven")
        return new if new.cents > old.cents else old

    rows = app.stream(source, SALE)
    rows = rows.select("shop", F.udf(checked, "bigint")("amount").alias("cents"))
    shops = rows.groupBy("shop")
    shops.reduce(dearest, "dearest").toStream().to(f"{source}-out")
    hours = shops.windowedBy(TimeWindows("10 seconds"))
    hours.aggregate(lambda: (0, 0), lambda _, r, old: (old.n + 1, old.sum + r.cents), "sums",
                    "n INT, sum BIGINT")  # fmt: skip


def stopping(app: Application, source: str) -> None:
    def failing(_: Any, __: Any) -> Any:
        raise ValueError("no more")

    app.stream(source, SALE).select("shop", "amount").groupBy("shop").reduce(
        failing, "s", onError="stop"
    )


def ending(app: Application, source: str) -> None:
    ended = F.udf(lambda amount: os._exit(3) if amount == 7 else amount, "bigint")
    app.stream(source, SALE).withColumn("ended", ended("amount")).groupBy("shop").count("s")


def ending_fold(app: Application, source: str) -> None:
    def ends(_: Any, new: Any) -> Any:
        return os._exit(3) if new.amount == 7 else new

    app.stream(source, SALE).select("shop", "amount").groupBy("shop").reduce(ends, "s")


def ending_once(mark: Path, app: Application, source: str) -> None:
    def once(amount: int) -> int:
        if amount == 7 and not mark.exists():
            mark.touch()
            os._exit(3)
        return amount

    kept = app.stream(source, SALE).withColumn("kept", F.udf(once, "bigint")("amount"))
    kept.groupBy("shop").agg("s", sum=agg.sum("kept"))


@contextmanager
def over_kafka(
    spark: SparkSession, kafka: Kafka, name: str, build: Pipeline, folder: Path
) -> Iterator[tuple[Batches, TaskManager, dict[tuple[str, int], int]]]:
    """The application's batches, its host, and the ends of what is to be read."""
    source, at = f"{name}-in", address()
    declared = Application(name, spark, partitions=1)
    build(declared, source)
    new = NewTopic(source, 1, 1, config={"retention.ms": "-1"})
    kafka.admin().create_topics([new])[source].result()
    producer = kafka.producer(source)
    for shop, amount, time in SALES:
        value = json.dumps({"shop": shop, "amount": amount})
        producer.produce(source, value, None, 0, timestamp=time)
    producer.flush(30)
    app = App(kafka, declared.topology, folder)
    app.create()
    servers = str(kafka.properties["bootstrap.servers"])
    hosts = f"{at.id}={at.host}:{at.flight_port}/{at.http_port}"
    settings = Settings.load(bootstrap_servers=servers, hosts=hosts, exchange_timeout_s=30)
    epoch = publish(app)
    with served(app, at) as manager:
        ids = {source: require(kafka.admin(), [source])[source].id}
        standing = Standing(epoch, [claim(manager, app, epoch)], ids)
        combiner = Combiner(spark, [*declared.aggregations], 1, [*declared.processes])
        batches = Batches(declared, settings, kafka, combiner, standing, None)
        with closing(batches):
            start = {(source, 0): 0}
            batches.initial([start])
            standing.positions = start
            yield batches, manager, ends(kafka.admin(), start)


def stream(spark: SparkSession, batches: Batches, end: dict[tuple[str, int], int]) -> None:
    at = batches.standing.positions
    bounds = [json.dumps(Positions(p).to_json()) for p in (at, end)]
    options = kafka_options(batches._settings, [topic for topic, _ in end])
    batches.stream(read_range(spark, options, bounds[0], bounds[1]), end)


def test_executors_do_as_the_test_driver(
    spark: SparkSession, kafka: Kafka, name: str, tmp_path: Path
) -> None:
    with TopologyTestDriver(lambda app: pipeline(app, f"{name}-in"), spark) as driver:
        for shop, amount, time in SALES:
            driver.createInputTopic(f"{name}-in").pipeInput(
                {"shop": shop, "amount": amount}, timestamp=time
            )
        (task,) = driver._current()
        wanted = {store: dict(task.scan(store)[1]) for store in ("dearest", "sums")}
        dropped = driver.droppedRecords()
        outputs = driver.createOutputTopic(f"{name}-in-out").getQueueSize()
    with over_kafka(spark, kafka, name, pipeline, tmp_path) as (batches, host, end):
        stream(spark, batches, end)
        found = {store: dict(host.task(name, 0).scan(store)[1]) for store in wanted}
        marker = host.task(name, 0).marker
    assert found == wanted
    assert len(wanted["dearest"]) == 3
    assert Counter(marker.dropped) == dropped == {"failed:cents": 6, "raised:dearest": 1}
    servers = str(kafka.properties["bootstrap.servers"])
    assert len(committed(servers, f"{name}-in-out")) == outputs == 3
    headers = [dict(m.headers() or []) for m in committed(servers, f"{name}-dead-letters")]
    said = {one["__streams.errors.exception"] for one in headers}
    assert said >= {b"SystemExit: 3", b"ValueError: -1 is below zero", b"ValueError: seven"}


def test_it_stops_where_that_is_asked_for(
    spark: SparkSession, kafka: Kafka, name: str, tmp_path: Path
) -> None:
    with over_kafka(spark, kafka, name, stopping, tmp_path) as (batches, host, end):
        with pytest.raises(ProcessorFailed, match="store 's' raised"):
            stream(spark, batches, end)
        assert [*host.task(name, 0).scan("s")[1]] == []


@pytest.mark.parametrize(
    ("build", "step"),
    [(ending, r"step 1, withColumn: '<lambda>'"), (ending_fold, "store 's'")],
    ids=["call", "fold"],
)
def test_one_that_ends_its_worker_is_named(
    spark: SparkSession, kafka: Kafka, name: str, tmp_path: Path, build: Pipeline, step: str
) -> None:
    with over_kafka(spark, kafka, name, build, tmp_path) as (batches, host, end):
        with pytest.raises(WorkerLost, match=step):
            stream(spark, batches, end)
        assert [*host.task(name, 0).scan("s")[1]] == []


def test_a_worker_that_ends_once_is_survived(
    spark: SparkSession, kafka: Kafka, name: str, tmp_path: Path
) -> None:
    mark = tmp_path / "once"
    build = partial(ending_once, mark)
    with over_kafka(spark, kafka, name, build, tmp_path / "host") as (batches, host, end):
        stream(spark, batches, end)
        assert mark.exists()
        assert len([*host.task(name, 0).scan("s")[1]]) == 3
