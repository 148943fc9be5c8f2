"""Who drives an application now: the members of its Kafka group."""

from __future__ import annotations

from confluent_kafka import KafkaException

from state_lib.changelog.topics import driver_group
from state_lib.kafka import ADMIN_TIMEOUT_S, Kafka, answer, unavailable


def living_drivers(kafka: Kafka, app: str, timeout_s: float = ADMIN_TIMEOUT_S) -> tuple[str, ...]:
    """Ids of the drivers that live; one that was killed counts for its session's rest.

    Raises:
        Unavailable: Kafka cannot be asked.
        KafkaRefused: this principal must not ask.
    """
    group = driver_group(app)
    asked = kafka.admin().describe_consumer_groups([group], request_timeout=timeout_s)
    try:
        members = answer(kafka.admin(), asked[group]).members
    except KafkaException as error:
        if error.args[0].name() == "GROUP_ID_NOT_FOUND":
            return ()
        raise unavailable(f"describe group {group!r}", error, kafka.admin()) from error
    return tuple(sorted(str(member.client_id) for member in members))
