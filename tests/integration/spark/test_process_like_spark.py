"""Processors as by Spark, outputs and states: by its own tester, and by its operator."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle
from pyspark.sql import DataFrame, GroupedData, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.streaming.tws_tester import TwsTester

from state_lib import Application, TopologyTestDriver
from tests.support import processors, spark_processors
from tests.support.by_spark import ran
from tests.support.processors import BEAT, HOUR, Known, Silence, silence
from tests.support.spark_processors import (
    COUNTED,
    READING,
    SAID,
    DownTime,
    Fading,
    Top,
    Violations,
    ViolationsInPandas,
)
from tests.support.states import lists, maps, timers, values

T0 = 1_700_000_000_000 // HOUR * HOUR
MINUTE = 60_000
JOB = Path(__file__).parents[2] / "chaos" / "process_job.py"


@pytest.fixture(autouse=True, scope="module")
def _shipped() -> Iterator[None]:
    """Spark's workers need not find these modules: they are pickled whole."""
    for module in (processors, spark_processors):
        cloudpickle.register_pickle_by_value(module)
    yield
    for module in (processors, spark_processors):
        cloudpickle.unregister_pickle_by_value(module)


PROCESSORS = [Violations, Top, ViolationsInPandas]
Build = Callable[[Application], None]
States = dict[str, dict[Any, Any]]


def readings(processor: StatefulProcessor, out: str, mode: str = "None") -> Build:
    def build(app: Application) -> None:
        rows = app.stream("readings", READING).groupBy("id")
        in_pandas = isinstance(processor, ViolationsInPandas)
        verb = rows.transformWithStateInPandas if in_pandas else rows.transformWithState
        verb(processor, out, "Update", mode, name="p").to("out")

    return build


def batches() -> list[list[dict[str, Any]]]:
    made = [
        {"id": f"i{n % 3}", "temperature": None if n % 7 == 6 else n * 37 % 150} for n in range(40)
    ]
    return [made[:15], made[15:16], made[16:]]


def ours(spark: SparkSession, processor: StatefulProcessor) -> tuple[list[Any], States]:
    """Outputs of each batch, and all that is kept at the end."""
    found = []
    with TopologyTestDriver(readings(processor, COUNTED), spark) as driver:
        out = driver.createOutputTopic("out")
        for rows in batches():
            driver.createInputTopic("readings").pipeValueList(rows)
            found.append(out.readValuesToList())
        if isinstance(processor, Top):
            return found, {"top": lists(driver, "p-top"), "seen": maps(driver, "p-seen")}
        return found, {"numViolations": values(driver, "p-numViolations")}


@pytest.mark.parametrize("kind", PROCESSORS)
def test_it_is_as_by_sparks_tester(spark: SparkSession, kind: type[StatefulProcessor]) -> None:
    tester, told = TwsTester(kind()), []
    for rows in batches():
        now: list[Any] = []
        for key in sorted({row["id"] for row in rows}):
            mine = [row for row in rows if row["id"] == key]
            if kind is ViolationsInPandas:
                frame: Any = tester.testInPandas(key, pd.DataFrame(mine))
                now += frame.to_dict("records")
            else:
                now += [row.asDict() for row in tester.test(key, [Row(**row) for row in mine])]
        told.append(now)
    found, states = ours(spark, kind())
    assert found == told
    keys = sorted({row["id"] for rows in batches() for row in rows})
    if kind is Top:
        assert states["top"] == {key: tester.peekListState("top", key) for key in keys}
        assert states["seen"] == {key: tester.peekMapState("seen", key) for key in keys}
    else:
        peeked = {key: tester.peekValueState("numViolations", key) for key in keys}
        assert states["numViolations"] == peeked


@pytest.mark.parametrize("kind", PROCESSORS)
def test_it_is_as_by_sparks_operator(
    spark: SparkSession, tmp_path: Path, kind: type[StatefulProcessor]
) -> None:
    def process(rows: GroupedData) -> DataFrame:
        in_pandas = kind is ViolationsInPandas
        verb = rows.transformWithStateInPandas if in_pandas else rows.transformWithState
        return verb(kind(), COUNTED, "Update", "None")

    found, states = ours(spark, kind())
    theirs = ran(spark, tmp_path, READING, batches(), process)
    assert [sorted(rows, key=str) for rows in theirs.rows] == found
    if kind is Top:
        assert (theirs.lists("top"), theirs.maps("seen")) == (states["top"], states["seen"])
    else:
        assert theirs.values("numViolations") == states["numViolations"]


