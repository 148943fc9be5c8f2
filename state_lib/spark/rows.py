"""Row-wise code before the first stateful verb: decode, judge, and run a stream's steps.

No row is ever removed here: what a ``where`` filters out or a decoder cannot read goes on as a
marked row, so that event times, drop counts and dead letters are complete (invariant 6).

Columns of our own begin with `RESERVED`, which no column of a user's may: fields may be called
``timestamp`` or ``_ts``, and hide the record's own column of that name.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StringType, StructType

from state_lib.declaration import Expression, Select, Source, Step
from state_lib.executor.plan import BatchPlan
from state_lib.names import RESERVED
from state_lib.spark.analysis import plain_column, quoted
from state_lib.spark.attempts import attempt, value_of
from state_lib.spark.functions.evaluated import errors_of, with_calls
from state_lib.spark.run_rows import in_run, listed
from state_lib.spark.sources import schema_of

if TYPE_CHECKING:
    from state_lib.executor.avro.registry import Schemas

_CORRUPT, _TRIED, _ARRAY = "__hf_corrupt", "__hf_tried", "__hf_array"
POSITION = "__hf_position"
_SHOWN = 60  # characters of a condition in a reason
_STRICT = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}


def judged_by(batch: DataFrame, plan: BatchPlan, *, avro: bool = False) -> DataFrame:
    """A batch, and beside each record the numbers that change with every batch.

    Spark writes a number into the code that it generates, and compiles it again for each batch. An
    array is handed over by reference, and an index that is a column (a row's source) keeps it from
    being folded.

    A row of a run is judged by the batch that it was in.

    ``avro``: whether a source is in Avro; then ids of schemas that nobody knew are beside, too:
    the same for all batches of a run.
    """

    def each(value: int) -> Column:
        return F.lit([value] * len(plan.sources())).cast("array<bigint>")  # int otherwise

    limits, clocks = each(plan.now + plan.max_future_ms), each(plan.stream_time_ms)
    if plan.run:
        limits, clocks = in_run(plan)
    unknown = [listed([-1, *plan.unknown])] if avro else []
    return batch.select(
        *("key", "value", "topic", "partition", "offset", "timestamp"),
        limits.alias("__hf_limits"),
        clocks.alias("__hf_clocks"),
        *(ids.alias("__hf_unknown") for ids in unknown),
    )


def decode(
    batch: DataFrame, source: Source, plan: BatchPlan, schemas: Schemas | None = None
) -> DataFrame:
    """Rows of one source with its columns and what every row keeps: place, time, verdict.

    ``batch`` is what `judged_by` makes; ``schemas``: where those of records in Avro are.

    ``__hf_bad`` says why a row is a dead letter: ``undecodable``, ``wrong-schema``,
    ``unknown-schema``, ``null-timestamp``, ``invalid-timestamp`` or ``future``; null for good rows.
    ``__hf_ts`` (event time) is null for bad rows. ``__hf_millis`` is the record's own timestamp,
    whatever event time is. ``__hf_said`` is the exception, if a Python function was the reason.
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
        F.col("key").alias("__hf_key"),
        F.col("value").alias("__hf_value"),
        F.col("topic").alias("__hf_topic"),
        F.col("partition").alias("__hf_partition"),
        F.col("offset").alias("__hf_offset"),
        (F.col("partition") + F.lit(base)).alias("__hf_src"),
        F.lit(False).alias("__hf_skip"),  # noqa: FBT003
        F.lit(None).cast("string").alias("__hf_said"),
        millis.alias("__hf_millis"),
        "__hf_limits",
        "__hf_clocks",
        *(["__hf_unknown"] if source.format == "avro" else ()),
    )
    rows = rows.withColumns(
        {f"__hf_{name}": F.col(f"__hf_{name}s")[F.col("__hf_src")] for name in ("limit", "clock")}
    ).drop("__hf_limits", "__hf_clocks")
    match source.format:
        case "json":
            rows = _opened(_json(rows, source.schema), source)
            broken = F.col("__hf_broken")
        case "avro":
            from state_lib.spark.avro.columns import parsed  # noqa: PLC0415 - heavy, and seldom

            rows = _opened(parsed(rows, source, schemas), source)
            broken = F.col("__hf_broken")
        case "text":
            rows = rows.withColumn("value", F.col("__hf_value").cast("string"))
            broken = F.when(~F.coalesce(F.is_valid_utf8("value"), F.lit(False)), "undecodable")  # noqa: FBT003
        case _:
            broken = F.lit(None).cast("string")
    if source.timestamp:  # records that cannot be decoded have no event time
        rows, time = _timed(rows, source)
        bad = F.coalesce(broken, _timing(time))
    else:
        time = F.col("__hf_millis")
        bad = F.coalesce(_timing(time), broken)
    rows = rows.withColumn("__hf_bad", bad)
    return rows.withColumn("__hf_ts", F.when(F.col("__hf_bad").isNull(), time))


