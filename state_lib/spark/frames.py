"""One batch as one DataFrame: every verb's rows combined, one shuffle, partition *p* = task *p*."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from state_lib.declaration import Aggregation, Source, Step
from state_lib.executor.plan import SEEN, UNBOUNDED, BatchPlan
from state_lib.processing import Process
from state_lib.spark.entries import entry, explodes, fields_of, judge, places
from state_lib.spark.process import rows as processed
from state_lib.spark.rows import apply_steps, decode, judged_by
from state_lib.spark.sources import active, empty, without_call_sites
from state_lib.spark.template import Template

if TYPE_CHECKING:
    from state_lib.executor.avro.registry import Schemas

LOW = 0xFFFF_FFFF
_KEPT = 4
"""Queries: that of the stream, and some for the tasks that were behind when it began."""
GROUP = ["task", "kind", "key", "start", "src"]
_SOURCE = (
    "key binary, value binary, topic string, partition int, offset bigint, "
    "timestamp timestamp_ltz, timestampType int"
)
"""What Spark's Kafka source reads."""


class Combiner:
    """`combine` for the batches of a stream: built once, and put over one after another."""

    def __init__(
        self,
        spark: SparkSession,
        aggregations: Sequence[Aggregation],
        partitions: int,
        processes: Sequence[Process] = (),
        schemas: Schemas | None = None,
    ) -> None:
        self._spark, self._aggregations, self._partitions = spark, aggregations, partitions
        self._processes, self.schemas = processes, schemas
        every: list[Aggregation | Process] = [*aggregations, *processes]
        self._avro = any(verb.source.format == "avro" for verb in every)
        self._templates: dict[object, Template] = {}

    def combine(self, batch: DataFrame, plan: BatchPlan) -> DataFrame:
        """See `combine`."""
        judged = judged_by(batch, plan, avro=self._avro)
        limits = tuple(sorted(plan.limits.items()))
        shape = (tuple(plan.sources()), plan.tasks, plan.repeated, limits)
        known = self._templates.get(shape)
        if known is not None and known.fits:
            return known.over(judged)
        # Text expressions are parsed by the settings of the active session.
        with active(self._spark), without_call_sites():
            built = _combined(
                self._spark, judged, self._aggregations, self._partitions, plan, self._processes,
                self.schemas,
            )  # fmt: skip
        if known is None:
            kept = list(self._templates.items())[1 - _KEPT :]
            self._templates = {**dict(kept), shape: Template(judged, built)}
        return built

    def nothing(self, plan: BatchPlan) -> DataFrame:
        """What `combine` makes of a batch without records: for timers alone."""
        return self.combine(no_records(self._spark), plan)


