"""The recompute of flights on tiny frames: late rows, bad rows, and which batch judges a row."""

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from jobs import flights_audit, word_count_audit
from jobs._recompute import digest, json_fields, judgements, packed, recorded, timed
from state_lib.serdes import serde_from
from state_lib.stores.digest import digest as ours
from tests.support.spark import spark_session

HOUR = 3_600_000
DAY = 24 * HOUR
T0 = 1_357_000_000_000 // HOUR * HOUR


def batch(epoch: int, start: int, end: int, clock: int, **more: Any) -> dict[str, Any]:
    return {
        "epoch": epoch,
        "n": 1,
        "from": {"flights": {"0": start, "1": 0}},
        "to": {"flights": {"0": end, "1": 0}},
        "clock": clock,
        "now": T0 + 100 * DAY,
        "max_future_ms": HOUR,
        **more,
    }


def ranges(*batches: dict[str, Any]) -> list[tuple[int, int, int]]:
    return [(j.start, j.end, j.clock) for j in judgements(batches)["flights", 0]]


def test_the_latest_driver_counts() -> None:
    assert ranges(batch(1, 0, 10, 1), batch(1, 10, 20, 2)) == [(0, 10, 1), (10, 20, 2)]
    # nobody committed the second; the next driver cut it otherwise
    assert ranges(batch(1, 0, 10, 1), batch(1, 10, 20, 2), batch(3, 10, 15, 3)) == [
        (0, 10, 1),
        (10, 15, 3),
        (15, 20, 2),
    ]
    # written down by a driver that was superseded already: its epoch is lower
    assert ranges(batch(3, 0, 20, 3), batch(1, 10, 30, 1)) == [(0, 20, 3), (20, 30, 1)]
    # aligned again for a task that was two batches behind; the later batch still counts
    assert ranges(batch(1, 0, 10, 1), batch(1, 10, 20, 2), batch(2, 0, 10, 1, tasks=[1])) == [
        (0, 10, 1),
        (10, 20, 2),
    ]
    assert ranges(batch(1, 0, 30, 1), batch(2, 10, 20, 2)) == [(0, 10, 1), (10, 20, 2), (20, 30, 1)]
    assert ranges(batch(1, 5, 5, 9)) == []


def test_bytes_are_those_of_the_serdes() -> None:
    fields = [["a", "int64"], ["b", "utf8"], ["c", "int64"]]
    values: list[int | str | None] = [-5, "äö", None]
    row = dict(zip("abc", values, strict=True))
    assert packed(values) == serde_from({"struct": fields}).serialize(row)
    entries = [(b"k", b"v"), (b"", b"long" * 99)]
    assert digest(entries) == str(ours(entries))
    route = {"struct": [["origin", "utf8"], ["dest", "utf8"]]}
    key = serde_from(route).serialize({"origin": "JFK", "dest": "LAX"})
    assert packed(["JFK", "LAX"]) == key, "a key of several texts"


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with spark_session("recompute") as session:
        yield session


def frame(
    spark: SparkSession, rows: Sequence[tuple[int, bytes | None]], topic: str = "flights"
) -> Any:
    """Records of one partition: time in ms and value."""
    ddl = (
        "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"
    )
    data = [
        (None, v, topic, 0, i, datetime.fromtimestamp(ts / 1000, UTC))
        for i, (ts, v) in enumerate(rows)
    ]
    return spark.createDataFrame(data, ddl)


def flight(ts: int, **more: Any) -> tuple[int, bytes]:
    body = {
        "origin": "EWR",
        "dest": "IAH",
        "tailnum": "N1",
        "distance": 100,
        "dep_delay": 3,
        "departed": True,
        "scheduled": ts,
    }
    return ts, json.dumps(body | more).encode()


