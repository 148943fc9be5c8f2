"""Structs, arrays, maps, decimals and times as values: from the record to the output."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from state_lib import Application, Materialized, TopologyTestDriver, agg
from state_lib.errors import ConfigurationError
from state_lib.evolution import contradictions
from state_lib.executor.plan import DEAD, BatchPlan
from state_lib.protocol.positions import Positions
from state_lib.spark.frames import combine
from tests.support.rows import HOUR, NOW, Row, source

T0 = 1_700_000_000_000 // HOUR * HOUR
READING = (
    "device STRING, price DECIMAL(10, 2), day DATE, at TIMESTAMP, name STRING, ok BOOLEAN, "
    "tags ARRAY<STRING>, by MAP<STRING, INT>, place STRUCT<x: INT, y: ARRAY<DOUBLE>>"
)


def readings(app: Application) -> None:
    rows = app.stream("readings", READING)
    rows.groupBy("device").agg(
        Materialized("seen", backend="memory"),
        n=agg.count(), cheapest=agg.min("price"), dearest=agg.max("price"),
        first_day=agg.min("day"), latest=agg.max("at"), first_name=agg.min("name"),
        any_ok=agg.max("ok"), last=agg.last(F.struct("name", "at", "price")),
        tags=agg.last("tags"), by=agg.last("by"), place=agg.last("place"),
        total=agg.sum("price"), newest=agg.max(F.struct("at", "name")),
    ).toStream().to("seen-changes")  # fmt: skip


def reading(**fields: Any) -> dict[str, Any]:
    whole = {
        "device": "d", "price": 1.5, "day": "2013-01-31", "at": "2013-01-31T12:00:00Z",
        "name": "b", "ok": False, "tags": ["x", None], "by": {"k": 1},
        "place": {"x": 1, "y": [0.5]},
    }  # fmt: skip
    return {**whole, **fields}


def test_they_are_kept_and_put_out(spark: SparkSession) -> None:
    with TopologyTestDriver(readings, spark, partitions=2) as driver:
        topic = driver.createInputTopic("readings")
        topic.pipeInput(reading(), timestamp=T0)
        topic.pipeInput(
            reading(price=-0.25, day="1969-01-01", at="2013-02-01T00:00:00.000001Z", name="ü"),
            timestamp=T0 + 1, partition=1,
        )  # fmt: skip
        topic.pipeInput(reading(name="a", ok=True, tags=[], by=None), timestamp=T0 + 2)
        wanted = {
            "n": 3, "cheapest": "-0.25", "dearest": "1.50", "first_day": "1969-01-01",
            "latest": "2013-02-01T00:00:00.000001Z", "first_name": "a", "any_ok": True,
            "last": {"name": "a", "at": "2013-01-31T12:00:00.000Z", "price": "1.50"},
            "tags": [], "by": None, "place": {"x": 1, "y": [0.5]}, "total": "2.75",
            "newest": {"at": "2013-02-01T00:00:00.000001Z", "name": "ü"},
        }  # fmt: skip
        assert driver.getKeyValueStore("seen").get("d") == wanted
        out = driver.createOutputTopic("seen-changes")
        assert out.readValuesToList() == [{"device": "d", **wanted}]
        topic.pipeInput({"device": "d"}, timestamp=T0 + 3)
        nothing = {"name": None, "at": None, "price": None}
        newest = {"n": 4, "last": nothing, "tags": None, "by": None, "place": None}
        assert out.readValue() == {"device": "d", **wanted, **newest}
        topic.pipeInput(reading(by={"k": 2, "j": None}), timestamp=T0 + 4)
        assert out.readValue()["by"] == {"k": 2, "j": None}
        driver.assertSameHoweverCut()
        driver.assertSurvivesRepeats()


def test_a_changed_type_under_the_same_name_is_refused(spark: SparkSession) -> None:
    def topology(last: str) -> Any:
        app = Application("app", spark)
        rows = app.stream("t", "k STRING, x INT, p DECIMAL(5, 2)")
        rows.groupBy("k").agg("s", last=agg.last(last))
        return app.topology

    one = topology("struct(x, p)")
    assert contradictions(one, topology("struct(x + 1 AS x, p)")) == []
    assert contradictions(one, topology("struct(cast(x AS TINYINT) AS x, p)")) == [], "as int64"
    for other in ("struct(p, x)", "struct(x)", "struct(x AS y, p)", "struct(p AS x, p)", "p"):
        (said,) = contradictions(one, topology(other))
        assert "value_serde" in said


def test_what_cannot_be_shown_or_written_is_a_dead_letter(spark: SparkSession) -> None:
    def build(app: Application) -> None:
        rows = app.stream("in", "k STRING, days INT, hex STRING")
        far = F.date_add(F.lit("2000-01-01").cast("date"), F.col("days"))
        text = F.unhex("hex").cast("string")
        rows.groupBy("k").agg("far", last=agg.last(F.array(F.struct(far.alias("d")))))
        rows.groupBy("k").agg("moments", most=agg.max(far.cast("timestamp")))
        rows.groupBy("k").agg("texts", last=agg.last(F.create_map(F.lit("t"), text)))
        rows.groupBy("k").agg("failing", last=agg.last(F.struct(F.expr("1 div days"))))

    with TopologyTestDriver(build, spark) as driver:
        topic = driver.createInputTopic("in")
        topic.pipeInput({"k": "a", "days": 5_000_000, "hex": "61"}, timestamp=T0)
        topic.pipeInput({"k": "a", "days": 1, "hex": "ff"}, timestamp=T0 + 1)
        topic.pipeInput({"k": "a", "days": 0, "hex": "62"}, timestamp=T0 + 2)
        assert sorted((one.offset, one.reason) for one in driver.deadLetters()) == [
            (0, "out-of-range:far.last"), (0, "out-of-range:moments.most"),
            (1, "not-utf8:texts.last"), (2, "failed:failing.last"),
        ]  # fmt: skip
        assert driver.getKeyValueStore("texts").get("a") == {"last": {"t": "b"}}
        assert driver.getKeyValueStore("far").get("a") == {"last": [{"d": "2000-01-01"}]}


def test_what_parts_take_is_counted(spark: SparkSession) -> None:
    """In the store, and with the names of its fields in outputs."""
    app = Application("app", spark, partitions=1)
    rows = app.stream("t", "k STRING, a STRING, n INT")
    many = F.transform(F.sequence(F.lit(1), F.col("n")), lambda i: F.struct(i.alias("number")))
    rows.groupBy("k").agg("kept", last=agg.last(many))
    rows.groupBy("k").agg("put_out", last=agg.last(many)).toStream().to("out")
    rows.groupBy("k").agg("both", least=agg.min("a"), most=agg.max("a"))
    limits = {"kept": 5000, "put_out": 5000, "both": 5000}
    plan = BatchPlan(1, 1, Positions(), Positions({("t", 0): 99}), -1, NOW, HOUR, {}, limits=limits)
    given_ = [{"n": 10, "a": ""}, {"n": 170, "a": ""}, {"n": 400, "a": ""}]
    given_ += [{"n": 1, "a": "x" * 2000}, {"n": 1, "a": "x" * 3000}]
    values = [json.dumps({"k": "k", **one}).encode() for one in given_]
    records: list[Row] = [(b"", value, 0, i, 5) for i, value in enumerate(values)]
    found = combine(spark, source(spark, records), app.aggregations, 1, plan).collect()
    letters = [json.loads(bytes(r.key)) for r in found if r.kind == DEAD]
    assert sorted((one["offset"], one["reason"]) for one in letters) == [
        (1, "too-large:put_out"),
        (2, "too-large:kept"), (2, "too-large:put_out"),
        (4, "too-large:both"),
    ], "least and greatest may be of two records"  # fmt: skip


Piped = tuple[int, str | None, int | None, list[int | None] | None, int]
pieces = st.tuples(
    st.integers(0, 2),
    st.none() | st.text("aäz", max_size=2),
    st.none() | st.integers(-(10**9), 10**9),
    st.none() | st.lists(st.none() | st.integers(-9, 9), max_size=3),
    st.integers(0, 5),
)


@settings(max_examples=5, deadline=None)
@given(piped=st.lists(pieces, min_size=1, max_size=20))
def test_any_records_give_the_same_however_cut_and_through_crashes(
    spark: SparkSession, piped: list[Piped]
) -> None:
    def every(app: Application) -> None:
        rows = app.stream("in", "k BIGINT, t STRING, p DECIMAL(12, 2), a ARRAY<INT>")
        day = F.date_add(F.lit("2000-01-01").cast("date"), F.col("p").cast("int") % 1000)
        rows.groupBy("k", "t").agg(
            "kept", n=agg.count(), low=agg.min("p"), high=agg.max("p"), day=agg.max(day),
            least=agg.min("t"), last=agg.last(F.struct("t", "a", "p")), a=agg.last("a"),
            total=agg.sum("p"), dearest=agg.max(F.struct("p", "t")),
        ).toStream().to("out")  # fmt: skip

    with TopologyTestDriver(every, spark, partitions=3, now=T0) as driver:
        topic = driver.createInputTopic("in")
        for partition, text, cents, array, time in piped:
            body = {"k": partition % 2, "t": text, "p": cents and cents / 100, "a": array}
            topic.pipeInput(body, timestamp=T0 + time, partition=partition)
        kept = driver.getKeyValueStore("kept").all()
        assert sum(v["n"] for v in kept.values()) == sum(t is not None for _, t, *_ in piped)
        for (k, t), value in kept.items():
            mine = [c for p, text, c, *_ in piped if (p % 2, text) == (k, t) and c is not None]
            low, total, high = (
                format(Decimal(of(mine)).scaleb(-2), ".2f") if mine else None
                for of in (min, sum, max)
            )
            assert (value["low"], value["least"], value["total"]) == (low, t, total)
            assert value["dearest"] == {"p": high, "t": t}
        driver.assertSameHoweverCut()
        driver.assertSurvivesRepeats()


@pytest.mark.parametrize("verb", [agg.min, agg.max])
def test_what_does_not_sort_is_refused(spark: SparkSession, verb: Any) -> None:
    rows = Application("app", spark).stream("t", "k STRING, m MAP<STRING, INT>")
    with pytest.raises(ConfigurationError, match="of one value"):
        rows.groupBy("k").agg("s", x=verb("m"))
