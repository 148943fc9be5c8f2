"""Event time is what a column says, for windows, lateness, the clock, and what is too far ahead."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import SparkSession

from state_lib import Application, Materialized, TimeWindows, TopologyTestDriver, agg
from state_lib.errors import ConfigurationError
from tests.support.processors import Ordered

HOUR = 3_600_000
T0 = 1_700_000_000_000 // HOUR * HOUR
WALL = T0 + 100 * HOUR
SCHEMA = "device STRING NOT NULL, at BIGINT, moment TIMESTAMP"


def hourly(app: Application, timestamp: str = "at") -> None:
    rows = app.stream("beats", SCHEMA, timestamp=timestamp)
    windows = rows.select("device").groupBy("device").windowedBy(TimeWindows("1 hour"))
    windows.agg(Materialized("hourly", retention="30 days"), n=agg.count()).toStream().to("out")
    rows.groupBy("device").agg("last", at=agg.last("at"), n=agg.count())


def by_moment(app: Application) -> None:
    hourly(app, "MOMENT")  # to Spark it is the same


def at(time: int | None, device: str = "a") -> dict[str, object]:
    return {"device": device, "at": time}


def test_windows_and_lateness_go_by_the_column(spark: SparkSession) -> None:
    with TopologyTestDriver(hourly, spark, partitions=2, now=WALL) as driver:
        beats, out = driver.createInputTopic("beats"), driver.createOutputTopic("out")
        for time in (T0, T0 + 2, T0 + HOUR):
            beats.pipeInput(at(time), key="a", timestamp=WALL - time)  # of the record: any other
        kept = driver.getWindowStore("hourly")
        assert {start: v["n"] for start, v in kept.fetch("a").items()} == {T0: 2, T0 + HOUR: 1}
        stamps: list[Any] = [r.timestamp for r in out.readRecordsToList()]
        assert sorted(stamps) == [T0 + 2, T0 + HOUR]
        driver.advanceStreamTime()
        assert driver.streamTime == T0 + HOUR
        beats.pipeInput(at(T0 + 5), timestamp=WALL)
        assert driver.droppedRecords() == {"late:hourly": 1}
        assert driver.getKeyValueStore("last").get("a") == {"at": T0 + HOUR, "n": 4}
        driver.assertSurvivesRepeats()


def test_a_moment_is_event_time(spark: SparkSession) -> None:
    with TopologyTestDriver(by_moment, spark, now=WALL) as driver:
        beats = driver.createInputTopic("beats")
        moment = datetime.fromtimestamp((T0 + 1) / 1000, UTC).isoformat()
        beats.pipeInput({"device": "a", "moment": moment}, timestamp=5)
        beats.pipeInput({"device": "a", "moment": "in the evening"}, timestamp=5)
        beats.pipeInput({"device": "a", "moment": "1969-12-31T23:59:59.9999Z"}, timestamp=5)
        assert {s: v["n"] for s, v in driver.getWindowStore("hourly").fetch("a").items()} == {T0: 1}
        reasons = {letter.offset: letter.reason for letter in driver.deadLetters()}
        assert reasons == {1: "wrong-schema", 2: "invalid-timestamp"}


def test_a_time_that_cannot_be_used_is_a_dead_letter(spark: SparkSession) -> None:
    with TopologyTestDriver(hourly, spark, now=WALL) as driver:
        beats = driver.createInputTopic("beats")
        given: list[tuple[Any, str | None]] = [
            (at(0), None),
            (at(None), "null-timestamp"),
            ({"device": "a"}, "null-timestamp"),
            (at(-1), "invalid-timestamp"),
            (at(WALL + HOUR), None),
            (at(WALL + HOUR + 1), "future"),
            (at(2**63 - 1), "future"),
            ({"device": "a", "at": "soon"}, "wrong-schema"),
            ({"at": -1}, "wrong-schema"),
            (b"{", "undecodable"),
            (None, "undecodable"),
        ]
        for value, _ in given:
            beats.pipeInput(value, timestamp=7)
        letters = driver.deadLetters()
        wanted = {n: why for n, (_, why) in enumerate(given) if why is not None}
        assert {x.offset: x.reason for x in letters} == wanted
        assert {x.timestamp for x in letters} == {7}, "that of the record in its topic"
        assert driver.getKeyValueStore("last").get("a")["n"] == 2
        driver.advanceStreamTime()
        assert driver.streamTime == WALL + HOUR, "what is too far ahead never moves the clock"
        driver.assertSurvivesRepeats()


def test_a_record_that_is_dated_otherwise_in_its_topic_is_no_dead_letter(
    spark: SparkSession,
) -> None:
    with TopologyTestDriver(hourly, spark, now=WALL) as driver:
        beats = driver.createInputTopic("beats")
        for time in (-1, WALL + 1000 * HOUR):
            beats.pipeInput(at(T0), timestamp=time)
        assert driver.getKeyValueStore("last").get("a")["n"] == 2
        assert driver.deadLetters() == []


def test_however_it_is_cut(spark: SparkSession) -> None:
    with TopologyTestDriver(hourly, spark, partitions=2, now=WALL) as driver:
        beats = driver.createInputTopic("beats")
        for number in range(20):
            beats.pipeInput(at(T0 + number % 7, f"d{number % 3}"), timestamp=WALL - number)
        assert driver.getKeyValueStore("last").get("d1")["n"] == 7
        driver.assertSameHoweverCut()
        driver.assertSurvivesRepeats()


def processed(app: Application) -> None:
    rows = app.stream("beats", SCHEMA, timestamp="at").groupBy("device")
    rows.transformWithState(
        Ordered(), "device STRING, at BIGINT", "Append", "EventTime", name="ordered"
    ).to("out")


def test_processors_take_rows_by_it(spark: SparkSession) -> None:
    with TopologyTestDriver(processed, spark, now=WALL) as driver:
        beats, out = driver.createInputTopic("beats"), driver.createOutputTopic("out")
        for number, time in enumerate((T0 + 3, T0 + 1, T0 + 2)):
            beats.pipeInput(at(time), timestamp=number)
        beats.pipeInput(at(T0, "bad"), timestamp=9)
        records = out.readRecordsToList()
        assert [r.value["at"] for r in records] == [T0 + 1, T0 + 2, T0 + 3]
        assert {r.timestamp for r in records} == {T0 + 3}
        assert [x.timestamp for x in driver.deadLetters()] == [9], "that of the record"
        driver.advanceStreamTime()
        beats.pipeInput(at(T0 + 2), timestamp=WALL)
        assert driver.droppedRecords()["late:ordered"] == 1
        driver.assertSurvivesRepeats()


def twice(app: Application) -> None:
    app.stream("beats", SCHEMA, timestamp="at")
    app.stream("beats", SCHEMA)


@pytest.mark.parametrize(
    ("declare", "said"),
    [
        (lambda app: app.stream("t", SCHEMA, timestamp="when"), r"no column .*'device', 'at'"),
        (lambda app: app.stream("t", SCHEMA, timestamp="device"), "of type string"),
        (lambda app: app.stream("t", format="text", timestamp="value"), "no column of its schema"),
        (lambda app: app.stream("t", "e STRUCT<at: BIGINT>", timestamp="e.at"), "no field within"),
        (twice, r"as json \(.*\), timestamp 'at' already"),
    ],
)
def test_what_is_no_time_is_refused(
    spark: SparkSession, declare: Callable[[Application], object], said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        declare(Application("refused", spark))
