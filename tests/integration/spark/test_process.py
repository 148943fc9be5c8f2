"""Spark's stateful processors in one process: no broker, no host, no port."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StatefulProcessorHandle

from state_lib import Application, TopologyTestDriver, agg
from state_lib.errors import ProcessorFailed
from tests.support.documents import written
from tests.support.one_processor import OUT, T0, doing, value
from tests.support.processors import BEAT, HOUR, Doing, Silence, silence


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


def test_it_may_stop_instead(spark: SparkSession) -> None:
    def on_rows(self: Any, key: Any, rows: Any, _: Any) -> Any:
        self.n.update((1,))
        raise ValueError(f"not {key[0]} {len(list(rows))}")

    processor = Doing({"n": value("n BIGINT")}, on_rows)
    with TopologyTestDriver(doing(processor, onError="stop"), spark) as driver:
        driver.createInputTopic("lines").pipeInput("a,1")
        with pytest.raises(ProcessorFailed, match="'p' raised in handleInputRows on key 'a'"):
            driver.getKeyValueStore("p-n").all()


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


def test_the_page_about_processors(spark: SparkSession) -> None:
    (block,) = written()["docs/how-to/processors.md"].blocks
    there: dict[str, Any] = {"__name__": "page"}
    exec(compile(block.text, block.title, "exec"), there)  # noqa: S102 - it is ours
    there["test_an_hour_without_a_beat_is_silence"](spark)
