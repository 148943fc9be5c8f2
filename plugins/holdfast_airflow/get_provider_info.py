"""What Airflow is told of this provider."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

NAME = "Holdfast"
OPERATORS = (
    "operators.approval",
    "operators.audit",
    "operators.capacity",
    "operators.drill",
    "operators.load",
    "operators.lost_topics",
    "operators.past",
    "operators.prune",
    "operators.repair",
    "operators.restore",
    "operators.savepoint",
    "operators.snapshots",
    "operators.stop",
    "operators.stream",
    "operators.tell",
    "operators.verify",
    "operators.verify_snapshots",
    "operators.watch",
)
SENSORS = (
    "sensors.changelog",
    "sensors.disk",
    "sensors.driver",
    "sensors.host",
    "sensors.snapshot",
    "sensors.store",
)
TRIGGERS = (
    "triggers.condition",
    "triggers.job",
    "triggers.restore",
    "triggers.resumed",
    "triggers.snapshots",
    "triggers.stream",
    "triggers.stream_end",
)
HOOKS = ("hooks.cluster", "hooks.holdfast", "hooks.hosts", "hooks.spark")
TEXT = {"type": ["string", "null"]}
CONNECTION = {
    "connection-type": "holdfast",
    "hook-class-name": "holdfast_airflow.hooks.holdfast.HoldfastHook",
    "hook-name": "Holdfast",
    "ui-field-behaviour": {
        "hidden-fields": ["schema", "login", "port"],
        "relabeling": {"host": "Kafka's bootstrap servers", "password": "Token of the state hosts"},
        "placeholders": {"host": "kafka-1:9092,kafka-2:9092"},
    },
    "conn-fields": {
        "hosts": {
            "label": "State hosts",
            "description": "id=address:flight-port/http-port, separated by commas",
            "schema": TEXT,
        },
        "snapshots_url": {"label": "URL of snapshots", "schema": TEXT},
    },
}
NOTIFIERS = (
    "notifications.IncidentNotifier",
    "notifications.LogNotifier",
)
LINKS = (
    "links.CapacityReportLink",
    "links.DriverLogLink",
    "links.SparkUiLink",
)


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
        "sensors": modules(SENSORS),
        "triggers": modules(TRIGGERS),
        "hooks": modules(HOOKS),
        "connection-types": [CONNECTION],
        "notifications": [f"{package}.{name}" for name in NOTIFIERS],
        "extra-links": [f"{package}.{name}" for name in LINKS],
    }
