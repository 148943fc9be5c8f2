"""What processors begin with: taken once, of the stream's keys, before any row."""

from __future__ import annotations

from typing import Any

import pytest
import structlog
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.stateful_processor import ValueState
from structlog.testing import LogCapture

from state_lib import Application, TopologyTestDriver
from state_lib.errors import ConfigurationError, ProcessorFailed
from state_lib.spark.process import initial as beginning
from tests.support.one_processor import OUT, T0, doing, value
from tests.support.processors import BEAT, Doing, Silence


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
