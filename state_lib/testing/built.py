"""What a topology is combined by, kept for the next driver of the same one in the same session.

To build and analyse a query takes longer than all else that a driver does at its start.
"""

from __future__ import annotations

from collections.abc import Mapping
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

from state_lib.declaration import Declaration
from state_lib.kafka import TopicFacts
from state_lib.spark.frames import Combiner
from state_lib.spark.prepared import first_plan, prepared
from state_lib.testing.avro import local_schemas
from state_lib.testing.session import clone

_MOST = 16
_kept: WeakKeyDictionary[SparkSession, dict[str, Combined]] = WeakKeyDictionary()
Combined = tuple[SparkSession, Combiner]


def combined(
    spark: SparkSession,
    app: Declaration,
    sources: Mapping[str, TopicFacts],
    limits: Mapping[str, int],
) -> Combined:
    """A clone of a session, and what combines an application's rows in it."""
    there = _kept.setdefault(spark, {})
    pickles = sorted(call.pickle for call in app.calls)  # the fingerprint covers only code
    key = " ".join([app.fingerprint, *pickles])
    if key in there:
        return there[key]
    session, plan = clone(spark), first_plan(app, sources, limits)
    combiner = prepared(session, app, plan, local_schemas(app))
    while len(there) >= _MOST:
        there.pop(next(iter(there)))
    there[key] = session, combiner
    return session, combiner