def apply_steps(rows: DataFrame, steps: Iterable[Step]) -> DataFrame:
    """Run a stream's steps; expressions are evaluated on good, unfiltered rows only.

    A row on which one raises becomes a bad one, ``failed:`` with what was to be computed. Columns
    `POSITION` with a number say which element a row is of each array that was exploded.
    """
    exploded = 0
    for step in steps:
        if isinstance(step, Select):
            rows = _select(rows, step, exploded)
            exploded += sum(bool(item.rows) for item in step.items)
        else:
            rows = _where(rows, step.condition)
    return rows


def column_of(expression: Expression) -> Column:
    """PySpark's column for an expression.

    Raises:
        ValueError: it came from another process. Its text is not all that there is to it.
    """
    made: Column | None = expression.column
    if made is None and expression.tree:
        raise ValueError(f"{expression.text} was resolved in another process")
    return F.expr(expression.text) if made is None else made


def _good() -> Column:
    return F.col("__hf_bad").isNull() & ~F.col("__hf_skip")


def _where(rows: DataFrame, condition: Expression) -> DataFrame:
    good = _good()
    rows = with_calls(rows, condition.calls, good)
    rows = rows.withColumn(_TRIED, F.when(good, attempt(rows, column_of(condition))))
    fails = good & F.col(_TRIED).isNull()
    skip = F.col("__hf_skip") | ~F.coalesce(value_of(F.col(_TRIED)), F.lit(False))  # noqa: FBT003
    bad = F.when(fails, f"failed:where {_shown(condition)}").otherwise(F.col("__hf_bad"))
    verdict = {"__hf_skip": skip, "__hf_bad": bad}
    if condition.calls:
        raised = F.when(fails, errors_of(condition.calls))
        verdict["__hf_said"] = raised.otherwise(F.col("__hf_said"))
    rows = rows.withColumns(verdict)
    return rows.drop(_TRIED, *(call.column for call in condition.calls))


def _select(rows: DataFrame, step: Select, exploded: int) -> DataFrame:
    good, changed = _good(), ("__hf_bad", "__hf_said")
    kept = [c for c in rows.columns if c.startswith(RESERVED) and c not in changed]
    rows = with_calls(rows, [call for one in step.expressions for call in one.calls], good)
    tried = {
        f"{_TRIED}{i}": F.when(good, attempt(rows, column_of(item.expression)))
        for i, item in enumerate(step.items)
        if not item.plain
    }
    if tried:
        rows = rows.withColumns(tried)
    bad, said = F.col("__hf_bad"), F.col("__hf_said")
    made, array = list[Column](), None
    for i, item in reversed([*enumerate(step.items)]):  # the first that fails is the reason
        value = column_of(item.expression)
        if not item.plain:
            value = value_of(F.col(f"{_TRIED}{i}"))
            fails = good & F.col(f"{_TRIED}{i}").isNull()
            bad = F.when(fails, f"failed:{item.name}").otherwise(bad)
            if any(one.calls for one in step.expressions):
                said = F.when(fails, errors_of(item.expression.calls)).otherwise(said)
        if item.rows:
            array = item
            made.append(value.alias(_ARRAY))
        else:
            made.append(value.alias(item.name))
    verdict = [bad.alias("__hf_bad"), said.alias("__hf_said")]
    rows = rows.select(*kept, *verdict, *reversed(made))
    if array is None:
        return rows
    at = f"{POSITION}{exploded}"
    others = [quoted(c) for c in rows.columns if c != _ARRAY]
    each = F.posexplode_outer(_ARRAY).alias(at, array.name)
    rows = rows.select(*others, each)
    if array.rows == "explode":
        rows = rows.withColumn("__hf_skip", F.col("__hf_skip") | F.col(at).isNull())
    return rows


