"""Spark sessions of tests: a local one, and a clone with what the commit protocol needs."""

from __future__ import annotations

import os
import sys
from typing import Any

from pyspark.sql import SparkSession

from state_lib.spark.properties import REQUIRED
from state_lib.stack.java import java_home

_SQL = "spark.sql."
_SMALL = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # of batches of a few rows: what the JVM would do for speed takes longer than they do
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}


def local_session() -> SparkSession:
    """Start Spark in this process, for small batches; or join the session that there is.

    Raises:
        ConfigurationError: no Java fits; says what to install.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ["JAVA_HOME"] = str(java_home())
    builder = SparkSession.builder.master("local[2]").appName("holdfast-tests")
    for key, value in (_SMALL | REQUIRED).items():
        builder = builder.config(key, value)
    spark: SparkSession = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


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
