"""Spark sessions of tests: a local one, and a clone with what the commit protocol needs."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from state_lib.config import Settings
from state_lib.errors import ConfigurationError
from state_lib.spark.given import check_is_here
from state_lib.spark.partitioner import partitioner
from state_lib.spark.session import open_session, require_of_sql

_SMALL = {"spark_ui_enabled": "false", "spark_sql_shuffle_partitions": "2"}
_QUICK = "-XX:TieredStopAtLevel=1"
"""For batches of a few rows: what the JVM would do for speed takes longer than they do."""


def local_session() -> SparkSession:
    """Start Spark in this process for small batches, with the jars that Holdfast pins.

    They are fetched into the user's cache at the first time of all.

    Raises:
        ConfigurationError: no Java fits; says what to install.
        Unavailable: a jar could not be fetched.
    """
    settings = Settings.load(spark_master="local[2]", driver_java_options=_QUICK)
    spark = open_session("tests", settings, **_SMALL)
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def check(spark: SparkSession) -> None:
    """Refuse a session that cannot be reached, or cannot place keys.

    Raises:
        ConfigurationError: says where to get one that can.
    """
    check_is_here(spark)
    try:
        partitioner(spark)
    except Py4JJavaError as error:
        raise ConfigurationError(
            "this Spark session lacks kafka-clients, whose partitioner says which task a key "
            "belongs to: take pytest's fixture 'spark' that comes with Holdfast, or "
            "state_lib.testing.local_session()"
        ) from error


def clone(spark: SparkSession) -> SparkSession:
    """A session with the same functions, views and settings; what is set on it is its own.

    Raises:
        ConfigurationError: a setting of the user's changes what expressions mean.
    """
    ours: Any = spark._jsparkSession.cloneSession()  # noqa: SLF001 - there is no other way
    session = SparkSession(spark.sparkContext, ours)
    require_of_sql(session)
    return session


def give_back(spark: SparkSession) -> None:
    """Make the user's session the active one again."""
    jvm: Any = spark._jvm  # noqa: SLF001 - as above
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)  # noqa: SLF001
    SparkSession._activeSession = spark  # noqa: SLF001
