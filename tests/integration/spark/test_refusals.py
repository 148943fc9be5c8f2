"""Expressions that a batch could not repeat, or that read more than their row: refused at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StringType, StructField, StructType

from state_lib import Application, KStream, TimeWindows, agg
from state_lib.errors import ConfigurationError

SCHEMA = "k STRING, a BIGINT, x BIGINT, day DATE, ts TIMESTAMP, items ARRAY<STRING>, key BINARY"
Made = Callable[[], Column]
KEY = "0000111122223333"


@pytest.fixture
def rows(spark: SparkSession) -> KStream:
    return Application("app", spark).stream("t", SCHEMA)


VERBS: dict[str, Callable[[KStream, Column], object]] = {
    "select": lambda rows, one: rows.select("k", one.cast("string").alias("made")),
    "withColumn": lambda rows, one: rows.withColumn("made", one.cast("string")),
    "where": lambda rows, one: rows.where(one.isNotNull()),
    "groupBy": lambda rows, one: rows.groupBy(one.cast("string")),
    "agg": lambda rows, one: rows.groupBy("k").agg("s", n=agg.count(one)),
    "explode": lambda rows, one: rows.select(F.explode(F.array(one)).alias("made")),
    "beside-explode": lambda rows, one: rows.select(
        F.explode("items").alias("item"), one.cast("string").alias("made")
    ),
}
in_every_verb = pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS.keys())


@in_every_verb
@pytest.mark.parametrize(
    "made",
    [
        lambda: F.window("ts", "1 hour").start,
        lambda: F.window("ts", "1 hour", "30 minutes").start,
        lambda: F.session_window("ts", "5 minutes").start,
    ],
    ids=["tumbling", "sliding", "session"],
)
def test_windows_of_time_are_not_for_steps(
    rows: KStream, verb: Callable[[KStream, Column], object], made: Made
) -> None:
    """Spark removes rows for them, so that a record without a time were no dead letter."""
    with pytest.raises(ConfigurationError, match=r"step 1, .*(windowedBy|several rows|computed)"):
        verb(rows, made())


@pytest.mark.parametrize(
    "declare",
    [
        lambda rows: rows.select((F.col("a") / F.col("x")).alias("r"), F.col("r").alias("s"), "k"),
        lambda rows: rows.select((F.col("a") / 2).alias("r"), (F.col("r") * 2).alias("s")),
        lambda rows: rows.withColumns({"r": F.col("a") / F.col("x"), "s": F.col("r") * 2}),
        lambda rows: rows.select(F.explode("items").alias("i"), F.upper("i").alias("upper")),
    ],
)
def test_a_column_is_not_used_in_the_step_that_makes_it(
    rows: KStream, declare: Callable[[KStream], object]
) -> None:
    """It would be computed in the step below, where a row that fails stops the stream."""
    with pytest.raises(ConfigurationError, match=r"Write two|cannot be computed|makes several"):
        declare(rows)


def test_two_steps_are_what_to_write_instead(rows: KStream) -> None:
    first = rows.withColumn("r", F.col("a") / F.col("x"))
    assert first.withColumn("s", F.col("r") * 2).columns[-2:] == ["r", "s"]
    assert first.select((F.col("r") + 1).alias("r"), "k").columns == ["r", "k"]


STARS: list[Made] = [
    lambda: F.struct("*"),
    lambda: F.to_json(F.struct("*")),
    lambda: F.xxhash64("*"),
    lambda: F.concat_ws("|", "*"),
    lambda: F.expr("xxhash64(*)"),
    lambda: F.expr("struct(* EXCEPT (k))"),
    lambda: F.col("__hf_star"),
]


@pytest.mark.parametrize("made", STARS)
@in_every_verb
def test_a_star_is_not_for_expressions(
    rows: KStream, verb: Callable[[KStream, Column], object], made: Made
) -> None:
    """A batch has columns of ours beside the user's, some of which change with every batch."""
    with pytest.raises(ConfigurationError, match=r"'\*' within an expression|cannot be computed"):
        verb(rows, made())


def test_a_star_is_for_select_and_for_count(rows: KStream) -> None:
    assert rows.select("*", F.lit(1).alias("one")).columns == [*rows.columns, "one"]
    assert "__hf_star" not in rows.columns
    rows.groupBy("k").agg("s", n=agg.count("*"))
    assert rows._app.aggregations[0].fields["n"].of_rows


@pytest.mark.parametrize(
    "text",
    [
        "cast('today' AS DATE)",
        "cast('Now' AS TIMESTAMP)",
        "cast(' yesterday ' AS TIMESTAMP_NTZ)",
        "date('tomorrow')",
        "timestamp('now UTC')",
        "to_date('today')",
        "to_timestamp('now')",
        "day = 'today'",
        "ts < 'now'",
        "DATE'yesterday'",
        'timestamp_ntz "now"',
        "timestamp  'today'",
        "to_date(concat('to', 'day'))",
        "cast(upper('now') AS TIMESTAMP)",
    ],
)
@in_every_verb
def test_a_word_for_a_moment_is_refused(
    rows: KStream, verb: Callable[[KStream, Column], object], text: str
) -> None:
    """Spark's optimizer reads it as the moment in which it meets it: in every batch anew."""
    with pytest.raises(ConfigurationError, match=r"makes a moment of|cannot be computed"):
        verb(rows, F.expr(text))