def test_late_depends_on_the_batch_that_covers_the_row(spark: SparkSession) -> None:
    rows = [flight(T0), flight(T0 + 30 * HOUR), flight(T0, dep_delay=None), flight(T0, dep_delay=9)]
    whole = flights_audit.recompute(spark, frame(spark, rows), [batch(1, 0, 4, -1)])
    assert whole["dropped"]["late:departures_by_hour"] == 0
    first = whole["stores"]["departures_by_hour"][0]
    assert (first["start"], first["departures"], first["delay_sum"], first["delay_max"]) == (
        T0,
        3,
        12,
        9,
    )
    clock = T0 + 25 * HOUR  # window end + grace: late from here on
    for just, late in ((clock - 1, 0), (clock, 1)):
        batches = [batch(1, 0, 3, -1), batch(1, 3, 4, just)]
        cut = flights_audit.recompute(spark, frame(spark, rows), batches)
        assert cut["dropped"]["late:departures_by_hour"] == late
        hours = {r["start"]: r for r in cut["stores"]["departures_by_hour"]}
        assert hours[T0]["departures"] == 3 - late
        plane = cut["stores"]["aircraft"][0]
        assert (plane["flights"], plane["miles"]) == (4, 400)
        assert (plane["_last_offset"], plane["last_seen"]) == (1, T0 + 30 * HOUR)


def test_bad_rows(spark: SparkSession) -> None:
    rows: list[tuple[int, bytes | None]] = [
        (T0, b"{no json"),
        (T0, None),
        (T0, b"[1]"),
        flight(T0, distance="far"),
        flight(T0, distance=1.5),
        flight(T0, departed=None),
        flight(T0, tailnum=None, departed=False, dep_delay=None),
        flight(T0 + 100 * DAY + HOUR),
        flight(T0 + 100 * DAY + HOUR + 1),
        flight(-1),
        flight(T0),
    ]
    got = flights_audit.recompute(spark, frame(spark, rows), [batch(1, 0, 10, -1)])
    reasons = {offset: reason for _, _, offset, reason in got["dead_letters"]}
    assert reasons == {
        0: "undecodable",
        1: "undecodable",
        2: "wrong-schema",
        3: "wrong-schema",
        4: "wrong-schema",
        5: "wrong-schema",
        8: "future",
        9: "invalid-timestamp",
        10: "not-recorded",
    }
    assert got["dropped"]["null-key:aircraft"] == 1
    assert got["dropped"]["wrong-schema"] == 4
    hours = {r["start"]: r for r in got["stores"]["departures_by_hour"]}
    assert (hours[T0]["cancellations"], hours[T0]["delay_sum"]) == (1, None)


def test_event_time_of_a_column(spark: SparkSession) -> None:
    """A record that cannot be decoded is so first: it has no time."""
    times: list[int | str | None] = [T0, None, -1, T0 + 100 * DAY + HOUR + 1, "soon", T0]
    rows = [(-1, json.dumps({"at": time}).encode()) for time in times]
    known = recorded(spark, frame(spark, rows), [batch(1, 0, 5, -1)])
    seen = timed(json_fields(known, {"at": "BIGINT"}), F.col("at"))
    assert {r.offset: (r.ts, r.bad) for r in seen.collect()} == {
        0: (T0, None),
        1: (None, "null-timestamp"),
        2: (-1, "invalid-timestamp"),
        3: (T0 + 100 * DAY + HOUR + 1, "future"),
        4: (None, "wrong-schema"),
        5: (T0, "not-recorded"),
    }


def test_words(spark: SparkSession) -> None:
    rows = [(T0, b"One wave, one COUNT"), (T0 + 5, b"one"), (T0 + 9, b"\xff one"), (T0, b"")]
    got = word_count_audit.recompute(
        spark,
        frame(spark, rows, "lines"),
        [json.loads(json.dumps(batch(1, 0, 4, -1)).replace("flights", "lines"))],
    )
    assert {r["key"]: (r["value"], r["timestamp"]) for r in got["stores"]["counts"]} == {
        "one": (3, T0 + 5),
        "wave": (1, T0),
        "count": (1, T0),
    }
    assert got["dead_letters"] == [("lines", 0, 2, "undecodable")]
