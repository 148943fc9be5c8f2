"""Resolves what a job declares on an empty frame, before anything is claimed for it."""

from __future__ import annotations

from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from state_lib.application import Application
from state_lib.errors import ConfigurationError
from state_lib.spark.frames import combine
from state_lib.spark.plan import BatchPlan

_SOURCE = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int"
)
"""What Spark's Kafka source reads."""
_LINES = 8


def check_declared(spark: SparkSession, app: Application) -> None:
    """Resolve every expression, as each batch will.

    A typo would be met in the first batch otherwise: after the claim, which has ended the driver of
    before, and again with every restart.

    Raises:
        ConfigurationError: the store that the expression leads to, and what Spark says of it, or
            that it gives another value each time.
    """
    empty = spark.createDataFrame([], _SOURCE)
    bounds = {topic: {"0": 0} for topic in app.topology.sources}
    plan = BatchPlan(0, 0, bounds, bounds, 0, 0, 0, {})
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
                f"store {verb.store.name!r} of application {app.id!r} is computed by an expression "
                "that gives another value each time, like rand(), uuid() or current_timestamp(): "
                "a batch that is repeated after a crash would not be the same. Put the value into "
                "the record where it is produced",
                app=app.id,
                store=verb.store.name,
            )


def _is_repeatable(spark: SparkSession, combined: DataFrame) -> bool:
    jvm: Any = spark._jvm  # noqa: SLF001 - the way to the JVM that pyspark itself takes
    plan = combined._jdf.queryExecution().analyzed()  # noqa: SLF001 - as above
    now = jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()
    return plan.deterministic() and not plan.containsPattern(now)
