"""Holdfast: the state of Kafka Streams applications, for PySpark jobs."""

from state_lib import aggregates as agg
from state_lib.application import Application, Json, Raw, Text, TimeWindows
from state_lib.errors import HoldfastError

__all__ = ["Application", "HoldfastError", "Json", "Raw", "Text", "TimeWindows", "agg"]
