"""Python functions within expressions: a row on which one fails is a dead letter with its step."""

from __future__ import annotations

import datetime as dt
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from enum import Enum
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from state_lib import Application, KStream, TopologyTestDriver, agg
from state_lib.errors import ConfigurationError, WorkerLost
from tests.support.functions import (
    SCHEMA,
    Declare,
    exceptions,
    halved,
    keeping,
    of,
    pipe,
    shipped,
)

named: Any = F.udf


@pytest.fixture(autouse=True, scope="module")
def _shipped() -> Iterator[None]:
    with shipped(__name__):
        yield


PLACES: dict[str, tuple[Declare, str]] = {
    "withColumn": (
        lambda rows: rows.withColumn("y", halved("x")).groupBy("k").agg("s", n=agg.sum("y")),
        "failed:y",
    ),
    "select": (
        lambda rows: (
            rows.select("k", (halved("x") + F.lit(0)).alias("y"), F.lit(1).alias("one"))
            .groupBy("k")
            .agg("s", n=agg.sum("y"))
        ),
        "failed:y",
    ),
    "where": (
        lambda rows: rows.where(halved("x") > 0).groupBy("k").agg("s", n=agg.sum("x / 2")),
        "failed:where ",
    ),
    "explode": (
        lambda rows: (
            rows.select("k", F.explode(F.array(halved("x"))).alias("y"))
            .groupBy("k")
            .agg("s", n=agg.sum("y"))
        ),
        "failed:y",
    ),
    "groupBy": (
        lambda rows: rows.groupBy(F.concat("k", F.substring(halved("x").cast("string"), 0, 0))).agg(
            "s", n=agg.sum("x / 2")
        ),
        "failed:s.key",
    ),
    "agg": (lambda rows: rows.groupBy("k").agg("s", n=agg.sum(halved("x"))), "failed:s.n"),
    "named": (
        lambda rows: rows.withColumn("y", halved(x="x")).groupBy("k").agg("s", n=agg.sum("y")),
        "failed:y",
    ),
    "count_if": (
        lambda rows: rows.groupBy("k").agg(
            "s", n=agg.sum("x / 2"), even=agg.count_if(halved("x") > 0)
        ),
        "failed:s.even",
    ),
}


@pytest.mark.parametrize(("declare", "reason"), PLACES.values(), ids=PLACES.keys())
def test_a_row_on_which_one_raises_is_a_dead_letter(
    spark: SparkSession, declare: Declare, reason: str
) -> None:
    with TopologyTestDriver(of(declare), spark, partitions=2) as driver:
        pipe(driver, {"k": "a", "x": 2}, {"k": "a", "x": 3}, {"k": "b", "x": 8}, b"no JSON")
        kept = {k: int(v["n"]) for k, v in driver.getKeyValueStore("s").all().items()}
        assert kept == {"a": 1, "b": 4}
        (failed,) = [r for r in driver.droppedRecords() if r != "undecodable"]
        assert failed.startswith(reason)
        told = exceptions(driver)
        assert [said for _, why, said in told if why == failed] == ["ValueError: 3 is odd"]
        driver.assertSurvivesRepeats()


def test_it_is_the_same_however_cut(spark: SparkSession) -> None:
    with TopologyTestDriver(of(PLACES["select"][0]), spark) as driver:
        pipe(driver, *({"k": f"{x % 3}", "x": x} for x in range(20)))
        assert sum(driver.droppedRecords().values()) == 10
        driver.assertSameHoweverCut()


def test_rows_that_are_none_are_not_given_to_it(spark: SparkSession) -> None:
    """Filtered ones, undecodable ones, and those that have failed before."""
    strict = F.udf(lambda x: {2: 1}[x], "bigint")

    def declare(rows: KStream) -> Any:
        rows = rows.where("x <> 5").withColumn("checked", F.expr("if(x = 7, raise_error('7'), x)"))
        return rows.withColumn("y", strict("checked")).groupBy("k").agg("s", n=agg.sum("y"))

    with TopologyTestDriver(of(declare), spark) as driver:
        pipe(driver, {"k": "a", "x": 5}, {"k": "a", "x": 7}, b"no JSON", {"k": "a", "x": 2})
        assert driver.getKeyValueStore("s").all() == {"a": {"n": 1}}
        assert driver.droppedRecords() == {"failed:checked": 1, "undecodable": 1}


