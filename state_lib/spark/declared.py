"""Builds the query of all batches on no rows, before anything is claimed."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from state_lib.declaration import Declaration
from state_lib.kafka import TopicFacts
from state_lib.marker import NO_CLOCK
from state_lib.spark.frames import Combiner
from state_lib.spark.plan import BatchPlan


def first_plan(
    app: Declaration, sources: Mapping[str, TopicFacts], limits: Mapping[str, int]
) -> BatchPlan:
    """A plan of no rows with the columns that those of batches have, as far as is known."""
    none = {topic: dict.fromkeys(map(str, range(f.partitions)), 0) for topic, f in sources.items()}
    return BatchPlan(0, 0, none, none, NO_CLOCK, 0, 0, {}, code=app.fingerprint, limits=limits)


def prepared(spark: SparkSession, app: Declaration, plan: BatchPlan) -> Combiner:
    """What batches need not build again, built before anything is claimed."""
    combiner = Combiner(spark, app.aggregations, app.partitions, app.processes)
    combiner.nothing(plan)
    return combiner
