"""Pytest's fixtures for tests of pipelines: they come with the package, by its entry point.

Nothing of Spark is imported before a test asks for `spark`. A fixture of that name in a conftest
takes the place of this one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local Spark session for `state_lib.testing.TopologyTestDriver`, one for all tests."""
    from state_lib.testing.session import local_session  # noqa: PLC0415 - see above

    session = local_session()
    yield session
    session.stop()
