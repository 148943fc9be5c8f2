"""Who drives an application now: the members of its Kafka group."""

from __future__ import annotations

import time
from contextlib import closing

from confluent_kafka import KafkaException, TopicPartition

from state_lib.changelog.topics import driver_group, topology_topic
from state_lib.kafka import ADMIN_TIMEOUT_S, NO_GROUP, Kafka, unavailable

_STEP_S = 0.25


def living_drivers(kafka: Kafka, app: str, timeout_s: float = ADMIN_TIMEOUT_S) -> tuple[str, ...]:
    """Ids of the drivers that live; one that was killed counts for its session's rest.

    Not asked by ``describe_consumer_groups``, which may end this process with an assertion if the
    coordinator goes away meanwhile (librdkafka 2.16, issue 4605) [tried].

    Raises:
        Unavailable: Kafka cannot be asked. With a broker just gone a new `Kafka` may be answered.
        KafkaRefused: this principal must not ask.
    """
    group, admin = driver_group(app), kafka.admin()
    try:
        found = admin.members(group, timeout_s)
        if not found and group not in admin.visible:
            _require_visible(kafka, app, timeout_s)
    except KafkaException as error:
        raise unavailable(f"describe group {group!r}", error, admin) from error
    admin.visible.add(group)
    # A member that rejoined after a broker's restart is listed twice for some time.
    return tuple(sorted(set(found)))


def _require_visible(kafka: Kafka, app: str, timeout_s: float) -> None:
    """A group that one must not see looks empty: ask for its offsets, as a member would.

    Raises:
        KafkaException: it is hidden from this principal, or Kafka did not answer.
    """
    group, place = driver_group(app), TopicPartition(topology_topic(app), 0)
    deadline = time.monotonic() + timeout_s
    with closing(kafka.reader(**{"group.id": group})) as asker:
        while True:
            try:
                asker.committed([place], timeout=_STEP_S)
            except KafkaException:
                # A lack of permission is reported as an event; the call itself only times out.
                told = asker.poll(0)
                if told is not None and (error := told.error()) and error.code() == NO_GROUP:
                    raise KafkaException(error) from None
                if time.monotonic() > deadline:
                    raise
            else:
                return
