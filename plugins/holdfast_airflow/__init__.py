"""Airflow's side of Holdfast, installed as ``holdfast_airflow``.

Nothing here yet but the provider's description: operators, sensors, triggers and the Stores page
come with later versions, and `get_provider_info` lists only what exists.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any


def get_provider_info() -> dict[str, Any]:
    """Describe this provider; Airflow finds it by the entry point ``apache_airflow_provider``."""
    return {
        "package-name": "holdfast",
        "name": "Holdfast",
        "description": "Kafka-Streams-like state for PySpark streaming jobs.",
        "versions": [version("holdfast")],
    }
