"""One Spark session for the tests of a module, and one Schema Registry for all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.support.apicurio import Apicurio, running_registry
from tests.support.spark import spark_session


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with spark_session("tests") as session:
        yield session


@pytest.fixture(scope="session")
def apicurio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apicurio]:
    with running_registry(tmp_path_factory.mktemp("registry")) as running:
        yield running
