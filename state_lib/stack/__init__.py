"""The local stack: Kafka, state hosts and Airflow on one machine, under a supervisor.

Names are imported when they are first used: a driver needs `state_lib.stack.jars` alone, and starts
its JVM after that.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from state_lib.stack.broker import BrokerConfig, LocalBroker
    from state_lib.stack.stack import Stack
    from state_lib.stack.status import ServiceStatus, StackStatus

__all__ = ["BrokerConfig", "LocalBroker", "ServiceStatus", "Stack", "StackStatus"]

_MODULES = {
    "BrokerConfig": "broker",
    "LocalBroker": "broker",
    "ServiceStatus": "status",
    "Stack": "stack",
    "StackStatus": "status",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
