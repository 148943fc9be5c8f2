"""The Spark session of a module, as elsewhere."""

from __future__ import annotations

from tests.integration.spark.conftest import spark

__all__ = ["spark"]
