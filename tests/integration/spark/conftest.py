"""One Spark session for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.support.spark import spark_session


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with spark_session("tests") as session:
        yield session
