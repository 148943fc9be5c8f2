"""What processors keep and yield: values, lists and maps, for how long, and of every type."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from state_lib import Application, Materialized, TopologyTestDriver, agg
from tests.support.one_processor import T0, doing, listed, mapped, value
from tests.support.processors import Doing


def test_lists_and_maps(spark: SparkSession) -> None:
    def on_rows(self: Any, key: Any, rows: Any, _: Any) -> Any:
        for row in rows:
            if row.x == 0:
                self.past.clear()
                self.by.clear()
            elif row.x < 0:
                self.past.put([(row.x,), (row.x,)])
                self.by.removeKey((-row.x, "n"))
            else:
                self.past.appendValue((row.x,))
                self.past.appendList([(row.x + 1,)])
                self.by.updateValue((row.x, "n"), (f"v{row.x}",))
        text = f"{[x for (x,) in self.past.get()]} {sorted(self.by.iterator())}"
        known = self.by.containsKey((1, "n")), self.by.getValue((1, "n"))
        assert [*self.by.keys()] == [k for k, _ in self.by.iterator()]
        assert [*self.by.values()] == [v for _, v in self.by.iterator()]
        yield Row(k=key[0], said=f"{text} {self.past.exists()} {self.by.exists()} {known}")

    asked = {"past": listed("x BIGINT"), "by": mapped("x BIGINT, y STRING", "v STRING")}
    build = doing(Doing(asked, on_rows), "None", "k STRING, said STRING")
    with TopologyTestDriver(build, spark) as driver:
        lines, out = driver.createInputTopic("lines"), driver.createOutputTopic("out")

        def said(*numbers: int) -> str:
            for x in numbers:
                lines.pipeInput(f"a,{x}")
            text: str = out.readValue()["said"]
            return text

        one = "((1, 'n'), ('v1',))"
        assert said(1) == f"[1, 2] [{one}] True True (True, ('v1',))"
        assert said(5) == f"[1, 2, 5, 6] [{one}, ((5, 'n'), ('v5',))] True True (True, ('v1',))"
        assert said(-1) == "[-1, -1] [((5, 'n'), ('v5',))] True True (False, None)"
        assert said(0, 1) == f"[1, 2] [{one}] True True (True, ('v1',))"
        assert said(0) == "[] [] False False (False, None)"
        for store in ("p-past", "p-by", "p-timers"):
            assert driver.getKeyValueStore(store).all() == {}
        driver.assertSurvivesRepeats()


def test_entries_live_their_time(spark: SparkSession) -> None:
    def on_rows(self: Any, key: Any, rows: Any, _: Any) -> Any:
        for row in rows:
            if row.x:
                self.last.update((row.x,))
                self.past.appendValue((row.x,))
                self.by.updateValue((row.x,), (row.x,))
        seen = [self.last.get(), [*self.past.get()], [*self.by.keys()], self.past.exists()]
        yield Row(k=key[0], said=f"{seen}")

    minute = 60_000
    asked = {
        "last": value("x BIGINT", minute),
        "past": listed("x BIGINT", minute),
        "by": mapped("x BIGINT", "x BIGINT", minute),
    }
    build = doing(Doing(asked, on_rows), "ProcessingTime", "k STRING, said STRING")
    with TopologyTestDriver(build, spark, now=T0) as driver:
        lines, out = driver.createInputTopic("lines"), driver.createOutputTopic("out")
        lines.pipeInput("a,1")
        assert out.readValue()["said"] == "[(1,), [(1,)], [(1,)], True]"
        driver.advanceWallClockTime("40 seconds")
        lines.pipeInput("a,2")
        assert out.readValue()["said"] == "[(2,), [(1,), (2,)], [(1,), (2,)], True]"
        driver.advanceWallClockTime("20 seconds")
        assert driver.getKeyValueStore("p-last").all() == {"a": {"x": 2}}
        assert driver.getKeyValueStore("p-past").approximateNumEntries() == 1
        lines.pipeInput("a,0")
        assert out.readValue()["said"] == "[(2,), [(2,)], [(2,)], True]"
        driver.advanceWallClockTime("1 minute")
        for store in ("p-last", "p-past", "p-by", "p-timers"):
            assert driver.getKeyValueStore(store).all() == {}
        driver.assertSurvivesRepeats()


def test_types_come_and_go(spark: SparkSession) -> None:
    schema = "day DATE, at TIMESTAMP, many ARRAY<DOUBLE>, deep STRUCT<n: INT, s: STRING>"

    def on_rows(self: Any, _: Any, rows: Any, __: Any) -> Any:
        for row in rows:
            kept = self.kept.get()
            self.kept.update((row.day, row.at, row.many, (row.deep["n"], row.deep["s"])))
            if kept is not None:
                day, at, many, deep = kept
                assert (day, at, many) == (row.day, row.at, row.many)
                yield Row(day=day, at=at, many=many, deep=deep)

    def build(app: Application) -> None:
        rows = app.stream("things", schema).groupBy(F.date_format("day", "yyyy").alias("year"))
        told = rows.transformWithState(
            Doing({"kept": value(schema)}, on_rows),
            schema, "Append", "None", eventTimeColumnName="at", name="p",
        )  # fmt: skip
        told.to("out")
        (out,) = app.topology.outputs
        assert out.dated, "what checks learn from Kafka"

    thing = {
        "day": "2013-07-01",
        "at": "2013-07-01T12:00:00.250Z",
        "many": [0.5, None],
        "deep": {"n": 1, "s": None},
    }
    with TopologyTestDriver(build, spark) as driver:
        things = driver.createInputTopic("things")
        things.pipeValueList([thing, thing])
        record = driver.createOutputTopic("out").readRecord()
        assert (record.key, record.value) == ("2013", thing)
        assert (
            record.timestamp == dt.datetime(2013, 7, 1, 12, tzinfo=dt.UTC).timestamp() * 1000 + 250
        )


def test_all_verbs_say_values_alike(spark: SparkSession) -> None:
    """What `agg` keeps, what a function folds and what a processor yields, in JSON."""
    made = {
        "b": "X'00ff'", "at": "timestamp_micros(1)", "day": "DATE'2013-01-31'",
        "ntz": "TIMESTAMP_NTZ'2013-01-31 12:00:00.000001'",
        "zero": "cast(0 AS DECIMAL(10, 8))", "tiny": "cast('0.0000001' AS DECIMAL(10, 8))",
        "by_number": "map(1, DATE'2013-01-31')", "by_day": "map(DATE'2013-01-31', X'61')",
        "nested": "array(named_struct('p', cast('0.0000001' AS DECIMAL(9, 7)), 'ok', true))",
    }  # fmt: skip
    day, moment = dt.date(2013, 1, 31), dt.datetime(2013, 1, 31, 12, microsecond=1)  # noqa: DTZ001
    yielded = {
        "b": b"\0\xff", "at": dt.datetime(1970, 1, 1, microsecond=1, tzinfo=dt.UTC), "day": day,
        "ntz": moment, "zero": Decimal(0), "tiny": Decimal("1E-7"),
        "by_number": {1: day}, "by_day": {day: b"a"},
        "nested": [{"p": Decimal("1E-7"), "ok": True}],
    }  # fmt: skip
    wanted = {
        "k": "a", "b": "00ff", "at": "1970-01-01T00:00:00.000001Z", "day": "2013-01-31",
        "ntz": "2013-01-31T12:00:00.000001", "zero": "0.00000000", "tiny": "0.00000010",
        "by_number": {"1": "2013-01-31"}, "by_day": {"2013-01-31": "61"},
        "nested": [{"p": "0.0000001", "ok": True}],
    }  # fmt: skip
    out = (
        "k STRING, b BINARY, at TIMESTAMP, day DATE, ntz TIMESTAMP_NTZ, zero DECIMAL(10, 8), "
        "tiny DECIMAL(10, 8), by_number MAP<INT, DATE>, by_day MAP<DATE, BINARY>, "
        "nested ARRAY<STRUCT<p: DECIMAL(9, 7), ok: BOOLEAN>>"
    )

    def on_rows(_: Any, key: Any, rows: Any, __: Any) -> Any:
        return ({"k": key[0], **yielded} for _ in rows)

    def build(app: Application) -> None:
        rows = app.stream("lines", format="text")
        columns = [F.expr(sql).alias(name) for name, sql in made.items()]
        grouped = rows.select(F.col("value").alias("k"), *columns).groupBy("k")
        kept = grouped.agg("kept", **{name: agg.last(name) for name in made})
        kept.toStream().to("by-agg")
        grouped.reduce(lambda _, new: new, Materialized("folded")).toStream().to("by-reduce")
        process = Doing({}, on_rows)
        grouped.transformWithState(process, out, "Append", "None", name="p").to("by-process")
        assert not any(output.dated for output in app.topology.outputs)

    with TopologyTestDriver(build, spark) as driver:
        driver.createInputTopic("lines").pipeInput("a", timestamp=T0)
        assert driver.deadLetters() == []
        for verb in ("agg", "reduce", "process"):
            found = driver.createOutputTopic(f"by-{verb}").readValuesToList()
            assert found == [wanted], verb
        kept = {name: value for name, value in wanted.items() if name != "k"}
        assert driver.getKeyValueStore("kept").get("a") == kept
