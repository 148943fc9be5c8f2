"""What a first batch does for the first time, done beside the check of what the job declares.

Spark starts its Python workers and loads what reads Kafka, shuffles and speaks Arrow when they are
first needed. The check takes one thread of the JVM for a second: a few records of the sources are
read meanwhile and handed to Python, which leaves them. Nothing depends on it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

import orjson
import structlog
from pyspark.sql import DataFrame, SparkSession

from state_lib.config import Settings
from state_lib.kafka import Kafka, Partition, ends, starts
from state_lib.marker import nested
from state_lib.spark.exchange import RESULT_DDL, leave_partition
from state_lib.spark.session import kafka_options, read_range

log = structlog.get_logger(__name__)
RECORDS = 50
"""Of each topic, at most."""
_WORKERS = 2


def warm_up(
    spark: SparkSession, kafka: Kafka, settings: Settings, sources: Iterable[Partition]
) -> threading.Thread:
    """Begin; returns the thread, which nobody need wait for.

    Args:
        spark: the session.
        kafka: where the sources are.
        settings: of this process.
        sources: their partitions.
    """

    def run() -> None:
        try:
            frame = _some_records(spark, kafka, settings, set(sources))
            frame.repartition(_WORKERS).mapInArrow(leave_partition, RESULT_DDL).collect()
        except Exception as error:  # noqa: BLE001 - the first batch meets it as well, and says so
            log.debug("not warmed up", why=str(error).partition("\n")[0])

    thread = threading.Thread(target=run, name="warm-up", daemon=True)
    thread.start()
    return thread


def _some_records(
    spark: SparkSession, kafka: Kafka, settings: Settings, sources: set[Partition]
) -> DataFrame:
    """The last records of the fullest partition of each topic: the others begin at their end."""
    admin = kafka.admin()
    first, end = starts(admin, sources), ends(admin, sources)
    fullest = {one[0]: one for one in sorted(end, key=lambda p: end[p] - first[p])}.values()
    begin = {p: max(first[p], at - RECORDS) if p in fullest else at for p, at in end.items()}
    from_, to = (orjson.dumps(nested(positions)).decode() for positions in (begin, end))
    topics = sorted({topic for topic, _ in sources})
    return read_range(spark, kafka_options(settings, topics), from_, to)
