"""What an expression is: all that was written, and the same in every session and process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from state_lib import Application, KStream, TimeWindows, TopologyTestDriver, agg
from state_lib.errors import ConfigurationError
from state_lib.executor.plan import DEAD, BatchPlan
from state_lib.protocol.positions import Positions
from state_lib.spark.frames import combine
from state_lib.spark.rows import column_of
from state_lib.spark.session import require_of_sql
from state_lib.testing.session import give_back
from tests.support.rows import HOUR, NOW, Row, source

SCHEMA = "text STRING, n BIGINT, s STRUCT<a: INT, b: INT>, items ARRAY<STRING>, ts TIMESTAMP"
Made = Callable[[], Column]


def sql(text: str) -> Made:
    return lambda: F.expr(text)


def nested(join: Callable[[Column, Column], Column]) -> Made:
    return lambda: F.transform("items", lambda x: F.transform(F.col("items"), lambda y: join(x, y)))


EDITED: dict[str, tuple[Made, Made]] = {
    "like-any": (sql("text LIKE ANY ('GET%', 'HEAD%')"), sql("text LIKE ANY ('PUT%')")),
    "like-all": (sql("text LIKE ALL ('G%', '%T')"), sql("text LIKE ALL ('G%')")),
    "not-like": (sql("text NOT LIKE ANY ('a%', 'b%')"), sql("text NOT LIKE ANY ('a%', 'c%')")),
    "json-type": (lambda: F.from_json("text", "d INT"), lambda: F.from_json("text", "d BIGINT")),
    "json-sql": (sql("from_json(text, 'd INT')"), sql("from_json(text, 'd BIGINT')")),
    "json-options": (
        lambda: F.from_json("text", "d DATE", {"dateFormat": "yyyy-MM-dd"}),
        lambda: F.from_json("text", "d DATE", {"dateFormat": "yyyy-dd-MM"}),
    ),
    "csv-options": (
        lambda: F.from_csv("text", "a INT, b INT", {"sep": ","}),
        lambda: F.from_csv("text", "a INT, b INT", {"sep": ";"}),
    ),
    "to-json": (
        lambda: F.to_json("s", {"ignoreNullFields": "true"}),
        lambda: F.to_json("s", {"ignoreNullFields": "false"}),
    ),
    "cast-array": (
        lambda: F.col("items").cast("array<int>"),
        lambda: F.col("items").cast("array<bigint>"),
    ),
    "cast-in-between": (
        lambda: F.size(F.col("items").cast("array<int>")),
        lambda: F.size(F.col("items").cast("array<date>")),
    ),
    "with-field": (
        lambda: F.col("s").withField("a", F.lit(1)),
        lambda: F.col("s").withField("b", F.lit(1)),
    ),
    "drop-field": (lambda: F.col("s").dropFields("a"), lambda: F.col("s").dropFields("b")),
    "variant": (
        sql("variant_get(parse_json(text), '$.a', 'int')"),
        sql("variant_get(parse_json(text), '$.a', 'string')"),
    ),
    "lambda": (
        lambda: F.transform("items", lambda x: F.concat(x, F.lit("a"))),
        lambda: F.transform("items", lambda x: F.concat(x, F.lit("b"))),
    ),
    "nested-lambdas": (nested(F.concat), nested(lambda x, y: F.concat(y, x))),
    "literal-type": (lambda: F.lit(1), lambda: F.lit(1).cast("bigint")),
    "moment": (sql("TIMESTAMP'2026-01-01 00:00:00'"), sql("TIMESTAMP'2026-01-01 00:00:01'")),
    "zone": (
        lambda: F.lit(datetime(2026, 1, 1, tzinfo=UTC)),
        lambda: F.lit(datetime(2026, 1, 1, 5, tzinfo=UTC)),
    ),
    "bytes": (sql("X'01'"), sql("X'02'")),
    "python-bytes": (lambda: F.lit(b"\x01"), lambda: F.lit(b"\x02")),
    "array-of-lambda": (
        sql("explode(transform(items, x -> x || 'a'))"),
        sql("explode(transform(items, x -> x || 'b'))"),
    ),
}


def declared(session: SparkSession, made: Made) -> Application:
    app = Application("app", session)
    rows = app.stream("t", SCHEMA).select("text", made().alias("made"))
    rows.groupBy("text").count("s")
    return app


@pytest.mark.parametrize(("one", "other"), EDITED.values(), ids=EDITED.keys())
def test_any_edit_is_another_meaning(spark: SparkSession, one: Made, other: Made) -> None:
    before, after, again = (declared(spark, made) for made in (one, other, one))
    assert before.fingerprint != after.fingerprint
    assert before.aggregations[0].steps != after.aggregations[0].steps
    assert before.fingerprint == again.fingerprint
    assert before.aggregations[0].steps == again.aggregations[0].steps


@pytest.mark.parametrize("one", [one for one, _ in EDITED.values()], ids=EDITED.keys())
def test_a_users_settings_are_no_part_of_it(spark: SparkSession, one: Made) -> None:
    """Nor who is active: a script and a notebook in New York declare the same."""
    other = spark.newSession()
    other.conf.set("spark.sql.session.timeZone", "America/New_York")
    other.conf.set("spark.sql.ansi.enabled", "false")
    expected = declared(spark, one).fingerprint
    give_back(other)
    try:
        assert declared(other, one).fingerprint == expected
    finally:
        give_back(spark)


JOB = """
from pyspark.sql import functions as F
from state_lib import Application, agg
from tests.integration.spark.test_meaning import declare_all
app = Application("app")
declare_all(app)
print("fingerprint", app.fingerprint)
"""


def declare_all(app: Application) -> None:
    for number, (one, _) in enumerate(EDITED.values()):
        rows = app.stream("t", SCHEMA).select("text", one().alias("made"))
        rows.groupBy("text").agg(f"s{number}", n=agg.count(), last=agg.last(F.to_json(F.struct(
            "text", "made"
        ))))  # fmt: skip


def test_another_process_says_the_same(spark: SparkSession) -> None:
    app = Application("app", spark)
    declare_all(app)
    done = subprocess.run(
        [sys.executable, "-c", JOB], capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-2:] == ["fingerprint", app.fingerprint]


@pytest.mark.parametrize(
    ("edited", "same"),
    [
        (lambda rows: rows.where("n > 1").groupBy("text").count("s"), False),
        (lambda rows: rows.where("n > 0").groupBy("n").count("s"), False),
        (lambda rows: rows.where("n > 0").groupBy("text").count("other"), False),
        (lambda rows: rows.where(F.col("n") > 0).groupBy("text").count("s"), False),
        (lambda rows: rows.where("n > 0").groupBy(F.col("text")).count("s"), True),
        (lambda rows: rows.filter("n > 0").groupBy(["text"]).count("s"), True),
    ],
)
def test_a_fingerprint_changes_with_columns(
    spark: SparkSession, edited: Callable[[KStream], object], same: bool
) -> None:
    """Another way to write the same counts as an edit: that errs to the safe side."""

    def of(declare: Callable[[KStream], object]) -> str:
        app = Application("app", spark)
        declare(app.stream("t", SCHEMA))
        return app.fingerprint

    before = of(lambda rows: rows.where("n > 0").groupBy("text").count("s"))
    assert (of(edited) == before) is same


def test_a_length_of_time_is_the_same_however_written(spark: SparkSession) -> None:
    found = []
    for size in ("1 hour", timedelta(hours=1)):
        app = Application("app", spark)
        app.stream("t", SCHEMA).groupBy("text").windowedBy(TimeWindows(size)).count("s")
        found.append(app.fingerprint)
    assert found[0] == found[1]


def test_what_was_resolved_elsewhere_is_not_made_of_its_text(spark: SparkSession) -> None:
    app = declared(spark, sql("from_json(text, 'd INT')"))
    (step,) = app.aggregations[0].steps
    sent: Any = step.items[1].expression.__getstate__()  # type: ignore[union-attr]
    assert sent["column"] is None
    one = type(step.items[1].expression)(**sent)  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="another process"):
        column_of(one)


def combined(spark: SparkSession, app: Application, values: list[bytes]) -> list[Any]:
    rows: list[Row] = [(b"", value, 0, i, 5) for i, value in enumerate(values)]
    plan = BatchPlan(1, 1, Positions(), Positions({("t", 0): 99}), -1, NOW, HOUR, {})
    return combine(spark, source(spark, rows), app.aggregations, app.partitions, plan).collect()


def test_two_patterns_of_one_topic_fill_two_stores(spark: SparkSession) -> None:
    app = Application("app", spark)
    lines = app.stream("t", format="text")
    lines.where("value LIKE ANY ('GET%', 'HEAD%')").groupBy("value").count("reads")
    lines.where("value LIKE ANY ('POST%', 'PUT%')").groupBy("value").count("writes")
    found = combined(spark, app, [b"GET /", b"PUT /", b"HEAD /", b"GET /"])
    kept = {(r.kind, bytes(r.key)): r.n for r in found if r.kind in (0, 1)}
    assert kept == {(0, b"GET /"): 2, (0, b"HEAD /"): 1, (1, b"PUT /"): 1}


def test_sql_is_read_under_our_settings_whichever_session_is_active(spark: SparkSession) -> None:
    """Where casts do not fail, a row that should be a dead letter would be counted as nulls."""
    other = spark.newSession()
    other.conf.set("spark.sql.ansi.enabled", "false")
    give_back(other)
    try:
        app = Application("app", other)
        rows = app.stream("t", format="text")
        numbers = F.expr("explode(transform(split(value, ','), x -> cast(x AS INT)))")
        rows.select(numbers.alias("n")).groupBy("n").count("s")
    finally:
        give_back(spark)
    found = combined(spark, app, [b"1,2", b"1,x"])
    assert sorted(r.n for r in found if r.kind == 0) == [1, 1]
    assert [json.loads(bytes(r.key))["reason"] for r in found if r.kind == DEAD] == ["failed:n"]


def test_hours_are_those_of_utc_whatever_zone_the_user_has(spark: SparkSession) -> None:
    zone, other = "spark.sql.session.timeZone", spark.newSession()
    other.conf.set(zone, "America/New_York")

    def hours(app: Application) -> None:
        rows = app.stream("lines", format="text").select(F.hour("timestamp").alias("hour"))
        rows.groupBy("hour").count("hours")

    with TopologyTestDriver(hours, other) as driver:
        at = datetime(2013, 1, 31, 22, tzinfo=UTC)
        driver.createInputTopic("lines").pipeInput("a", timestamp=at)
        assert driver.getKeyValueStore("hours").all() == {22: 1}, "17 in New York"
    assert other.conf.get(zone) == "America/New_York"


def test_a_setting_by_which_expressions_mean_another_thing_is_refused(spark: SparkSession) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.legacy.sizeOfNull", "true")
    with pytest.raises(ConfigurationError, match=r"spark\.sql\.legacy\.sizeOfNull is 'true'"):
        require_of_sql(session)


def test_settings_of_expressions_are_pinned(spark: SparkSession) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.mapKeyDedupPolicy", "LAST_WIN")
    session.conf.set("spark.sql.legacy.timeParserPolicy", "LEGACY")
    require_of_sql(session)
    assert session.conf.get("spark.sql.mapKeyDedupPolicy") == "EXCEPTION"
    assert session.conf.get("spark.sql.legacy.timeParserPolicy") == "CORRECTED"
