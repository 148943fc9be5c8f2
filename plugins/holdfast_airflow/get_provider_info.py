"""What Airflow is told of this provider."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

NAME = "Holdfast"
OPERATORS = ("operators.load", "operators.stop", "operators.stream")
TRIGGERS = ("triggers.stream", "triggers.stream_end")
HOOKS = ("hooks.cluster", "hooks.hosts", "hooks.spark")
LINKS = ("links.DriverLogLink", "links.SparkUiLink")


def get_provider_info() -> dict[str, Any]:
    """Describe this provider; Airflow finds it by the entry point ``apache_airflow_provider``."""
    package = __name__.partition(".")[0]

    def modules(names: tuple[str, ...]) -> list[dict[str, Any]]:
        found = [f"{package}.{name}" for name in names]
        return [{"integration-name": NAME, "python-modules": found}]

    return {
        "package-name": "holdfast",
        "name": NAME,
        "description": "Kafka-Streams-like state for PySpark streaming jobs.",
        "versions": [version("holdfast")],
        "integrations": [
            {
                "integration-name": NAME,
                "external-doc-url": "https://pypi.org/project/holdfast/",
                "tags": ["software"],
            }
        ],
        "operators": modules(OPERATORS),
        "triggers": modules(TRIGGERS),
        "hooks": modules(HOOKS),
        "extra-links": [f"{package}.{name}" for name in LINKS],
    }
