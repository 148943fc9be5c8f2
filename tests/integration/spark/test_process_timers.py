"""Timers of Spark's stateful processors: their order, their times, and one that raises."""

from __future__ import annotations

from typing import Any

from pyspark.sql import Row, SparkSession

from state_lib import TopologyTestDriver
from tests.support.one_processor import T0, doing, value
from tests.support.processors import Doing


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