def no_records(spark: SparkSession) -> DataFrame:
    """A batch of none: what Spark compiles for it is as for others."""
    jvm: Any = spark._jvm  # noqa: SLF001 - the way to the JVM that pyspark itself takes
    schema = jvm.org.apache.spark.sql.types.StructType.fromDDL(_SOURCE)
    return empty(spark, schema)


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
    Sums of int64 come in two parts that cannot overflow: ``a<verb>_<field>`` is that of the low 32
    bits of each value, unsigned, and ``h<verb>_<field>`` that of the rest.

    Rows that processors take are not combined, see `state_lib.spark.process.rows`.
    """
    with active(spark), without_call_sites():
        return _combined(spark, judged_by(batch, plan), aggregations, partitions, plan)


def _combined(  # noqa: PLR0913, PLR0917 - what is combined, and by what it is read
    spark: SparkSession,
    batch: DataFrame,
    aggregations: Sequence[Aggregation],
    partitions: int,
    plan: BatchPlan,
    processes: Sequence[Process] = (),
    schemas: Schemas | None = None,
) -> DataFrame:
    verbs = _Verbs(aggregations, processes)
    branches: dict[tuple[Source, tuple[Step, ...]], list[int]] = {}
    every: list[Aggregation | Process] = [*aggregations, *processes]
    for index, verb in enumerate(every):
        branches.setdefault((verb.source, verb.steps), []).append(index)
    frames: list[DataFrame] = []
    lettered: set[str] = set()
    for (source, steps), own in branches.items():
        rows = decode(batch, source, plan, schemas)
        told = F.col("__hf_bad").isNotNull() & F.lit(source.topic in lettered)
        lettered.add(source.topic)
        rows = apply_steps(rows.withColumn("__hf_told", told), steps)
        for index in own:
            rows = verbs.judge(rows, index, plan)
        entries = [verbs.entry(spark, i, plan, partitions, first=i == own[0]) for i in own]
        if len(entries) == 1:
            frames.append(rows.select(*entries[0]))
        else:
            structs = [F.struct(*e) for e in entries]
            frames.append(rows.select(F.inline(F.array(*structs))))
    union = frames[0]
    for frame in frames[1:]:
        union = union.unionByName(frame)
    if plan.tasks is not None:
        union = _of_tasks(union, plan.tasks, told=not plan.repeated)
    return verbs.grouped(union.repartitionById(partitions, F.col("task")))


@dataclass(frozen=True)
class _Verbs:
    """All verbs by their number: those that keep columns first."""

    aggregations: Sequence[Aggregation]
    processes: Sequence[Process]

    def judge(self, rows: DataFrame, index: int, plan: BatchPlan) -> DataFrame:
        """See `state_lib.spark.entries.judge`."""
        first = len(self.aggregations)
        if index >= first:
            return processed.judge(rows, index, self.processes[index - first])
        verb = self.aggregations[index]
        return judge(rows, index, verb, plan.limits.get(verb.store.name, UNBOUNDED))

    def entry(
        self, spark: SparkSession, index: int, plan: BatchPlan, partitions: int, *, first: bool
    ) -> list[Column]:
        """The columns of `combine` before it groups."""
        count = len(self.aggregations)
        others = processed.taken(self.processes, count, index)
        if index < count:
            return [*entry(spark, index, self.aggregations, plan, partitions, first), *others]
        name = self.processes[index - count].name
        columns, mine = places(spark, index, name, plan, partitions, first)
        return [*columns, *fields_of(self.aggregations, index, mine), *others]

    def grouped(self, entries: DataFrame) -> DataFrame:
        """Entries combined, but for those that processors take."""
        if not self.processes:
            return entries.groupBy(*GROUP).agg(*_partials(self.aggregations))
        if not self.aggregations:
            return entries.withColumn("n", F.lit(1).cast("bigint"))
        apart, own = processed.apart(self.processes, len(self.aggregations))
        return entries.groupBy(*GROUP, *apart).agg(*_partials(self.aggregations), *own)


def _of_tasks(entries: DataFrame, tasks: Sequence[int], *, told: bool) -> DataFrame:
    """Entries of some tasks.

    ``told``: keep the event times of the other tasks' rows as well: stream time is that of all, and
    must not depend on which hosts are away.
    """
    mine = F.col("task").isin(*tasks)
    if not told:
        return entries.where(mine)
    stand_in = F.element_at(F.array(*map(F.lit, tasks)), F.col("src") % len(tasks) + 1)
    own = {"task": stand_in, "kind": F.lit(SEEN), "start": F.lit(0).cast("bigint")}
    kept = ("src", "ts")
    return entries.select(
        *(
            F.col(c) if c in kept else F.when(mine, F.col(c)).otherwise(own.get(c)).alias(c)
            for c in entries.columns
        )
    )


def _partials(aggregations: Sequence[Aggregation]) -> list[Column]:
    columns = [F.count(F.lit(1)).alias("n"), F.max("ts").alias("ts")]
    for index, verb in enumerate(aggregations):
        for name, field in verb.fields.items():
            column = f"a{index}_{name}"
            match field.op:
                case "count" if not field.of_rows:
                    columns.append(F.count(column).alias(column))
                case "sum" if field.type == "int64":
                    low, high = F.col(column).bitwiseAND(F.lit(LOW)), F.shiftright(column, 32)
                    columns += [F.sum(low).alias(column), F.sum(high).alias(f"h{index}_{name}")]
                case "sum":
                    columns.append(F.sum(column).alias(column))
                case "min":
                    columns.append(F.min(column).alias(column))
                case "max":
                    columns.append(F.max(column).alias(column))
        if verb.kept.has_last:
            kept = [f"a{index}_{n}" for n, f in verb.fields.items() if f.op == "last"]
            newest = F.struct(F.col("ts"), F.col("src").cast("bigint"), F.col(f"o{index}"))
            at = [F.col(f"p{index}_{number}") for number in range(explodes(verb.steps))]
            columns.append(
                F.max_by(F.struct(newest.alias("order"), *kept), F.struct(newest, *at)).alias(
                    f"l{index}"
                )
            )
    return columns
