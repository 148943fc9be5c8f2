"""What a topology is combined by, kept for the next driver of the same one in the same session.

To build and analyse a query takes longer than all else that a driver does at its start.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.sql import DataFrame, SparkSession

from state_lib.application import Application
from state_lib.kafka import TopicFacts
from state_lib.spark.declared import check_declared, first_plan
from state_lib.spark.frames import Combiner
from state_lib.testing.pipeline import frame
from state_lib.testing.session import clone

_MOST = 16
_kept: WeakKeyDictionary[SparkSession, dict[tuple[str, int], Combined]] = WeakKeyDictionary()
Combined = tuple[SparkSession, Combiner]


def combined(
    spark: SparkSession,
    app: Application,
    sources: Mapping[str, TopicFacts],
    limits: Mapping[str, int],
) -> Combined:
    """A clone of a session, and what combines an application's rows in it.

    One that calls the user's own functions is built anew each time: who registers another one of
    the same name means that one.

    Raises:
        ConfigurationError: what is declared cannot be computed.
    """
    there = _kept.setdefault(spark, {})
    key = app.fingerprint, _functions(spark)
    if key in there:
        return there[key]
    session, plan = clone(spark), first_plan(app, sources, limits)
    combiner = check_declared(session, app, plan)
    if not _calls_functions(combiner.combine(frame(spark, session, ()), plan)):
        while len(there) >= _MOST:
            there.pop(next(iter(there)))
        there[key] = session, combiner
    return session, combiner


def _functions(spark: SparkSession) -> int:
    """How many the session knows."""
    session: Any = spark._jsparkSession  # noqa: SLF001 - there is no other way
    return int(session.sessionState().functionRegistry().listFunction().size())


def _calls_functions(query: DataFrame) -> bool:
    jvm: Any = query.sparkSession._jvm  # noqa: SLF001 - as above
    patterns = jvm.org.apache.spark.sql.catalyst.trees.TreePattern
    plan = query._jdf.queryExecution().analyzed()  # noqa: SLF001 - as above
    return any(plan.containsPattern(p) for p in (patterns.PYTHON_UDF(), patterns.SCALA_UDF()))
