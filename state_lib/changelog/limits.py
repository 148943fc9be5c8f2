"""How large a record may be: each topic's ``max.message.bytes``, within librdkafka's bounds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from state_lib.kafka import ADMIN_TIMEOUT_S, answer, unavailable
from state_lib.kafka_door import is_forbidden

FRAMING = 1024
"""Bytes that a record needs in a batch beside key and value, for headers among others."""
MOST = 64 << 20
"""The greatest limit that we use, whatever brokers allow: half of a writer's buffer."""
USUAL = 1_048_588 - FRAMING
"""The limit by the brokers' default; also where it cannot be read."""
_LEAST = 1000
"""librdkafka's least value."""
_BATCH = 1 << 20


def size_limits(admin: AdminClient, topics: Iterable[str]) -> dict[str, int]:
    """The greatest key plus value (bytes) that each topic takes.

    `USUAL` for a topic that does not exist or whose configuration may not be read.

    Raises:
        Unavailable: Kafka could not be asked.
    """
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in sorted(set(topics))]
    if not resources:
        return {}
    limits: dict[str, int] = {}
    asked = admin.describe_configs(resources, request_timeout=ADMIN_TIMEOUT_S)
    for resource, future in asked.items():
        limits[resource.name] = USUAL
        try:
            seen = int(str(answer(admin, future)["max.message.bytes"].value))
        except KafkaException as error:
            cause = error.args[0]
            if is_forbidden(cause) or cause.name().startswith("UNKNOWN_TOPIC"):
                continue
            what = f"describe the configuration of topic {resource.name!r}"
            raise unavailable(what, error, admin) from error
        limits[resource.name] = max(_LEAST, min(seen, MOST) - FRAMING)
    return limits


def producer_sizes(limits: Mapping[str, int]) -> dict[str, int]:
    """Properties of librdkafka for one producer to all of these topics.

    A batch of it must fit into the topic that takes the least; one record may be as large as the
    topic that takes the most allows.
    """
    sizes = limits.values() or [USUAL]
    return {
        "message.max.bytes": max(sizes) + FRAMING,
        "batch.size": min(_BATCH, *sizes),
    }
