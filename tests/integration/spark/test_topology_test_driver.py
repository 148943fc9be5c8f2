"""Pipelines in one process: no broker, no host, no port."""

from __future__ import annotations

import math
import struct
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from state_lib import Application, Materialized, TimeWindows, TopologyTestDriver, agg
from state_lib.errors import ConfigurationError, InvalidRequest
from state_lib.protocol.marker import CommitHeader, Marker, Verdict
from state_lib.testing import TestRecord
from tests.support.documents import written
from tests.support.waiting import SLOWNESS

HOUR = 3_600_000
T0 = 1_700_000_000_000 // HOUR * HOUR
FLIGHT = "origin STRING NOT NULL, tail STRING, delay DOUBLE, seats BIGINT"


def word_count(app: Application) -> None:
    words = F.explode(F.split(F.lower("value"), "[^a-z]+"))
    rows = app.stream("lines", format="text").select(words.alias("word")).where("word <> ''")
    rows.groupBy("word").count("counts").toStream().to("word-counts")


def flights(app: Application) -> None:
    rows = app.stream("flights", FLIGHT)
    hourly = rows.groupBy("origin").windowedBy(TimeWindows("1 hour", grace="30 minutes"))
    kept = Materialized("hourly", retention="1 day")
    table = hourly.agg(kept, departures=agg.count(), delays=agg.sum("delay"))
    table.toStream().to("by-hour")
    seen = rows.groupBy("tail")
    last = agg.last("origin")
    aircraft = seen.agg("aircraft", flights=agg.count(), at=last, most=agg.max("seats"))
    aircraft.toStream().to("seen")


def raw(app: Application) -> None:
    kept = Materialized("kept", backend="memory")
    app.stream("bytes").groupBy("key").count(kept).toStream().to("out")


def numbers(app: Application) -> None:
    app.stream("lines", format="text").groupBy("cast(value AS BIGINT)").count("numbers")


def flight(origin: str, tail: str | None = "N1", delay: float = 1.0) -> dict[str, object]:
    return {"origin": origin, "tail": tail, "delay": delay, "seats": 100}


def test_words_are_counted(spark: SparkSession) -> None:
    with TopologyTestDriver(word_count, spark) as driver:
        lines, out = driver.createInputTopic("lines"), driver.createOutputTopic("word-counts")
        assert out.isEmpty()
        lines.pipeInput("to be or not to be", timestamp=1000)
        assert out.getQueueSize() == 4
        assert out.readKeyValuesToMap() == {
            "to": {"word": "to", "count": 2},
            "be": {"word": "be", "count": 2},
            "or": {"word": "or", "count": 1},
            "not": {"word": "not", "count": 1},
        }
        lines.pipeValueList(["To", "to!"])
        record = out.readRecord()
        assert (record.key, record.value, record.partition) == ("to", {"word": "to", "count": 4}, 0)
        assert (record.timestamp, record.headers) == (driver.wallClockTime, {})
        counts = driver.getKeyValueStore("counts")
        assert (counts.get("to"), counts.get("nobody"), counts.approximateNumEntries()) == (
            4, None, 4,
        )  # fmt: skip
        assert counts.all() == {"to": 4, "be": 2, "or": 1, "not": 1}
        with pytest.raises(InvalidRequest, match="no more records"):
            out.readValue()


def test_looking_runs_one_batch_of_what_was_piped(spark: SparkSession) -> None:
    with TopologyTestDriver(word_count, spark) as driver:
        lines, out = driver.createInputTopic("lines"), driver.createOutputTopic("word-counts")
        for _ in range(3):
            lines.pipeInput("a")
        assert out.readValuesToList() == [{"word": "a", "count": 3}]
        lines.pipeInput("a")
        assert out.readValue()["count"] == 4
        lines.pipeInput("a")
        assert out.readValue()["count"] == 5


