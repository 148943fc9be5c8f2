"""What a job declares is judged before anything is claimed for it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from state_lib import Application, Json, TimeWindows, agg
from state_lib.errors import ConfigurationError, InvalidName
from state_lib.kafka import TopicFacts
from state_lib.spark.declared import check_declared, first_plan
from state_lib.spark.frames import combine
from state_lib.spark.plan import BatchPlan
from tests.support.rows import NOW, Row, source


def plan_of(app: Application) -> BatchPlan:
    return first_plan(app, {t: TopicFacts(t, "id", 2, 1) for t in app.topology.sources}, {})


@pytest.mark.parametrize(
    "expr",
    ["uuid()", "cast(rand() AS STRING)", "cast(now() AS STRING)", "cast(current_date AS STRING)"],
)
def test_an_expression_that_gives_another_value_each_time_is_refused(
    spark: SparkSession, expr: str
) -> None:
    """A repeated batch would move rows to other keys, tasks and windows."""
    keyed, kept = Application("keyed", partitions=4), Application("kept", partitions=4)
    keyed.stream("t").with_column("id", expr).group_by("id").count("ids")
    kept.stream("t").group_by("key", "bytes").aggregate("ids", last=agg.last(expr))
    for app in (keyed, kept):
        with pytest.raises(ConfigurationError, match=r"'ids'.*gives another value each time"):
            check_declared(spark, app, plan_of(app))


def test_what_depends_on_the_record_alone_is_taken(spark: SparkSession) -> None:
    app = Application("app", partitions=4)
    rows = app.stream("t", Json("k STRING, x DOUBLE")).where("x > 1 AND k RLIKE 'a'")
    rows.with_column("y", "sha2(k, 256)").explode("z", "split(y, 'a')").group_by("z").aggregate(
        "all",
        n=agg.count(),
        total=agg.sum("x", "float64"),
        last=agg.last("y"),
        most=agg.max("x", "float64"),
    )
    rows.group_by("k").windowed_by(TimeWindows("1 hour")).count("hourly")
    check_declared(spark, app, plan_of(app))


def test_what_was_built_for_the_check_serves_the_batches(spark: SparkSession) -> None:
    app = Application("app", partitions=4)
    app.stream("t", Json("k STRING, x BIGINT")).group_by("k").aggregate("all", n=agg.sum("x"))
    empty = plan_of(app)
    combiner = check_declared(spark, app, empty)
    known = dict(combiner._templates)
    rows: list[Row] = [(None, b'{"k": "a", "x": 1}', i % 2, i, NOW) for i in range(5)]
    plan = replace(empty, epoch=3, n=1, now=NOW, clock=NOW, max_future_ms=1)
    found = combiner.combine(source(spark, rows), plan)
    alone = combine(spark, source(spark, rows), app.aggregations, 4, plan)
    assert sorted(map(str, found.collect())) == sorted(map(str, alone.collect()))
    assert combiner._templates == known, "nothing was built anew"


def test_of_several_stores_the_one_that_is_wrong_is_named(spark: SparkSession) -> None:
    app = Application("app", partitions=4)
    rows = app.stream("t", Json("k STRING, x BIGINT"))
    rows.group_by("k").count("good")
    rows.group_by("kk").count("bad")
    with pytest.raises(ConfigurationError, match=r"'bad'.*cannot be computed.*kk"):
        check_declared(spark, app, plan_of(app))


@pytest.mark.parametrize("name", ["__hf_x", "__HF_ts"])
def test_a_field_that_begins_as_our_columns_is_refused(spark: SparkSession, name: str) -> None:
    """It would hide the column of that name: the record's own time, for example."""
    app = Application("app", partitions=4)
    app.stream("t", Json(f"k STRING, {name} STRING")).group_by("k").count("counts")
    with pytest.raises(InvalidName, match=f"'{name}'.*begins those of Holdfast"):
        check_declared(spark, app, plan_of(app))