def test_an_argument_that_fails_is_no_call(spark: SparkSession) -> None:
    always = F.udf(lambda _: 1, "int")
    made = {
        "cast": lambda: always(F.col("k").cast("int")),
        "text": lambda: always(F.expr("cast(x'ff' AS STRING) || k")),
        "year": lambda: always(F.expr("cast('+12345-01-01' AS DATE)")),
        "years": lambda: always(F.expr("struct(timestamp_seconds(x * 1000000000000))")),
        "texts": lambda: always(F.expr("array(cast(x'ff' AS STRING), k)")),
    }
    for name, one in made.items():
        with TopologyTestDriver(keeping(one), spark) as driver:
            pipe(driver, {"k": "a", "x": 1})
            assert driver.droppedRecords() == {"failed:made": 1}, name
            assert exceptions(driver) == [(0, "failed:made", None)], name


def test_functions_are_called_on_what_others_gave(spark: SparkSession) -> None:
    plus = F.udf(lambda x, y: x + y, "bigint")
    with TopologyTestDriver(
        keeping(lambda: plus(halved(halved("x") + 1), halved("x"))), spark
    ) as driver:
        pipe(driver, {"k": "a", "x": 6}, {"k": "b", "x": 4}, {"k": "c", "x": 5})
        kept = driver.getKeyValueStore("s").all()
        assert {k: json.loads(v["last"]) for k, v in kept.items()} == {"a": {"made": 5}}
        told = exceptions(driver)
        assert [said for _, _, said in told] == ["ValueError: 3 is odd", "ValueError: 5 is odd"]


def test_what_is_not_used_does_not_fail(spark: SparkSession) -> None:
    """Spark calls it for all rows, whatever `when` says."""
    made = lambda: F.when(F.col("x") % 2 == 0, halved("x")).otherwise(-1)  # noqa: E731
    with TopologyTestDriver(keeping(made), spark) as driver:
        pipe(driver, {"k": "a", "x": 6}, {"k": "b", "x": 3})
        kept = driver.getKeyValueStore("s").all()
        assert {k: json.loads(v["last"])["made"] for k, v in kept.items()} == {"a": 3, "b": -1}
        assert driver.deadLetters() == []


class Colour(str, Enum):  # noqa: UP042 - StrEnum has a text of its own
    RED = "red"


NOON = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)
GIVEN: dict[str, tuple[Any, str, Any]] = {
    "long": (lambda _: 5, "bigint", 5),
    "text-of-a-number": (lambda _: 5, "string", None),
    "number-of-a-text": (lambda _: "5", "bigint", None),
    "too-large": (lambda _: 2**40, "int", None),
    "fraction-for-whole": (lambda _: 5.0, "bigint", None),
    "whole-for-fraction": (lambda _: 5, "double", 5.0),
    "bool-for-whole": (lambda _: True, "int", None),
    "decimal": (lambda _: Decimal("1.5"), "decimal(4,2)", 1.50),
    "decimal-rounded": (lambda _: Decimal("1.555"), "decimal(4,2)", None),
    "bytes": (lambda _: b"abc", "binary", "YWJj"),
    "moment": (lambda _: NOON, "timestamp", "2026-01-31T12:00:00.000Z"),
    "moment-without-zone": (
        lambda _: NOON.replace(tzinfo=None), "timestamp", "2026-01-31T12:00:00.000Z",
    ),
    "day": (lambda _: NOON.date(), "date", "2026-01-31"),
    "moment-for-a-day": (lambda _: NOON, "date", None),
    "struct": (lambda _: {"a": 1, "b": None}, "a INT, b STRING", {"a": 1}),
    "struct-of-others": (lambda _: {"a": 1}, "a INT, b STRING", None),
    "array": (lambda _: (1, None), "array<int>", [1, None]),
    "map": (lambda _: {"a": 1}, "map<string,int>", {"a": 1}),
    "array-of-texts": (lambda _: [1, "a"], "array<int>", None),
    "no-time": (lambda _: pd.NaT, "timestamp", None),
    "no-time-within": (lambda _: {"a": [pd.NaT]}, "map<string,array<timestamp>>", None),
    "moment-of-pandas": (
        lambda _: pd.Timestamp(NOON), "timestamp", "2026-01-31T12:00:00.000Z",
    ),
    "text-of-ones-own": (lambda _: Colour.RED, "string", "red"),
    "exit": (lambda _: sys.exit(3), "bigint", None),
    "lone-surrogate": (lambda _: "\ud800", "string", None),
    "null-where-none-is": (lambda _: (None,), "a INT NOT NULL", {}),
    "no-coroutine": (lambda _: iter(()), "bigint", None),
}  # fmt: skip


