"""Resolves what a job declares on an empty frame, before anything is claimed for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from state_lib.declaration import Declaration
from state_lib.errors import ConfigurationError
from state_lib.kafka import TopicFacts
from state_lib.marker import NO_CLOCK
from state_lib.spark.frames import Combiner, combine
from state_lib.spark.plan import BatchPlan

_SOURCE = (
    "key binary, value binary, topic string, partition int, offset bigint, "
    "timestamp timestamp_ltz, timestampType int"
)
"""What Spark's Kafka source reads."""
_LINES = 8
_VARIES = (
    "it is computed by an expression that gives another value each time, like rand(), uuid() or "
    "current_timestamp(): a batch that is repeated after a crash would not be the same. Put the "
    "value into the record where it is produced"
)


def first_plan(
    app: Declaration, sources: Mapping[str, TopicFacts], limits: Mapping[str, int]
) -> BatchPlan:
    """A plan of no rows with the columns that those of batches have, as far as is known."""
    none = {topic: dict.fromkeys(map(str, range(f.partitions)), 0) for topic, f in sources.items()}
    return BatchPlan(0, 0, none, none, NO_CLOCK, 0, 0, {}, code=app.fingerprint, limits=limits)


def check_declared(spark: SparkSession, app: Declaration, plan: BatchPlan) -> Combiner:
    """Resolve every expression, as each batch will; returns what batches need not build again.

    A typo would be met in the first batch otherwise: after the claim, which has ended the driver of
    before, and again with every restart.

    Raises:
        ConfigurationError: the store that the expression leads to, and what Spark says of it, or
            that it gives another value each time.
    """
    empty = _empty(spark)
    combiner = Combiner(spark, app.aggregations, app.partitions)
    try:
        if _is_repeatable(spark, combiner.combine(empty, plan)):
            return combiner
    except AnalysisException:
        _name_the_store(spark, app, empty, plan)
        raise
    _name_the_store(spark, app, empty, plan)
    raise ConfigurationError(f"application {app.id!r}: {_VARIES}", app=app.id)


def _name_the_store(
    spark: SparkSession, app: Declaration, empty: DataFrame, plan: BatchPlan
) -> None:
    """Raise what is wrong with the first store that cannot be computed by itself."""
    for verb in app.aggregations:
        try:
            combined = combine(spark, empty, [verb], app.partitions, plan)
        except AnalysisException as error:
            said = "\n".join(str(error).splitlines()[:_LINES])
            raise ConfigurationError(
                f"store {verb.store.name!r} of application {app.id!r} cannot be computed: {said}",
                app=app.id,
                store=verb.store.name,
            ) from error
        if not _is_repeatable(spark, combined):
            raise ConfigurationError(
                f"store {verb.store.name!r} of application {app.id!r}: {_VARIES}",
                app=app.id,
                store=verb.store.name,
            )


def _empty(spark: SparkSession) -> DataFrame:
    """No records. As a batch's, its leaf is an RDD of the JVM: Spark's code for it is the same."""
    jvm: Any = spark._jvm  # noqa: SLF001 - the way to the JVM that pyspark itself takes
    schema = jvm.org.apache.spark.sql.types.StructType.fromDDL(_SOURCE)
    none = spark.sparkContext._jsc.emptyRDD().rdd()  # noqa: SLF001 - as above
    session: Any = spark._jsparkSession  # noqa: SLF001 - as above
    made = session.internalCreateDataFrame(none, schema, False)  # noqa: FBT003 - no stream
    return DataFrame(made, spark)


def _is_repeatable(spark: SparkSession, combined: DataFrame) -> bool:
    jvm: Any = spark._jvm  # noqa: SLF001 - the way to the JVM that pyspark itself takes
    plan = combined._jdf.queryExecution().analyzed()  # noqa: SLF001 - as above
    now = jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()
    return plan.deterministic() and not plan.containsPattern(now)
