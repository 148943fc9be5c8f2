"""What a first batch does for the first time, done beside the claim, which mostly waits.

Spark compiles the query's code, forks its Python workers, and loads what reads Kafka when they are
first needed. A few records are put through the very query of the batches, up to where their state
would be asked for. Nothing depends on it: whatever it meets, the first batch meets as well.
"""

from __future__ import annotations

import threading
from typing import Any

import orjson
import structlog
from pyspark.sql import DataFrame, SparkSession

from state_lib.config import Settings
from state_lib.kafka import Kafka, ends, starts
from state_lib.marker import flat, nested
from state_lib.spark.exchange import RESULT_DDL, leave_partition
from state_lib.spark.frames import Combiner
from state_lib.spark.plan import BatchPlan
from state_lib.spark.session import kafka_options, read_range

log = structlog.get_logger(__name__)
RECORDS = 50
"""Of each topic, at most."""


def warm_up(
    spark: SparkSession, kafka: Kafka, settings: Settings, combiner: Combiner, plan: BatchPlan
) -> threading.Thread:
    """Begin; returns the thread, which nobody need wait for.

    Args:
        spark: the session.
        kafka: where the sources are.
        settings: of this process.
        combiner: that of the batches.
        plan: of any positions; what matters is that it has the sources and limits of a batch.
    """

    def run() -> None:
        try:
            frame = _some_records(spark, kafka, settings, plan)
            combiner.combine(frame, plan).mapInArrow(leave_partition, RESULT_DDL).collect()
            log.debug("warmed up")
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing was lost
            log.debug("not warmed up", why=str(error).partition("\n")[0])

    thread = threading.Thread(target=run, name="warm-up", daemon=True)
    thread.start()
    return thread


def _some_records(
    spark: SparkSession, kafka: Kafka, settings: Settings, plan: BatchPlan
) -> DataFrame:
    admin, topics = kafka.admin(), list(plan.to)
    first, end = starts(admin, flat(plan.to)), ends(admin, flat(plan.to))
    fullest = {one[0]: one for one in sorted(end, key=lambda p: end[p] - first[p])}.values()
    begin = {p: max(first[p], at - RECORDS) if p in fullest else at for p, at in end.items()}
    from_, to = (orjson.dumps(nested(positions)).decode() for positions in (begin, end))
    return _as_in_a_batch(read_range(spark, kafka_options(settings, topics), from_, to))


def _as_in_a_batch(frame: DataFrame) -> DataFrame:
    """The frame as ``foreachBatch`` would hand it over, so that Spark's code for it is the same."""
    spark = frame.sparkSession
    session: Any = spark._jsparkSession  # noqa: SLF001 - the way to the JVM that pyspark itself takes
    rows = frame._jdf.queryExecution().toRdd()  # noqa: SLF001 - as above
    made = session.internalCreateDataFrame(rows, frame._jdf.schema(), False)  # noqa: FBT003, SLF001
    return DataFrame(made, spark)