@settings(max_examples=8, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 90)), min_size=1, max_size=12))
def test_silence_is_as_by_sparks_tester(spark: SparkSession, beats: list[tuple[str, int]]) -> None:
    """In order of time, one beat a batch; the clock of a batch is that of the one before."""
    tester = TwsTester(Silence(), timeMode="EventTime", eventTimeExtractor=lambda row: row.at)
    told, found, at = list[Any](), list[Any](), T0
    with TopologyTestDriver(silence, spark, now=T0 + 1000 * HOUR) as driver:
        topic = driver.createInputTopic("beats")
        for device, minutes in beats:
            at += minutes * 60_000 + 1
            told += tester.test(device, [Row(device=device, at=at)])
            topic.pipeInput({"device": device, "at": at}, timestamp=at)
            driver.advanceStreamTime(at)
            told += tester.setWatermark(at)
            found += driver.createOutputTopic("silent").readValuesToList()
        assert driver.streamTime == at
        assert sorted(map(str, found)) == sorted(str(row.asDict()) for row in told)
        seen = driver.getKeyValueStore("silence-seen")
        for device in "ab":
            kept = tester.peekValueState("seen", device)
            assert seen.get(device) == (None if kept is None else {"at": kept[0]})


def test_what_it_begins_with_is_as_by_sparks_tester(spark: SparkSession) -> None:
    """Of two devices that are known one is heard, and another one is new."""
    known = [("a", T0), ("b", T0 + 30 * MINUTE)]
    begun = [(device, Row(device=device, at=at)) for device, at in known]
    tester = TwsTester(Known(), begun, timeMode="EventTime", eventTimeExtractor=lambda row: row.at)
    initial = spark.createDataFrame(known, BEAT).groupBy("device")

    def build(app: Application) -> None:
        beats = app.stream("beats", BEAT).groupBy("device")
        told = beats.transformWithState(
            Known(), "device STRING, silent_at BIGINT", "Append", "EventTime", initial,
            name="silence",
        )  # fmt: skip
        told.to("silent")

    with TopologyTestDriver(build, spark, now=T0 + 1000 * HOUR) as driver:
        topic, silent = driver.createInputTopic("beats"), driver.createOutputTopic("silent")
        told, found = list[Any](), list[Any]()
        for device, minutes in (("b", 40), ("c", 50), ("b", 75), ("c", 101), ("d", 240)):
            at = T0 + minutes * MINUTE
            told += tester.test(device, [Row(device=device, at=at)])
            topic.pipeInput({"device": device, "at": at}, timestamp=at)
            driver.advanceStreamTime(at)
            told += tester.setWatermark(at)
            found += silent.readValuesToList()
        assert sorted(map(str, found)) == sorted(str(row.asDict()) for row in told)
        assert sorted(one["device"] for one in found) == ["a", "b", "c"]
        kept = {key: tester.peekValueState("seen", key) for key in "d"}
        assert values(driver, "silence-seen") == kept
        left = [(at, key) for key in "abcd" for at in tester.handle._timers.listTimers(key)]
        assert timers(driver, "silence-timers") == sorted(left)


def heard(driver: TopologyTestDriver, beats: list[list[dict[str, Any]]]) -> list[list[Any]]:
    """What is told after each batch, and at the end."""
    topic, silent = driver.createInputTopic("beats"), driver.createOutputTopic("silent")
    found = []
    for some in beats:
        for beat in some:
            topic.pipeInput(beat, timestamp=beat["at"])
        found.append(silent.readValuesToList())
    driver.advanceStreamTime()
    return [*found, silent.readValuesToList()]


