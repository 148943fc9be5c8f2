"""The Spark session of a driver: settings that the commit protocol relies on, and fast ones."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession

from state_lib.errors import ConfigurationError

if TYPE_CHECKING:
    from state_lib.config import Settings

REQUIRED = {
    # every task commits every batch: partitions must not be coalesced or split by size
    "spark.sql.adaptive.enabled": "false",
    # partition p is task p: no second exchange by all grouping columns
    "spark.sql.requireAllClusterKeysForDistribution": "false",
    # what an expression means must not depend on where the job runs
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "200000",
    # of one try to stop a query; see `state_lib.spark.ending`
    "spark.sql.streaming.stopTimeout": "1s",
    "spark.sql.streaming.kafka.useDeprecatedOffsetFetching": "false",
    "spark.python.worker.reuse": "true",
}
FAST_READS = {
    "kafka.max.poll.records": "50000",
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.fetch.max.bytes": str(64 << 20),
}


def open_session(app_id: str, settings: Settings, **conf: str) -> SparkSession:
    """Start Spark, or join the session that ``spark-submit`` prepared.

    ``conf`` are Spark properties with underscores for dots.
    """
    from state_lib.stack.java import java_home  # noqa: PLC0415 - needed by drivers only
    from state_lib.submit import python_of_executors, submit_conf  # noqa: PLC0415 - as above

    os.environ.setdefault("PYSPARK_PYTHON", python_of_executors(settings))
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["JAVA_HOME"] = str(java_home())
    builder = SparkSession.builder.appName(f"holdfast-{app_id}")
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        builder = builder.master(settings.spark_master)
        for key, value in submit_conf(settings).items():
            builder = builder.config(key, value)
    given = {key.replace("_", "."): value for key, value in conf.items()}
    for key, value in (REQUIRED | given).items():
        builder = builder.config(key, value)
    spark: SparkSession = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    check_required(spark)
    return spark


def check_required(spark: SparkSession) -> None:
    """Refuse a session in which rows might come to other tasks than theirs, or mean another thing.

    Raises:
        ConfigurationError: the setting, the value seen and the one that is needed.
    """
    for key, needed in REQUIRED.items():
        seen = spark.conf.get(key, None)
        if seen != needed:
            raise ConfigurationError(
                f"Spark's setting {key} is {seen!r} and must be {needed!r}: remove what sets it",
                key=key,
                seen=seen,
                needed=needed,
            )


def kafka_options(settings: Settings, topics: list[str]) -> dict[str, str]:
    """Options of the Kafka source, for streams and for bounded reads."""
    return {
        "kafka.bootstrap.servers": settings.bootstrap_servers,
        **{f"kafka.{key}": value for key, value in settings.kafka_login().java().items()},
        "subscribe": ",".join(topics),
        "failOnDataLoss": "true",
        "kafka.isolation.level": "read_committed",
        **FAST_READS,
    }


def read_range(
    spark: SparkSession, options: dict[str, str], from_json: str, to_json: str
) -> DataFrame:
    """A bounded read of source topics between two positions."""
    return (
        spark.read.format("kafka")
        .options(**options)
        .option("startingOffsets", from_json)
        .option("endingOffsets", to_json)
        .load()
    )
