"""Spark in tests: every session has the product's own settings and the Kafka source.

One JVM serves all sessions of a test run, and what the first one lacks on its class path the later
ones lack as well. So nobody makes a session in another way.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from state_lib.config import Settings
from state_lib.spark.session import open_session
from tests.support import jvm


@contextmanager
def spark_session(name: str, **conf: str) -> Iterator[SparkSession]:
    """A local session, stopped at the end; ``conf`` as `open_session` takes it."""
    settings = Settings.load(driver_java_options=jvm.options("-XX:TieredStopAtLevel=1"))
    given = {"spark_ui_enabled": "false", "spark_sql_shuffle_partitions": "4", **conf}
    session = open_session(name, settings, **given)
    try:
        yield session
    finally:
        session.stop()