def test_what_it_begins_with_is_as_by_sparks_operator(spark: SparkSession, tmp_path: Path) -> None:
    """Of two devices that are known one is heard, and others are new."""
    known = [("a", T0), ("b", T0 + 30 * MINUTE)]
    initial = spark.createDataFrame(known, BEAT).groupBy("device")
    minutes = [[("b", 40), ("c", 50)], [("b", 75)], [("c", 101)], [("d", 240)]]
    beats: list[list[dict[str, Any]]] = [
        [{"device": d, "at": T0 + m * MINUTE} for d, m in some] for some in minutes
    ]
    out = "device STRING, silent_at BIGINT"

    def build(app: Application) -> None:
        rows = app.stream("beats", BEAT).groupBy("device")
        told = rows.transformWithState(Known(), out, "Append", "EventTime", initial, name="silence")
        told.to("silent")

    def process(rows: GroupedData) -> DataFrame:
        return rows.transformWithState(Known(), out, "Update", "EventTime", initial)

    with TopologyTestDriver(build, spark, now=T0 + 1000 * HOUR) as driver:
        found = heard(driver, beats)
        theirs = ran(spark, tmp_path, BEAT, beats, process, ("at", "0 seconds"))
        assert theirs.rows == found
        assert [one["device"] for some in found for one in some] == ["a", "b", "c"]
        assert theirs.values("seen") == values(driver, "silence-seen")
        assert theirs.timers() == timers(driver, "silence-timers")
        assert timers(driver, "silence-timers") == [(T0 + 300 * MINUTE, "d")]


