"""Spark properties of a driver, and what its JVM must find in the environment. No PySpark here."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from state_lib.config import Settings

REQUIRED = {
    # partitions must not be coalesced or split by size, as every task commits every batch
    "spark.sql.adaptive.enabled": "false",
    # no second shuffle by all grouping columns, as partition p is task p
    "spark.sql.requireAllClusterKeysForDistribution": "false",
    # what an expression means must not depend on where the job runs
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.mapKeyDedupPolicy": "EXCEPTION",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    "spark.sql.jsonGenerator.ignoreNullFields": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "200000",
    # time-out of one try to stop a query; see `state_lib.spark.ending`
    "spark.sql.streaming.stopTimeout": "1s",
    "spark.sql.streaming.kafka.useDeprecatedOffsetFetching": "false",
    "spark.python.worker.reuse": "true",
}

OF_SQL = "spark.sql."
"""Begins the names of settings that sessions of one JVM may have differently."""

LEGACY = "spark.sql.legacy."
"""Begins the names of settings by which expressions mean what they meant in an earlier Spark."""


def properties(app_id: str, settings: Settings) -> dict[str, str]:
    """All of a driver that starts its own JVM; ``spark-submit`` gets them from who calls it."""
    from state_lib.submit import submit_conf  # noqa: PLC0415 - needed by drivers only

    return {
        "spark.master": settings.spark_master,
        "spark.app.name": name_of(app_id),
        **submit_conf(settings),
        **REQUIRED,
    }


def name_of(app_id: str) -> str:
    """What Spark's pages call the application."""
    return f"holdfast-{app_id}"


def prepare_environment(settings: Settings) -> None:
    """Set what Spark's scripts and its JVM look for among variables."""
    from state_lib.stack.java import java_home  # noqa: PLC0415 - needed by drivers only
    from state_lib.submit import python_of_executors  # noqa: PLC0415 - as above

    os.environ.setdefault("PYSPARK_PYTHON", python_of_executors(settings))
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["JAVA_HOME"] = str(java_home())
