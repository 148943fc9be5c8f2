"""A row as the entry that one verb makes of it: judged first, so that no row can fail a batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from state_lib.declaration import Aggregation, Expression, Field, Select, Step
from state_lib.executor.plan import DEAD, DROPPED, SEEN, UNBOUNDED, BatchPlan
from state_lib.serdes.kinds import Kind
from state_lib.spark.attempts import attempt, value_of
from state_lib.spark.faults import fault
from state_lib.spark.functions.evaluated import errors_of, with_calls
from state_lib.spark.keys import key_bytes, wrong_key
from state_lib.spark.kinds import sql_of, taken_as
from state_lib.spark.partitioner import partition_for_key
from state_lib.spark.rows import POSITION, column_of, letter
from state_lib.spark.sizes import too_large
from state_lib.specs import StoreSpec


def judge(rows: DataFrame, index: int, verb: Aggregation, limit: int) -> DataFrame:
    """Add what a verb takes from each row, and why it is a dead letter for this verb.

    Columns: ``__hf_key<i>`` (bytes), ``__hf_start<i>`` (ms), ``__hf_late<i>``, ``__hf_why<i>``
    (null, or ``failed:``, ``not-utf8:`` or ``out-of-range:`` with ``<store>.<column>``, which is
    ``key`` for a key of one column or one that failed, ``null-key:<store>.<column>`` where a key
    has several, ``too-large:<store>``), ``__hf_size<i>`` (bytes, if that is why), ``__hf_said<i>``
    (the exception, if that is why and a Python function raised it), and one
    ``__hf_in<i>_<number>`` per field with an expression. Fields are computed only for rows that
    have a key and are not late.

    Args:
        rows: after the steps.
        index: of the verb.
        verb: what is to be made of them.
        limit: the most that the verb's topics take of one record (bytes).
    """
    own, spec = f"{index}", verb.store
    usable = F.col("__hf_bad").isNull() & ~F.col("__hf_skip")
    rows, key, why, said = tried_key(rows, index, verb.key, verb.kept.key_serde, spec.name)
    start, late = window_of(spec, usable)
    rows = rows.withColumns({f"__hf_why{own}": why, f"__hf_key{own}": key})
    key, why = F.col(f"__hf_key{own}"), F.col(f"__hf_why{own}")
    rows = rows.withColumns(
        {
            f"__hf_start{own}": start,
            f"__hf_late{own}": late,
            f"__hf_key{own}": F.when(why.isNull(), key_bytes(verb.kept.key_serde, key)),
        }
    )
    wanted = key.isNotNull() & ~F.col(f"__hf_late{own}")
    reasons: list[Reason] = [(why, said)]
    values: dict[str, Column] = {}
    for number, (name, field) in enumerate(verb.fields.items()):
        if not field.of_rows:
            column = f"__hf_in{own}_{number}"
            kind = None if field.op == "count" else taken_as(field)
            what = Wanted(verb.inputs[name], kind, f"{spec.name}.{name}")
            rows, values[column], why_not, said = tried(rows, column, wanted, what)
            reasons.append((why_not, said))
            if kind is not None and (wrong := fault(kind, values[column], what.name)) is not None:
                reasons.append((wrong, None))
    verdict = zip((f"__hf_why{own}", f"__hf_said{own}"), first_reason(reasons), strict=True)
    rows = rows.withColumns({**values, **dict(verdict)})
    larger = F.when(wanted & why.isNull(), too_large(verb.kept, key, index, limit))
    rows = rows.withColumn(f"__hf_size{own}", larger.cast("bigint"))
    large = F.when(F.col(f"__hf_size{own}").isNotNull(), f"too-large:{spec.name}")
    return rows.withColumn(f"__hf_why{own}", F.coalesce(why, large))


def window_of(spec: StoreSpec, usable: Column) -> tuple[Column, Column]:
    """Where a row's window begins (ms; 0 without windows), and whether the row is late for it."""
    if not spec.is_window:
        return F.lit(0).cast("bigint"), F.lit(False)  # noqa: FBT003
    size = spec.window_size_ms
    start = F.when(usable, F.col("__hf_ts") - F.pmod(F.col("__hf_ts"), F.lit(size)))
    return start, start + (size + spec.grace_ms) <= F.col("__hf_clock")


Reason = tuple[Column, Column | None]
"""Why a row cannot be used, null if it can; and what a Python function raised, if one is called."""


@dataclass(frozen=True)
class Wanted:
    """An expression, what it is kept as (None: as it is), and how reasons call it."""

    expression: Expression
    kind: Kind | None
    name: str


def tried_key(
    rows: DataFrame, index: int, key: Expression, serde: Kind, name: str
) -> tuple[DataFrame, Column, Column, Column | None]:
    """As `tried`: the key of verb ``index``, of all good rows, before it becomes bytes.

    Why there is none may be what is wrong with it, too.
    """
    usable = F.col("__hf_bad").isNull() & ~F.col("__hf_skip")
    wanted = Wanted(key, serde, f"{name}.key")
    rows, value, why, said = tried(rows, f"__hf_key{index}", usable, wanted)
    wrong = wrong_key(serde, value, name)
    return rows, value, why if wrong is None else F.coalesce(why, wrong), said


