"""Holdfast: the state of Kafka Streams applications, for PySpark jobs."""

from state_lib import aggregates as agg
from state_lib.application import Application
from state_lib.errors import ConfigurationError, HoldfastError
from state_lib.streams import KGroupedStream, KStream, KTable, Materialized, TimeWindows

__all__ = [
    "Application",
    "ConfigurationError",
    "HoldfastError",
    "KGroupedStream",
    "KStream",
    "KTable",
    "Materialized",
    "TimeWindows",
    "agg",
]
