"""Who drives an application now: the members of its Kafka group."""

from __future__ import annotations

from confluent_kafka import KafkaException

from state_lib.changelog.topics import driver_group
from state_lib.kafka import ADMIN_TIMEOUT_S, Kafka, answer, unavailable


def living_drivers(kafka: Kafka, app: str, timeout_s: float = ADMIN_TIMEOUT_S) -> tuple[str, ...]:
    """Ids of the drivers that live; one that was killed counts for its session's rest.

    Asked by the old way, `Admin.members`: the new one may end this process with an assertion if the
    coordinator goes away meanwhile (librdkafka 2.16, issue 4605) [tried]. But the old one calls a
    group empty that this principal must not see, so the new one is asked about that, once.

    Raises:
        Unavailable: Kafka cannot be asked. With a broker just gone a new `Kafka` may be answered.
        KafkaRefused: this principal must not ask.
    """
    group, admin = driver_group(app), kafka.admin()
    try:
        found = admin.members(group, timeout_s)
        if not found and group not in admin.visible:
            asked = admin.describe_consumer_groups([group], request_timeout=timeout_s)
            found = [str(member.client_id) for member in answer(admin, asked[group]).members]
    except KafkaException as error:
        if error.args[0].name() != "GROUP_ID_NOT_FOUND":
            raise unavailable(f"describe group {group!r}", error, admin) from error
        found = []
    admin.visible.add(group)
    # One that came again after a broker's restart is in there twice for a while.
    return tuple(sorted(set(found)))