@pytest.mark.parametrize(("function", "kind", "wanted"), GIVEN.values(), ids=GIVEN.keys())
def test_a_value_of_another_type_is_a_dead_letter(
    spark: SparkSession, function: Any, kind: str, wanted: Any
) -> None:
    """PySpark would make a null of it, or a text, in silence."""
    with TopologyTestDriver(keeping(lambda: F.udf(function, kind)("x")), spark) as driver:
        pipe(driver, {"k": "a", "x": 1})
        kept = {k: json.loads(v["last"]) for k, v in driver.getKeyValueStore("s").all().items()}
        assert kept == ({} if wanted is None else {"a": {"made": wanted}})
        assert driver.droppedRecords() == ({"failed:made": 1} if wanted is None else {})


CALLED: dict[str, tuple[Callable[[], Column], Any]] = {
    "nothing": (lambda: named(lambda: 5, "int")(), 5),  # noqa: PLW0108 - it is made later
    "twice-alike": (lambda: halved("x") + halved("x"), 6),
    "any-number": (lambda: F.udf(lambda *xs: sum(xs), "bigint")("x", "x", F.lit(1)), 13),
    "in-another-order": (
        lambda: named(lambda a, b: a - b, "bigint")(b=F.lit(1), a=F.col("x")), 5,
    ),
    "of-an-element": (lambda: halved(F.size(F.transform("items", lambda e: F.concat(e, "k")))), 1),
}  # fmt: skip


@pytest.mark.parametrize(("made", "wanted"), CALLED.values(), ids=CALLED.keys())
def test_however_it_is_called(spark: SparkSession, made: Callable[[], Column], wanted: Any) -> None:
    with TopologyTestDriver(keeping(made), spark) as driver:
        pipe(driver, {"k": "a", "x": 6, "items": ["b", "c"]})
        last = driver.getKeyValueStore("s").get("a")["last"]
        assert json.loads(last) == {"made": wanted}
        driver.assertSurvivesRepeats()


def test_calls_stand_beside_one_another(spark: SparkSession) -> None:
    """In fields of one aggregate, and on what others gave where a record becomes several rows."""

    def declare(rows: KStream) -> None:
        rows.groupBy("k").agg("s", last=agg.last(halved("x")), sum=agg.sum(halved("x")))
        each = F.explode(F.array(halved(halved("x")), halved("x"))).alias("y")
        rows.select("k", each).groupBy("k").agg("each", sum=agg.sum("y"))

    with TopologyTestDriver(of(declare), spark) as driver:
        pipe(driver, {"k": "a", "x": 4}, {"k": "a", "x": 8}, {"k": "a", "x": 6})
        assert driver.getKeyValueStore("s").get("a") == {"last": 3, "sum": 9}
        assert driver.getKeyValueStore("each").get("a") == {"sum": (1 + 2) + (2 + 4)}
        assert exceptions(driver) == [(2, "failed:y", "ValueError: 3 is odd")]
        driver.assertSameHoweverCut()


def test_a_reason_has_its_own_exception(spark: SparkSession) -> None:
    """Not that of another field, which failed as well."""

    def declare(rows: KStream) -> Any:
        number, half_ = agg.sum(F.expr("cast(k AS INT)")), agg.sum(halved("x"))
        return rows.groupBy("x").agg("s", number=number, half=half_)

    with TopologyTestDriver(of(declare), spark) as driver:
        pipe(driver, {"k": "a", "x": 3}, {"k": "1", "x": 3})
        assert exceptions(driver) == [
            (0, "failed:s.number", None),
            (1, "failed:s.half", "ValueError: 3 is odd"),
        ]


