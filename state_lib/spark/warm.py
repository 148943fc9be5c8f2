"""The first Python workers, started beside the claim, which waits for hosts and for Kafka.

Their daemon takes half a second to import what tasks need. Only an optimization: what fails here
fails again in the first batch, and is raised there.
"""

from __future__ import annotations

import threading

import structlog
from pyspark.sql import SparkSession

from state_lib.executor.exchange import RESULT_DDL, leave_partition

log = structlog.get_logger(__name__)
_WORKERS = 2


def warm_up(spark: SparkSession) -> threading.Thread:
    """Begin; returns the thread, for which nobody need wait."""

    def run() -> None:
        try:
            frame = spark.range(0, _WORKERS, 1, _WORKERS)
            frame.mapInArrow(leave_partition, RESULT_DDL).collect()
        except Exception as error:  # noqa: BLE001 - see above
            log.debug("workers were not started ahead", why=str(error).partition("\n")[0])

    thread = threading.Thread(target=run, name="warm-up", daemon=True)
    thread.start()
    return thread
