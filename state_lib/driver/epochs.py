"""Epochs: offsets of claims, which can be compared only within one topology topic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from state_lib.changelog.claims import newest_claim
from state_lib.changelog.topics import topology_topic
from state_lib.errors import Superseded, TopicRecreated, Unavailable
from state_lib.kafka import Kafka, require
from state_lib.protocol.marker import Marker
from state_lib.task.claiming import outran


@dataclass(frozen=True)
class Epoch:
    """Offset of a claim, and Kafka's id of the topology topic that holds it."""

    number: int
    topic_id: str


def topology_id(kafka: Kafka, app: str) -> str:
    """Kafka's id of the topology topic of an application.

    Raises:
        MissingTopic: the topic does not exist.
    """
    topic = topology_topic(app)
    return require(kafka.admin(), [topic])[topic].id


def new_epoch(kafka: Kafka, app: str, write: Callable[[], int], looked_at: str) -> Epoch:
    """The epoch of the claim that ``write`` writes to the topology topic of an application.

    Args:
        kafka: connection.
        app: its id.
        write: writes a claim; returns its offset.
        looked_at: id of the topic from which the last claim was read.

    Raises:
        MissingTopic: the topic does not exist.
        Unavailable: the topic was deleted since then; try again.
    """
    _require_same(app, looked_at, topology_id(kafka, app))
    number = write()
    _require_same(app, looked_at, topology_id(kafka, app))
    return Epoch(number, looked_at)


def _require_same(app: str, before: str, after: str) -> None:
    topic = topology_topic(app)
    if before != after:
        raise Unavailable(
            f"topic {topic!r} was deleted and created again since its last claim was looked at "
            f"(its id was {before}, is {after}): it is looked at again",
            topic=topic,
        )


def claim_all(
    kafka: Kafka,
    app: str,
    write: Callable[[], int],
    take: Callable[[Epoch], list[Marker]],
    looked_at: str,
) -> tuple[Epoch, list[Marker]]:
    """Claim an application and all of its tasks.

    Args:
        kafka: connection.
        app: its id.
        write: writes a claim to the topology topic; returns its offset.
        take: takes all tasks for the claim of an epoch; returns their markers.
        looked_at: id of the topic from which the last claim was read.

    Raises:
        Superseded: a newer driver has claimed the application.
        TopicRecreated: the topology topic was deleted since the last claim was read.
        HoldfastError: as ``write`` and ``take``.
    """
    epoch = new_epoch(kafka, app, write, looked_at)
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
        # Markers of older versions do not name the topic of their epoch; parked tasks are not
        # claimed yet.
        if marker.epoch == epoch.number and marker.batch_number:
            raise outran(f"{app}/{partition}", marker, epoch.number, epoch.topic_id)
    return epoch, markers