def _shown(expression: Expression) -> str:
    shown = " ".join(expression.text.split())
    return shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "…"


def letter(reason: Column, size: Column, limit: int, said: Column) -> Column:
    """A bad row as JSON bytes, unique by place and reason: `state_lib.host.letters` unpacks it."""
    return F.to_json(
        F.struct(
            F.col("__hf_topic").alias("topic"),
            F.col("__hf_partition").alias("partition"),
            F.col("__hf_offset").alias("offset"),
            reason.alias("reason"),
            F.col("__hf_millis").alias("timestamp"),
            size.alias("size"),
            F.when(size.isNotNull(), limit).alias("limit"),
            said.alias("exception"),
            F.base64("__hf_key").alias("key"),
            F.base64("__hf_value").alias("value"),
        )
    ).cast("binary")


def _timed(rows: DataFrame, source: Source) -> tuple[DataFrame, Column]:
    """Rows with the event time that a column says, in ms."""
    time = plain_column(source.timestamp)
    if dict(rows.dtypes)[source.timestamp] != "bigint":
        time = F.unix_millis(time)
    return rows.withColumn("__hf_time", time), F.col("__hf_time")


def _timing(time: Column) -> Column:
    """Why an event time (ms) cannot be used."""
    return (
        F.when(time.isNull(), "null-timestamp")
        .when(time < 0, "invalid-timestamp")
        .when(time > F.col("__hf_limit"), "future")
    )


def _json(rows: DataFrame, ddl: str) -> DataFrame:
    """Rows with ``__hf_parsed``, the fields of an object, and ``__hf_broken``: why none."""
    schema = schema_of(ddl)
    nullable = StructType([type(f)(f.name, f.dataType, True) for f in schema.fields])  # noqa: FBT003
    parsed_as = StructType([*nullable.fields]).add(_CORRUPT, StringType())
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT} | _STRICT
    text = F.col("__hf_value").cast("string")
    rows = rows.withColumn("__hf_parsed", F.from_json(text, parsed_as, options))
    parsed = F.col("__hf_parsed")
    missing = F.lit(False)  # noqa: FBT003
    for f in schema.fields:
        if not f.nullable:
            missing = missing | parsed.getField(f.name).isNull()
    not_json = F.try_parse_json(text).isNull()
    broken = (
        F.when(F.col("__hf_value").isNull(), "undecodable")
        .when(
            parsed.isNull() | parsed[_CORRUPT].isNotNull(),
            F.when(not_json, "undecodable").otherwise("wrong-schema"),
        )
        .when(missing, "wrong-schema")
    )
    return rows.withColumn("__hf_broken", broken)


def _opened(rows: DataFrame, source: Source) -> DataFrame:
    """Rows with the fields of ``__hf_parsed`` as columns, which hide the record's own."""
    schema, parsed = schema_of(source.schema), F.col("__hf_parsed")
    hidden = {"__hf_parsed", *(name.lower() for name in schema.fieldNames())}
    kept = [quoted(c) for c in rows.columns if c.lower() not in hidden]
    fields = [parsed.getField(f.name).alias(f.name) for f in schema.fields]
    return rows.select(*kept, *fields)
