"""One Spark session for all tests of this folder, with the product's own settings."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from state_lib.config import Settings
from state_lib.spark.session import open_session
from state_lib.stack.ports import free_port


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    settings = Settings.load(
        spark_ui_port=free_port(), driver_java_options="-XX:TieredStopAtLevel=1"
    )
    session = open_session("tests", settings)
    yield session
    session.stop()
