"""Records of topic ``t`` as Spark's Kafka source has them."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from state_lib import Application
from state_lib.executor.plan import BatchPlan
from state_lib.protocol.positions import Positions
from state_lib.spark.frames import combine

NOW = 1_795_000_000_000
HOUR = 3_600_000
Row = tuple[bytes | None, bytes | None, int, int, int]


def source(spark: SparkSession, rows: list[Row]) -> DataFrame:
    """Rows of (key, value, partition, offset, ms) as Spark's Kafka source has them."""
    frame = spark.createDataFrame(
        rows, "key binary, value binary, partition int, offset long, ms long"
    )
    return frame.selectExpr(
        "key", "value", "'t' AS topic", "partition", "offset", "timestamp_millis(ms) AS timestamp"
    )


def combined(
    spark: SparkSession, app: Application, rows: list[Row], clock: int = -1, **plan_: Any
) -> list[Any]:
    """The entries that they become, each with the partition in which it is."""
    plan = BatchPlan(
        1, 1, Positions(), Positions({("t", 0): 99, ("t", 1): 99}), clock, NOW, HOUR, {}, **plan_
    )
    frame = combine(spark, source(spark, rows), app.aggregations, app.partitions, plan)
    return frame.withColumn("at", F.spark_partition_id()).collect()