def test_a_word_given_by_pyspark_is_one_as_well(rows: KStream) -> None:
    today, now = F.lit("today"), F.lit("now")
    for made in (F.to_date(today), now.cast("timestamp"), F.to_timestamp(now)):
        with pytest.raises(ConfigurationError, match=r"makes a moment of '(today|now)'"):
            rows.where(F.col("ts") < made)


@pytest.mark.parametrize(
    "text",
    [
        "cast('2026-01-31' AS DATE)",
        "DATE'2026-01-31'",
        "TIMESTAMP'2026-01-31 12:00:00'",
        "to_date(k)",
        "to_date('31.01.2026', 'dd.MM.yyyy')",
        "cast(k AS TIMESTAMP)",
        "cast(NULL AS TIMESTAMP)",
        "cast(concat(k, '-01') AS DATE)",
        "'today'",
        "k = 'now'",
        "transform(items, i -> cast(i AS DATE))",
    ],
)
def test_a_moment_that_is_written_or_of_the_row_is_taken(rows: KStream, text: str) -> None:
    assert rows.select("k", F.expr(text).alias("made")).columns == ["k", "made"]


ENCRYPTED: dict[str, tuple[Made, bool]] = {
    "random": (lambda: F.aes_encrypt("k", F.lit(KEY)), False),
    "cbc": (lambda: F.aes_encrypt("k", F.lit(KEY), F.lit("CBC"), F.lit("PKCS")), False),
    "sql": (lambda: F.expr(f"aes_encrypt(k, '{KEY}', 'GCM')"), False),
    "vector-of-a-row": (
        lambda: F.aes_encrypt("k", F.lit(KEY), F.lit("CBC"), F.lit("PKCS"), F.col("key")),
        False,
    ),
    "ecb": (lambda: F.aes_encrypt("k", F.lit(KEY), F.lit("ECB"), F.lit("PKCS")), True),
    "vector": (
        lambda: F.expr(f"aes_encrypt(k, '{KEY}', 'CBC', 'PKCS', unhex('{'00' * 16}'))"),
        True,
    ),
}


@pytest.mark.parametrize(("made", "fits"), ENCRYPTED.values(), ids=ENCRYPTED.keys())
def test_encryption_by_random_numbers_is_refused(rows: KStream, made: Made, fits: bool) -> None:
    if fits:
        rows.groupBy(F.base64(made()))
        return
    with pytest.raises(ConfigurationError, match=r"random vector.*iv"):
        rows.groupBy(F.base64(made()))


def test_a_variable_of_the_session_is_refused(rows: KStream) -> None:
    session = rows._rows.sparkSession
    session.sql("DECLARE OR REPLACE VARIABLE most INT DEFAULT 5")
    with pytest.raises(ConfigurationError, match="Write the value"):
        rows.where("a < most")


def test_of_several_fields_the_one_that_is_wrong_is_named(rows: KStream) -> None:
    """Spark is asked once for all of them, and one by one to say which."""
    with pytest.raises(ConfigurationError, match=r"agg of s\.c cannot be computed.*nope"):
        rows.groupBy("k").agg("s", a=agg.count(), b=agg.sum("a"), c=agg.max("nope"))
    with pytest.raises(ConfigurationError, match=r"agg of s\.c: a is bigint, no condition"):
        rows.groupBy("k").agg("s", b=agg.sum("a"), c=agg.count_if("a"))


@pytest.mark.parametrize("name", ["window_start", "window_end", "k"])
def test_a_field_named_like_the_key_or_the_window_is_refused(rows: KStream, name: str) -> None:
    hours = rows.groupBy("k").windowedBy(TimeWindows("1 hour"))
    with pytest.raises(ConfigurationError, match=f"fields \\['{name}'\\]"):
        hours.agg("s", **{name: agg.count()})


def test_without_windows_those_names_are_free(rows: KStream) -> None:
    rows.groupBy("k").agg("s", window_start=agg.count(), window_end=agg.sum("a"))
    assert [*rows._app.aggregations[0].fields] == ["window_start", "window_end"]


def test_the_same_topic_in_the_same_format_is_taken_twice(spark: SparkSession) -> None:
    app = Application("app", spark)
    for store in ("one", "two"):
        app.stream("t", SCHEMA).groupBy("k").count(store)
    assert app.topology.sources == ("t",)


def test_fields_of_structs_may_have_any_name(spark: SparkSession) -> None:
    inner = StructType([StructField("html-url", StringType()), StructField("@type", StringType())])
    for schema in (
        StructType([StructField("first name", StringType()), StructField("links", inner)]),
        "`first name` STRING, links STRUCT<`html-url`: STRING, `@type`: STRING>",
    ):
        rows = Application("app", spark).stream("t", schema)
        made = rows.select(F.col("links.`html-url`").alias("url"), F.col("`first name`").alias("n"))
        assert made.columns == ["url", "n"]