def test_timers_by_event_time_are_as_by_sparks_operator(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A batch is judged by the times of those before it, and the last by its own as well."""
    minutes = [[("a", 0), ("b", 10)], [("a", 50)], [("c", 75)], [("a", 100)], [("d", 200)]]
    beats: list[list[dict[str, Any]]] = [
        [{"device": d, "at": T0 + m * MINUTE} for d, m in some] for some in minutes
    ]

    def process(rows: GroupedData) -> DataFrame:
        return rows.transformWithState(
            Silence(), "device STRING, silent_at BIGINT", "Update", "EventTime"
        )

    with TopologyTestDriver(silence, spark, now=T0 + 1000 * HOUR) as driver:
        found = heard(driver, beats)
        assert [[v["device"] for v in some] for some in found] == [
            [], [], [], ["b"], [], ["c", "a"],
        ]  # fmt: skip
        theirs = ran(spark, tmp_path, BEAT, beats, process, ("at", "0 seconds"))
        assert theirs.rows == found
        assert theirs.values("seen") == values(driver, "silence-seen")
        assert theirs.timers() == timers(driver, "silence-timers")
        assert timers(driver, "silence-timers") == [(T0 + 260 * MINUTE, "d")]


def test_what_chaos_kills_is_as_by_sparks_operator(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chaos tests audit it by what its source says; here Spark says whether that is right.

    Rows come out of order within the half hour that is waited for, and one of them far too late.
    """
    monkeypatch.setenv("CHAOS_APP", "periods")
    monkeypatch.setenv("CHAOS_TOPIC", "events")
    found_at = spec_from_file_location("process_job", JOB)
    assert found_at is not None
    assert found_at.loader is not None
    job = module_from_spec(found_at)  # workers get its class by value, as nobody can import it
    found_at.loader.exec_module(job)
    minutes = [
        [("a", 0), ("b", 1), ("a", 3), ("a", 6)], [("c", 20), ("b", 34)], [("a", 14), ("b", 36)],
        [("c", 18), ("c", 19), ("a", 71)], [("b", 60), ("a", 72)], [("c", 2), ("c", 150)],
    ]  # fmt: skip
    number, events = 0, list[list[dict[str, Any]]]()
    for some in minutes:
        events.append([])
        for key, minute in some:
            number += 1
            events[-1].append({"k": key, "x": number * 7, "at": T0 + minute * MINUTE})
    out = "k STRING, until BIGINT"

    def build(app: Application) -> None:
        rows = app.stream("events", "k STRING, x BIGINT NOT NULL")
        told = rows.withColumn("at", F.unix_millis("timestamp")).groupBy("k").transformWithState(
            job.Periods(), out, "Append", "EventTime", name="periods", grace="30 minutes"
        )  # fmt: skip
        told.to("told")

    def process(rows: GroupedData) -> DataFrame:
        return rows.transformWithState(job.Periods(), out, "Update", "EventTime")

    found = []
    with TopologyTestDriver(build, spark, now=T0 + 1000 * HOUR) as driver:
        topic, told = driver.createInputTopic("events"), driver.createOutputTopic("told")
        for some_events in events:
            for one in some_events:
                topic.pipeInput({"k": one["k"], "x": one["x"]}, timestamp=one["at"])
            found.append(sorted(told.readValuesToList(), key=str))
        driver.advanceStreamTime()
        found.append(sorted(told.readValuesToList(), key=str))
        schema = "k STRING, x BIGINT, at BIGINT"
        theirs = ran(spark, tmp_path, schema, events, process, ("at", "30 minutes"))
        assert [sorted(rows, key=str) for rows in theirs.rows] == found
        assert sum(map(len, found)) == 10, "the late row tells nothing"
        assert theirs.values("sums") == values(driver, "periods-sums")
        assert theirs.lists("readings") == lists(driver, "periods-readings")
        assert theirs.maps("told") == maps(driver, "periods-told")
        assert theirs.timers() == timers(driver, "periods-timers")
        assert timers(driver, "periods-timers") == [(T0 + 155 * MINUTE, "c")]


def test_times_to_live_are_as_by_sparks_operator(spark: SparkSession, tmp_path: Path) -> None:
    """Between two batches more than a millisecond goes by, and less than a day."""

    def process(rows: GroupedData) -> DataFrame:
        return rows.transformWithState(Fading(), SAID, "Update", "ProcessingTime")

    given = [[row for row in some if row["temperature"] is not None] for some in batches()]
    found = []
    with TopologyTestDriver(readings(Fading(), SAID, "ProcessingTime"), spark, now=T0) as driver:
        topic, out = driver.createInputTopic("readings"), driver.createOutputTopic("out")
        for rows in given:
            topic.pipeValueList(rows)
            found.append(out.readValuesToList())
            driver.advanceWallClockTime("1 second")
        theirs = ran(spark, tmp_path, READING, given, process)
        assert [sorted(rows, key=str) for rows in theirs.rows] == found
        assert theirs.values("longValue") == values(driver, "p-longValue")
        assert theirs.lists("longList") == lists(driver, "p-longList")
        assert theirs.maps("longMap") == maps(driver, "p-longMap")
        for state in ("Value", "List", "Map"):
            assert driver.getKeyValueStore(f"p-short{state}").all() == {}


def test_timers_by_processing_time_are_as_by_sparks_tester(spark: SparkSession) -> None:
    """Seconds go by between readings; a timer's handler registers the next."""
    steps: list[str | int] = ["a", 3, "b", 1, "a", 3, 6, "b", "c", 11, 2, "a", "c", 4, 10, 30]
    tester, now = TwsTester(DownTime(), timeMode="ProcessingTime"), T0
    tester.setProcessingTime(T0)
    told, found = list[Any](), list[Any]()
    build = readings(DownTime(), SAID, "ProcessingTime")
    with TopologyTestDriver(build, spark, now=T0) as driver:
        topic, out = driver.createInputTopic("readings"), driver.createOutputTopic("out")
        for step in steps:
            if isinstance(step, str):
                reading = {"id": step, "temperature": now}
                told.append([row.asDict() for row in tester.test(step, [Row(**reading)])])
                topic.pipeInput(reading)
            else:
                now += step * 1000
                fired: Any = tester.setProcessingTime(now)
                told.append(sorted((row.asDict() for row in fired), key=str))
                driver.advanceWallClockTime(step * 1000)
            found.append(sorted(out.readValuesToList(), key=str))
        assert found == told
        assert sum(map(len, found)) == 18, "of 7 readings and 11 timers"
        kept = {key: tester.peekValueState("last_seen", key) for key in "abc"}
        assert values(driver, "p-last_seen") == kept
        left = [(at, key) for key in "abc" for at in tester.handle._timers.listTimers(key)]
        assert timers(driver, "p-timers") == sorted(left)