def test_windows_late_records_and_grace(spark: SparkSession) -> None:
    with TopologyTestDriver(flights, spark, now=T0 + 24 * HOUR) as driver:
        source, by_hour = driver.createInputTopic("flights"), driver.createOutputTopic("by-hour")
        hourly = driver.getWindowStore("hourly")
        assert driver.streamTime == -1
        source.pipeInput(flight("JFK", delay=2.5), timestamp=T0)
        source.pipeInput(flight("JFK", delay=0.5), timestamp=T0 + HOUR - 1)
        source.pipeInput(flight("LGA"), timestamp=datetime.fromtimestamp(T0 / 1000, UTC))
        assert hourly.get("JFK", T0) == {"departures": 2, "delays": 3.0}
        assert sorted(by_hour.readKeyValuesToList()) == [
            (
                ("JFK", T0),
                {
                    "origin": "JFK", "window_start": T0, "window_end": T0 + HOUR,
                    "departures": 2, "delays": 3.0,
                },
            ),
            (
                ("LGA", T0),
                {
                    "origin": "LGA", "window_start": T0, "window_end": T0 + HOUR,
                    "departures": 1, "delays": 1.0,
                },
            ),
        ]  # fmt: skip
        driver.advanceStreamTime(T0 + 3 * HOUR // 2 - 1)
        source.pipeInput(flight("JFK"), timestamp=T0 + 5)
        assert hourly.fetch("JFK") == {T0: {"departures": 3, "delays": 4.0}}, "within grace"
        driver.advanceStreamTime(T0 + 3 * HOUR // 2)
        source.pipeInput(flight("JFK"), timestamp=T0 + 5)
        source.pipeInput(flight("JFK"), timestamp=T0 + 2 * HOUR)
        assert driver.droppedRecords() == {"late:hourly": 1}
        assert [*hourly.fetch("JFK")] == [T0, T0 + 2 * HOUR]
        assert [*hourly.fetch("JFK", T0 + 1)] == [T0 + 2 * HOUR]
        assert [*hourly.fetch("JFK", None, T0)] == [T0]
        assert driver.getKeyValueStore("aircraft").get("N1")["flights"] == 6, "it has no windows"
        assert driver.streamTime == T0 + 3 * HOUR // 2
        driver.advanceStreamTime()
        assert driver.streamTime == T0 + 2 * HOUR, "the greatest that was seen"
        with pytest.raises(InvalidRequest, match="never goes back"):
            driver.advanceStreamTime(T0)
        driver.advanceStreamTime(T0 + 24 * HOUR)
        assert hourly.all().keys() == {("JFK", T0 + 2 * HOUR)}, "the others have expired"
        driver.assertSurvivesRepeats()


def test_the_last_and_the_greatest_of_a_key(spark: SparkSession) -> None:
    with TopologyTestDriver(flights, spark, now=T0 + HOUR) as driver:
        source = driver.createInputTopic("flights")
        source.pipeRecordList(
            [
                TestRecord(flight("EWR"), timestamp=T0 + 2),
                TestRecord(flight("JFK"), timestamp=T0 + 1),
                TestRecord({**flight("LGA"), "seats": 300}, timestamp=T0),
            ]
        )
        kept = driver.getKeyValueStore("aircraft")
        assert kept.get("N1") == {"flights": 3, "at": "EWR", "most": 300}
        source.pipeInput(flight("LGA"), timestamp=T0 + 3)
        assert kept.get("N1") == {"flights": 4, "at": "LGA", "most": 300}
        driver.assertSameHoweverCut()


def test_what_cannot_be_used_is_told(spark: SparkSession) -> None:
    with TopologyTestDriver(flights, spark, now=T0) as driver:
        source = driver.createInputTopic("flights")
        source.pipeInput(flight("JFK", tail=None), timestamp=T0)
        source.pipeInput(b"{", key="k", timestamp=T0 + 1)
        source.pipeInput({"tail": "N1"}, timestamp=T0)
        source.pipeInput(None, timestamp=T0)
        source.pipeInput(flight("JFK"), timestamp=T0 + HOUR + 1)
        reasons = [letter.reason for letter in driver.deadLetters()]
        assert reasons == ["undecodable", "wrong-schema", "undecodable", "future"]
        broken = driver.deadLetters()[0]
        assert (broken.topic, broken.partition, broken.offset) == ("flights", 0, 1)
        assert (broken.key, broken.value, broken.timestamp) == (b"k", b"{", T0 + 1)
        assert driver.droppedRecords() == {
            "null-key:aircraft": 1, "undecodable": 2, "wrong-schema": 1, "future": 1,
        }  # fmt: skip
        assert driver.createOutputTopic("seen").isEmpty()
        driver.advanceWallClockTime("1 hour")
        source.pipeInput(flight("JFK"), timestamp=T0 + HOUR + 1)
        assert driver.getKeyValueStore("aircraft").get("N1")["flights"] == 1, "no future any more"
        driver.assertSurvivesRepeats()


def test_keys_are_spread_as_kafka_spreads_them(spark: SparkSession) -> None:
    with TopologyTestDriver(word_count, spark, partitions=3) as driver:
        lines = driver.createInputTopic("lines")
        lines.pipeInput("a b c d e f", partition=2)
        lines.pipeInput("a b", key="k")
        for word in "abc":
            lines.pipeInput(word)
        records = driver.createOutputTopic("word-counts").readRecordsToList()
        assert {r.key: r.value["count"] for r in records} == {
            "a": 3, "b": 3, "c": 2, "d": 1, "e": 1, "f": 1,
        }  # fmt: skip
        assert len({r.partition for r in records}) > 1
        assert driver.getKeyValueStore("counts").all()["a"] == 3
        driver.assertSameHoweverCut()
        driver.assertSurvivesRepeats()


def test_raw_topics_memory_stores_and_numbers(spark: SparkSession) -> None:
    with TopologyTestDriver(raw, spark) as driver:
        driver.createInputTopic("bytes").pipeInput(b"\x00", key=7)
        key = struct.pack(">q", 7)
        assert driver.getKeyValueStore("kept").all() == {key: 1}
        assert driver.createOutputTopic("out").readRecord().key == key
        driver.assertSurvivesRepeats()
    with TopologyTestDriver(numbers, spark) as driver:
        driver.createInputTopic("lines").pipeValueList(["7", "7", "eight"])
        assert driver.getKeyValueStore("numbers").all() == {7: 2}
        assert [letter.reason for letter in driver.deadLetters()] == ["failed:numbers.key"]


def test_another_cut_that_gives_something_else_is_shown(spark: SparkSession) -> None:
    """A record that is late by the clock of its own batch alone."""
    with TopologyTestDriver(flights, spark, now=T0 + 24 * HOUR) as driver:
        source = driver.createInputTopic("flights")
        source.pipeInput(flight("JFK"), timestamp=T0 + 20 * HOUR)
        source.pipeInput(flight("JFK"), timestamp=T0)
        assert driver.droppedRecords() == {}
        with pytest.raises(AssertionError, match="entries of stores, with 2 batches between"):
            driver.assertSameHoweverCut()


def test_the_session_stays_as_it_was(spark: SparkSession) -> None:
    def louder(app: Application) -> None:
        rows = app.stream("lines", format="text").withColumn("word", F.upper("value"))
        rows.groupBy("word").count("counts")

    before = spark.conf.get("spark.sql.session.timeZone")
    with TopologyTestDriver(louder, spark) as driver:
        driver.createInputTopic("lines").pipeInput("a")
        assert driver.getKeyValueStore("counts").all() == {"A": 1}
        assert SparkSession.getActiveSession() is spark, "also in between"
    assert SparkSession.getActiveSession() is spark
    assert spark.conf.get("spark.sql.session.timeZone") == before
    assert spark.range(3).count() == 3


def test_a_task_that_counts_twice_is_found_out(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The assertion has teeth: here a task forgets which batches it has committed."""
    with TopologyTestDriver(word_count, spark, partitions=2) as driver:
        driver.createInputTopic("lines").pipeInput("a b c d")
        driver.assertSurvivesRepeats()

        def forgetful(marker: Marker, header: CommitHeader) -> Verdict:
            del marker, header
            return Verdict.APPLY

        monkeypatch.setattr("state_lib.testing.tasks.is_done", lambda *_: False)
        monkeypatch.setattr("state_lib.task.state_task.judge", forgetful)
        with pytest.raises(AssertionError, match="entries of stores, after crashes"):
            driver.assertSurvivesRepeats()


def test_a_session_that_cannot_place_keys_is_refused(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("state_lib.spark.partitioner._CLASS", "org.example.Nobody")
    with pytest.raises(ConfigurationError, match="lacks kafka-clients"):
        TopologyTestDriver(word_count, spark)


Piped = tuple[int, int | None, float | None, int]
pieces = st.tuples(
    st.integers(0, 2),
    st.none() | st.integers(0, 3),
    st.none() | st.sampled_from([0.1, -7.5, 1e18, math.nan, math.inf]),
    st.integers(0, 5),
)


@settings(max_examples=6, deadline=None)
@given(piped=st.lists(pieces, min_size=1, max_size=25))
def test_any_records_give_the_same_however_cut_and_through_crashes(
    spark: SparkSession, piped: list[Piped]
) -> None:
    def every(app: Application) -> None:
        rows = app.stream("in", "k BIGINT, x DOUBLE")
        low, high = agg.min("x"), agg.max("x")
        last = agg.last("cast(x AS STRING)")
        rows.groupBy("k").agg("kept", n=agg.count(), low=low, high=high, last=last)

    with TopologyTestDriver(every, spark, partitions=3, now=T0) as driver:
        source = driver.createInputTopic("in")
        for partition, k, x, time in piped:
            finite = x if x is None or math.isfinite(x) else str(x)
            source.pipeInput({"k": k, "x": finite}, timestamp=T0 + time, partition=partition)
        usable = [k for _, k, x, _ in piped if x is None or math.isfinite(x)]
        kept = driver.getKeyValueStore("kept").all()
        assert {k: v["n"] for k, v in kept.items()} == Counter(k for k in usable if k is not None)
        driver.assertSameHoweverCut()
        driver.assertSurvivesRepeats()


Use = Callable[[TopologyTestDriver], object]


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (lambda d: d.createInputTopic("word"), r"'word' is no source .* it has: \['flights'\]"),
        (lambda d: d.createOutputTopic("flights"), r"is no output .*\['by-hour', 'seen'\]"),
        (lambda d: d.getKeyValueStore("x"), r"no store 'x'; its stores: \['hourly', 'aircraft'\]"),
        (lambda d: d.getKeyValueStore("hourly"), "is a window store: look at it by getWindowStore"),
        (lambda d: d.getWindowStore("aircraft"), "is a key-value store: .* getKeyValueStore"),
        (lambda d: d.createInputTopic("flights").pipeInput("x"), "read as json: .* a dict .* str"),
        (lambda d: d.createInputTopic("flights").pipeInput({}, partition=1), "partitions 0 to 0"),
        (lambda d: d.createInputTopic("flights").pipeInput({}, 1.5), "keys are .* float 1.5"),
        (
            lambda d: d.createInputTopic("flights").pipeInput({}, timestamp=datetime(2013, 1, 1)),  # noqa: DTZ001
            "has no time zone",
        ),
    ],
)
def test_a_wrong_use_is_told_with_what_there_is(spark: SparkSession, use: Use, said: str) -> None:
    with TopologyTestDriver(flights, spark) as driver, pytest.raises(InvalidRequest, match=said):
        use(driver)


def test_what_cannot_be_computed_is_refused_at_the_start(spark: SparkSession) -> None:
    def typo(app: Application) -> None:
        app.stream("lines", format="text").groupBy("wrod").count("counts")

    with pytest.raises(ConfigurationError, match=r"groupBy cannot be computed.*wrod"):
        TopologyTestDriver(typo, spark)

    def circle(app: Application) -> None:
        rows = app.stream("lines", format="text")
        rows.groupBy("value").count("counts").toStream().to("lines")

    with pytest.raises(ConfigurationError, match=r"would use the topics \['lines'\] twice"):
        TopologyTestDriver(circle, spark)
    with pytest.raises(ConfigurationError, match="declares no store"):
        TopologyTestDriver(lambda _app: None, spark)


def test_it_is_quick_once_warm(spark: SparkSession) -> None:
    starts = []
    for _ in range(3):
        begun = time.perf_counter()
        driver = TopologyTestDriver(word_count, spark)
        starts.append(time.perf_counter() - begun)
        lines, out = driver.createInputTopic("lines"), driver.createOutputTopic("word-counts")
        spans = []
        for _ in range(4):
            lines.pipeInput("to be")
            begun = time.perf_counter()
            assert not out.isEmpty()
            spans.append(time.perf_counter() - begun)
        driver.close()
        print(f"start {starts[-1]:.3f} s, batches {[round(s, 3) for s in spans]} s")  # noqa: T201
    assert min(starts[1:]) < 0.3 * SLOWNESS, (
        "0.03 s on a quiet machine: this topology was built before"
    )
    assert min(spans) < 1 * SLOWNESS, "0.2 s on a quiet machine"


def test_the_page_about_testing(spark: SparkSession) -> None:
    (block,) = written()["docs/how-to/testing.md"].blocks
    there: dict[str, Callable[..., None]] = {}
    exec(compile(block.text, block.title, "exec"), there)  # noqa: S102 - it is ours
    there["test_totals"](spark)
    there["test_what_is_late_is_counted"](spark)
