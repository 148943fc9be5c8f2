"""The settings by section, as the file has them; `state_lib.config` puts them together."""

from __future__ import annotations

from pydantic import BaseModel

from state_lib.settings.driver import DriverSettings
from state_lib.settings.host import HostSettings
from state_lib.settings.kafka import KafkaSettings
from state_lib.settings.stack import StackSettings

SECTIONS: dict[str, type[BaseModel]] = {
    "kafka": KafkaSettings,
    "host": HostSettings,
    "driver": DriverSettings,
    "stack": StackSettings,
}
PROPERTIES = {"kafka": "kafka_properties", "driver": "spark_properties"}
"""Section → the setting that takes its dotted names: properties of librdkafka and of Spark."""


def section_of(name: str) -> str | None:
    """The section of a setting; None if there is no such setting."""
    return next((s for s, model in SECTIONS.items() if name in model.model_fields), None)


__all__ = [
    "PROPERTIES",
    "SECTIONS",
    "DriverSettings",
    "HostSettings",
    "KafkaSettings",
    "StackSettings",
    "section_of",
]
