"""Epochs: the offsets of claims, which count only within the topic that they were written to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from state_lib.changelog.topics import topology_topic
from state_lib.errors import Unavailable
from state_lib.kafka import Kafka, require


@dataclass(frozen=True)
class Epoch:
    """Of a claim: its record's offset, and Kafka's id of the topology topic that holds it."""

    number: int
    topic_id: str


def new_epoch(kafka: Kafka, app: str, write: Callable[[], int]) -> Epoch:
    """The epoch of the claim that ``write`` writes to the topology topic of an application.

    Raises:
        MissingTopic: the topic does not exist.
        Unavailable: the topic was deleted meanwhile; claim again.
    """
    topic, admin = topology_topic(app), kafka.admin()
    before = require(admin, [topic])[topic].id
    number = write()
    after = require(admin, [topic])[topic].id
    if before != after:
        raise Unavailable(
            f"topic {topic!r} was deleted and created again while a claim was written to it (its "
            f"id was {before}, is {after}): it is claimed again",
            topic=topic,
        )
    return Epoch(number, after)
