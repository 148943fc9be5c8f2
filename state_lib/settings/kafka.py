"""``[kafka]``: where brokers and registry are, how to log in, and what clients are told."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, PositiveInt

from state_lib.settings.login import LoginSettings
from state_lib.settings.properties import Properties, refusing
from state_lib.settings.registry import RegistrySettings

KAFKA_PORT = 28092
"""Of the local stack's broker."""
_PROTOCOL = "the commit protocol relies on it"
_OURS = {
    "bootstrap.servers": "set bootstrap_servers",
    "metadata.broker.list": "set bootstrap_servers",
    "security.protocol": "set kafka_security_protocol, which Spark's source heeds, too",
    "sasl.mechanism": "set kafka_sasl_mechanism, which Spark's source heeds, too",
    "sasl.mechanisms": "set kafka_sasl_mechanism, which Spark's source heeds, too",
    "sasl.username": "set kafka_sasl_username, which Spark's source heeds, too",
    "sasl.password": "set kafka_sasl_password_file, which Spark's source heeds, too",
    "ssl.ca.location": "set kafka_ssl_ca, which Spark's source heeds, too",
    "message.max.bytes": "hosts take it from the topics' max.message.bytes",
    "batch.size": "hosts take it from the topics' max.message.bytes",
    **dict.fromkeys(
        (
            "acks",
            "request.required.acks",
            "enable.idempotence",
            "transactional.id",
            "partitioner",
            "isolation.level",
            "group.id",
            "group.instance.id",
            "enable.auto.commit",
            "enable.partition.eof",
            "auto.offset.reset",
        ),
        _PROTOCOL,
    ),
}


class KafkaSettings(LoginSettings, RegistrySettings):
    """The section ``[kafka]``."""

    bootstrap_servers: str = Field(
        f"127.0.0.1:{KAFKA_PORT}",
        description="Kafka brokers, host:port by commas. Default: the local stack's broker.",
    )
    replication_factor: PositiveInt = Field(
        3, description="Replicas of topics that are created. Default: 3, local stack: 1."
    )
    kafka_properties: Annotated[Properties, AfterValidator(refusing(_OURS))] = Field(
        {},
        description="Properties of librdkafka, for every client of hosts and tools. In the file "
        "they stand in [kafka] by their own names; as a variable they are JSON.",
    )
