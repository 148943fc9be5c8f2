"""Holdfast: the state of Kafka Streams applications, for PySpark jobs."""

from typing import TYPE_CHECKING

from state_lib import aggregates as agg
from state_lib.application import Application
from state_lib.errors import ConfigurationError, HoldfastError
from state_lib.grouped import KGroupedStream, KTable, Materialized, TimeWindows
from state_lib.streams import KStream

if TYPE_CHECKING:
    from state_lib.testing import TopologyTestDriver

__all__ = [
    "Application",
    "ConfigurationError",
    "HoldfastError",
    "KGroupedStream",
    "KStream",
    "KTable",
    "Materialized",
    "TimeWindows",
    "TopologyTestDriver",
    "agg",
]

if not TYPE_CHECKING:  # with it, type checkers would accept any name

    def __getattr__(name: str) -> object:
        """What only tests of pipelines need: it imports PySpark, RocksDB and Kafka's client."""
        if name != "TopologyTestDriver":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from state_lib.testing import TopologyTestDriver  # noqa: PLC0415 - see above

        return TopologyTestDriver
