"""Spark's stateful processors in one process: no broker, no host, no port."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pandas as pd
import pytest
import structlog
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StatefulProcessorHandle
from pyspark.sql.streaming.stateful_processor import ValueState
from structlog.testing import LogCapture

from state_lib import Application, Materialized, TimeWindows, TopologyTestDriver, agg
from state_lib.errors import ConfigurationError, ProcessorFailed
from state_lib.evolution import contradictions
from state_lib.spark.process import initial as beginning
from tests.support.documents import written
from tests.support.processors import BEAT, HOUR, Doing, Silence, silence

T0 = 1_700_000_000_000 // HOUR * HOUR
OUT = "k STRING, x BIGINT"
Build = Callable[[Application], None]


def value(schema: str, ttl: int | None = None) -> Any:
    return lambda handle, name: handle.getValueState(name, schema, ttl)


def listed(schema: str, ttl: int | None = None) -> Any:
    return lambda handle, name: handle.getListState(name, schema, ttl)


def mapped(keys: str, schema: str, ttl: int | None = None) -> Any:
    return lambda handle, name: handle.getMapState(name, keys, schema, ttl)


def doing(processor: Doing, mode: str = "EventTime", out: str = OUT, **more: Any) -> Build:
    """An application with one processor over rows of text: ``key,number``."""

    def build(app: Application) -> None:
        rows = app.stream("lines", format="text")
        parts = F.split("value", ",")
        rows = rows.select(parts[0].alias("k"), parts[1].cast("bigint").alias("x"))
        rows.groupBy("k").transformWithState(processor, out, "Append", mode, name="p", **more).to(
            "out"
        )

    return build


def test_an_hour_without_a_beat_is_silence(spark: SparkSession) -> None:
    with TopologyTestDriver(silence, spark) as driver:
        beats, silent = driver.createInputTopic("beats"), driver.createOutputTopic("silent")
        beats.pipeInput({"device": "a", "at": T0}, timestamp=T0)
        driver.advanceStreamTime(T0 + 2 * HOUR)
        (record,) = silent.readRecordsToList()
        assert record.value == {"device": "a", "silent_at": T0 + HOUR}
        assert (record.key, record.timestamp) == ("a", T0 + HOUR)
        assert driver.getKeyValueStore("silence-seen").all() == {}
        assert driver.getKeyValueStore("silence-timers").all() == {}


def test_a_beat_puts_silence_off(spark: SparkSession) -> None:
    with TopologyTestDriver(silence, spark) as driver:
        beats, silent = driver.createInputTopic("beats"), driver.createOutputTopic("silent")
        for device, at in (("a", 0), ("b", 0), ("a", HOUR // 2)):
            beats.pipeInput({"device": device, "at": T0 + at}, timestamp=T0 + at)
            assert silent.isEmpty()
        seen = driver.getKeyValueStore("silence-seen")
        assert seen.all() == {"a": {"at": T0 + HOUR // 2}, "b": {"at": T0}}
        assert seen.get("b") == {"at": T0}
        driver.advanceStreamTime(T0 + HOUR)
        assert silent.readValuesToList() == [{"device": "b", "silent_at": T0 + HOUR}]
        driver.advanceStreamTime(T0 + 2 * HOUR)
        assert silent.readKeyValuesToList() == [
            ("a", {"device": "a", "silent_at": T0 + HOUR + HOUR // 2})
        ]
        driver.assertSurvivesRepeats()


def test_it_is_the_same_however_cut(spark: SparkSession) -> None:
    with TopologyTestDriver(silence, spark, partitions=2) as driver:
        beats = driver.createInputTopic("beats")
        for at in range(20):
            beat = {"device": f"d{at % 3}", "at": T0 + at * 1000}
            beats.pipeInput(beat, timestamp=T0 + at * 1000, partition=0)
        driver.advanceStreamTime(T0 + 2 * HOUR)
        assert driver.createOutputTopic("silent").getQueueSize() == 3
        driver.assertSameHoweverCut()


def test_timers_run_by_expiry_then_key_after_all_rows(spark: SparkSession) -> None:
    def on_rows(self: Any, key: Any, rows: Any, _: Any) -> Any:
        for row in rows:
            self.handle.registerTimer(row.x)
        yield Row(k=key[0], x=-1)

    def on_timer(self: Any, key: Any, _: Any, info: Any) -> Any:
        at = info.getExpiryTimeInMs()
        if at == T0 + 1:
            self.handle.registerTimer(T0)  # earlier: in the next batch
            self.handle.registerTimer(T0 + 2)  # later: in this one
            self.handle.registerTimer(at)  # itself: gone, as in Spark
        yield Row(k=key[0], x=at - T0)

    with TopologyTestDriver(doing(Doing({}, on_rows, on_timer)), spark) as driver:
        lines, out = driver.createInputTopic("lines"), driver.createOutputTopic("out")
        for line in (f"b,{T0 + 1}", f"a,{T0 + 1}", f"a,{T0 - 5}", f"c,{T0 + 900}"):
            lines.pipeInput(line, timestamp=T0)
        values = [(v["k"], v["x"]) for v in out.readValuesToList()]
        assert values == [("a", -1), ("b", -1), ("c", -1)]
        driver.advanceStreamTime(T0 + 10)
        found = [(v["k"], v["x"]) for v in out.readValuesToList()]
        assert found == [("a", -5), ("a", 1), ("b", 1), ("a", 2), ("b", 2)]
        assert driver._pipeline.standing.markers[0].due == {"eventtime": T0}
        driver.advanceStreamTime(T0 + 10)
        assert [(v["k"], v["x"]) for v in out.readValuesToList()] == [("a", 0), ("b", 0)]
        assert driver._pipeline.standing.markers[0].due == {"eventtime": T0 + 900}


def test_timers_of_a_key_are_listed(spark: SparkSession) -> None:
    def on_rows(self: Any, key: Any, rows: Any, _: Any) -> Any:
        for row in rows:
            if row.x < 0:
                self.handle.deleteTimer(T0 - row.x)
            else:
                self.handle.registerTimer(T0 + row.x)
        for at in self.handle.listTimers():
            yield Row(k=key[0], x=at - T0)

    with TopologyTestDriver(doing(Doing({}, on_rows)), spark) as driver:
        lines, out = driver.createInputTopic("lines"), driver.createOutputTopic("out")
        for line in ("a,7", "a,3", "aa,5"):
            lines.pipeInput(line, timestamp=T0)
        assert out.readKeyValuesToList() == [
            (k, {"k": k, "x": x}) for k, x in (("a", 3), ("a", 7), ("aa", 5))
        ]
        lines.pipeInput("a,-3", timestamp=T0)
        assert out.readValuesToList() == [{"k": "a", "x": 7}]


def test_each_batch_has_a_processor_of_its_own(spark: SparkSession) -> None:
    """Made of what was pickled at the declaration, when ``init`` ran on a copy."""

    def counts(handle: Any, name: str) -> Any:
        assert isinstance(handle, StatefulProcessorHandle)
        return handle.getValueState(name, "n BIGINT")

    def on_rows(self: Any, key: Any, _: Any, __: Any) -> Any:
        self.calls = getattr(self, "calls", 0) + 1
        self.n.update(((self.n.get() or (0,))[0] + 1,))
        yield Row(k=key[0], x=self.calls)

    processor = Doing({"n": counts}, on_rows)
    before = dict(vars(processor))
    with TopologyTestDriver(doing(processor), spark) as driver:
        lines, out = driver.createInputTopic("lines"), driver.createOutputTopic("out")
        lines.pipeValueList(["a,1", "b,1"])
        assert [(v["k"], v["x"]) for v in out.readValuesToList()] == [("a", 1), ("b", 2)]
        lines.pipeInput("a,1")
        assert [(v["k"], v["x"]) for v in out.readValuesToList()] == [("a", 1)]
        assert driver.getKeyValueStore("p-n").all() == {"a": {"n": 2}, "b": {"n": 1}}
    assert vars(processor) == before


def test_rows_of_a_key_come_in_order(spark: SparkSession) -> None:
    def on_rows(_: Any, key: Any, rows: Any, __: Any) -> Any:
        return (Row(k=key[0], x=row.x) for row in rows)

    def build(app: Application) -> None:
        rows = app.stream("lines", format="text")
        each = rows.select(F.explode(F.split("value", " ")).alias("x"))
        each = each.select(F.lit("all").alias("k"), F.col("x").cast("bigint").alias("x"))
        told = each.groupBy("k").transformWithState(
            Doing({}, on_rows), OUT, "Append", "None", name="p"
        )
        told.to("out")

    with TopologyTestDriver(build, spark, partitions=2) as driver:
        lines = driver.createInputTopic("lines")
        lines.pipeInput("7 8 7", timestamp=T0, partition=1)
        lines.pipeInput("9", timestamp=T0 + 1, partition=0)
        lines.pipeInput("5 6", timestamp=T0, partition=0)
        lines.pipeInput("1", timestamp=T0 - 1, partition=1)
        out = driver.createOutputTopic("out")
        assert [v["x"] for v in out.readValuesToList()] == [1, 5, 6, 7, 8, 7, 9]


def test_late_rows_are_dropped_and_counted(spark: SparkSession) -> None:
    def on_rows(_: Any, key: Any, rows: Any, times: Any) -> Any:
        yield Row(k=key[0], x=sum(r.x for r in rows) + times.getCurrentWatermarkInMs())

    with TopologyTestDriver(doing(Doing({}, on_rows), grace="1 second"), spark) as driver:
        lines, out = driver.createInputTopic("lines"), driver.createOutputTopic("out")
        lines.pipeInput("a,1", timestamp=T0)
        driver.advanceStreamTime(T0)
        for x, at in ((1, T0), (2, T0 - 1000), (4, T0 - 1001)):
            lines.pipeInput(f"a,{x}", timestamp=at)
        assert out.readValuesToList()[1:] == [{"k": "a", "x": T0 - 1000 + 3}]
        assert driver.droppedRecords() == {"late:p": 1}


def test_event_time_is_behind_stream_time_by_the_grace(spark: SparkSession) -> None:
    def on_rows(self: Any, _: Any, __: Any, ___: Any) -> Any:
        self.handle.registerTimer(T0)
        return iter(())

    def on_timer(_: Any, key: Any, times: Any, __: Any) -> Any:
        yield Row(k=key[0], x=times.getCurrentWatermarkInMs() - T0)

    build = doing(Doing({}, on_rows, on_timer), grace="1 second")
    with TopologyTestDriver(build, spark) as driver:
        driver.createInputTopic("lines").pipeInput("a,1", timestamp=T0)
        out = driver.createOutputTopic("out")
        driver.advanceStreamTime(T0 + 999)
        assert out.isEmpty()
        assert driver._pipeline.standing.markers[0].due == {"eventtime": T0 + 1000}
        driver.advanceStreamTime(T0 + 1001)
        assert out.readValuesToList() == [{"k": "a", "x": 1}]


def test_a_key_on_which_it_raises_costs_its_rows_of_the_batch(spark: SparkSession) -> None:
    def on_rows(self: Any, key: Any, rows: Any, _: Any) -> Any:
        total = (self.total.get() or (0,))[0]
        for row in rows:
            total += row.x
            self.total.update((total,))
            self.handle.registerTimer(T0 + row.x)
            yield Row(k=key[0], x=total)
            if row.x < 0:
                raise ValueError("negative")

    with TopologyTestDriver(doing(Doing({"total": value("n BIGINT")}, on_rows)), spark) as driver:
        lines, out = driver.createInputTopic("lines"), driver.createOutputTopic("out")
        lines.pipeValueList(["a,1", "b,1"])
        lines.pipeInput("a,5")
        before = driver.getKeyValueStore("p-total").all()
        assert before == {"a": {"n": 6}, "b": {"n": 1}}
        assert out.getQueueSize() == 3
        for line in ("a,2", "a,-1", "b,2"):
            lines.pipeInput(line)
        assert driver.getKeyValueStore("p-total").all() == before | {"b": {"n": 3}}
        assert [v["x"] for v in out.readValuesToList()][3:] == [3]
        letters = driver.deadLetters()
        assert [(d.reason, d.value) for d in letters] == [
            ("raised:p", b"a,2"),
            ("raised:p", b"a,-1"),
        ]
        assert driver.droppedRecords() == {"raised:p": 2}
        driver.assertSurvivesRepeats()


def test_a_timer_whose_handler_raises_is_consumed(spark: SparkSession) -> None:
    def on_rows(self: Any, _: Any, rows: Any, __: Any) -> Any:
        self.n.update((sum(r.x for r in rows),))
        self.handle.registerTimer(T0 + 5)
        return iter(())

    def on_timer(self: Any, key: Any, _: Any, __: Any) -> Any:
        self.n.clear()
        if key[0] == "a":
            raise KeyError("no")
        return [Row(k=key[0], x=1)]

    processor = Doing({"n": value("n BIGINT")}, on_rows, on_timer)
    with TopologyTestDriver(doing(processor), spark) as driver:
        lines = driver.createInputTopic("lines")
        lines.pipeInput("a,1", timestamp=T0)
        lines.pipeInput("b,1", timestamp=T0)
        driver.advanceStreamTime(T0 + 5)
        assert driver.createOutputTopic("out").readValuesToList() == [{"k": "b", "x": 1}]
        assert driver.getKeyValueStore("p-n").all() == {"a": {"n": 1}}
        assert driver.getKeyValueStore("p-timers").all() == {}
        (letter,) = driver.deadLetters()
        assert (letter.reason, letter.topic, letter.key, letter.timestamp) == (
            "raised-timer:p", "p-timers", b"a", T0 + 5,
        )  # fmt: skip


def test_it_may_stop_instead(spark: SparkSession) -> None:
    def on_rows(self: Any, key: Any, rows: Any, _: Any) -> Any:
        self.n.update((1,))
        raise ValueError(f"not {key[0]} {len(list(rows))}")

    processor = Doing({"n": value("n BIGINT")}, on_rows)
    with TopologyTestDriver(doing(processor, onError="stop"), spark) as driver:
        driver.createInputTopic("lines").pipeInput("a,1")
        with pytest.raises(ProcessorFailed, match="'p' raised in handleInputRows on key 'a'"):
            driver.getKeyValueStore("p-n").all()


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


def test_timers_by_processing_time(spark: SparkSession) -> None:
    def on_rows(self: Any, _: Any, __: Any, times: Any) -> Any:
        self.handle.registerTimer(times.getCurrentProcessingTimeInMs() + 1000)
        return iter(())

    def on_timer(_: Any, key: Any, times: Any, info: Any) -> Any:
        late = times.getCurrentProcessingTimeInMs() - info.getExpiryTimeInMs()
        yield Row(k=key[0], x=late)

    build = doing(Doing({}, on_rows, on_timer), "ProcessingTime")
    with TopologyTestDriver(build, spark, now=T0) as driver:
        lines, out = driver.createInputTopic("lines"), driver.createOutputTopic("out")
        lines.pipeInput("a,1", timestamp=5)
        assert out.isEmpty()
        driver.advanceWallClockTime(999)
        assert out.isEmpty()
        driver.advanceWallClockTime(3)
        assert out.readValuesToList() == [{"k": "a", "x": 2}]
        assert driver._pipeline.standing.batch_time == T0 + 1002
        assert driver._pipeline.standing.markers[0].due == {}


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


def test_pandas(spark: SparkSession) -> None:
    def on_rows(self: Any, key: Any, frames: Any, _: Any) -> Any:
        for frame in frames:
            total = (self.total.get() or (0,))[0] + frame["x"].sum()
            self.total.update((total,))
            yield pd.DataFrame({"x": [total], "k": [key[0]]})
            yield pd.DataFrame({"x": [None], "k": [None]})

    def build(app: Application) -> None:
        parts = F.split("value", ",")
        rows = app.stream("lines", format="text")
        rows = rows.select(parts[0].alias("k"), parts[1].cast("bigint").alias("x"))
        told = rows.groupBy("k").transformWithStateInPandas(
            Doing({"total": value("n BIGINT")}, on_rows), OUT, "Update", "None", name="p"
        )
        told.to("out")

    with TopologyTestDriver(build, spark) as driver:
        lines, out = driver.createInputTopic("lines"), driver.createOutputTopic("out")
        lines.pipeValueList(["a,1", "a,2", "b,5"])
        none = {"k": None, "x": None}
        assert out.readValuesToList() == [{"k": "a", "x": 3}, none, {"k": "b", "x": 5}, none]
        lines.pipeInput("a,4")
        assert out.readValuesToList() == [{"k": "a", "x": 7}, none]


def test_aggregates_beside_it_are_as_ever(spark: SparkSession) -> None:
    def build(app: Application) -> None:
        rows = app.stream("beats", BEAT)
        beats = rows.groupBy("device")
        beats.agg("beats", n=agg.count(), last=agg.last("at")).toStream().to("counted")
        told = beats.transformWithState(
            Silence(), "device STRING, silent_at BIGINT", "Append", "EventTime", name="silence"
        )
        told.to("silent")

    with TopologyTestDriver(build, spark, partitions=2) as driver:
        beats = driver.createInputTopic("beats")
        for device, at in (("a", 1), ("a", 1), ("b", 2), ("a", 3)):
            beats.pipeInput({"device": device, "at": T0 + at}, timestamp=T0 + at)
        beats.pipeInput(b"no JSON", timestamp=T0)
        counted = driver.getKeyValueStore("beats").all()
        assert counted == {"a": {"n": 3, "last": T0 + 3}, "b": {"n": 1, "last": T0 + 2}}
        seen = driver.getKeyValueStore("silence-seen").all()
        assert seen == {"a": {"at": T0 + 3}, "b": {"at": T0 + 2}}
        driver.advanceStreamTime(T0 + 2 * HOUR)
        assert driver.createOutputTopic("silent").getQueueSize() == 2
        assert driver.droppedRecords() == {"undecodable": 1}
        driver.assertSurvivesRepeats()


class Opening(Doing):
    """Begins with what it is given."""

    n: ValueState

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        assert key == (initialState.who,)
        self.n.update(((self.n.get() or (0,))[0] + initialState.balance,))
        self.handle.registerTimer(initialState.balance)
        del timerValues


def add(self: Any, key: Any, rows: Any, _: Any) -> Any:
    self.n.update(((self.n.get() or (0,))[0] + sum(r.x for r in rows),))
    yield Row(k=key[0], x=self.n.get()[0])


def test_it_begins_with_what_it_is_given(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = LogCapture()
    every = structlog.make_filtering_bound_logger(0)
    captured = structlog.wrap_logger(None, processors=[told], wrapper_class=every)
    monkeypatch.setattr(beginning, "log", captured)
    schema = "who STRING, balance INT"
    balances = spark.createDataFrame([("a", 10), ("b", 20), (None, 5), ("a", 1)], schema)

    def on_timer(_: Any, key: Any, __: Any, info: Any) -> Any:
        yield Row(k=key[0], x=info.getExpiryTimeInMs())

    processor = Opening({"n": value("n BIGINT")}, add, on_timer)
    build = doing(processor, initialState=balances.groupBy("who"))
    with TopologyTestDriver(build, spark, partitions=2) as driver:
        totals = driver.getKeyValueStore("p-n")
        assert totals.all() == {"a": {"n": 11}, "b": {"n": 20}}
        assert [(one["event"], one["rows"]) for one in told.entries] == [
            ("initial state without a key is left out", 1)
        ]
        markers = driver._pipeline.standing.markers
        assert sum(m.initial["p"] for m in markers) == 3
        assert min(m.due["eventtime"] for m in markers if m.due) == 1
        lines, out = driver.createInputTopic("lines"), driver.createOutputTopic("out")
        lines.pipeInput("a,5", timestamp=T0)
        lines.pipeInput("c,1", timestamp=T0)
        assert totals.all() == {"a": {"n": 16}, "b": {"n": 20}, "c": {"n": 1}}
        driver.advanceStreamTime(T0)
        timed = sorted(v["x"] for v in out.readValuesToList())
        assert timed == [1, 1, 10, 16, 20], "two rows of the batch, and three timers"
        driver.assertSurvivesRepeats()


def test_what_it_begins_with_is_read_once(spark: SparkSession) -> None:
    """Rows that are judged are those that are taken: read again they might be others."""
    seen = spark.sparkContext.accumulator(0)

    @F.udf("string")
    def noted(who: str) -> str:
        seen.add(1)
        return who

    balances = spark.createDataFrame([("a", 10), ("b", 20)], "who STRING, balance INT")
    balances = balances.withColumn("who", noted.asNondeterministic()("who"))
    processor = Opening({"n": value("n BIGINT")}, add)
    build = doing(processor, initialState=balances.groupBy("who"))
    with TopologyTestDriver(build, spark, partitions=2) as driver:
        assert driver.getKeyValueStore("p-n").all() == {"a": {"n": 10}, "b": {"n": 20}}
        assert seen.value == 2


def test_it_begins_at_the_time_of_the_wall(spark: SparkSession) -> None:
    """What it begins with lives as long as what comes later."""

    class Timed(Opening):
        def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
            assert timerValues.getCurrentProcessingTimeInMs() == T0
            self.n.update((initialState.balance,))
            del key

    balances = spark.createDataFrame([("a", 10)], "who STRING, balance INT")
    processor = Timed({"n": value("n BIGINT", ttl=60_000)}, add)
    build = doing(processor, "ProcessingTime", initialState=balances.groupBy("who"))
    with TopologyTestDriver(build, spark, now=T0) as driver:
        driver.createInputTopic("lines").pipeInput("a,5")
        assert driver.getKeyValueStore("p-n").all() == {"a": {"n": 15}}
        driver.assertSurvivesRepeats()


def test_what_it_begins_with_has_the_key_of_the_stream(spark: SparkSession) -> None:
    app = Application("app", spark)
    numbers = spark.createDataFrame([(1, 2)], "who INT, balance INT")
    grouped = app.stream("beats", BEAT).groupBy("device")
    for initial, words in (
        (numbers.groupBy("who"), "grouped by int, the stream by string"),
        (numbers.groupBy(), "grouped by no column"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            grouped.transformWithState(
                Silence(), OUT, "Append", "EventTime", initialState=initial, name="p"
            )


def test_what_raises_as_it_begins_stops_it(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("b", 1)], "other STRING, balance INT")
    processor = Opening({"n": value("n BIGINT")}, add)
    with (
        pytest.raises(ProcessorFailed, match="raised in handleInitialState"),
        TopologyTestDriver(doing(processor, initialState=rows.groupBy("other")), spark),
    ):
        pass


# ---------------------------------------------------------------------- declarations


class Locked(Silence):
    def __init__(self) -> None:
        self.lock = threading.Lock()


class Broken(Silence):
    def init(self, handle: Any) -> None:
        del handle
        raise OSError("no disk")


@pytest.mark.parametrize(
    ("processor", "change", "words"),
    [
        (Silence(), {"outputMode": "Complete"}, "'Complete'"),
        (Silence(), {"timeMode": "Never"}, "'Never'"),
        (Silence(), {"initialState": 1}, "a DataFrame by key"),
        (Silence(), {"onError": "ignore"}, "'ignore'"),
        (Silence(), {"eventTimeColumnName": "k"}, "no TIMESTAMP"),
        (Silence(), {"outputStructType": "k INTERVAL DAY"}, "column 'k'"),
        (Silence(), {"name": "a/b"}, "a/b"),
        (object(), {}, "StatefulProcessor"),
        (Locked(), {}, "cannot be pickled"),
        (Broken(), {}, "init raises OSError: no disk"),
        (Doing({"n": value("n BIGINT", 5)}, None), {}, "time to live"),
        (Doing({"timers": value("n BIGINT")}, None), {}, "'timers'"),
        (Doing({"n": value("n INTERVAL DAY")}, None), {}, "state 'n'"),
        (Doing({"n": lambda h, _: h.registerTimer(5)}, None), {}, "timers belong to a key"),
        (Doing({"n": lambda h, n: h.getValueState(n, "n INT").get()}, None), {}, "init raises"),
    ],
)
def test_what_cannot_be_is_refused_at_its_line(
    spark: SparkSession, processor: Any, change: dict[str, Any], words: str
) -> None:
    app = Application("app", spark)
    given = {
        "outputStructType": OUT, "outputMode": "Append", "timeMode": "EventTime", "name": "p",
    } | change  # fmt: skip
    with pytest.raises(ConfigurationError, match=words):
        app.stream("beats", BEAT).groupBy("device").transformWithState(processor, **given)
    assert not app.processes


def test_windows_are_refused(spark: SparkSession) -> None:
    app = Application("app", spark)
    grouped = app.stream("beats", BEAT).groupBy("device").windowedBy(TimeWindows("1 hour"))
    with pytest.raises(ConfigurationError, match="windowedBy"):
        grouped.transformWithState(Silence(), OUT, "Append", "None", name="p")


def test_states_that_changed_are_refused(spark: SparkSession) -> None:
    def topology(schema: str) -> Any:
        app = Application("app", spark)
        doing(Doing({"n": value(schema)}, None))(app)
        return app.topology

    assert contradictions(topology("n BIGINT"), topology("n BIGINT")) == []
    (found,) = contradictions(topology("n BIGINT"), topology("n TIMESTAMP"))
    assert "value struct<n:bigint>" in found
    assert "value struct<n:timestamp>" in found


def test_timers_and_lists_of_other_keys_or_times_are_refused(spark: SparkSession) -> None:
    """Old ones would be read as keys of the new type, or run all at once."""

    def topology(key: str, mode: str, asked: Any) -> Any:
        app = Application("app", spark)
        rows = app.stream("lines", "k STRING, n BIGINT").groupBy(key)
        rows.transformWithState(Doing(asked, None), OUT, "Append", mode, name="p")
        return app.topology

    of_text = topology("k", "EventTime", {})
    assert contradictions(of_text, topology("k", "EventTime", {})) == []
    (found,) = contradictions(of_text, topology("n", "EventTime", {}))
    assert "timers by int64, eventtime" in found
    (found,) = contradictions(of_text, topology("k", "ProcessingTime", {}))
    assert "timers by utf8, processingtime" in found
    for asked in ({"l": listed("n BIGINT")}, {"m": mapped("k STRING", "n BIGINT")}):
        of_both = contradictions(topology("k", "None", asked), topology("n", "None", asked))
        assert len(of_both) == 2, of_both


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


def test_other_code_is_told_from_the_same(spark: SparkSession) -> None:
    def fingerprint(processor: Any) -> str:
        app = Application("app", spark)
        doing(processor)(app)
        return app.fingerprint

    one = fingerprint(Doing({}, lambda *_: iter(())))
    assert fingerprint(Doing({}, lambda *_: iter(()))) == one
    assert fingerprint(Doing({}, lambda *_: iter([]))) != one
    assert fingerprint(Doing({"n": value("n BIGINT")}, lambda *_: iter(()))) != one
    assert fingerprint(Silence()) != one


def test_where_rows_go_is_told_from_what_a_processor_does(spark: SparkSession) -> None:
    def routing(processor: Any, column: str = "k") -> str:
        app = Application("app", spark)
        rows = app.stream("lines", "k STRING, l STRING").groupBy(column)
        rows.transformWithState(processor, OUT, "Append", "None", name="p").to("out")
        return app.routing

    one = routing(Doing({}, lambda *_: iter(())))
    assert routing(Doing({}, lambda *_: iter([]))) == one
    assert routing(Doing({}, lambda *_: iter(())), "l") != one
    app = Application("app", spark)
    app.stream("lines", "k STRING").groupBy("k").count("counts")
    assert not app.routing, "its fingerprint says it all"


def test_the_topology_says_what_it_keeps(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    app = Application("app", spark)
    silence(app)
    app.describe()
    said = capsys.readouterr().out
    assert "stores: [silence-timers, silence-seen]" in said
    assert "topic: silent" in said


def test_the_page_about_processors(spark: SparkSession) -> None:
    (block,) = written()["docs/how-to/processors.md"].blocks
    there: dict[str, Any] = {"__name__": "page"}
    exec(compile(block.text, block.title, "exec"), there)  # noqa: S102 - it is ours
    there["test_an_hour_without_a_beat_is_silence"](spark)
