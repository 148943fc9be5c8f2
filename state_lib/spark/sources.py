"""Rows of a source as Spark sees them when a step is declared: their columns, and none of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.errors import ParseException
from pyspark.errors import utils as errors
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from state_lib.declaration import Source
from state_lib.errors import ConfigurationError
from state_lib.names import RESERVED, check_column

STAR = f"{RESERVED}star"
"""A column that nobody names: an expression that has it was given ``*``."""
_BASE: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
}
_LINES = 4


def ddl_of(schema: StructType | str) -> str:
    """A schema as DDL.

    Raises:
        ConfigurationError: it is none, or one type instead of columns.
        InvalidName: a column begins as ours do.
    """
    if isinstance(schema, str):
        try:
            parsed: Any = StructType.fromDDL(schema)
        except ParseException as error:
            raise ConfigurationError(f"{schema!r} is no DDL: {said(error)}") from error
    else:
        parsed = schema
    if not isinstance(parsed, StructType):
        raise ConfigurationError(
            f"{schema!r} is one type, not columns: write 'name TYPE, name TYPE'"
        )
    names = parsed.fieldNames()
    for name in names:
        check_column(name)
    if twice := in_another_case(names):
        raise ConfigurationError(
            f"the columns {twice} of {schema!r} differ in case only, and to Spark they are one: "
            "rename one of them",
            columns=twice,
        )
    return str(parsed.toDDL())


def schema_of(ddl: str) -> StructType:
    """The schema that `ddl_of` was given."""
    parsed: Any = StructType.fromDDL(ddl)
    made: StructType = parsed
    return made


def time_column(topic: str, ddl: str, name: str) -> str:
    """The column that is event time, as the schema writes it.

    Raises:
        ConfigurationError: there is none of that name, or it is no time.
    """
    fields = schema_of(ddl).fields if ddl else []
    found = next((f for f in fields if f.name.lower() == name.lower()), None)
    if found is None:
        raise ConfigurationError(
            f"topic {topic!r}: timestamp={name!r} is no column of its schema, whose columns are "
            f"{[f.name for f in fields]}. Name one of them, no field within one",
            topic=topic,
        )
    if not isinstance(found.dataType, TimestampType | LongType):
        raise ConfigurationError(
            f"topic {topic!r}: timestamp={name!r} is of type {found.dataType.simpleString()}. "
            "Event time is a TIMESTAMP, or a BIGINT of ms since 1970",
            topic=topic,
        )
    return found.name


def in_another_case(names: list[str]) -> list[str]:
    """The names that are the same to Spark."""
    lower = [name.lower() for name in names]
    return sorted({name for name in names if lower.count(name.lower()) > 1})


def source_rows(spark: SparkSession, source: Source) -> DataFrame:
    """No rows, with the columns of a source's."""
    columns = dict(_BASE)
    if source.format == "text":
        columns["value"] = StringType()
    fields = schema_of(source.schema).fields if source.schema else []
    hidden = {f.name.lower() for f in fields}
    kept = [StructField(name, kind) for name, kind in columns.items() if name not in hidden]
    session: Any = spark._jsparkSession  # noqa: SLF001 - the way to the JVM that pyspark itself takes
    # As JSON, since names within a struct would need quotes in DDL.
    schema = session.parseDataType(StructType([*kept, *fields]).json())
    return no_rows(spark, schema.asNullable())


def no_rows(spark: SparkSession, schema: Any) -> DataFrame:
    """No rows with the columns of a JVM's schema, and `STAR`."""
    return empty(spark, schema.add(STAR, "string"))


def empty(spark: SparkSession, schema: Any) -> DataFrame:
    """No rows of a JVM's schema. As a batch's, their leaf is an RDD of the JVM."""
    none = spark.sparkContext._jsc.emptyRDD().rdd()  # noqa: SLF001 - as above
    session: Any = spark._jsparkSession  # noqa: SLF001 - as above
    made = session.internalCreateDataFrame(none, schema, False)  # noqa: FBT003 - no stream
    return DataFrame(made, spark)


def columns_of(rows: DataFrame) -> list[str]:
    """Names of the columns that a user sees."""
    return [name for name in rows.columns if name != STAR]


def seen(rows: DataFrame) -> StructType:
    """The schema of those columns."""
    return StructType([f for f in rows.schema.fields if f.name != STAR])


@contextmanager
def active(spark: SparkSession) -> Iterator[None]:
    """Make a session the active one meanwhile.

    Spark parses and prints under the settings of that: under another's ANSI mode a cast would be
    another one, and a moment would have another text.
    """
    jvm: Any = spark._jvm  # noqa: SLF001 - as above
    sessions = getattr(jvm, "org.apache.spark.sql.classic.SparkSession")  # one call, as PySpark's
    before, ours = sessions.getActiveSession(), spark._jsparkSession  # noqa: SLF001 - as above
    if before.isDefined() and before.get().equals(ours):
        yield
        return
    sessions.setActiveSession(ours)
    try:
        yield
    finally:
        if before.isDefined():
            sessions.setActiveSession(before.get())
        else:
            sessions.clearActiveSession()


@contextmanager
def without_call_sites() -> Iterator[None]:
    """Let PySpark not remember where in Python columns were made.

    Around each call on one it asks the JVM ten times, for a line in error messages that nobody is
    shown of queries that are built here: half the time of building one.
    """
    before = errors._enable_debugging_cache  # noqa: SLF001 - PySpark's answer, asked for once
    errors._enable_debugging_cache = False  # type: ignore[assignment]  # noqa: SLF001 - as above
    try:
        yield
    finally:
        errors._enable_debugging_cache = before  # noqa: SLF001 - as above


def said(error: Exception) -> str:
    """What Spark says, without its plan."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return "\n".join(lines[:_LINES] if isinstance(error, ParseException) else lines[:1])