def test_null_is_a_value(spark: SparkSession) -> None:
    with TopologyTestDriver(keeping(lambda: F.udf(lambda _: None, "int")("x")), spark) as driver:
        pipe(driver, {"k": "a", "x": None})
        assert driver.getKeyValueStore("s").get("a") == {"n": 1, "last": "{}"}


def test_times_are_given_in_utc_wherever_it_runs(spark: SparkSession) -> None:
    """PySpark gives them in the worker's own zone."""

    def hour(s: Any) -> str:
        os.environ["TZ"] = "America/New_York"
        time.tzset()
        return f"{s.at.hour} {s.at.tzinfo}"

    shown = F.udf(hour)
    for _ in range(2):  # a worker that is used again, in that zone
        with TopologyTestDriver(keeping(lambda: shown("s")), spark) as driver:
            pipe(driver, {"k": "a", "s": {"a": 1, "at": "2026-01-31T12:00:00Z"}})
            last = driver.getKeyValueStore("s").get("a")["last"]
            assert json.loads(last) == {"made": "12 None"}


def test_an_hour_that_comes_twice_is_two(spark: SparkSession) -> None:
    """Where the worker's machine has summer time, in whose zone PySpark gives times."""

    def shown(s: Any) -> str:
        return f"{s.at:%H:%M}"

    def berlin(_: Any) -> str:
        os.environ["TZ"] = "Europe/Berlin"
        time.tzset()
        return ""

    made = lambda: F.concat(F.udf(berlin)("k"), F.udf(shown)("s"))  # noqa: E731
    times = ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"]
    with TopologyTestDriver(keeping(made), spark) as driver:
        for _ in range(2):  # the zone is of the batch before
            pipe(driver, *({"k": at, "s": {"a": 1, "at": at}} for at in times))
            kept = driver.getKeyValueStore("s").all()
            said = {k: json.loads(one["last"])["made"] for k, one in kept.items()}
            assert said == {times[0]: "00:30", times[1]: "01:30"}


REFUSED: dict[str, tuple[Declare, str]] = {
    "random": (
        lambda rows: rows.withColumn("y", F.udf(len, "int").asNondeterministic()("k")),
        "another value each time",
    ),
    "registered": (
        lambda rows: rows.where("registered(k) > 1"),
        "registered under|cannot be computed",
    ),
    "interval": (
        lambda rows: rows.withColumn("y", F.udf(lambda _: None, "interval day")("k")),
        "gives interval day",
    ),
    "typo": (lambda rows: rows.withColumn("y", halved("nope")), "nope"),
    "today": (
        lambda rows: rows.withColumn("y", F.udf(str)(F.expr("date'today'"))),
        "makes a moment of date'today'",
    ),
    "star": (
        lambda rows: rows.withColumn("y", F.udf(lambda *_: 1, "int")("*")),
        r"'\*'|cannot be computed",
    ),
    "now": (lambda rows: rows.withColumn("y", F.udf(str)(F.current_date())), "reads Current"),
    "large": (
        lambda rows: rows.withColumn("y", F.udf(partial_of(os.urandom(2 << 20)), "int")("k")),
        "larger than a mebibyte",
    ),
    "lambda": (
        lambda rows: rows.withColumn("y", F.transform("items", lambda one: halved(one))),  # noqa: PLW0108
        "step 1, withColumn",
    ),
}


def partial_of(held: bytes) -> Callable[[Any], int]:
    return lambda _: len(held)


@pytest.fixture
def registered(spark: SparkSession) -> Iterator[None]:
    spark.udf.register("registered", len, "int")
    yield
    spark.sql("DROP TEMPORARY FUNCTION IF EXISTS registered")


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(("declare", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_is_refused_at_its_line(
    spark: SparkSession, declare: Declare, words: str
) -> None:
    with pytest.raises(ConfigurationError, match=words):
        declare(Application("app", spark).stream("t", SCHEMA))


def test_one_that_ends_its_worker_stops_the_query(spark: SparkSession) -> None:
    made = lambda: F.udf(lambda x: os._exit(1) if x == 3 else x, "bigint")("x")  # noqa: E731
    with TopologyTestDriver(keeping(made), spark) as driver:
        pipe(driver, {"k": "a", "x": 1}, {"k": "a", "x": 3})
        with pytest.raises(WorkerLost, match=r"step 1, withColumn: '<lambda>'"):
            driver.getKeyValueStore("s").all()
