"""What a driver's start does for the first time, done beside what keeps one thread busy.

Nothing depends on any of it: what fails here is met again where it is needed, and told there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog
from pyspark.sql import SparkSession

from state_lib.spark.exchange import RESULT_DDL, leave_partition

log = structlog.get_logger(__name__)
_WORKERS = 2


def warm_up(spark: SparkSession) -> threading.Thread:
    """Beside the check of what the job declares, the first workers in Python."""

    def run() -> None:
        frame = spark.range(0, _WORKERS, 1, _WORKERS)
        frame.mapInArrow(leave_partition, RESULT_DDL).collect()

    return _beside("warm-up", run)


def _beside(name: str, what: Callable[[], None]) -> threading.Thread:
    def run() -> None:
        try:
            what()
        except Exception as error:  # noqa: BLE001 - see above
            log.debug("not done ahead", what=name, why=str(error).partition("\n")[0])

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    return thread
