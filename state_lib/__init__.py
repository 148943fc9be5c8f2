"""Holdfast: the state of Kafka Streams applications, for PySpark jobs."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from state_lib import aggregates as agg
    from state_lib.application import Application
    from state_lib.errors import ConfigurationError, HoldfastError
    from state_lib.grouped import KGroupedStream, KTable, Materialized, TimeWindows
    from state_lib.streams import KStream
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
    _PLACES = {
        "Application": "application",
        "ConfigurationError": "errors",
        "HoldfastError": "errors",
        "KGroupedStream": "grouped",
        "KStream": "streams",
        "KTable": "grouped",
        "Materialized": "grouped",
        "TimeWindows": "grouped",
        "TopologyTestDriver": "testing",
    }

    def __getattr__(name: str) -> object:
        """At first use: hosts, their workers and commands declare nothing, and start sooner."""
        if name == "agg":
            found = import_module(f"{__name__}.aggregates")
        elif name in _PLACES:
            found = getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
