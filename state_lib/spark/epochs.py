"""Epochs: the offsets of claims, which count only within the topic that they were written to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from state_lib.changelog.claims import newest_claim
from state_lib.changelog.topics import topology_topic
from state_lib.errors import Superseded, TopicRecreated, Unavailable
from state_lib.kafka import Kafka, require
from state_lib.marker import Marker
from state_lib.task.claiming import outran


@dataclass(frozen=True)
class Epoch:
    """Of a claim: its record's offset, and Kafka's id of the topology topic that holds it."""

    number: int
    topic_id: str


def new_epoch(kafka: Kafka, app: str, write: Callable[[], int]) -> Epoch:
    """The epoch of the claim that ``write`` writes to the topology topic of an application.

    Raises:
        MissingTopic: the topic does not exist.
        Unavailable: the topic was deleted meanwhile; look at it again.
    """
    topic, admin = topology_topic(app), kafka.admin()
    before = require(admin, [topic])[topic].id
    number = write()
    after = require(admin, [topic])[topic].id
    if before != after:
        raise Unavailable(
            f"topic {topic!r} was deleted and created again while a claim was written to it (its "
            f"id was {before}, is {after}): it is looked at again",
            topic=topic,
        )
    return Epoch(number, after)


def claim_all(
    kafka: Kafka,
    app: str,
    write: Callable[[], int],
    take: Callable[[Epoch], list[Marker]],
) -> tuple[Epoch, list[Marker]]:
    """Claim an application and all of its tasks.

    Args:
        kafka: connection.
        app: its id.
        write: writes a claim to the topology topic; returns its offset.
        take: lets all tasks be taken by the claim of an epoch; returns their markers.

    Raises:
        Superseded: a newer driver has claimed the application.
        TopicRecreated: the topology topic was deleted since the application was looked at.
        HoldfastError: as ``write`` and ``take``.
    """
    epoch = new_epoch(kafka, app, write)
    try:
        markers = take(epoch)
    except TopicRecreated as error:
        newest = newest_claim(kafka, app)
        if newest is not None and newest.epoch > epoch.number:
            raise Superseded(
                f"epoch {epoch.number} of {app!r} was superseded by a claim at offset "
                f"{newest.epoch}: another driver runs this application",
                epoch=epoch.number,
                current=newest.epoch,
            ) from error
        raise
    for partition, marker in enumerate(markers):
        if marker.n:  # markers of older versions do not say of which topic their epoch is
            raise outran(f"{app}/{partition}", marker, epoch.number, epoch.topic_id)
    return epoch, markers
