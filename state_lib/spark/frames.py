"""One batch as one DataFrame: every verb's rows combined, one shuffle, partition *p* = task *p*."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from state_lib.aggregates import Aggregate
from state_lib.application import Aggregation, Source, Step
from state_lib.spark.partitioner import partition_for_key
from state_lib.spark.plan import DEAD, DROPPED, SEEN, BatchPlan
from state_lib.spark.rows import apply_steps, decode, letter

_SQL_TYPES = {"int64": "bigint", "float64": "double", "utf8": "string", "bool": "boolean"}
GROUP = ["task", "kind", "key", "start", "src"]


def combine(
    spark: SparkSession,
    batch: DataFrame,
    aggregations: Sequence[Aggregation],
    partitions: int,
    plan: BatchPlan,
) -> DataFrame:
    """Combined entries of a batch.

    Columns: ``task``, ``kind`` (a verb's index, or SEEN, DROPPED, DEAD), ``key`` (bytes; the
    reason of a drop; a dead letter), ``start`` (window start in ms, else 0), ``src`` (source
    partition's number), ``n`` (rows), ``ts`` (greatest event time in ms), then one column
    ``a<verb>_<field>`` per field, and ``l<verb>`` (a struct) for the fields that keep the last.
    """
    branches: dict[tuple[Source, tuple[Step, ...]], list[int]] = {}
    for index, verb in enumerate(aggregations):
        branches.setdefault((verb.source, verb.steps), []).append(index)
    frames: list[DataFrame] = []
    lettered: set[str] = set()
    for (source, steps), verbs in branches.items():
        rows = apply_steps(decode(batch, source, plan), steps)
        dead = DEAD if source.topic not in lettered else SEEN
        lettered.add(source.topic)
        entries = [
            _entry(spark, i, aggregations, partitions, dead if i == verbs[0] else SEEN)
            for i in verbs
        ]
        if len(entries) == 1:
            frames.append(rows.select(*entries[0]))
        else:
            structs = [F.struct(*e) for e in entries]
            frames.append(rows.select(F.inline(F.array(*structs))))
    union = frames[0]
    for frame in frames[1:]:
        union = union.unionByName(frame)
    if plan.tasks is not None:
        union = union.where(F.col("task").isin(*plan.tasks))
    shuffled = union.repartitionById(partitions, F.col("task"))
    return shuffled.groupBy(*GROUP).agg(*_partials(aggregations))


def _entry(
    spark: SparkSession,
    index: int,
    aggregations: Sequence[Aggregation],
    partitions: int,
    dead: int,
) -> list[Column]:
    verb = aggregations[index]
    usable = F.col("__hf_bad").isNull() & ~F.col("__hf_skip")
    key = F.when(usable, _key_bytes(verb))
    start: Column = F.lit(0).cast("bigint")
    late: Column = F.lit(False)  # noqa: FBT003
    spec = verb.store
    if spec.is_window:
        size = spec.window_size_ms
        start = F.when(usable, F.col("__hf_ts") - F.pmod(F.col("__hf_ts"), F.lit(size)))
        late = start + (size + spec.grace_ms) <= F.col("__hf_clock")
    kind = (
        F.when(F.col("__hf_bad").isNotNull(), dead)
        .when(F.col("__hf_skip"), SEEN)
        .when(key.isNull(), DROPPED)
        .when(late, DROPPED)
        .otherwise(index)
    )
    reason = F.when(key.isNull(), f"null-key:{spec.name}").otherwise(f"late:{spec.name}")
    entry_key = (
        F.when(kind == index, key)
        .when(kind == DROPPED, reason.cast("binary"))
        .when(kind == DEAD, letter())
    )
    by_key = partition_for_key(spark, key, partitions)
    task = F.when(key.isNotNull(), by_key).otherwise(F.pmod(F.col("__hf_src"), F.lit(partitions)))
    mine = kind == index
    columns = [
        task.cast("int").alias("task"),
        kind.cast("int").alias("kind"),
        entry_key.alias("key"),
        F.when(mine, start).otherwise(F.lit(0)).cast("bigint").alias("start"),
        F.col("__hf_src").cast("int").alias("src"),
        F.col("__hf_ts").alias("ts"),
    ]
    for other, aggregation in enumerate(aggregations):
        for name, field in aggregation.fields.items():
            if field.expr is not None:
                value = F.expr(field.expr) if field.op == "count" else _typed(field)
                if field.op == "count":
                    value = F.when(value.isNotNull(), F.lit(1)).cast("bigint")
                columns.append(_only(value, mine, other == index).alias(f"a{other}_{name}"))
        if aggregation.has_last:
            columns.append(F.when(mine, F.col("__hf_offset")).cast("bigint").alias(f"o{other}"))
    return columns


def _only(value: Column, mine: Column, same: bool) -> Column:  # noqa: FBT001
    return F.when(mine, value) if same else F.when(F.lit(False), value)  # noqa: FBT003


def _typed(field: Aggregate) -> Column:
    return F.expr(str(field.expr)).cast(_SQL_TYPES[field.type])


def _key_bytes(verb: Aggregation) -> Column:
    key = F.expr(verb.key)
    match verb.key_serde:
        case "bytes":
            return key.cast("binary")
        case "int64":
            return F.unhex(F.lpad(F.hex(key.cast("bigint")), 16, "0"))
    return key.cast("string").cast("binary")


def _partials(aggregations: Sequence[Aggregation]) -> list[Column]:
    columns = [F.count(F.lit(1)).alias("n"), F.max("ts").alias("ts")]
    for index, verb in enumerate(aggregations):
        for name, field in verb.fields.items():
            column = f"a{index}_{name}"
            match field.op:
                case "count" if field.expr is not None:
                    columns.append(F.count(column).alias(column))
                case "sum":
                    columns.append(F.sum(column).alias(column))
                case "min":
                    columns.append(F.min(column).alias(column))
                case "max":
                    columns.append(F.max(column).alias(column))
        if verb.has_last:
            kept = [f"a{index}_{n}" for n, f in verb.fields.items() if f.op == "last"]
            newest = F.struct(F.col("ts"), F.col("src").cast("bigint"), F.col(f"o{index}"))
            columns.append(
                F.max_by(F.struct(newest.alias("order"), *kept), newest).alias(f"l{index}")
            )
    return columns
