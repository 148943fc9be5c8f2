"""Epochs: the offsets of claims, which count only within the topic that they were written to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from state_lib.changelog.claims import PASSED, newest_claim, tell
from state_lib.changelog.topics import topology_topic
from state_lib.errors import HoldfastError, Superseded, TopicRecreated, Unavailable
from state_lib.kafka import Kafka, ends, require
from state_lib.marker import Marker

log = structlog.get_logger(__name__)
_AT_ONCE = 10_000  # records; a producer holds more


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


def claim_all(
    kafka: Kafka,
    app: str,
    write: Callable[[], int],
    take: Callable[[Epoch], list[Marker]],
    before: Epoch | None = None,
) -> tuple[Epoch, list[Marker]]:
    """Claim an application, with an epoch that is higher than those of its tasks.

    That of the first claim is, unless the topology topic was deleted and created again: then the
    offsets that tasks stand at are passed, and it is claimed again. The driver of before may live:
    tasks fence it as any older one, and hosts refuse its claims, which no topic holds any more.

    Args:
        kafka: connection.
        app: its id.
        write: writes a claim to the topology topic; returns its offset.
        take: lets all tasks be taken by the claim of an epoch; returns their markers.
        before: epoch of this process's last claim.

    Raises:
        Superseded: a newer driver has claimed the application.
        HoldfastError: as ``write`` and ``take``.
    """
    while True:
        epoch = new_epoch(kafka, app, write)
        try:
            markers = take(epoch)
        except (Superseded, TopicRecreated) as error:
            held = _held_by_tasks(kafka, app, epoch, error)
            if held is None:
                raise
            if before is not None and before.topic_id != epoch.topic_id and held > before.number:
                raise _frozen(app, before, held) from error
        else:
            if all(marker.n == 0 for marker in markers):
                return epoch, markers
            held = epoch.number  # it has commits: of a version that did not say its topic
        log.warning(
            "the topology topic was made again: claims with a higher epoch",
            app=app,
            epoch=epoch.number,
            tasks_stand_at=held,
        )
        _pass(kafka, app, held)


def _held_by_tasks(kafka: Kafka, app: str, epoch: Epoch, refused: HoldfastError) -> int | None:
    """The epoch of a task that no claim in the topic has; None if a newer driver is why.

    Epochs are offsets of claims: where ours is the newest claim of the topic, a task's epoch that
    is not lower is from another topic.
    """
    held, newest = int(refused.details.get("current", -1)), newest_claim(kafka, app)
    is_newest = newest is not None and newest.epoch == epoch.number
    return held if is_newest and held >= epoch.number else None


def _frozen(app: str, before: Epoch, held: int) -> Superseded:
    return Superseded(
        f"tasks of {app!r} stand at epoch {held}, and the last claim of this process had epoch "
        f"{before.number}: another driver has taken over since. Its claim was lost with topic "
        f"{topology_topic(app)!r}, which was deleted and created again. This driver exits; if no "
        "other one runs, start the job again",
        epoch=before.number,
        current=held,
    )


def _pass(kafka: Kafka, app: str, offset: int) -> None:
    """Fill the topic up to an offset with messages that nobody reads, compacted to one."""
    at = (topology_topic(app), 0)
    missing = offset + 1 - ends(kafka.admin(), [at])[at]
    while missing > 0:
        tell(kafka, app, PASSED, {"passed": offset}, times=min(missing, _AT_ONCE))
        missing -= _AT_ONCE
