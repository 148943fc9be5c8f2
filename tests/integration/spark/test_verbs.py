"""Jobs written as PySpark is written: what their rows become."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from state_lib import Application, Materialized, TimeWindows, agg
from state_lib.executor.plan import DEAD, BatchPlan
from state_lib.protocol.positions import Positions
from state_lib.spark.frames import combine
from tests.support.rows import HOUR, NOW, Row, source

FLIGHT = """
    origin STRING NOT NULL, dest STRING NOT NULL, tailnum STRING, distance BIGINT NOT NULL,
    dep_delay BIGINT, departed BOOLEAN NOT NULL, scheduled BIGINT NOT NULL
"""


def word_count(app: Application) -> None:
    (
        app.stream("t", format="text")
        .select(F.explode(F.split(F.lower("value"), "[^a-z]+")).alias("word"))
        .where("word <> ''")
        .groupBy("word")
        .count(Materialized("counts"))
        .toStream()
        .to("word-counts")
    )


def flights(app: Application) -> None:
    rows = app.stream("t", FLIGHT)
    (
        rows.groupBy("origin")
        .windowedBy(TimeWindows("1 hour", grace="24 hours"))
        .agg(
            Materialized("departures_by_hour", retention="400 days"),
            departures=agg.count_if(F.col("departed")),
            cancellations=agg.count_if(~F.col("departed")),
            delay_sum=agg.sum("dep_delay"),
            delay_max=agg.max("dep_delay"),
        )
        .toStream()
        .to("departures-by-hour")
    )
    (
        rows.groupBy("tailnum")
        .agg(
            Materialized("aircraft"),
            flights=agg.count(),
            miles=agg.sum(rows.distance),
            last=agg.last(F.to_json(F.struct("dest", "scheduled"))),
        )
        .toStream()
        .to("aircraft-seen")
    )


def combined(spark: SparkSession, app: Application, values: list[bytes]) -> list[Any]:
    rows: list[Row] = [(b"", value, 0, i, 5) for i, value in enumerate(values)]
    plan = BatchPlan(1, 1, Positions(), Positions({("t", 0): 99}), -1, NOW, HOUR, {})
    return combine(spark, source(spark, rows), app.aggregations, app.partitions, plan).collect()


def test_words_are_counted(spark: SparkSession) -> None:
    app = Application("word_count", spark, partitions=4)
    word_count(app)
    rows = combined(spark, app, [b"To be, or not to be", b"", b"\xff"])
    found = {bytes(r.key): r.n for r in rows if r.kind == 0}
    assert found == {b"to": 2, b"be": 2, b"or": 1, b"not": 1}
    assert [json.loads(bytes(r.key))["reason"] for r in rows if r.kind == DEAD] == ["undecodable"]
    assert app.topology.outputs[0].topic == "word-counts"


def test_flights_are_kept_by_hour_and_by_aircraft(spark: SparkSession) -> None:
    app = Application("flights", spark, partitions=4)
    flights(app)
    one = {
        "origin": "JFK", "dest": "LAX", "tailnum": "N1", "distance": 100, "dep_delay": 7,
        "departed": True, "scheduled": 1,
    }  # fmt: skip
    given = [one, {**one, "dest": "SFO", "dep_delay": None, "departed": False, "scheduled": 2}]
    rows = combined(spark, app, [json.dumps(value).encode() for value in given])
    (hour,) = (r for r in rows if r.kind == 0)
    assert (hour.a0_departures, hour.a0_cancellations, hour.a0_delay_max) == (1, 1, 7)
    (aircraft,) = (r for r in rows if r.kind == 1)
    assert (bytes(aircraft.key), aircraft.n, aircraft.a1_miles) == (b"N1", 2, 200)
    assert json.loads(aircraft.l1.a1_last) == {"dest": "SFO", "scheduled": 2}


def test_a_struct_type_reads_what_its_ddl_reads(spark: SparkSession) -> None:
    fields = "a STRING NOT NULL, b STRUCT<c: BIGINT>, d ARRAY<DOUBLE>"
    given = [b'{"a": "x", "b": {"c": 1}, "d": [1.5]}', b'{"a": "x", "b": null}', b'{"b": {"c": 7}}']
    found = []
    schemas: list[str | StructType] = [fields, StructType.fromDDL(fields)]  # type: ignore[list-item]
    for schema in schemas:
        app = Application("app", spark)
        app.stream("t", schema).groupBy("a").agg("s", n=agg.sum("b.c"), d=agg.max("d[0]"))
        found.append([row.asDict(recursive=True) for row in combined(spark, app, given)])
    assert found[0] == found[1]
    (totals,) = (row for row in found[0] if row["kind"] == 0)
    assert (bytes(totals["key"]), totals["a0_n"], totals["a0_d"]) == (b"x", 1, 1.5)
    assert [row["kind"] for row in found[0]].count(DEAD) == 1, "a is not there"


def test_explode_keeps_what_sparks_own_keeps(spark: SparkSession) -> None:
    """Elements that are null are rows; of no elements, `explode_outer` makes one."""
    values = [b'{"a": ["x", null]}', b'{"a": []}', b'{"a": null}']
    for verb, expected in ((F.explode, 2), (F.explode_outer, 4)):
        app = Application("app", spark)
        rows = app.stream("t", "a ARRAY<STRING>")
        items = rows.select("a", verb("a").alias("item"))
        items.groupBy(F.coalesce("item", F.lit("none"))).count("s")
        found = combined(spark, app, values)
        assert sum(r.n for r in found if r.kind == 0) == expected


def test_a_select_sees_the_columns_of_before(spark: SparkSession) -> None:
    app = Application("app", spark)
    rows = app.stream("t", "a BIGINT, b BIGINT, key STRING, timestamp STRING")
    swapped = rows.select(F.col("b").alias("a"), F.col("a").alias("b"), "key", "timestamp")
    more = swapped.withColumns({"a": F.col("a") + 1, "b": F.col("a") * 10, "_ts": F.col("b") / 0})
    more.where(F.col("a") > 0).groupBy("key").agg("s", a=agg.sum("a"), b=agg.sum("b"))
    more.filter("a > 0").drop("_ts").groupBy("timestamp").count("c")
    found = combined(spark, app, [b'{"a": 1, "b": 2, "key": "k", "timestamp": "s"}'])
    assert [json.loads(bytes(r.key))["reason"] for r in found if r.kind == DEAD] == ["failed:_ts"]
    app = Application("app", spark)
    rows = app.stream("t", "a BIGINT, b BIGINT, key STRING")
    swapped = rows.select(F.col("b").alias("a"), F.col("a").alias("b"), "key")
    more = swapped.withColumns({"a": F.col("a") + 1, "b": F.col("a") * 10})
    more.groupBy("key").agg("s", a=agg.sum("a"), b=agg.sum("b"))
    (only,) = combined(spark, app, [b'{"a": 1, "b": 2, "key": "k"}'])
    assert (bytes(only.key), only.a0_a, only.a0_b) == (b"k", 3, 20)