def tried(
    rows: DataFrame, column: str, usable: Column, wanted: Wanted
) -> tuple[DataFrame, Column, Column, Column | None]:
    """Rows with ``column`` beside, the value that it holds, and why it could not be made.

    Where Python functions are called, also what they raised.
    """
    kind, value, said = wanted.kind, column_of(wanted.expression), None
    type_ = None if kind is None else sql_of(kind)
    if type_ is not None:
        value = value.cast(type_)
    is_same = type_ is None or type_.replace("`", "") == wanted.expression.type  # Spark quotes none
    if wanted.expression.plain and is_same:
        rows = rows.withColumn(column, F.when(usable, value))
        value, why = F.col(column), F.lit(None).cast("string")
    else:
        calls = wanted.expression.calls
        rows = with_calls(rows, calls, usable)
        rows = rows.withColumn(column, F.when(usable, attempt(rows, value)))
        if calls:
            said = F.when(F.col(column).isNull(), errors_of(calls))
            rows = rows.withColumn(f"{column}_said", said).drop(*(call.column for call in calls))
            said = F.col(f"{column}_said")
        value = value_of(F.col(column))
        why = F.when(usable & F.col(column).isNull(), f"failed:{wanted.name}")
    return rows, value, why, said


def first_reason(reasons: Sequence[Reason]) -> tuple[Column, Column]:
    """The first reason that a row has, of those that it may have, and what was raised for it."""
    none = F.lit(None).cast("string")
    raised = none
    if any(said is not None for _, said in reasons):
        for why, said in reversed(reasons):
            raised = F.when(why.isNotNull(), none if said is None else said).otherwise(raised)
    return F.coalesce(*(why for why, _ in reasons)), raised


def entry(
    spark: SparkSession,
    index: int,
    aggregations: Sequence[Aggregation],
    plan: BatchPlan,
    partitions: int,
    first: bool,  # noqa: FBT001
) -> list[Column]:
    """Columns of `state_lib.spark.frames.combine` before it groups.

    ``first``: whether this verb reports what decoder and steps found bad.
    """
    name = aggregations[index].store.name
    columns, mine = places(spark, index, name, plan, partitions, first)
    return [*columns, *fields_of(aggregations, index, mine)]


def places(
    spark: SparkSession,
    index: int,
    name: str,
    plan: BatchPlan,
    partitions: int,
    first: bool,  # noqa: FBT001
) -> tuple[list[Column], Column]:
    """What entries of every verb have, and which rows the verb takes.

    Columns ``task``, ``kind``, ``key``, ``start``, ``src``, ``ts``.
    """
    key, why = F.col(f"__hf_key{index}"), F.col(f"__hf_why{index}")
    size, limit = F.col(f"__hf_size{index}"), plan.limits.get(name, UNBOUNDED)
    bad, late = F.col("__hf_bad"), F.col(f"__hf_late{index}")
    said = F.coalesce(F.col("__hf_said"), F.col(f"__hf_said{index}"))
    told = F.col("__hf_told") if first else F.lit(True)  # noqa: FBT003
    kind = (
        F.when(bad.isNotNull(), F.when(told, SEEN).otherwise(DEAD))
        .when(F.col("__hf_skip"), SEEN)
        .when(why.isNotNull(), DEAD)
        .when(key.isNull() | late, DROPPED)
        .otherwise(index)
    )
    reason = F.when(key.isNull(), f"null-key:{name}").otherwise(f"late:{name}")
    entry_key = (
        F.when(kind == index, key)
        .when(kind == DROPPED, reason.cast("binary"))
        .when(kind == DEAD, letter(F.coalesce(bad, why), size, limit, said))
    )
    mine, keyed = kind == index, key.isNotNull() & why.isNull()
    by_key = partition_for_key(spark, key, partitions)
    task = F.when(keyed, by_key).otherwise(F.pmod(F.col("__hf_src"), F.lit(partitions)))
    columns = [
        task.cast("int").alias("task"),
        kind.cast("int").alias("kind"),
        entry_key.alias("key"),
        F.when(mine, F.col(f"__hf_start{index}")).otherwise(F.lit(0)).cast("bigint").alias("start"),
        F.col("__hf_src").cast("int").alias("src"),
        F.col("__hf_ts").alias("ts"),
    ]
    return columns, mine


def fields_of(aggregations: Sequence[Aggregation], index: int, mine: Column) -> list[Column]:
    """What aggregations take: of rows of others than the verb, nulls."""
    columns = []
    for other, aggregation in enumerate(aggregations):
        for number, (field_name, field) in enumerate(aggregation.fields.items()):
            if not field.of_rows:
                none = F.lit(None).cast(sql_of(taken_as(field)))
                value = F.col(f"__hf_in{other}_{number}")
                own = _input(field, value, mine) if other == index else none
                columns.append(own.alias(f"a{other}_{field_name}"))
        if aggregation.kept.has_last:
            columns.append(F.when(mine, F.col("__hf_offset")).cast("bigint").alias(f"o{other}"))
            for number in range(explodes(aggregation.steps)):
                at = F.col(f"{POSITION}{number}") if other == index else F.lit(None)
                columns.append(F.when(mine, at).cast("int").alias(f"p{other}_{number}"))
    return columns


def explodes(steps: Sequence[Step]) -> int:
    """How many steps make several rows of one."""
    return sum(bool(i.rows) for s in steps if isinstance(s, Select) for i in s.items)


def _input(field: Field, value: Column, mine: Column) -> Column:
    if field.op == "count":
        return F.when(mine & value.isNotNull(), F.lit(1)).cast("bigint")
    value = value.cast(sql_of(taken_as(field)))
    if field.type == "float64" and field.op != "last":  # one form of NaN and of zero
        value = F.when(F.isnan(value), math.nan).when(value == 0.0, 0.0).otherwise(value)
    return F.when(mine, value)
