"""Tests of a pipeline as a user writes them: a type checker has nothing to say of them."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.stateful_processor import (  # PySpark does not say that it exports them
    ExpiredTimerInfo,
    ListState,
    MapState,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
    ValueState,
)

from state_lib import Application, TimeWindows, TopologyTestDriver
from state_lib.testing import (
    DeadLetter,
    KeyValueStoreView,
    TestInputTopic,
    TestOutputTopic,
    TestRecord,
    WindowStoreView,
    local_session,
)

HOUR = 3_600_000


class Silence(StatefulProcessor):
    """All kinds of states, both kinds of rows, timers, and an initial state."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Ask for states, as Spark's own types."""
        self.handle = handle
        self.seen: ValueState = handle.getValueState("seen", "at BIGINT")
        self.past: ListState = handle.getListState("past", "at BIGINT", ttlDurationMs=HOUR)
        self.by: MapState = handle.getMapState("by", "at BIGINT", "n BIGINT")

    def handleInputRows(  # noqa: N802 - Spark's
        self,
        key: Any,
        rows: Any,
        timerValues: TimerValues,  # noqa: N803 - as above
    ) -> Iterator[Row]:
        """Remember when."""
        at = max(row.at for row in rows)
        self.seen.update((at,))
        self.past.appendValue((timerValues.getCurrentWatermarkInMs(),))
        self.by.updateValue((at,), (len(key),))
        self.handle.registerTimer(at + HOUR)
        return iter(())

    def handleExpiredTimer(  # noqa: N802 - as above
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: N803 - as above
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803 - as above
    ) -> Iterator[Row]:
        """Tell."""
        del timerValues
        yield Row(device=key[0], silent_at=expiredTimerInfo.getExpiryTimeInMs())

    def handleInitialState(  # noqa: N802 - as above
        self,
        key: Any,
        initialState: Any,  # noqa: N803 - as above
        timerValues: TimerValues,  # noqa: N803 - as above
    ) -> None:
        """Take what is known."""
        del key, timerValues
        self.seen.update((initialState.at,))

    def close(self) -> None:
        """Nothing to close."""


class Frames(Silence):
    """The same in pandas."""

    def handleInputRows(  # type: ignore[override]  # noqa: N802 - frames in the place of rows
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: TimerValues,  # noqa: N803 - Spark's
    ) -> Iterator[pd.DataFrame]:
        """Tell of the last."""
        del timerValues
        for frame in rows:
            yield pd.DataFrame({"device": [key[0]], "silent_at": [int(frame["at"].max())]})


def pipeline(app: Application, known: DataFrame) -> None:
    """Declare it."""
    beats = app.stream("beats", "device STRING, at BIGINT")
    grouped, out = beats.groupBy("device"), "device STRING, silent_at BIGINT"
    initial = known.groupBy("device")
    grouped.transformWithState(Silence(), out, "Append", "EventTime", initial, name="silence").to(
        "silent"
    )
    grouped.transformWithStateInPandas(
        Frames(), out, "Update", "EventTime", name="frames", grace="1 minute", onError="stop"
    ).to("frames")
    grouped.windowedBy(TimeWindows("1 hour")).count("hours")


def test_an_hour_without_a_beat_is_silence(spark: SparkSession) -> None:
    """Every method of the driver and of what it makes."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    known = spark.createDataFrame([("a", 1)], "device STRING, at BIGINT")
    with TopologyTestDriver(
        lambda app: pipeline(app, known),
        spark,
        partitions=2,
        now=now,
        max_future="1 hour",
        app_id="test",
    ) as driver:
        beats: TestInputTopic = driver.createInputTopic("beats")
        beats.pipeInput({"device": "a", "at": 1}, "a", timestamp=now, partition=0)
        beats.pipeValueList([{"device": "a", "at": 2}, b"raw", None])
        beats.pipeRecordList([TestRecord({"device": "b", "at": 3}, key=7, timestamp=now)])
        driver.advanceStreamTime()
        driver.advanceStreamTime(2 * HOUR)
        driver.advanceWallClockTime("1 minute")
        times: list[int] = [driver.streamTime, driver.wallClockTime]
        silent: TestOutputTopic = driver.createOutputTopic("silent")
        if not silent.isEmpty():
            record: TestRecord = silent.readRecord()
            assert (record.key, record.timestamp, record.partition) == ("a", times[0], 0)
            assert record.headers == {}
        assert silent.readKeyValuesToList() == []
        assert silent.readKeyValuesToMap() == dict.fromkeys(silent.readValuesToList())
        assert silent.getQueueSize() == len(silent.readRecordsToList())
        seen: KeyValueStoreView = driver.getKeyValueStore("silence-seen")
        assert (seen.get("a"), seen.all(), seen.approximateNumEntries()) == (None, {}, 0)
        hours: WindowStoreView = driver.getWindowStore("hours")
        assert (hours.get("a", 0), hours.fetch("a", 0, HOUR), hours.all()) == (None, {}, {})
        letters: list[DeadLetter] = driver.deadLetters()
        dropped: dict[str, int] = driver.droppedRecords()
        assert dropped == {letter.reason: letter.offset for letter in letters}
        driver.assertSurvivesRepeats()
        driver.assertSameHoweverCut()


def read(app: str) -> list[Row]:
    """A store, in any session."""
    spark = local_session()
    reader = spark.read.format("holdfast").option("app", app).option("store", "silence-seen")
    return reader.load().where("seen > 0").collect()
