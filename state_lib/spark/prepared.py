"""Builds the query of all batches on no rows, before anything is claimed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from state_lib.declaration import Declaration
from state_lib.errors import ConfigurationError
from state_lib.executor.plan import BatchPlan
from state_lib.kafka import TopicFacts
from state_lib.protocol.marker import NO_TIME
from state_lib.protocol.positions import Positions
from state_lib.spark.frames import Combiner
from state_lib.spark.sources import said

if TYPE_CHECKING:
    from state_lib.executor.avro.registry import Schemas


def first_plan(
    app: Declaration, sources: Mapping[str, TopicFacts], limits: Mapping[str, int]
) -> BatchPlan:
    """A plan of no rows with the columns that those of batches have, as far as is known."""
    none = Positions({(t, p): 0 for t, f in sources.items() for p in range(f.partitions)})
    return BatchPlan(0, 0, none, none, NO_TIME, 0, 0, {}, code=app.fingerprint, limits=limits)


def prepared(
    spark: SparkSession, app: Declaration, plan: BatchPlan, schemas: Schemas | None = None
) -> Combiner:
    """What batches need not build again, built before anything is claimed.

    ``schemas``: where those of records in Avro are.

    Raises:
        ConfigurationError: what was resolved as it was declared cannot be computed in a batch.
    """
    combiner = Combiner(spark, app.aggregations, app.partitions, app.processes, schemas)
    try:
        combiner.nothing(plan)
    except AnalysisException as error:
        raise ConfigurationError(
            f"application {app.id!r} declares what cannot be computed in a batch: {said(error)}. "
            "Write that step in another way",
            app=app.id,
        ) from error
    return combiner
