"""Records of topic ``t`` as Spark's Kafka source has them."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

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
