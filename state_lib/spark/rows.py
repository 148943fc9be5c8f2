"""Row-wise code before the first stateful verb: decode, judge, and run a stream's steps.

No row is ever removed here: what a ``where`` filters out or a decoder cannot read goes on as a
marked row, so that event times, drop counts and dead letters are complete (invariant 6).
"""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from state_lib.application import Json, Source, Step, Text
from state_lib.errors import ConfigurationError
from state_lib.spark.plan import BatchPlan

_META = ("_topic", "_partition", "_offset", "_ts", "_src", "_key", "_value", "_bad", "_skip")
_CORRUPT = "_corrupt"
_STRICT = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}


def decode(batch: DataFrame, source: Source, plan: BatchPlan) -> DataFrame:
    """Rows of one source with its columns and what every row keeps: place, time, verdict.

    ``_bad`` says why a row is a dead letter: ``undecodable``, ``wrong-schema``,
    ``invalid-timestamp`` or ``future``; null for good rows. ``_ts`` is null for bad rows.
    """
    base = plan.sources().index((source.topic, 0))
    millis = F.unix_millis("timestamp")
    rows = batch
    if len({t for t, _ in plan.sources()}) > 1:
        rows = rows.where(F.col("topic") == source.topic)
    rows = rows.select(
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
        F.col("key").alias("_key"),
        F.col("value").alias("_value"),
        F.col("topic").alias("_topic"),
        F.col("partition").alias("_partition"),
        F.col("offset").alias("_offset"),
        (F.col("partition") + F.lit(base)).alias("_src"),
        F.lit(False).alias("_skip"),  # noqa: FBT003
        millis.alias("_millis"),
    )
    timing = F.when(F.col("_millis") < 0, "invalid-timestamp").when(
        F.col("_millis") > plan.now + plan.max_future_ms, "future"
    )
    match source.format:
        case Json(ddl):
            rows, broken = _json(rows, ddl)
        case Text():
            rows = rows.withColumn("value", F.col("_value").cast("string"))
            broken = F.when(~F.coalesce(F.is_valid_utf8("value"), F.lit(False)), "undecodable")  # noqa: FBT003
        case _:
            broken = F.lit(None).cast("string")
    rows = rows.withColumn("_bad", F.coalesce(timing, broken))
    return rows.withColumn("_ts", F.when(F.col("_bad").isNull(), F.col("_millis"))).drop("_millis")


def apply_steps(rows: DataFrame, steps: Iterable[Step]) -> DataFrame:
    """Run a stream's steps; expressions are evaluated on good, unfiltered rows only."""
    for step in steps:
        good = F.col("_bad").isNull() & ~F.col("_skip")
        value = F.when(good, F.expr(step.expr))
        match step.op:
            case "with_column":
                rows = rows.withColumn(step.name, value)
            case "where":
                kept = F.coalesce(value.cast("boolean"), F.lit(False))  # noqa: FBT003
                rows = rows.withColumn("_skip", F.col("_skip") | ~kept)
            case "explode":
                others = [c for c in rows.columns if c != step.name]
                rows = rows.select(*others, F.explode_outer(value).alias(step.name))
                empty = F.col(step.name).isNull()
                rows = rows.withColumn("_skip", F.col("_skip") | empty)
    return rows


def letter() -> Column:
    """A bad row as JSON bytes, unique by its place: what `state_lib.host.letters` unpacks."""
    return F.to_json(
        F.struct(
            F.col("_topic").alias("topic"),
            F.col("_partition").alias("partition"),
            F.col("_offset").alias("offset"),
            F.col("_bad").alias("reason"),
            F.unix_millis("timestamp").alias("timestamp"),
            F.base64("_key").alias("key"),
            F.base64("_value").alias("value"),
        )
    ).cast("binary")


def _json(rows: DataFrame, ddl: str) -> tuple[DataFrame, Column]:
    from pyspark.sql.types import StringType, StructType  # noqa: PLC0415

    schema = StructType.fromDDL(ddl)
    if not isinstance(schema, StructType):
        raise ConfigurationError(f"{ddl!r} is one type, not columns: write 'name TYPE, name TYPE'")
    nullable = StructType([type(f)(f.name, f.dataType, True) for f in schema.fields])  # noqa: FBT003
    parsed_as = StructType([*nullable.fields]).add(_CORRUPT, StringType())
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT} | _STRICT
    text = F.col("_value").cast("string")
    rows = rows.withColumn("_parsed", F.from_json(text, parsed_as, options))
    parsed = F.col("_parsed")
    missing = F.lit(False)  # noqa: FBT003
    for f in schema.fields:
        if not f.nullable:
            missing = missing | parsed[f.name].isNull()
    not_json = F.try_parse_json(text).isNull()
    broken = (
        F.when(F.col("_value").isNull(), "undecodable")
        .when(
            parsed.isNull() | parsed[_CORRUPT].isNotNull(),
            F.when(not_json, "undecodable").otherwise("wrong-schema"),
        )
        .when(missing, "wrong-schema")
    )
    rows = rows.withColumn("_broken", broken)
    kept = [c for c in rows.columns if c not in schema.fieldNames() and c != "_parsed"]
    return (
        rows.select(*kept, *[parsed[f.name].alias(f.name) for f in schema.fields]),
        F.col("_broken"),
    )
