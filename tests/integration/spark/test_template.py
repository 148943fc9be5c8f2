"""A query that is built once says of every batch what one that is built for it says."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from state_lib import Application, TimeWindows, agg
from state_lib.executor.plan import DEAD, DROPPED, BatchPlan
from state_lib.protocol.marker import NO_TIME
from state_lib.protocol.positions import Positions
from state_lib.spark.frames import Combiner, combine
from state_lib.spark.template import Template
from tests.support.rows import HOUR, Row, source

TO = Positions({("t", 0): 99, ("t", 1): 99, ("u", 0): 99})


@pytest.fixture
def app(spark: SparkSession) -> Application:
    """Two topics, and two branches of one of them: the batch stands in the query three times."""
    app = Application("app", spark, partitions=4)
    numbers = app.stream("t", "k STRING, x BIGINT NOT NULL")
    numbers.groupBy("k").agg("totals", total=agg.sum("x"), seen=agg.last("x"))
    numbers.where("x > 1").groupBy("k").windowedBy(TimeWindows("1 hour")).count("hourly")
    words = app.stream("u", format="text").withColumn("word", F.expr("explode(split(value, ' '))"))
    words.groupBy("word").count("words")
    words.groupBy("word").windowedBy(TimeWindows("1 hour")).count("words_hourly")
    return app


def batch(spark: SparkSession, number: int) -> DataFrame:
    """Some rows of both topics, other ones each time; one comes late or too early, by the plan."""
    at = number * HOUR
    numbers: list[Row] = [
        (b"", json.dumps({"k": f"k{i % 3}", "x": i}).encode(), i % 2, 100 * number + i, at + i)
        for i in range(number + 3)
    ]
    lines: list[Row] = [(None, b"a b", 0, number, at), (None, b"\xff", 0, number + 1, at)]
    return source(spark, numbers).union(source(spark, lines).withColumn("topic", F.lit("u")))


def plan(number: int) -> BatchPlan:
    clock = 3 * HOUR if number == 1 else number * HOUR
    now = number * HOUR - HOUR + (1 if number == 2 else HOUR)
    return BatchPlan(1, number, TO, TO, clock, now, HOUR, {})


def rows(frame: DataFrame) -> list[str]:
    return sorted(str(row) for row in frame.withColumn("at", F.spark_partition_id()).collect())


def test_each_batch_gives_what_it_gives_alone(spark: SparkSession, app: Application) -> None:
    combiner = Combiner(spark, app.aggregations, 4)
    kinds: set[int] = set()
    templates: dict[object, Template] = {}
    for number in (1, 2, 3, 4, 4):
        frame, own = batch(spark, number), plan(number)
        alone = combine(spark, frame, app.aggregations, 4, own)
        found = combiner.combine(frame, own)
        assert found.columns == alone.columns
        assert rows(found) == rows(alone), number
        kinds |= {row.kind for row in found.collect()}
        templates = templates or combiner._templates
        assert combiner._templates is templates, "it was built for the first one only"
    assert {0, 1, 2, 3, DROPPED, DEAD} <= kinds


@pytest.mark.parametrize("whole_stage", ["true", "false"])
def test_a_first_clock_that_is_a_small_number_hides_no_late_row(
    spark: SparkSession, app: Application, whole_stage: str
) -> None:
    """A number that fits 32 bits is another type to Spark than the next one, which does not."""
    setting = "spark.sql.codegen.wholeStage"
    before = spark.conf.get(setting)
    assert before is not None
    spark.conf.set(setting, whole_stage)
    try:
        combiner = Combiner(spark, app.aggregations, 4)
        day = 500_000 * HOUR
        lines: list[Row] = [(None, b"a b", 0, 7, day)]
        late = source(spark, lines).withColumn("topic", F.lit("u"))
        for clock in (NO_TIME, day + 30 * HOUR, day - HOUR):
            own = BatchPlan(1, 1, TO, TO, clock, day, HOUR, {})
            alone = combine(spark, late, app.aggregations, 4, own)
            found = combiner.combine(late, own)
            assert rows(found) == rows(alone)
            dropped = [row for row in found.collect() if row.kind == DROPPED]
            assert bool(dropped) == (clock > day), clock
    finally:
        spark.conf.set(setting, before)


def test_what_changes_the_query_is_built_anew(spark: SparkSession, app: Application) -> None:
    combiner = Combiner(spark, app.aggregations, 4)
    frame = batch(spark, 1)
    for own in (
        plan(1),
        replace(plan(1), tasks=(0, 2)),
        replace(plan(1), limits={"totals": 1}),
        replace(plan(1), to=Positions({("t", 0): 9, ("u", 0): 9})),
        plan(1),
    ):
        alone = combine(spark, frame, app.aggregations, 4, own)
        assert rows(combiner.combine(frame, own)) == rows(alone)


def test_the_code_is_the_same_for_each_batch(spark: SparkSession, app: Application) -> None:
    combiner = Combiner(spark, app.aggregations, 4)

    def code(number: int) -> list[str]:
        made: Any = combiner.combine(batch(spark, number), plan(number))
        stages = made._jdf.queryExecution().debug().codegenToSeq()
        return [stages.apply(i)._2() for i in range(stages.size())]

    code(1)
    assert code(2) == code(3)


def test_a_query_that_reads_something_else_too_is_no_template(spark: SparkSession) -> None:
    one, other = source(spark, []).select("key", "value"), source(spark, [])
    assert Template(one, one.where("value IS NOT NULL")).fits
    assert not Template(one, one.join(other.select("key"), "key")).fits
    with pytest.raises(ValueError, match="columns"):
        Template(one, one.where("value IS NOT NULL")).over(other)
    longer = one.select("key", F.lit(1).alias("value"))
    with pytest.raises(ValueError, match="INT"):
        Template(one, one.where("value IS NOT NULL")).over(longer)
    one.createOrReplaceTempView("others")
    assert not Template(one, one.where("key IN (SELECT key FROM others)")).fits
