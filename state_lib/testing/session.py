"""The Spark session of a test: a clone of the user's own, with what the commit protocol needs."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from state_lib.spark.properties import REQUIRED

_SQL = "spark.sql."


def clone(spark: SparkSession) -> SparkSession:
    """A session with the same functions, views and settings; what is set on it is its own."""
    ours: Any = spark._jsparkSession.cloneSession()  # noqa: SLF001 - there is no other way
    session = SparkSession(spark.sparkContext, ours)
    for key, value in REQUIRED.items():
        if key.startswith(_SQL):  # the others are of Spark's processes, and concern streams
            session.conf.set(key, value)
    return session


def give_back(spark: SparkSession) -> None:
    """Make the user's session the active one again."""
    jvm: Any = spark._jvm  # noqa: SLF001 - as above
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)  # noqa: SLF001
    SparkSession._activeSession = spark  # noqa: SLF001
